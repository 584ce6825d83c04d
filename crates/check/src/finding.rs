//! Findings: faults of a table, one for each cause.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use unspool_rows::{Register, RowId, Vaddr};

use crate::coverage::{self, ReachedOutside};
use crate::declared_row::{DeclaredRow, RuleLocation};
use crate::hint::{self, Hint};
use crate::origin::CodeOrigin;
use crate::places::CodePlaces;
use crate::row_checker::{Aspect, Verdict};
use crate::subject::CheckSubject;
use crate::unit::{Discrepancy, HeightConflict, UnitReport};
use crate::wording;

/// The kind of a finding; `docs/diagnostics.md` has cause and remedy of each. The numbers are
/// stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingCode {
    /// The CFA is at another offset from the declared register.
    CfaOffset,
    /// The CFA is not at any known offset from the declared register.
    CfaRegister,
    /// A register is not in the declared slot.
    SavedElsewhere,
    /// A register is declared unchanged, but was overwritten.
    RegisterLost,
    /// A function has no entry.
    NoEntry,
    /// Control falls through the end of the entry.
    EntryTooShort,
    /// Paths with different stack heights join: no row can be right there.
    HeightsDiffer,
    /// An expression has another value.
    Expression,
    /// The outermost frame is not declared as such.
    Outermost,
    /// A function does not preserve a register that calls preserve.
    PrivateConvention,
    /// A row starts inside an instruction.
    InsideInstruction,
    /// The return address is not in the declared location.
    ReturnAddress,
    /// Registers of a signal frame are not where the kernel puts them.
    SignalFrame,
    /// No path to it was found.
    Unreached,
    /// A source comment that should allow a finding.
    Allow,
    /// `.sframe` and `.eh_frame` differ.
    SframeRow,
    /// `.sframe` lacks functions.
    SframeHole,
    /// Entries of `.sframe` cannot be searched.
    SframeOrder,
    /// An entry of `.sframe` cannot be read.
    SframeEntry,
    /// An instruction is not known.
    UnknownInstruction,
    /// Too many steps would be needed.
    GivenUp,
}

/// Sections of `docs/diagnostics.md` for all kinds.
const DIAGNOSTICS: &str = include_str!("../diagnostics.md");

/// All kinds, numbered from 1: name and summary.
const CODES: [(FindingCode, &str, &str); 21] = [
    (
        FindingCode::CfaOffset,
        "cfa-offset",
        "the CFA is at another offset from the register declared",
    ),
    (
        FindingCode::CfaRegister,
        "cfa-register",
        "the register declared is at no known offset from the CFA",
    ),
    (
        FindingCode::SavedElsewhere,
        "saved-elsewhere",
        "a saved register is not in the slot declared",
    ),
    (
        FindingCode::RegisterLost,
        "register-lost",
        "a register is declared unchanged, and was overwritten",
    ),
    (
        FindingCode::NoEntry,
        "no-entry",
        "a function, or code that is called, has no entry",
    ),
    (
        FindingCode::EntryTooShort,
        "entry-too-short",
        "control continues where the entry ends",
    ),
    (
        FindingCode::HeightsDiffer,
        "heights-differ",
        "paths meet with different stack heights",
    ),
    (
        FindingCode::Expression,
        "expression",
        "an expression has another value",
    ),
    (
        FindingCode::Outermost,
        "outermost",
        "the outermost frame does not say that it is",
    ),
    (
        FindingCode::PrivateConvention,
        "private-convention",
        "a function does not preserve a register that calls preserve",
    ),
    (
        FindingCode::InsideInstruction,
        "inside-instruction",
        "a row starts inside an instruction",
    ),
    (
        FindingCode::ReturnAddress,
        "return-address",
        "the return address is not where it is declared",
    ),
    (
        FindingCode::SignalFrame,
        "signal-frame",
        "the entry of a signal frame does not describe what the kernel saved",
    ),
    (
        FindingCode::Unreached,
        "unreached",
        "no known path leads to an instruction",
    ),
    (
        FindingCode::Allow,
        "allow",
        "a comment allows a finding without a reason, or allows nothing",
    ),
    (
        FindingCode::SframeRow,
        "sframe-row",
        ".sframe differs from .eh_frame",
    ),
    (
        FindingCode::SframeHole,
        "sframe-hole",
        "functions of .eh_frame have no row in .sframe",
    ),
    (
        FindingCode::SframeOrder,
        "sframe-order",
        "the entries of .sframe cannot be searched",
    ),
    (
        FindingCode::SframeEntry,
        "sframe-entry",
        "an entry of .sframe cannot be read, or the header cannot be right",
    ),
    (
        FindingCode::UnknownInstruction,
        "unknown-instruction",
        "it is not known what an instruction does",
    ),
    (
        FindingCode::GivenUp,
        "given-up",
        "the check takes too many steps",
    ),
];

