//! What is wrong with a table, told once for each cause.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use unspool_ir::{Register, RowId, Vaddr};

use crate::authors::Maker;
use crate::declared::{Declared, Place};
use crate::hint::Hint;
use crate::judge::{Aspect, Verdict};
use crate::subject::Subject;
use crate::unit::{Doubt, UnitReport};
use crate::{coverage, words};

/// What kind of finding: `docs/diagnostics.md` has each with cause and remedy. The numbers stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The CFA is at another offset from the register that is declared.
    CfaOffset,
    /// The CFA is not at any known offset from the register that is declared.
    CfaRegister,
    /// A register is not in the slot that is declared.
    SavedElsewhere,
    /// A register is declared unchanged, and was overwritten.
    RegisterLost,
    /// A function has no entry.
    NoEntry,
    /// Control runs behind the end of the entry.
    EntryTooShort,
    /// Paths meet on different heights of the stack: no row can be right there.
    HeightsDiffer,
    /// An expression has another value.
    Expression,
    /// The outermost frame does not say that it is.
    Outermost,
    /// A function does not preserve a register that calls preserve.
    PrivateConvention,
    /// A row starts inside an instruction.
    InsideInstruction,
    /// The return address is not where it is declared.
    ReturnAddress,
    /// Registers of a signal's frame are not where the kernel puts them.
    SignalFrame,
    /// Nothing is known to lead there.
    Unreached,
    /// A comment in the source that was to allow a finding.
    Allow,
    /// `.sframe` says something else than `.eh_frame`.
    SframeRow,
    /// `.sframe` leaves functions out.
    SframeHole,
    /// Entries of `.sframe` cannot be searched.
    SframeOrder,
    /// An entry of `.sframe` cannot be read.
    SframeEntry,
}

/// What `docs/` says of all kinds.
const DIAGNOSTICS: &str = include_str!("../diagnostics.md");

/// All kinds, numbered from 1: their names, and what is wrong.
const CODES: [(Code, &str, &str); 19] = [
    (
        Code::CfaOffset,
        "cfa-offset",
        "the CFA is at another offset from the register declared",
    ),
    (
        Code::CfaRegister,
        "cfa-register",
        "the register declared is at no known offset from the CFA",
    ),
    (
        Code::SavedElsewhere,
        "saved-elsewhere",
        "a saved register is not in the slot declared",
    ),
    (
        Code::RegisterLost,
        "register-lost",
        "a register is declared unchanged, and was overwritten",
    ),
    (
        Code::NoEntry,
        "no-entry",
        "a function, or code that is called, has no entry",
    ),
    (
        Code::EntryTooShort,
        "entry-too-short",
        "control continues where the entry ends",
    ),
    (
        Code::HeightsDiffer,
        "heights-differ",
        "paths meet with different stack heights",
    ),
    (
        Code::Expression,
        "expression",
        "an expression has another value",
    ),
    (
        Code::Outermost,
        "outermost",
        "the outermost frame does not say that it is",
    ),
    (
        Code::PrivateConvention,
        "private-convention",
        "a function does not preserve a register that calls preserve",
    ),
    (
        Code::InsideInstruction,
        "inside-instruction",
        "a row starts inside an instruction",
    ),
    (
        Code::ReturnAddress,
        "return-address",
        "the return address is not where it is declared",
    ),
    (
        Code::SignalFrame,
        "signal-frame",
        "the entry of a signal frame does not describe what the kernel saved",
    ),
    (
        Code::Unreached,
        "unreached",
        "no known path leads to an instruction",
    ),
    (
        Code::Allow,
        "allow",
        "a comment allows a finding without a reason, or allows nothing",
    ),
    (
        Code::SframeRow,
        "sframe-row",
        ".sframe differs from .eh_frame",
    ),
    (
        Code::SframeHole,
        "sframe-hole",
        "functions of .eh_frame have no row in .sframe",
    ),
    (
        Code::SframeOrder,
        "sframe-order",
        "the entries of .sframe cannot be searched",
    ),
    (
        Code::SframeEntry,
        "sframe-entry",
        "an entry of .sframe cannot be read, or the header cannot be right",
    ),
];

