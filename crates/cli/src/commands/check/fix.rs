//! `unspool check --fix`: writes the directives that findings call for into assembly source.
//!
//! An edit is tried on a copy, which is assembled and checked. It stays if the finding is gone and
//! there is no new one. If no edit helps, the rows of the whole function are rewritten.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use unspool_assembly::{
    Assemble, AssemblySource, DirectivePlan, Edit, EditStep, LineEdit, RegisterSyntax,
    correct_directive, line_of, name_registers,
};
use unspool_check::{
    AllowComments, CheckReport, CheckSubject, CodeOrigin, DeclaredTable, Finding, FindingCode,
    Hint, LocatedFinding, Severity, i386_register,
};
use unspool_code_analysis::{Analyzer, Lifter};
use unspool_elf::{DebugFiles, ElfFile, Lines};
use unspool_rows::{Arch, Register, Vaddr};
use unspool_table_store as tables;

use crate::args::CheckArgs;
use crate::commands::cc::CcAssembler;
use crate::output::{self, ExitCodes};

/// Prints what `--fix` would change, and changes nothing.
pub(super) fn print_diffs(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut status = 0;
    for path in &args.files {
        match edit(path, args) {
            Ok(diff) if diff.is_empty() => {}
            Ok(diff) => {
                output::print(diff.as_bytes())?;
                status = status.max(ExitCodes::FINDINGS);
            }
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                status = ExitCodes::COULD_NOT_RUN;
            }
        }
    }
    Ok(ExitCode::from(status))
}

/// Writes the fixes into a file's text; for a preview, returns the diff.
pub(super) fn edit(path: &Path, args: &CheckArgs) -> anyhow::Result<String> {
    if !AssemblySource::is_assembly_path(path) {
        bail!(
            "{}: --diff shows edits of assembly source (.s, .S) only: --fix a copy, and compare what `unspool show` prints",
            path.display()
        );
    }
    let text = super::super::read_text(path)?;
    let least = args
        .options()
        .strictness
        .minimum_severity(CodeOrigin::HandWritten)
        .max(Severity::Unproven);
    let fixed = fix(path, &text, least, usize::MAX)?;
    for (line, refusal) in &fixed.refused {
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        output::notice(&format_args!("{}{line}: {refusal}", path.display()));
    }
    if fixed.fixed > 0 || !fixed.refused.is_empty() {
        let (gone, stay) = (fixed.fixed, fixed.refused.len());
        let (fixed, stay) = match args.fix {
            true => ("fixed", format!("{stay} stay")),
            false => ("would be fixed", format!("{stay} would stay")),
        };
        output::notice(&format_args!(
            "{}: {gone} findings {fixed}, {stay}",
            path.display()
        ));
    }
    if args.fix && fixed.source.is_changed() {
        let permissions = fs::metadata(path)?.permissions();
        crate::commands::write(path, fixed.source.to_string().as_bytes(), Some(permissions))?;
    }
    Ok(fixed.source.diff(&path.to_string_lossy()))
}

/// Adds to the findings of an assembly source file what `--fix` would do about them.
pub(super) fn advise(
    path: &Path,
    args: &CheckArgs,
    file: &ElfFile,
    findings: &mut [LocatedFinding],
) -> anyhow::Result<()> {
    /// Each is a run of the assembler.
    const MAX_ASSEMBLER_RUNS: usize = 100;
    let mut standing = findings
        .iter()
        .filter(|finding| finding.suppression.is_none());
    if standing.next().is_none() {
        return Ok(());
    }
    let text = super::super::read_text(path)?;
    let least = args
        .options()
        .strictness
        .minimum_severity(CodeOrigin::HandWritten)
        .max(Severity::Unproven);
    let fixed = fix(path, &text, least, MAX_ASSEMBLER_RUNS)?;
    for finding in findings {
        let key = FindingKey::new(file, &finding.finding);
        finding.advice = key.and_then(|key| fixed.advice.get(&key).cloned());
    }
    Ok(())
}