impl FindingCode {
    /// All kinds, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = FindingCode> {
        CODES.iter().map(|(code, ..)| *code)
    }

    /// Its name: `cfa-offset`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = CODES.iter().find(|(code, ..)| *code == self);
        found.map_or("", |(_, name, _)| name)
    }

    /// The kind with an ID or a name, in any case: `CFI001`, `cfa-offset`.
    #[must_use]
    pub fn from_name(text: &str) -> Option<FindingCode> {
        let is_it = |code: &FindingCode| {
            code.to_string().eq_ignore_ascii_case(text) || code.name().eq_ignore_ascii_case(text)
        };
        FindingCode::all().find(is_it)
    }

    /// Its section of `docs/diagnostics.md`, in Markdown, without the heading: fault, cause,
    /// remedy.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        let heading = format!("## {self} {}\n", self.name());
        let behind = DIAGNOSTICS.split_once(&heading);
        let section = behind.and_then(|(_, behind)| behind.split("\n## ").next());
        section.unwrap_or_default().trim()
    }

    /// What is wrong, for any subject.
    #[must_use]
    pub fn summary(self) -> &'static str {
        let found = CODES.iter().find(|(code, ..)| *code == self);
        found.map_or("", |(.., summary)| summary)
    }
}

/// Its ID: `CFI001`.
impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = CODES.iter().position(|(code, ..)| code == self);
        write!(f, "CFI{:03}", place.map_or(0, |place| place + 1))
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; not a fault.
    Note,
    /// Possibly wrong: no proof was found.
    Unproven,
    /// It is wrong.
    Refuted,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Unproven => "unproven",
            Severity::Refuted => "refuted",
        })
    }
}

/// One fault, and all places where it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub code: FindingCode,
    /// Its severity.
    pub severity: Severity,
    /// The first instruction where it shows, in code order.
    pub address: Vaddr,
    /// Number of instructions where it shows after a change of something it depends on.
    pub occurrences: usize,
    /// Its subject: `the CFA`, `the caller's rbx`; empty if it is the whole entry.
    pub subject: String,
    /// The row's rule; empty if there is none.
    pub declared: String,
    /// The actual location; empty if it is not known.
    pub computed: String,
    /// The directive that repairs it, before the instruction, if there is one.
    pub fix: Option<String>,
    /// A possible cause.
    pub hint: Option<Hint>,
    /// Related places: the sources of joining paths, or the fall-through target.
    pub related: Vec<Vaddr>,
}

impl CheckSubject<'_> {
    /// A row's rule, in words.
    pub(crate) fn rule_text(&self, row: RowId, of: Aspect) -> String {
        let Some(row) = self.table().row(row) else {
            return String::new();
        };
        let abi = self.table().abi();
        match of {
            Aspect::Cfa => wording::cfa(&row, abi),
            Aspect::ReturnAddress => wording::register(&row, row.return_address, abi),
            Aspect::Register(register) => wording::register(&row, Register(register.into()), abi),
        }
    }
}

impl CheckSubject<'_> {
    /// Severity of faults that compilers make on purpose, and people seldom do.
    pub(crate) fn severity_for_hand_written(&self, at: Vaddr) -> Severity {
        match self.origin_at(at) {
            CodeOrigin::HandWritten => Severity::Refuted,
            CodeOrigin::Compiler => Severity::Note,
        }
    }
}

impl Finding {
    /// A finding without details.
    pub(crate) fn new(at: Vaddr, code: FindingCode, severity: Severity) -> Finding {
        Finding {
            code,
            severity,
            address: at,
            occurrences: 1,
            subject: String::new(),
            declared: String::new(),
            computed: String::new(),
            fix: None,
            hint: None,
            related: Vec::new(),
        }
    }

    /// Code that signal handlers return to, without an entry that says so.
    #[must_use]
    pub fn undeclared_signal_frame(at: Vaddr) -> Finding {
        Finding {
            subject: "the frame".to_owned(),
            declared: "a function's".to_owned(),
            computed: "a signal's".to_owned(),
            fix: Some(".cfi_signal_frame".to_owned()),
            ..Finding::new(at, FindingCode::SignalFrame, Severity::Refuted)
        }
    }