impl Code {
    /// All kinds, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Code> {
        CODES.iter().map(|(code, ..)| *code)
    }

    /// `CFI001`.
    #[must_use]
    pub fn id(self) -> String {
        let place = CODES.iter().position(|(code, ..)| *code == self);
        format!("CFI{:03}", place.map_or(0, |place| place + 1))
    }

    /// Its name: `cfa-offset`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = CODES.iter().find(|(code, ..)| *code == self);
        found.map_or("", |(_, name, _)| name)
    }

    /// The kind with a number or a name, in whatever case: `CFI001`, `cfa-offset`.
    #[must_use]
    pub fn named(text: &str) -> Option<Code> {
        let is_it = |code: &Code| {
            code.id().eq_ignore_ascii_case(text) || code.name().eq_ignore_ascii_case(text)
        };
        Code::all().find(is_it)
    }

    /// Its section of `docs/diagnostics.md`, in Markdown, without the heading: what is wrong, cause, remedy.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        let heading = format!("## {} {}\n", self.id(), self.name());
        let behind = DIAGNOSTICS.split_once(&heading);
        let section = behind.and_then(|(_, behind)| behind.split("\n## ").next());
        section.unwrap_or_default().trim()
    }

    /// What is wrong, whatever it is about.
    #[must_use]
    pub fn summary(self) -> &'static str {
        let found = CODES.iter().find(|(code, ..)| *code == self);
        found.map_or("", |(.., summary)| summary)
    }
}

/// How much a finding counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// It may be wrong: it could not be proven.
    Unproven,
    /// It is wrong.
    Refuted,
}

impl Severity {
    /// As it is printed: `refuted`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Unproven => "unproven",
            Severity::Refuted => "refuted",
        }
    }
}

/// One thing that is wrong, and all places where it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub code: Code,
    /// How much it counts.
    pub severity: Severity,
    /// The first instruction where it shows, in the order of the code.
    pub at: Vaddr,
    /// How many instructions it was seen at where something it depends on had changed.
    pub places: usize,
    /// What it is about: `the CFA`, `the caller's rbx`; empty if it is about the whole entry.
    pub subject: String,
    /// What the row says there; empty if there is none.
    pub declared: String,
    /// What is true there; empty if that is not known.
    pub computed: String,
    /// The directive to write before the instruction, if one mends it.
    pub fix: Option<String>,
    /// What may have led to it.
    pub hint: Option<Hint>,
    /// Other places that matter: where the paths come from that meet, or where control goes on.
    pub related: Vec<Vaddr>,
}

impl Subject<'_> {
    /// What a row says, in words.
    pub(crate) fn said(&self, row: RowId, of: Aspect) -> String {
        let Some(row) = self.table().row(row) else {
            return String::new();
        };
        let abi = self.table().abi();
        match of {
            Aspect::Cfa => words::cfa(&row, abi),
            Aspect::ReturnAddress => words::register(&row, row.return_address, abi),
            Aspect::Register(register) => words::register(&row, Register(register.into()), abi),
        }
    }
}

impl Subject<'_> {
    /// How much counts what compilers have their reasons for, and people seldom.
    fn if_written_by_people(&self, at: Vaddr) -> Severity {
        match self.maker_at(at) {
            Maker::People => Severity::Refuted,
            Maker::Compiler => Severity::Note,
        }
    }
}

impl Finding {
    /// A finding of which there is nothing more to say.
    pub(crate) fn at(at: Vaddr, code: Code, severity: Severity) -> Finding {
        Finding {
            code,
            severity,
            at,
            places: 1,
            subject: String::new(),
            declared: String::new(),
            computed: String::new(),
            fix: None,
            hint: None,
            related: Vec::new(),
        }
    }

    /// Code that signals' handlers return into, whose entry does not say so.
    #[must_use]
    pub fn undeclared_signal(at: Vaddr) -> Finding {
        Finding {
            subject: "the frame".to_owned(),
            declared: "a function's".to_owned(),
            computed: "a signal's".to_owned(),
            fix: Some(".cfi_signal_frame".to_owned()),
            ..Finding::at(at, Code::SignalFrame, Severity::Refuted)
        }
    }