/// The result for a file.
struct FixResult {
    source: AssemblySource,
    /// The actions on findings of the original text, if known.
    advice: BTreeMap<FindingKey, Vec<EditStep>>,
    /// The number of fixed findings.
    fixed: usize,
    /// The remaining findings: their lines, and why.
    refused: Vec<(Option<u32>, String)>,
}

/// Why a finding gets no fix.
#[derive(Debug, thiserror::Error)]
enum FixRefusal {
    #[error(
        "no line of the file makes this instruction: it is from an included file, or a compiler marked it as a line of another (# 12 \"file.c\"); --fix also takes the object file"
    )]
    NoLine,
    #[error(
        "the line makes several instructions, or data after it (.byte) makes this one: write the directive between them by hand"
    )]
    OneLine,
    #[error("the line is in a macro, or is repeated: write the directive by hand")]
    Repeated,
    #[error(
        "the function returns without the return address on top of the stack: it is not entered by a call"
    )]
    NoFunction,
    #[error(
        "the code does not preserve the register: fix the code, or declare the register undefined after the instruction that overwrites it"
    )]
    Agreement,
    #[error(
        "no directive is right both with and without the condition in line {0}: write it by hand"
    )]
    Conditional(u32),
    #[error("the CFA is wrong here, too: fix that first, by hand")]
    Cfa,
    #[error("no directive fixes it without making another row wrong")]
    NothingFound,
}

/// Identifies a finding independently of the directives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FindingKey {
    section: String,
    offset: u64,
    code: FindingCode,
    subject: String,
}

impl FindingKey {
    fn new(file: &ElfFile, finding: &Finding) -> Option<FindingKey> {
        let (section, start) = file.section_of(finding.address)?;
        Some(FindingKey {
            section: section.into_owned(),
            offset: finding.address.0 - start.0,
            code: finding.code,
            subject: finding.subject.clone(),
        })
    }
}

/// A finding of a draft.
#[derive(Debug, Clone)]
struct DraftFinding {
    key: FindingKey,
    /// The start of its entry, or its own address without an entry.
    entry: u64,
    line: Option<u32>,
    /// Whether the preceding instruction is from the same source line.
    shares_line: bool,
    /// Whether it is about a return, with the CFA below the return address's slot.
    is_below_return: bool,
    /// Whether control does not come from the preceding instruction.
    is_behind_exit: bool,
    /// Whether the row's CFA is wrong; `None` if it is an expression.
    cfa: Option<bool>,
    fix: Option<String>,
    hint: Option<Hint>,
}

impl DraftFinding {
    fn is_in(&self, section: &str, entry: u64) -> bool {
        self.key.section == section && self.entry == entry
    }

    /// Why no edit can be right, whatever its effect on the finding.
    fn refusal(&self) -> Option<FixRefusal> {
        match self.key.code {
            _ if self.is_below_return => Some(FixRefusal::NoFunction),
            FindingCode::PrivateConvention if self.fix.is_none() => Some(FixRefusal::Agreement),
            _ => None,
        }
    }

    /// Whether directives for rows may help.
    fn is_of_rows(&self) -> bool {
        match self.key.code {
            FindingCode::NoEntry | FindingCode::SignalFrame | FindingCode::Unreached => false,
            FindingCode::HeightsDiffer => self.fix.is_some(),
            _ => true,
        }
    }

    fn is_of_cfa(&self) -> bool {
        self.key.subject == "the CFA"
    }
}

/// A text with its findings.
#[derive(Debug, Clone)]
struct SourceDraft {
    source: AssemblySource,
    findings: Vec<DraftFinding>,
    /// The edits so far, and the findings that they are about.
    applied: Vec<(FindingKey, Vec<EditStep>)>,
}

impl SourceDraft {
    fn keys(&self) -> BTreeSet<&FindingKey> {
        self.findings.iter().map(|problem| &problem.key).collect()
    }