    /// A sentence that says what is wrong.
    #[must_use]
    pub fn message(&self) -> String {
        self.message_with(&CodePlaces::default())
    }

    /// The same, with places named so.
    pub(crate) fn message_with(&self, places: &CodePlaces) -> String {
        let Finding {
            subject, computed, ..
        } = self;
        let declared = self.declared.as_str();
        match (self.code, computed.as_str()) {
            (FindingCode::NoEntry, _) => "this function has no entry in the unwind table".to_owned(),
            (FindingCode::EntryTooShort, _) => "control continues where the entry ends".to_owned(),
            (FindingCode::InsideInstruction, _) => "a row starts inside an instruction".to_owned(),
            (FindingCode::HeightsDiffer, _) => {
                let from: Vec<String> = self.related.iter().map(|at| places.place(*at)).collect();
                let from = from.join(" differs from that on the path from ");
                let right = match computed.as_str() {
                    "" => "no row can be right here".to_owned(),
                    computed => format!("the CFA is {computed}, and declared {declared}"),
                };
                format!("the stack height on the path from {from}: {right}")
            }
            (FindingCode::PrivateConvention, _) => {
                format!("{subject} is not preserved, though declared {declared}")
            }
            (FindingCode::RegisterLost, "")
                if declared == wording::UNCHANGED && self.severity == Severity::Refuted =>
            {
                format!("{subject} is declared {declared}, and was overwritten")
            }
            (FindingCode::Unreached, _) => "no known path leads here: no row can be judged".to_owned(),
            (FindingCode::UnknownInstruction, _) => {
                "this instruction is not known: no row of the function is proven".to_owned()
            }
            (FindingCode::GivenUp, _) => {
                "checking this function takes too many steps: none of its rows is proven".to_owned()
            }
            (FindingCode::SignalFrame, "") => {
                "the entry must begin a byte before the signal's return: it is looked up at the return address less 1".to_owned()
            }
            (FindingCode::Outermost, _) => "the outermost frame does not declare that it is".to_owned(),
            (FindingCode::SframeHole | FindingCode::SframeOrder | FindingCode::SframeEntry, _) => subject.clone(),
            (_, "") if self.severity == Severity::Refuted => {
                format!("{subject} is not {declared}, as declared")
            }
            (_, "") => format!("it cannot be shown that {subject} is {declared}, as declared"),
            (_, computed) => format!("{subject} is {computed}, and declared {declared}"),
        }
    }
}

/// Key of discrepancies with one cause.
type FindingCause = (FindingCode, Aspect, String);

/// The findings of a unit.
pub(crate) fn unit_findings(subject: &CheckSubject<'_>, report: &UnitReport) -> Vec<Finding> {
    if report.is_clear() {
        return Vec::new();
    }
    let discrepancies = merge_discrepancies(&report.discrepancies);
    let mut causes: BTreeMap<(usize, FindingCause), Finding> = BTreeMap::new();
    let of_cfa = discrepancies.iter();
    let without_cfa: HashSet<Vaddr> = of_cfa
        .filter(|discrepancy| discrepancy.aspect == Aspect::Cfa)
        .map(|discrepancy| discrepancy.address)
        .collect();
    let never_restored = never_restored(subject, report);
    let mut last_place = None;
    for discrepancy in &discrepancies {
        // Without a CFA nothing else is known.
        let is_consequence = discrepancy.aspect != Aspect::Cfa
            && discrepancy.verdict == Verdict::Unproven
            && without_cfa.contains(&discrepancy.address);
        if is_consequence {
            continue;
        }
        let place = subject
            .program()
            .index_containing(discrepancy.address.0)
            .unwrap_or_default();
        let Some(declared) = subject.row_checker.declared(discrepancy.row) else {
            continue;
        };
        let teller = FindingBuilder {
            subject,
            report,
            discrepancy,
            declared,
            never_restored: never_restored.get(&place).copied().unwrap_or_default(),
            is_first_of_extent: last_place != Some(place),
        };
        let finding = teller.finding();
        if discrepancy.aspect == Aspect::Cfa {
            last_place = Some(place);
        }
        let difference = teller.difference();
        let cause = (finding.code, discrepancy.aspect, difference);
        match causes.entry((place, cause)) {
            Entry::Vacant(free) => drop(free.insert(finding)),
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                let places = known.occurrences + 1;
                // The place with the greatest severity is the one to look at.
                if finding.severity > known.severity {
                    *known = finding;
                }
                known.occurrences = places;
            }
        }
    }
    let mut findings: Vec<Finding> = causes.into_values().collect();
    let inside = report.misaligned_rows.iter();
    findings.extend(
        inside.map(|at| Finding::new(*at, FindingCode::InsideInstruction, Severity::Refuted)),
    );
    findings.extend(report.fall_through_ends.iter().map(|[at, to]| Finding {
        related: vec![*to],
        ..Finding::new(
            *at,
            FindingCode::EntryTooShort,
            subject.severity_for_hand_written(*at),
        )
    }));
    let unreached = report.unreached.iter();
    let unreached = unreached.filter(|at| subject.origin_at(**at) == CodeOrigin::HandWritten);
    findings
        .extend(unreached.map(|at| Finding::new(*at, FindingCode::Unreached, Severity::Unproven)));
    if let Some(row) = report.rows.first().filter(|_| report.is_given_up) {
        findings.push(Finding::new(
            row.start,
            FindingCode::GivenUp,
            Severity::Unproven,
        ));
    }
    let unknown = report.unknown_insns.iter();
    findings.extend(
        unknown.map(|at| Finding::new(*at, FindingCode::UnknownInstruction, Severity::Unproven)),
    );
    findings
}

