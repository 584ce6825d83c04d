//! Checks `.sframe` against `.eh_frame`, and its entries against each other.

use std::collections::{BTreeMap, BTreeSet};

use unspool_cfi::sframe::{self, SearchProblem, SframeAbi, SframeFunction, SframeVersion};
use unspool_elf::ElfKind;
use unspool_rows::arch::RegisterName;
use unspool_rows::diff::for_each_range;
use unspool_rows::table::Span;
use unspool_rows::{CfaRule, Fde, Register, RegisterRule, Row, Table, Vaddr};
use unspool_table_store::{self as tables, TableSource};

use crate::finding::{Finding, FindingCode, Severity};
use crate::row_checker::Verdict;
use crate::subject::CheckSubject;
use crate::unit_checker::UnitChecker;

/// Greatest number of findings of one kind.
const MAX_FINDINGS_PER_KIND: usize = 1000;

/// The faults in a file's `.sframe`; empty if it has none.
pub(crate) fn findings(subject: &CheckSubject<'_>) -> Vec<Finding> {
    let file = subject.file();
    let (Some(machine), Ok(sections)) = (SframeAbi::from_abi(file.abi()), file.sframes()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut functions = Vec::new();
    let mut version = None;
    for section in &sections {
        let reading = sframe::read(section.data, section.address, machine);
        let address = |entry: u64| section.address.offset(entry);
        findings.extend(
            reading
                .problems
                .iter()
                .take(MAX_FINDINGS_PER_KIND)
                .map(|problem| Finding {
                    subject: problem.to_string(),
                    ..Finding::new(
                        address(problem.entry),
                        FindingCode::SframeEntry,
                        Severity::Refuted,
                    )
                }),
        );
        if file.kind() != ElfKind::Relocatable {
            findings.extend(disorder(&reading));
        }
        version = version.max(
            reading
                .sub_sections
                .iter()
                .map(|part| part.header.version)
                .max(),
        );
        functions.extend(reading.functions);
    }
    // Without call frame information, the rows of `.sframe` are checked against the code.
    if let Some(version) = version
        && tables::sections(file, TableSource::Auto).is_ok()
    {
        let comparison = SframeComparison::new(subject, machine, version, &functions);
        findings.extend(comparison.differences());
        findings.extend(comparison.holes());
    }
    findings
}

/// Faults that keep readers from finding entries.
fn disorder(section: &sframe::SframeSection) -> Vec<Finding> {
    let start_behind = |offset: u64| {
        let functions = section.functions.iter();
        let first = functions
            .filter(|function| function.origin > offset)
            .min_by_key(|f| f.origin);
        first.map_or(Vaddr(0), |function| function.start)
    };
    let all = section.disorder(MAX_FINDINGS_PER_KIND);
    let mut findings: BTreeMap<&'static str, Finding> = BTreeMap::new();
    for found in &all {
        let (kind, at, subject) = match *found {
            SearchProblem::Concatenated { offset } => (
                "concatenated",
                start_behind(offset),
                format!(
                    ".sframe has another header at offset {offset:#x}: readers use the first only"
                ),
            ),
            SearchProblem::Unsorted {
                entry,
                start,
                is_denied,
            } => (
                "unsorted",
                start,
                if is_denied {
                    format!(
                        ".sframe is not sorted, though its header says so: the entry at offset {entry:#x} begins before the one that precedes it"
                    )
                } else {
                    format!(
                        ".sframe is not sorted, and cannot be searched: the entry at offset {entry:#x} begins before the one that precedes it"
                    )
                },
            ),
            SearchProblem::Overlap {
                entry,
                start,
                other,
            } => (
                "overlap",
                start,
                format!(
                    "the .sframe entries at offsets {other:#x} and {entry:#x} cover the same code"
                ),
            ),
        };
        // The first of a kind, with their number.
        let finding = findings.entry(kind).or_insert_with(|| Finding {
            subject,
            occurrences: 0,
            ..Finding::new(at, FindingCode::SframeOrder, Severity::Refuted)
        });
        finding.occurrences += 1;
    }
    findings.into_values().collect()
}

/// Both sections as comparable rows.
struct SframeComparison<'s, 'f> {
    subject: &'s CheckSubject<'f>,
    abi: SframeAbi,
    /// The parts of `.eh_frame` that SFrame can express.
    own: Table,
    /// The rows of `.sframe`.
    other: Table,
}

impl<'s, 'f> SframeComparison<'s, 'f> {
    fn new(
        subject: &'s CheckSubject<'f>,
        abi: SframeAbi,
        version: SframeVersion,
        functions: &[SframeFunction],
    ) -> SframeComparison<'s, 'f> {
        // Version 1 has no field for outermost frames, and signal frames are marked in version 3
        // only.
        let expected = sframe::functions(subject.table(), abi, version).functions;
        let (own, _) = sframe::table(&expected, abi);
        let (other, _) = sframe::table(&sframe::repair(functions), abi);
        SframeComparison {
            subject,
            abi,
            own,
            other,
        }
    }

    /// Differences, one for each entry of `.sframe`.
    fn differences(&self) -> Vec<Finding> {
        let mut prover = UnitChecker::new(self.own.abi());
        let mut same = BTreeSet::new();
        let mut findings: BTreeMap<Vaddr, Finding> = BTreeMap::new();
        for_each_range(&self.own, &self.other, |at, _, own, other| {
            let (Some(own), Some(other)) = (own, other) else {
                return;
            };
            if same.contains(&(own.row, other.row)) {
                return;
            }
            let rows = (self.own.row(own.row), self.other.row(other.row));
            let (Some(own_row), Some(other_row)) = rows else {
                return;
            };
            let Some(difference) = self.difference(&own_row, &other_row) else {
                same.insert((own.row, other.row));
                return;
            };
            let start = self.other.fde(other.fde).map_or(at, |fde| fde.start);
            if let Some(finding) = findings.get_mut(&start) {
                finding.occurrences += 1;
            } else if findings.len() < MAX_FINDINGS_PER_KIND {
                let severity = match prover.as_mut() {
                    Some(prover) => self.severity(prover, at),
                    None => Severity::Unproven,
                };
                let (subject, computed, declared) = difference;
                let finding = Finding {
                    subject,
                    computed: format!("{computed} in .eh_frame"),
                    declared: format!("{declared} in .sframe"),
                    ..Finding::new(at, FindingCode::SframeRow, severity)
                };
                findings.insert(start, finding);
            }
        });
        findings.into_values().collect()
    }

    /// If the code proves the row of `.eh_frame`, a different one is wrong.
    fn severity(&self, unit_checker: &mut UnitChecker, at: Vaddr) -> Severity {
        let Some(unit) = self.subject.program().unit_of(at.0) else {
            return Severity::Unproven;
        };
        let report = self.subject.check_unit(unit_checker, unit);
        let before = report.rows.iter().filter(|row| row.start <= at);
        let row = before.max_by_key(|row| row.start);
        match row.and_then(|row| row.verdicts) {
            Some(verdicts) if verdicts.worst() == Verdict::Proven => Severity::Refuted,
            _ => Severity::Unproven,
        }
    }

    /// The first difference of two rows: its subject, and both rules.
    fn difference(&self, own: &Row<'_>, other: &Row<'_>) -> Option<(String, String, String)> {
        let return_address = self.abi.return_address();
        let frame_pointer = self.abi.frame_pointer();
        let is_outermost =
            |row: &Row<'_>| row.rule(return_address) == Some(RegisterRule::Undefined);
        let abi = self.own.abi();
        if own.cfa != other.cfa && !(is_outermost(own) && is_outermost(other)) {
            let cfa = |row: &Row<'_>| match row.cfa {
                CfaRule::RegisterOffset { register, offset } => {
                    format!("{}{offset:+}", RegisterName(register, abi.arch))
                }
                _ => "an expression".to_owned(),
            };
            return Some(("the CFA".to_owned(), cfa(own), cfa(other)));
        }
        let rule = |row: &Row<'_>, register: Register| {
            let text = row.display(abi).to_string();
            let prefix = format!("{}=", RegisterName(register, abi.arch));
            let mut words = text.split("  ");
            let found = words.find_map(|word| word.trim().strip_prefix(&prefix).map(str::to_owned));
            found.unwrap_or_else(|| "unchanged".to_owned())
        };
        let watched = [
            (return_address, "the return address"),
            (frame_pointer, "the caller's frame pointer"),
        ];
        let differs =
            |(register, _): &(Register, &str)| own.rule(*register) != other.rule(*register);
        let (register, subject) = watched.into_iter().find(differs)?;
        Some((
            subject.to_owned(),
            rule(own, register),
            rule(other, register),
        ))
    }

    /// Functions of `.eh_frame` that `.sframe` lacks: one finding for all.
    fn holes(&self) -> Option<Finding> {
        let mut missing: BTreeSet<Vaddr> = BTreeSet::new();
        for_each_range(&self.own, &self.other, |at, _, own, other| {
            if other.is_none() && own.is_some_and(|own| !self.ends_there(own)) {
                let entry = own.and_then(|own| self.own.fde(own.fde));
                missing.insert(entry.map_or(at, |fde| fde.start));
            }
        });
        let first = *missing.first()?;
        let all = self.own.fdes().len();
        Some(Finding {
            subject: format!(
                "{} of {all} functions of .eh_frame have no row in .sframe for some or all of their code, this one first",
                missing.len()
            ),
            occurrences: missing.len(),
            ..Finding::new(first, FindingCode::SframeHole, Severity::Refuted)
        })
    }

    /// Whether an unwind ends in all of an entry, with a row or without.
    fn ends_there(&self, span: Span) -> bool {
        let is_outermost = |fde: &Fde| {
            self.own.rows(fde).all(|start| {
                let row = self.own.row(start.row);
                let rule = row.and_then(|row| row.rule(self.abi.return_address()));
                rule == Some(RegisterRule::Undefined)
            })
        };
        self.own.fde(span.fde).is_some_and(is_outermost)
    }
}