    /// Records the edits since another draft, for findings that are gone.
    fn follow(&mut self, before: &SourceDraft, advice: Option<&[EditStep]>) {
        let keys = self.keys();
        let gone = before.keys().into_iter().filter(|key| !keys.contains(key));
        let gone = gone.filter_map(|key| Some((key.clone(), advice?.to_vec())));
        self.applied = before.applied.iter().cloned().chain(gone).collect();
    }

    /// Whether a register's slot is reported where the CFA is wrong: a directive relative to the
    /// CFA would place it wrongly.
    fn is_cfa_wrong_at(&self, finding: &DraftFinding) -> bool {
        let mut others = self.findings.iter();
        match finding.cfa {
            Some(is_wrong) => is_wrong && !finding.is_of_cfa(),
            // An expression, with a finding from its start on.
            None => others.any(|other| {
                !finding.is_of_cfa()
                    && other.is_of_cfa()
                    && other.cfa.is_none()
                    && other.is_in(&finding.key.section, finding.entry)
                    && other.key.offset <= finding.key.offset
            }),
        }
    }

    /// Whether it has fewer findings than before, and no others.
    fn improves(&self, before: &SourceDraft) -> bool {
        self.findings.len() < before.findings.len() && self.keys().is_subset(&before.keys())
    }

    /// The same for an entry up to a finding, and for other entries. Findings further on may only
    /// appear now.
    fn improves_up_to(&self, before: &SourceDraft, finding: &DraftFinding) -> bool {
        let is_further = |other: &&DraftFinding| {
            other.is_in(&finding.key.section, finding.entry)
                && other.key.offset > finding.key.offset
        };
        let keys = |draft: &SourceDraft| -> BTreeSet<FindingKey> {
            let counted = draft.findings.iter().filter(|other| !is_further(other));
            counted.map(|problem| problem.key.clone()).collect()
        };
        let (after, before) = (keys(self), keys(before));
        after.len() < before.len() && after.is_subset(&before)
    }
}

/// Fixes a text's findings of a severity and above, in a limited number of trials.
fn fix(path: &Path, text: &str, least: Severity, trials: usize) -> anyhow::Result<FixResult> {
    let assembler = CcAssembler::from_environment();
    let fixer = Fixer {
        path,
        assembler: &assembler,
        syntax: RegisterSyntax::detect(text),
        least,
        trials: Cell::new(trials),
    };
    let mut draft = fixer.examine(fixer.read(text)?)?;
    let found = draft.findings.len();
    for reach in [FixScope::Whole, FixScope::Part] {
        draft = fixer.all(draft, reach);
    }
    let refusal = |finding: &DraftFinding| {
        let reason = fixer.edits(&draft.source, finding, FixScope::Part).err();
        let condition = || {
            let line = draft.source.condition_around(finding.line?)?;
            draft.source.original(line).map(FixRefusal::Conditional)
        };
        let cfa = || draft.is_cfa_wrong_at(finding).then_some(FixRefusal::Cfa);
        let reason = reason.or_else(condition).or_else(cfa);
        let reason = reason.unwrap_or(FixRefusal::NothingFound);
        (
            finding.line,
            format!("{} stays: {reason}", finding.key.code.id()),
        )
    };
    Ok(FixResult {
        fixed: found - draft.findings.len(),
        refused: draft.findings.iter().map(refusal).collect(),
        advice: draft.applied.into_iter().rev().collect(),
        source: draft.source,
    })
}

/// How completely an entry must be fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FixScope {
    /// It has no finding any more.
    Whole,
    /// It has fewer findings. Then no directive is removed: it may be right but unproven.
    Part,
}

/// The state shared by all drafts.
struct Fixer<'p> {
    path: &'p Path,
    assembler: &'p dyn Assemble,
    syntax: RegisterSyntax,
    least: Severity,
    /// The number of drafts that may still be examined.
    trials: Cell<usize>,
}