/// Merges discrepancies of the same aspect at the same instruction: at a call, a rule may be wrong
/// before it and while the callee runs. The location while the callee runs counts, if it is known.
fn merge_discrepancies(discrepancies: &[Discrepancy]) -> Vec<Discrepancy> {
    let mut merged: Vec<Discrepancy> = Vec::with_capacity(discrepancies.len());
    let mut last: HashMap<(Vaddr, Aspect), usize> = HashMap::new();
    for discrepancy in discrepancies {
        let known = last.get(&(discrepancy.address, discrepancy.aspect));
        let known = known.and_then(|place| merged.get_mut(*place));
        let is_same = |known: &&mut Discrepancy| {
            let truths = known.actual.zip(discrepancy.actual);
            known.row == discrepancy.row && truths.is_none_or(|(known, other)| known == other)
        };
        match known.filter(is_same) {
            Some(known) => {
                let is_refuted = known.verdict == Verdict::Refuted;
                known.verdict = known.verdict.max(discrepancy.verdict);
                known.actual = discrepancy.actual.or(known.actual);
                known.hint = known.hint.or(discrepancy.hint.filter(|_| !is_refuted));
            }
            None => {
                last.insert((discrepancy.address, discrepancy.aspect), merged.len());
                merged.push(discrepancy.clone());
            }
        }
    }
    merged
}

/// Findings of the file as a whole: functions without full coverage, and the outermost frame.
pub(crate) fn file_findings(subject: &CheckSubject<'_>, reached: &ReachedOutside) -> Vec<Finding> {
    let uncovered = coverage::uncovered(subject, reached);
    let mut findings: Vec<Finding> = uncovered
        .into_iter()
        .map(|(at, code, severity)| Finding::new(at, code, severity))
        .collect();
    findings.extend(outermost(subject).map(|at| Finding {
        fix: Some(format!(
            ".cfi_undefined {}",
            wording::operand(subject.abi_info().return_address, subject.table().abi())
        )),
        ..Finding::new(
            at,
            FindingCode::Outermost,
            subject.severity_for_hand_written(at),
        )
    }));
    findings
}

/// The entry point of a program, if its entry does not say that it has no caller.
pub(crate) fn outermost(subject: &CheckSubject<'_>) -> Option<Vaddr> {
    let entry = subject.entry()?;
    let place = subject.program().index_starting_at(entry.0)?;
    let (_, fde) = subject.fde_of(subject.program().extents().get(place)?)?;
    let row = subject.table().rows(fde).next()?;
    let declared = subject.row_checker.declared(row.row)?;
    (declared.return_address != RuleLocation::Undefined).then_some(entry)
}

/// For the extents of a unit that return: the registers that have another value than at entry at
/// every return. Bit n stands for register n.
fn never_restored(subject: &CheckSubject<'_>, report: &UnitReport) -> HashMap<usize, u64> {
    let mut of_extents = HashMap::new();
    for (at, lost) in &report.unrestored_at_returns {
        if let Some(place) = subject.program().index_containing(at.0) {
            *of_extents.entry(place).or_insert(u64::MAX) &= lost;
        }
    }
    of_extents
}