    /// What is wrong, in a sentence.
    #[must_use]
    pub fn message(&self) -> String {
        let Finding {
            subject, computed, ..
        } = self;
        let declared = self.declared.as_str();
        match (self.code, computed.as_str()) {
            (Code::NoEntry, _) => "this function has no entry in the unwind table".to_owned(),
            (Code::EntryTooShort, _) => "control continues where the entry ends".to_owned(),
            (Code::InsideInstruction, _) => "a row starts inside an instruction".to_owned(),
            (Code::HeightsDiffer, _) => {
                let from: Vec<String> = self.related.iter().map(|at| format!("{at}")).collect();
                let from = from.join(" than on that from ");
                let right = match computed.as_str() {
                    "" => "no row can be right here".to_owned(),
                    computed => format!("the CFA is {computed}, and declared {declared}"),
                };
                format!("the stack height differs on the path from {from}: {right}")
            }
            (Code::PrivateConvention, _) => {
                format!("{subject} is not preserved, though declared {declared}")
            }
            (Code::RegisterLost, "")
                if declared == words::UNCHANGED && self.severity == Severity::Refuted =>
            {
                format!("{subject} is declared {declared}, and was overwritten")
            }
            (Code::Unreached, _) => "no known path leads here: no row can be judged".to_owned(),
            (Code::SignalFrame, "") => {
                "the entry must begin a byte before the signal's return: it is looked up at the return address less 1".to_owned()
            }
            (Code::Outermost, _) => "the outermost frame does not declare that it is".to_owned(),
            (Code::SframeHole | Code::SframeOrder | Code::SframeEntry, _) => subject.clone(),
            (_, "") if self.severity == Severity::Refuted => {
                format!("{subject} is not {declared}, as declared")
            }
            (_, "") => format!("it cannot be shown that {subject} is {declared}, as declared"),
            (_, computed) => format!("{subject} is {computed}, and declared {declared}"),
        }
    }
}

/// What doubts of one cause have in common.
type Cause = (Code, Aspect, String);

/// The findings of a unit.
pub(crate) fn of_unit(subject: &Subject<'_>, report: &UnitReport) -> Vec<Finding> {
    if report.is_clear() {
        return Vec::new();
    }
    let doubts = merged(&report.doubts);
    let mut causes: BTreeMap<(usize, Cause), Finding> = BTreeMap::new();
    let of_cfa = doubts.iter();
    let without_cfa: HashSet<Vaddr> = of_cfa
        .filter(|doubt| doubt.aspect == Aspect::Cfa)
        .map(|doubt| doubt.at)
        .collect();
    let never_restored = never_restored(subject, report);
    let mut last_place = None;
    for doubt in &doubts {
        // Without a CFA nothing else is known.
        let is_consequence = doubt.aspect != Aspect::Cfa
            && doubt.verdict == Verdict::Unproven
            && without_cfa.contains(&doubt.at);
        if is_consequence {
            continue;
        }
        let place = subject.program().containing(doubt.at.0).unwrap_or_default();
        let Some(declared) = subject.judge.declared(doubt.row) else {
            continue;
        };
        let teller = Teller {
            subject,
            report,
            doubt,
            declared,
            never_restored: never_restored.get(&place).copied().unwrap_or_default(),
            is_first: last_place != Some(place),
        };
        let finding = teller.finding();
        if doubt.aspect == Aspect::Cfa {
            last_place = Some(place);
        }
        let difference = teller.difference();
        let cause = (finding.code, doubt.aspect, difference);
        match causes.entry((place, cause)) {
            Entry::Vacant(free) => drop(free.insert(finding)),
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                let places = known.places + 1;
                // Where it is certain is where to look.
                if finding.severity > known.severity {
                    *known = finding;
                }
                known.places = places;
            }
        }
    }
    let mut findings: Vec<Finding> = causes.into_values().collect();
    let inside = report.inside.iter();
    findings.extend(inside.map(|at| Finding::at(*at, Code::InsideInstruction, Severity::Refuted)));
    findings.extend(report.runs_out.iter().map(|[at, to]| Finding {
        related: vec![*to],
        ..Finding::at(*at, Code::EntryTooShort, subject.if_written_by_people(*at))
    }));
    let unreached = report.unreached.iter();
    let unreached = unreached.filter(|at| subject.maker_at(**at) == Maker::People);
    findings.extend(unreached.map(|at| Finding::at(*at, Code::Unreached, Severity::Unproven)));
    findings
}

/// Doubts, where those that are of the same thing at the same instruction are one: at a call, what is wrong before it may be wrong while
/// the callee runs, too. What is true then is what counts.
fn merged(doubts: &[Doubt]) -> Vec<Doubt> {
    let mut merged: Vec<Doubt> = Vec::with_capacity(doubts.len());
    let mut last: HashMap<(Vaddr, Aspect), usize> = HashMap::new();
    for doubt in doubts {
        let known = last.get(&(doubt.at, doubt.aspect));
        let known = known.and_then(|place| merged.get_mut(*place));
        let is_same = |known: &&mut Doubt| {
            let truths = known.truth.zip(doubt.truth);
            known.row == doubt.row && truths.is_none_or(|(known, other)| known == other)
        };
        match known.filter(is_same) {
            Some(known) => {
                let is_refuted = known.verdict == Verdict::Refuted;
                known.verdict = known.verdict.max(doubt.verdict);
                known.truth = doubt.truth.or(known.truth);
                known.hint = known.hint.or(doubt.hint.filter(|_| !is_refuted));
            }
            None => {
                last.insert((doubt.at, doubt.aspect), merged.len());
                merged.push(doubt.clone());
            }
        }
    }
    merged
}