impl Fixer<'_> {
    /// The text of the file, with the code that each line makes.
    fn read(&self, text: &str) -> anyhow::Result<AssemblySource> {
        let source = AssemblySource::for_path(self.path, text);
        let object = self.assembler.assemble(text, self.path)?;
        let file = Arc::new(ElfFile::from_bytes(self.path, object)?);
        let lines = Lines::new(Arc::clone(&file), &DebugFiles::default(), &[]);
        let ranges = file.executable_ranges().into_iter();
        let addresses = ranges.flat_map(|range| range.start.0..range.end.0);
        let made: BTreeSet<u32> = addresses
            .filter_map(|address| line_of(&lines, self.path, Vaddr(address)))
            .collect();
        Ok(source.with_assembled(made))
    }

    /// Assembles and checks a draft.
    fn examine(&self, source: AssemblySource) -> anyhow::Result<SourceDraft> {
        let left = self.trials.get().checked_sub(1);
        self.trials.set(left.context("there were too many trials")?);
        let object = self.assembler.assemble(&source.to_string(), self.path)?;
        let file = Arc::new(ElfFile::from_bytes(self.path, object)?);
        let declarations = DeclaredTable::read_if_any(&file)?;
        let lines = Lines::new(Arc::clone(&file), &DebugFiles::default(), &[]);
        let subject = CheckSubject::new(&file, &declarations, CodeOrigin::HandWritten)?;
        let mut subject = subject.with_lines(&lines);
        let findings =
            CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {}).findings;
        let machine = Lifter::new(file.abi()).context("no machine")?;
        let mut analyzer = Analyzer::new(machine);
        let line = |at| line_of(&lines, self.path, at);
        let draft_finding = |finding: Finding| {
            let key = FindingKey::new(&file, &finding)?;
            let extent = subject.program().extent_at(finding.address.0);
            let listing = subject.listing(&mut analyzer, finding.address, 1, 1);
            let (before, here): (Vec<_>, Vec<_>) = listing
                .into_iter()
                .partition(|insn| insn.address < finding.address);
            let is_return = here
                .first()
                .is_some_and(|insn| insn.text.starts_with("ret"));
            let own = line(finding.address);
            let into_entry = extent.map_or(0, |extent| finding.address.0 - extent.start);
            Some(DraftFinding {
                entry: key.offset - into_entry,
                line: own,
                shares_line: own.is_some()
                    && before.first().is_some_and(|insn| line(insn.address) == own),
                is_below_return: is_return
                    && finding.code == FindingCode::CfaOffset
                    && finding.computed == "rsp",
                is_behind_exit: before.first().is_some_and(|insn| is_exit(&insn.text)),
                cfa: here.first().and_then(|insn| insn.is_elsewhere),
                fix: finding.fix.map(|fix| self.written(&fix)),
                hint: finding.hint,
                key,
            })
        };
        let allows = AllowComments::parse(&source);
        let reported = findings
            .into_iter()
            .filter(|finding| finding.severity >= self.least);
        let is_allowed = |draft_finding: &DraftFinding| {
            let comment = draft_finding
                .line
                .and_then(|line| allows.covering(&source, line, draft_finding.key.code));
            comment.is_some()
        };
        let findings = reported
            .filter_map(draft_finding)
            .filter(|finding| !is_allowed(finding))
            .collect();
        Ok(SourceDraft {
            source,
            findings,
            applied: Vec::new(),
        })
    }

    /// A directive in the file's syntax.
    fn written(&self, directive: &str) -> String {
        match self.syntax {
            RegisterSyntax::Prefixed => directive.to_owned(),
            RegisterSyntax::Unprefixed => directive.replace('%', ""),
        }
    }

    /// Fixes all entries; fixing one may show that another is right.
    fn all(&self, mut draft: SourceDraft, scope: FixScope) -> SourceDraft {
        loop {
            let before = draft.findings.len();
            let places = draft
                .findings
                .iter()
                .map(|problem| (problem.key.section.clone(), problem.entry));
            let places: BTreeSet<(String, u64)> = places.collect();
            for (section, entry) in places {
                draft = self.entry(&draft, &section, entry, scope).unwrap_or(draft);
            }
            if draft.findings.len() == before {
                return draft;
            }
        }
    }

    /// Fixes an entry.
    fn entry(
        &self,
        draft: &SourceDraft,
        section: &str,
        entry: u64,
        scope: FixScope,
    ) -> Option<SourceDraft> {
        let mut own = draft
            .findings
            .iter()
            .filter(|problem| problem.is_in(section, entry));
        if own.any(|problem| problem.refusal().is_some()) {
            return None;
        }
        let is_wanted = |after: &SourceDraft| {
            let mut own = after
                .findings
                .iter()
                .filter(|problem| problem.is_in(section, entry));
            after.improves(draft) && (scope == FixScope::Part || own.next().is_none())
        };
        let edited = self.step_by_step(draft.clone(), section, entry, scope);
        match scope {
            _ if is_wanted(&edited) => Some(edited),
            FixScope::Whole => {
                let mut anew = self.rewrite_entry(draft, section, entry).find(is_wanted)?;
                anew.follow(draft, Some(&[EditStep::Annotate]));
                Some(anew)
            }
            FixScope::Part => None,
        }
    }

    /// Fixes an entry's findings in the order of the code, until one has no fix.
    fn step_by_step(
        &self,
        mut draft: SourceDraft,
        section: &str,
        entry: u64,
        scope: FixScope,
    ) -> SourceDraft {
        /// Each costs some runs of the assembler.
        const MAX_STEPS: usize = 200;
        let mut given_up: BTreeSet<FindingKey> = BTreeSet::new();
        for _ in 0..MAX_STEPS {
            let mut problems = draft.findings.iter();
            let next = problems.find(|problem| {
                problem.is_in(section, entry)
                    && problem.is_of_rows()
                    && !given_up.contains(&problem.key)
            });
            let Some(problem) = next.cloned() else {
                break;
            };
            match self.step(&draft, &problem, scope) {
                Some(better) => draft = better,
                None => drop(given_up.insert(problem.key)),
            }
        }
        draft
    }

    /// The edit that leaves the fewest findings, if one fixes a finding.
    fn step(
        &self,
        draft: &SourceDraft,
        finding: &DraftFinding,
        scope: FixScope,
    ) -> Option<SourceDraft> {
        let mut best: Option<SourceDraft> = None;
        let is_cfa_wrong = draft.is_cfa_wrong_at(finding);
        for edit in self.edits(&draft.source, finding, scope).ok()? {
            if is_cfa_wrong && edit.is_counted_from_cfa() {
                continue;
            }
            let Ok(mut after) = self.examine(edit.applied(&draft.source)) else {
                continue; // It does not assemble: directives contradict each other.
            };
            if !after.improves_up_to(draft, finding) {
                continue;
            }
            let left = after.findings.len();
            if best.as_ref().is_none_or(|best| left < best.findings.len()) {
                let is_clean = !after
                    .findings
                    .iter()
                    .any(|other| other.is_in(&finding.key.section, finding.entry));
                after.follow(draft, edit.steps(&draft.source).as_deref());
                best = Some(after);
                if is_clean {
                    break;
                }
            }
        }
        best
    }

    /// Edits that may fix a finding, the likelier first. A directive is on the wrong side of the
    /// instruction, superfluous, wrong, or missing.
    fn edits(
        &self,
        source: &AssemblySource,
        finding: &DraftFinding,
        scope: FixScope,
    ) -> Result<Vec<Edit>, FixRefusal> {
        if let Some(refusal) = finding.refusal() {
            return Err(refusal);
        }
        let line = finding.line.ok_or(FixRefusal::NoLine)?;
        if finding.shares_line {
            return Err(FixRefusal::OneLine);
        }
        if source.is_repeated(line) {
            return Err(FixRefusal::Repeated);
        }
        if finding.key.code == FindingCode::EntryTooShort {
            return Ok(extend_entry(source, line));
        }
        let mut edits = Vec::new();
        let places = source.insertion_points_before(line);
        let above = source.gap_before(line).directives;
        let (removable, below) = match scope {
            FixScope::Whole => (above.as_slice(), source.gap_after(line).directives),
            FixScope::Part => (&[][..], Vec::new()),
        };
        if let (Some(Hint::I386Numbering { arch, .. }), FixScope::Whole) = (finding.hint, scope) {
            edits.extend(self.with_i386_registers(source, line, arch));
        }
        let moved = |from: u32, before: u32| {
            let is_alike = source.has_same_conditions(from, before);
            is_alike.then(|| Edit(vec![LineEdit::Move { line: from, before }]))
        };
        let behind = removable.iter().rev();
        edits.extend(behind.filter_map(|directive| moved(*directive, line + 1)));
        let first = places.first().copied().unwrap_or(line);
        edits.extend(below.iter().filter_map(|below| moved(*below, first)));
        let take_out = |line: &u32| Edit(vec![LineEdit::Remove { line: *line }]);
        edits.extend(removable.iter().rev().map(take_out));
        edits.extend(above.iter().rev().filter_map(|line| {
            let replacement = correct_directive(source.directive(*line), finding.fix.as_ref()?)?;
            Some(Edit(vec![LineEdit::Replace {
                line: *line,
                replacement,
            }]))
        }));
        if finding.is_behind_exit {
            edits.extend(remember_state(source, line));
        }
        // After an exit, no earlier instruction leads to the row. The directive must then not
        // depend on a condition.
        let places = places.into_iter();
        let places =
            places.filter(|_| !finding.is_behind_exit || source.has_unconditional_gap(line));
        edits.extend(places.filter_map(|before| {
            let directive = finding.fix.clone()?;
            Some(Edit(vec![LineEdit::Insert { before, directive }]))
        }));
        // An offset from the CFA would be right only if no condition leaves out a line.
        if source.has_conditional_cfa_shift(line) {
            edits.retain(|edit| !edit.is_counted_from_cfa());
        }
        Ok(edits)
    }

    /// The entry around a line, with i386 names in place of register numbers.
    fn with_i386_registers(&self, source: &AssemblySource, line: u32, arch: Arch) -> Option<Edit> {
        let name = |number: u16| {
            let number = Register(number);
            let meant = i386_register(number, arch).unwrap_or(number);
            let name = arch.assembler_name(meant)?;
            Some(self.written(&format!("%{name}")))
        };
        let changes = source.entry_around(line)?.filter_map(|line| {
            let by = name_registers(source.directive(line), name)?;
            Some(LineEdit::Replace {
                line,
                replacement: by,
            })
        });
        Some(Edit(changes.collect()))
    }

    /// Removes directives, and rewrites all that an entry's code needs. The removed directives are
    /// those of the entry itself, of its neighbours too, or none. So an entry that was cut in two
    /// becomes one.
    fn rewrite_entry<'s>(
        &'s self,
        draft: &'s SourceDraft,
        section: &'s str,
        entry: u64,
    ) -> impl Iterator<Item = SourceDraft> + 's {
        let mut own = draft
            .findings
            .iter()
            .filter(move |problem| problem.is_in(section, entry));
        let is_known = |finding: &&DraftFinding| {
            finding.is_of_rows() || finding.key.code == FindingCode::NoEntry
        };
        let problem = own.find(is_known);
        let strips = problem
            .map(|problem| entries_to_remove(&draft.source, problem))
            .unwrap_or_default();
        strips.into_iter().filter_map(move |entries| {
            let mut bare = draft.source.clone();
            let is_whole = entries.into_iter().rev().all(|entry| bare.strip(entry));
            let at = problem.filter(|_| is_whole)?.key.offset;
            self.annotated(bare, section, at).ok()?
        })
    }

    /// A text with all directives of the function at an offset, which has none.
    fn annotated(
        &self,
        bare: AssemblySource,
        section: &str,
        offset: u64,
    ) -> anyhow::Result<Option<SourceDraft>> {
        let assemble = |source: &AssemblySource| -> anyhow::Result<Arc<ElfFile>> {
            let object = self.assembler.assemble(&source.to_string(), self.path)?;
            Ok(Arc::new(ElfFile::from_bytes(self.path, object)?))
        };
        let file = assemble(&bare)?;
        let lines = Lines::new(Arc::clone(&file), &DebugFiles::default(), &[]);
        let line = |at: Vaddr| line_of(&lines, self.path, at);
        let mut plan = DirectivePlan::new(
            &file,
            &tables::read_if_any(&file)?,
            &bare,
            self.syntax,
            line,
        );
        plan.retain_around(section, offset);
        let mut source = bare;
        plan.write_into(&mut source);
        source.restore_unchanged_lines();
        let written = assemble(&source)?;
        let holds = plan.annotated_count() > 0
            && plan
                .verify(&written, &tables::read_if_any(&written)?)
                .is_ok();
        holds.then(|| self.examine(source)).transpose()
    }
}