/// Makes a finding from a discrepancy.
struct FindingBuilder<'a> {
    subject: &'a CheckSubject<'a>,
    report: &'a UnitReport,
    discrepancy: &'a Discrepancy,
    declared: &'a DeclaredRow,
    /// The registers that the extent does not preserve: bit n stands for register n.
    never_restored: u64,
    /// Whether it is the extent's first discrepancy of the CFA.
    is_first_of_extent: bool,
}

impl FindingBuilder<'_> {
    fn finding(&self) -> Finding {
        let (code, abi) = (self.code(), self.subject.table().abi());
        let severity = match (code, self.discrepancy.verdict) {
            (FindingCode::PrivateConvention, Verdict::Refuted) => self
                .subject
                .severity_for_hand_written(self.discrepancy.address),
            (FindingCode::HeightsDiffer, _)
                if self.subject.origin_at(self.discrepancy.address) == CodeOrigin::HandWritten =>
            {
                Severity::Refuted
            }
            (_, Verdict::Refuted) => Severity::Refuted,
            _ => Severity::Unproven,
        };
        if let Some(of_rule) = self.stack_pointer_finding(code, severity) {
            return of_rule;
        }
        Finding {
            code,
            severity,
            address: self.discrepancy.address,
            occurrences: 1,
            subject: wording::aspect(self.discrepancy.aspect, abi),
            declared: self
                .subject
                .rule_text(self.discrepancy.row, self.discrepancy.aspect),
            computed: self.actual().map_or_else(String::new, |truth| {
                wording::location_text(truth, self.discrepancy.aspect, abi)
            }),
            fix: self.fix(code),
            hint: self.hint(code),
            related: self.paths(code),
        }
    }

    /// If the CFA is as declared, the fault is in the row's rule for the caller's stack pointer.
    fn stack_pointer_finding(&self, code: FindingCode, severity: Severity) -> Option<Finding> {
        let rule = self.declared.stack_pointer?;
        let is_own = self.declared.has_own_cfa();
        let is_as_declared = self.discrepancy.actual == Some(self.declared_rule());
        if self.discrepancy.aspect != Aspect::Cfa || !is_own && !is_as_declared {
            return None;
        }
        let code = match rule {
            RuleLocation::Expression => FindingCode::Expression,
            _ if is_as_declared => code,
            _ => FindingCode::SavedElsewhere,
        };
        let abi = self.subject.table().abi();
        let sp = self.subject.abi_info().stack_pointer;
        let row = self.subject.table().row(self.discrepancy.row)?;
        Some(Finding {
            subject: wording::aspect(Aspect::Register(sp), abi),
            declared: wording::register(&row, Register(sp.into()), abi),
            computed: match self.actual() {
                Some(_) if is_as_declared => "cfa".to_owned(),
                Some(truth) => wording::location_text(truth, Aspect::Cfa, abi),
                None => String::new(),
            },
            ..Finding::new(self.discrepancy.address, code, severity)
        })
    }

    /// The actual location, if it is known. An untracked register may also have the value.
    fn actual(&self) -> Option<RuleLocation> {
        let column = self.subject.abi_info().return_address;
        let is_elsewhere =
            matches!(self.declared_rule(), RuleLocation::Register(other, _) if other > column);
        let is_there = self.discrepancy.verdict == Verdict::Unproven && is_elsewhere;
        self.discrepancy.actual.filter(|_| !is_there)
    }

    /// The row's rule for the aspect.
    fn declared_rule(&self) -> RuleLocation {
        self.declared
            .rule_for(self.discrepancy.aspect, self.subject.abi_info())
    }

    fn code(&self) -> FindingCode {
        match (
            self.discrepancy.aspect,
            self.declared_rule(),
            self.discrepancy.actual,
        ) {
            (_, RuleLocation::Expression, _) => FindingCode::Expression,
            (Aspect::Cfa, ..) if self.height_conflict().is_some() => FindingCode::HeightsDiffer,
            (
                Aspect::Cfa,
                RuleLocation::Register(declared, _),
                Some(RuleLocation::Register(real, _)),
            ) if declared == real => FindingCode::CfaOffset,
            (Aspect::Cfa, ..) => FindingCode::CfaRegister,
            (Aspect::ReturnAddress, ..) => FindingCode::ReturnAddress,
            (Aspect::Register(register), ..) if self.is_never_restored(register) => {
                FindingCode::PrivateConvention
            }
            _ if self.discrepancy.hint == Some(Hint::LostAtReturn) => {
                FindingCode::PrivateConvention
            }
            (Aspect::Register(_), RuleLocation::Register(..), _) => FindingCode::RegisterLost,
            (Aspect::Register(_), ..) => FindingCode::SavedElsewhere,
        }
    }

    /// The paths that join here, if they do.
    fn height_conflict(&self) -> Option<&HeightConflict> {
        let mut conflicts = self.report.conflicts.iter();
        let sp = self.subject.abi_info().stack_pointer;
        let is_of_sp = self.declared_rule().is_relative_to(sp);
        let is_unproven = self.discrepancy.verdict == Verdict::Unproven;
        conflicts
            .find(|conflict| is_unproven && is_of_sp && conflict.at == self.discrepancy.address)
    }

    fn paths(&self, code: FindingCode) -> Vec<Vaddr> {
        match (code, self.height_conflict()) {
            (FindingCode::HeightsDiffer, Some(conflict)) => {
                conflict.paths.iter().map(|path| path.from).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A possible cause.
    fn hint(&self, code: FindingCode) -> Option<Hint> {
        let arch = self.subject.table().abi().arch;
        let conflict = self
            .height_conflict()
            .filter(|_| code == FindingCode::HeightsDiffer);
        let cause = conflict.and_then(|conflict| hint::cause_of_conflict(conflict, arch));
        self.discrepancy.hint.or(cause)
    }

    fn is_never_restored(&self, register: u8) -> bool {
        self.never_restored & (1 << (register & 63)) != 0
    }

    /// Whether a row of the entry declares the register saved: then the function intends to
    /// preserve it.
    fn is_saved(&self, register: u8) -> bool {
        let extent = self.subject.program().extent_at(self.discrepancy.address.0);
        let fde = extent.and_then(|extent| self.subject.fde_of(&extent));
        let rows = fde
            .into_iter()
            .flat_map(|(_, fde)| self.subject.table().rows(fde));
        let mut declared = rows.filter_map(|row| self.subject.row_checker.declared(row.row));
        declared.any(|row| {
            let location = row.rule_for(Aspect::Register(register), self.subject.abi_info());
            matches!(
                location,
                RuleLocation::CfaOffset(_) | RuleLocation::Expression
            )
        })
    }

    /// The row's error, which discrepancies with one cause share.
    fn difference(&self) -> String {
        match (self.declared_rule(), self.discrepancy.actual) {
            (RuleLocation::Register(a, declared), Some(RuleLocation::Register(b, real)))
                if a == b && self.discrepancy.aspect == Aspect::Cfa =>
            {
                format!("{a} {}", real - declared)
            }
            (claim, truth) => format!("{claim:?} {}", truth.is_some()),
        }
    }

    /// The directive that makes the row true.
    fn fix(&self, code: FindingCode) -> Option<String> {
        let abi = self.subject.table().abi();
        if let (FindingCode::PrivateConvention, Aspect::Register(register)) =
            (code, self.discrepancy.aspect)
        {
            // A rule other than "unchanged" indicates a private convention.
            let is_silent = self.declared_rule() == RuleLocation::Register(register, 0)
                && !self.is_saved(register);
            return is_silent
                .then(|| format!(".cfi_undefined {}", wording::operand(register, abi)));
        }
        let column = self.subject.abi_info().return_address;
        let truth = self.actual()?;
        match (code, self.discrepancy.aspect, self.declared_rule(), truth) {
            (
                FindingCode::CfaOffset,
                _,
                RuleLocation::Register(_, declared),
                RuleLocation::Register(_, real),
            ) => Some(if self.is_first_of_extent {
                format!(".cfi_adjust_cfa_offset {}", real - declared)
            } else {
                // The repair of the first fault may change the declared values here.
                format!(".cfi_def_cfa_offset {real}")
            }),
            (
                FindingCode::CfaRegister | FindingCode::HeightsDiffer,
                _,
                declared,
                RuleLocation::Register(register, offset),
            ) => {
                let (register, offset) = match (self.discrepancy.hint, declared) {
                    (
                        Some(Hint::I386Numbering { meant, .. }),
                        RuleLocation::Register(_, offset),
                    ) => (u8::try_from(meant.0).unwrap_or(register), offset),
                    _ => (register, offset),
                };
                wording::directive(
                    Aspect::Cfa,
                    RuleLocation::Register(register, offset),
                    column,
                    abi,
                )
            }
            (_, Aspect::Cfa, ..) => None,
            (_, aspect, ..) => wording::directive(aspect, truth, column, abi),
        }
    }
}