/// The findings that are not of one unit: functions of which not all is covered, and the outermost frame.
/// `told` is where control is known to come to behind the end of an entry.
pub(crate) fn of_whole(subject: &Subject<'_>, told: &BTreeSet<Vaddr>) -> Vec<Finding> {
    let uncovered = coverage::uncovered(subject, told);
    let mut findings: Vec<Finding> = uncovered
        .into_iter()
        .map(|(at, code)| Finding::at(at, code, subject.if_written_by_people(at)))
        .collect();
    findings.extend(outermost(subject).map(|at| Finding {
        fix: Some(format!(
            ".cfi_undefined {}",
            words::operand(subject.facts().return_address, subject.table().abi())
        )),
        ..Finding::at(at, Code::Outermost, subject.if_written_by_people(at))
    }));
    findings
}

/// The entry point of a program, if it does not say that nothing called it.
pub(crate) fn outermost(subject: &Subject<'_>) -> Option<Vaddr> {
    let entry = subject.entry()?;
    let place = subject.program().start_at(entry.0)?;
    let (_, fde) = subject.fde_of(subject.program().extents().get(place)?)?;
    let row = subject.table().rows(fde).next()?;
    let declared = subject.judge.declared(row.row)?;
    (declared.return_address != Place::Undefined).then_some(entry)
}

/// For the extents of a unit that return: the registers that are not what they were at entry at any return.
/// Bit n stands for register n.
fn never_restored(subject: &Subject<'_>, report: &UnitReport) -> HashMap<usize, u64> {
    let mut of_extents = HashMap::new();
    for (at, lost) in &report.returns {
        if let Some(place) = subject.program().containing(at.0) {
            *of_extents.entry(place).or_insert(u64::MAX) &= lost;
        }
    }
    of_extents
}

/// Says in words what a doubt is about.
struct Teller<'a> {
    subject: &'a Subject<'a>,
    report: &'a UnitReport,
    doubt: &'a Doubt,
    declared: &'a Declared,
    /// The registers that the extent does not preserve: bit n stands for register n.
    never_restored: u64,
    /// Whether it is the first doubt of a CFA in its extent.
    is_first: bool,
}

