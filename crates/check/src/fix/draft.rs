//! Drafts: texts with the findings that they have once they are assembled.

use std::collections::BTreeSet;

use unspool_assembly::{AssemblySource, EditStep};
use unspool_elf::ElfFile;

use super::FixRefusal;
use crate::finding::{Finding, FindingCode};
use crate::hint::Hint;

/// Identifies a finding independently of the directives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FindingKey {
    pub(super) section: String,
    /// In the section, in bytes.
    pub(super) offset: u64,
    pub(super) code: FindingCode,
    subject: String,
}

impl FindingKey {
    pub(super) fn new(file: &ElfFile, finding: &Finding) -> Option<FindingKey> {
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
pub(super) struct DraftFinding {
    pub(super) key: FindingKey,
    /// The start of its entry, or its own address without an entry.
    pub(super) entry: u64,
    pub(super) line: Option<u32>,
    /// Whether the preceding instruction is from the same source line.
    pub(super) shares_line: bool,
    /// Whether it is about a return, with the CFA below the return address's slot.
    pub(super) is_below_return: bool,
    /// Whether control does not come from the preceding instruction.
    pub(super) is_behind_exit: bool,
    /// Whether the row's CFA is wrong; `None` if it is an expression.
    pub(super) cfa: Option<bool>,
    pub(super) fix: Option<String>,
    pub(super) hint: Option<Hint>,
}

impl DraftFinding {
    fn is_in(&self, section: &str, entry: u64) -> bool {
        self.key.section == section && self.entry == entry
    }

    /// Why no edit can be right, whatever its effect on the finding.
    pub(super) fn refusal(&self) -> Option<FixRefusal> {
        match self.key.code {
            _ if self.is_below_return => Some(FixRefusal::NoFunction),
            FindingCode::PrivateConvention if self.fix.is_none() => Some(FixRefusal::Agreement),
            _ => None,
        }
    }

    /// Whether directives for rows may help.
    pub(super) fn is_of_rows(&self) -> bool {
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
pub(super) struct SourceDraft {
    pub(super) source: AssemblySource,
    pub(super) findings: Vec<DraftFinding>,
    /// The edits so far, and the findings that they are about.
    pub(super) applied: Vec<(FindingKey, Vec<EditStep>)>,
}

impl SourceDraft {
    /// The findings of an entry.
    pub(super) fn in_entry<'d>(
        &'d self,
        section: &'d str,
        entry: u64,
    ) -> impl Iterator<Item = &'d DraftFinding> {
        let findings = self.findings.iter();
        findings.filter(move |finding| finding.is_in(section, entry))
    }

    fn keys(&self) -> BTreeSet<&FindingKey> {
        self.findings.iter().map(|finding| &finding.key).collect()
    }

    /// Records the edits since another draft, for findings that are gone.
    pub(super) fn follow(&mut self, before: &SourceDraft, advice: Option<&[EditStep]>) {
        let keys = self.keys();
        let gone = before.keys().into_iter().filter(|key| !keys.contains(key));
        let gone = gone.filter_map(|key| Some((key.clone(), advice?.to_vec())));
        self.applied = before.applied.iter().cloned().chain(gone).collect();
    }

    /// Joins the edits about findings that an earlier edit has brought with that edit: the two belong
    /// together.
    pub(super) fn join_edits(&mut self, before: &SourceDraft) {
        let known = before.keys();
        let mut joined = before.applied.clone();
        let mut latest: Vec<EditStep> = Vec::new();
        for (key, steps) in self.applied.drain(..).skip(joined.len()) {
            if known.contains(&key) {
                latest.clone_from(&steps);
                joined.push((key, steps));
            } else if !latest.is_empty() && !latest.ends_with(&steps) {
                let is_of_latest = |earlier: &&mut (FindingKey, Vec<EditStep>)| earlier.1 == latest;
                let whole = [latest.as_slice(), &steps].concat();
                for (_, earlier) in joined.iter_mut().filter(is_of_latest) {
                    earlier.clone_from(&whole);
                }
                latest = whole;
            }
        }
        self.applied = joined;
    }

    /// Whether a register's slot is reported where the CFA is wrong: a directive relative to the
    /// CFA would place it wrongly.
    pub(super) fn is_cfa_wrong_at(&self, finding: &DraftFinding) -> bool {
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
    pub(super) fn improves(&self, before: &SourceDraft) -> bool {
        self.findings.len() < before.findings.len() && self.keys().is_subset(&before.keys())
    }

    /// The same for an entry up to a finding, and for other entries. Findings further on may only
    /// appear now.
    pub(super) fn improves_up_to(&self, before: &SourceDraft, finding: &DraftFinding) -> bool {
        let is_further = |other: &&DraftFinding| {
            other.is_in(&finding.key.section, finding.entry)
                && other.key.offset > finding.key.offset
        };
        let keys = |draft: &SourceDraft| -> BTreeSet<FindingKey> {
            let counted = draft.findings.iter().filter(|other| !is_further(other));
            counted.map(|finding| finding.key.clone()).collect()
        };
        let (after, before) = (keys(self), keys(before));
        after.len() < before.len() && after.is_subset(&before)
    }
}
