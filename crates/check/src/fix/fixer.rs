//! Trials of edits: a draft is assembled and checked, and stays if it is better.

use core::cell::Cell;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use unspool_assembly::{
    Assemble, AssemblySource, DirectivePlan, EditStep, RegisterSyntax, line_of,
};
use unspool_code_analysis::Analyzer;
use unspool_elf::{DebugFiles, ElfFile, Lines};
use unspool_rows::Vaddr;
use unspool_table_store as tables;

use super::FixError;
use super::candidates::entries_to_remove;
use super::draft::{DraftFinding, FindingKey, SourceDraft};
use crate::finding::{Finding, FindingCode, Severity};
use crate::origin::CodeOrigin;
use crate::report::CheckReport;
use crate::subject::{CheckSubject, DeclaredTable, lifter};
use crate::suppress::AllowComments;

/// How completely an entry must be fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FixScope {
    /// It has no finding any more.
    Whole,
    /// It has fewer findings. Then no directive is removed: it may be right but unproven.
    Part,
}

/// The state shared by all drafts.
pub(super) struct Fixer<'p> {
    pub(super) path: &'p Path,
    pub(super) assembler: &'p dyn Assemble,
    pub(super) syntax: RegisterSyntax,
    pub(super) minimum_severity: Severity,
    /// The number of drafts that may still be examined.
    pub(super) drafts_left: Cell<usize>,
}

impl Fixer<'_> {
    /// The text of the file, with the code that each line makes.
    pub(super) fn read(&self, text: &str) -> Result<AssemblySource, FixError> {
        let source = AssemblySource::for_path(self.path, text);
        let (file, lines) = self.assembled(text)?;
        let ranges = file.executable_ranges().into_iter();
        let addresses = ranges.flat_map(|range| range.start.0..range.end.0);
        let made: BTreeSet<u32> = addresses
            .filter_map(|address| line_of(&lines, self.path, Vaddr(address)))
            .collect();
        Ok(source.with_assembled(made))
    }

    /// The object file of a text, and its line numbers.
    fn assembled(&self, text: &str) -> Result<(Arc<ElfFile>, Lines), FixError> {
        let object = self.assembler.assemble(text, self.path)?;
        let file = Arc::new(ElfFile::from_bytes(self.path, object)?);
        let lines = Lines::new(Arc::clone(&file), &DebugFiles::default(), &[]);
        Ok((file, lines))
    }

    /// Assembles and checks a draft.
    pub(super) fn examine(&self, source: AssemblySource) -> Result<SourceDraft, FixError> {
        let left = self.drafts_left.get().checked_sub(1);
        self.drafts_left.set(left.ok_or(FixError::TooManyDrafts)?);
        let (file, lines) = self.assembled(&source.to_string())?;
        let declarations = DeclaredTable::read_if_any(&file)?;
        let subject = CheckSubject::new(&file, &declarations, CodeOrigin::HandWritten)?;
        let mut subject = subject.with_lines(&lines);
        let findings =
            CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {}).findings;
        let mut analyzer = Analyzer::new(lifter(&file, file.abi())?);
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
            .filter(|finding| finding.severity >= self.minimum_severity);
        let is_allowed = |finding: &DraftFinding| {
            let line = finding.line;
            line.is_some_and(|line| allows.covering(&source, line, finding.key.code).is_some())
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
    pub(super) fn written(&self, directive: &str) -> String {
        match self.syntax {
            RegisterSyntax::Prefixed => directive.to_owned(),
            RegisterSyntax::Unprefixed => directive.replace('%', ""),
        }
    }

    /// Fixes all entries; fixing one may show that another is right.
    pub(super) fn all(&self, mut draft: SourceDraft, scope: FixScope) -> SourceDraft {
        loop {
            let before = draft.findings.len();
            let entries = draft.findings.iter();
            let entries = entries.map(|finding| (finding.key.section.clone(), finding.entry));
            for (section, entry) in entries.collect::<BTreeSet<(String, u64)>>() {
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
        let mut own = draft.in_entry(section, entry);
        if own.any(|finding| finding.refusal().is_some()) {
            return None;
        }
        let is_wanted = |after: &SourceDraft| {
            let is_clean = || after.in_entry(section, entry).next().is_none();
            after.improves(draft) && (scope == FixScope::Part || is_clean())
        };
        let mut edited = self.step_by_step(draft.clone(), section, entry, scope);
        edited.join_edits(draft);
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
            let is_next = |own: &&DraftFinding| own.is_of_rows() && !given_up.contains(&own.key);
            let next = draft.in_entry(section, entry).find(is_next).cloned();
            let Some(finding) = next else { break };
            match self.step(&draft, &finding, scope) {
                Some(better) => draft = better,
                None => drop(given_up.insert(finding.key)),
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
                let section = &finding.key.section;
                let is_clean = after.in_entry(section, finding.entry).next().is_none();
                after.follow(draft, edit.steps(&draft.source).as_deref());
                best = Some(after);
                if is_clean {
                    break;
                }
            }
        }
        best
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
        let mut own = draft.in_entry(section, entry);
        let finding = own.find(|own| own.is_of_rows() || own.key.code == FindingCode::NoEntry);
        let strips = finding
            .map(|finding| entries_to_remove(&draft.source, finding))
            .unwrap_or_default();
        strips.into_iter().filter_map(move |entries| {
            let mut bare = draft.source.clone();
            let is_whole = entries.into_iter().rev().all(|entry| bare.strip(entry));
            let at = finding.filter(|_| is_whole)?.key.offset;
            self.annotated(bare, section, at).ok()?
        })
    }

    /// A text with all directives of the function at an offset, which has none.
    fn annotated(
        &self,
        bare: AssemblySource,
        section: &str,
        offset: u64,
    ) -> Result<Option<SourceDraft>, FixError> {
        let (file, lines) = self.assembled(&bare.to_string())?;
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
        let (written, _) = self.assembled(&source.to_string())?;
        let holds = plan.annotated_count() > 0
            && plan
                .verify(&written, &tables::read_if_any(&written)?)
                .is_ok();
        holds.then(|| self.examine(source)).transpose()
    }
}

/// Whether control does not continue after an instruction.
fn is_exit(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mnemonic = words.find(|word| !matches!(*word, "rep" | "repz" | "bnd" | "notrack"));
    mnemonic.is_some_and(|word| word.starts_with("ret") || matches!(word, "jmp" | "ud2" | "hlt"))
}