impl Teller<'_> {
    fn finding(&self) -> Finding {
        let (code, abi) = (self.code(), self.subject.table().abi());
        let severity = match (code, self.doubt.verdict) {
            (Code::PrivateConvention, Verdict::Refuted) => {
                self.subject.if_written_by_people(self.doubt.at)
            }
            (Code::HeightsDiffer, _) if self.subject.maker_at(self.doubt.at) == Maker::People => {
                Severity::Refuted
            }
            (_, Verdict::Refuted) => Severity::Refuted,
            _ => Severity::Unproven,
        };
        if let Some(of_rule) = self.of_stack_pointer(code, severity) {
            return of_rule;
        }
        Finding {
            code,
            severity,
            at: self.doubt.at,
            places: 1,
            subject: words::aspect(self.doubt.aspect, abi),
            declared: self.subject.said(self.doubt.row, self.doubt.aspect),
            computed: self.truth().map_or_else(String::new, |truth| {
                words::place(truth, self.doubt.aspect, abi)
            }),
            fix: self.fix(code),
            hint: self.doubt.hint,
            related: self.paths(code),
        }
    }

    /// Where the CFA is as it is declared, what is wrong is the row's rule for the caller's stack pointer.
    fn of_stack_pointer(&self, code: Code, severity: Severity) -> Option<Finding> {
        self.declared.stack_pointer?;
        if self.doubt.aspect != Aspect::Cfa || self.doubt.truth != Some(self.claim()) {
            return None;
        }
        let abi = self.subject.table().abi();
        let sp = self.subject.facts().stack_pointer;
        let row = self.subject.table().row(self.doubt.row)?;
        Some(Finding {
            subject: words::aspect(Aspect::Register(sp), abi),
            declared: words::register(&row, Register(sp.into()), abi),
            computed: "cfa".to_owned(),
            ..Finding::at(self.doubt.at, code, severity)
        })
    }

    /// Where that is of which the row says something else. What registers that are not followed hold may be it: then it may be in both.
    fn truth(&self) -> Option<Place> {
        let column = self.subject.facts().return_address;
        let is_elsewhere = matches!(self.claim(), Place::Register(other, _) if other > column);
        let is_there = self.doubt.verdict == Verdict::Unproven && is_elsewhere;
        self.doubt.truth.filter(|_| !is_there)
    }

    /// What the row says of the aspect.
    fn claim(&self) -> Place {
        self.declared.claim(self.doubt.aspect, self.subject.facts())
    }

    fn code(&self) -> Code {
        match (self.doubt.aspect, self.claim(), self.doubt.truth) {
            (_, Place::Expression, _) => Code::Expression,
            (Aspect::Cfa, ..) if self.meeting().is_some() => Code::HeightsDiffer,
            (Aspect::Cfa, Place::Register(declared, _), Some(Place::Register(real, _)))
                if declared == real =>
            {
                Code::CfaOffset
            }
            (Aspect::Cfa, ..) => Code::CfaRegister,
            (Aspect::ReturnAddress, ..) => Code::ReturnAddress,
            (Aspect::Register(register), ..) if self.is_never_restored(register) => {
                Code::PrivateConvention
            }
            _ if self.doubt.hint == Some(Hint::LostAtReturn) => Code::PrivateConvention,
            (Aspect::Register(_), Place::Register(..), _) => Code::RegisterLost,
            (Aspect::Register(_), ..) => Code::SavedElsewhere,
        }
    }

    /// The paths that meet here, if they do.
    fn meeting(&self) -> Option<&[Vaddr; 3]> {
        let mut conflicts = self.report.conflicts.iter();
        let sp = self.subject.facts().stack_pointer;
        let is_of_sp = self.claim().counts_from(sp);
        let is_unproven = self.doubt.verdict == Verdict::Unproven;
        conflicts.find(|[at, ..]| is_unproven && is_of_sp && *at == self.doubt.at)
    }

    fn paths(&self, code: Code) -> Vec<Vaddr> {
        match (code, self.meeting()) {
            (Code::HeightsDiffer, Some([_, first, other])) => vec![*first, *other],
            _ => Vec::new(),
        }
    }

    fn is_never_restored(&self, register: u8) -> bool {
        self.never_restored & (1 << (register & 63)) != 0
    }

    /// Whether a row of the entry says that the register is saved: who saves it means to preserve it.
    fn is_saved(&self, register: u8) -> bool {
        let extent = self.subject.program().extent_at(self.doubt.at.0);
        let fde = extent.and_then(|extent| self.subject.fde_of(&extent));
        let rows = fde
            .into_iter()
            .flat_map(|(_, fde)| self.subject.table().rows(fde));
        let mut declared = rows.filter_map(|row| self.subject.judge.declared(row.row));
        declared.any(|row| {
            let claim = row.claim(Aspect::Register(register), self.subject.facts());
            matches!(claim, Place::AtCfa(_) | Place::Expression)
        })
    }

    /// What doubts of the same cause have in common: how far off the row is.
    fn difference(&self) -> String {
        match (self.claim(), self.doubt.truth) {
            (Place::Register(a, declared), Some(Place::Register(b, real)))
                if a == b && self.doubt.aspect == Aspect::Cfa =>
            {
                format!("{a} {}", real - declared)
            }
            (claim, truth) => format!("{claim:?} {}", truth.is_some()),
        }
    }

    /// The directive that would make the row true.
    fn fix(&self, code: Code) -> Option<String> {
        let abi = self.subject.table().abi();
        if let (Code::PrivateConvention, Aspect::Register(register)) = (code, self.doubt.aspect) {
            // Who declares something else than that it is unchanged knows of an agreement.
            let is_silent =
                self.claim() == Place::Register(register, 0) && !self.is_saved(register);
            return is_silent.then(|| format!(".cfi_undefined {}", words::operand(register, abi)));
        }
        let column = self.subject.facts().return_address;
        let truth = self.truth()?;
        match (code, self.doubt.aspect, self.claim(), truth) {
            (Code::CfaOffset, _, Place::Register(_, declared), Place::Register(_, real)) => {
                Some(match self.is_first {
                    true => format!(".cfi_adjust_cfa_offset {}", real - declared),
                    // What mends the first may change what is declared here.
                    false => format!(".cfi_def_cfa_offset {real}"),
                })
            }
            (
                Code::CfaRegister | Code::HeightsDiffer,
                _,
                declared,
                Place::Register(register, offset),
            ) => {
                let (register, offset) = match (self.doubt.hint, declared) {
                    (Some(Hint::Numbering { meant, .. }), Place::Register(_, offset)) => {
                        (u8::try_from(meant.0).unwrap_or(register), offset)
                    }
                    _ => (register, offset),
                };
                words::directive(Aspect::Cfa, Place::Register(register, offset), column, abi)
            }
            (_, Aspect::Cfa, ..) => None,
            (_, aspect, ..) => words::directive(aspect, truth, column, abi),
        }
    }
}