/// The entries that may be removed and rewritten.
fn entries_to_remove(source: &AssemblySource, finding: &DraftFinding) -> Vec<Vec<Range<u32>>> {
    let Some(line) = finding.line else {
        return Vec::new();
    };
    let around = source.entry_around(line);
    let before = source.entry_before(line);
    let behind = source.entry_after(line);
    let sets = match around {
        Some(around) => vec![vec![Some(around.clone())], vec![Some(around), behind]],
        None => vec![
            vec![],
            vec![before.clone()],
            vec![behind.clone()],
            vec![before, behind],
        ],
    };
    let whole = sets.into_iter().filter_map(|set| set.into_iter().collect());
    // Code after an exit that does not start like a function is not a function, or its author knows
    // more.
    let begins = |set: &Vec<Range<u32>>| {
        set.first()
            .is_none_or(|entry| source.begins_like_function(entry))
    };
    whole.filter(begins).collect()
}

/// Whether control does not continue after an instruction.
fn is_exit(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mnemonic = words.find(|word| !matches!(*word, "rep" | "repz" | "bnd" | "notrack"));
    mnemonic.is_some_and(|word| word.starts_with("ret") || matches!(word, "jmp" | "ud2" | "hlt"))
}

/// Moves the end of the entry around a line to later lines, one candidate for each.
fn extend_entry(source: &AssemblySource, line: u32) -> Vec<Edit> {
    /// The most lines to try, each of which is a run of the assembler.
    const MAX_LINES: usize = 20;
    let Some(entry) = source.entry_around(line) else {
        return Vec::new();
    };
    let end = entry.end - 1;
    let next = source.entry_after(end);
    let lines = (entry.end..next.map_or(u32::MAX, |next| next.start)).take(MAX_LINES);
    let lines = lines.take_while(|line| source.numbered_lines().any(|(number, _)| number == *line));
    let longer = |behind: u32| {
        Edit(vec![LineEdit::Move {
            line: end,
            before: behind + 1,
        }])
    };
    lines.map(longer).collect()
}

/// Saves the rows before an epilogue, and restores them after the exit before a line. There is a
/// candidate for each instruction at which the epilogue may start, the last first.
fn remember_state(source: &AssemblySource, line: u32) -> Vec<Edit> {
    /// The most instructions with directives in an epilogue.
    const MAX_INSTRUCTIONS: usize = 10;
    let mut edits = Vec::new();
    let behind_exit = source.gap_before(line).lines.start;
    let Some(entry) = source.entry_around(line) else {
        return edits;
    };
    let mut here = behind_exit.saturating_sub(1);
    while here > entry.start && edits.len() < MAX_INSTRUCTIONS {
        let gap = source.gap_before(here);
        here = gap.lines.start.saturating_sub(1);
        if gap.directives.is_empty() || here <= entry.start {
            continue;
        }
        let before = source.insertion_points_before(here).last().copied();
        let write = |before: u32, directive: &str| LineEdit::Insert {
            before,
            directive: directive.to_owned(),
        };
        let before = before.unwrap_or(here);
        if !source.has_same_conditions(before, behind_exit) {
            continue;
        }
        edits.push(Edit(vec![
            write(before, ".cfi_remember_state"),
            write(behind_exit, ".cfi_restore_state"),
        ]));
    }
    edits
}
