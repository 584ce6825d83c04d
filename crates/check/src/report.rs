//! The report of a whole file.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use unspool_code_analysis::{Analyzer, Lifter, ReturnBehavior};
use unspool_rows::Vaddr;

use crate::coverage::ReachedOutside;
use crate::finding::{self, Finding, FindingCode, Severity};
use crate::origin::CodeOrigin;
use crate::path::JumpEdge;
use crate::row_checker::Verdict;
use crate::subject::CheckSubject;
use crate::unit::UnitReport;
use crate::unit_checker::UnitChecker;
use crate::{sframe, signal};

/// Number of rows with each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowTotals {
    /// All rows.
    pub rows: u64,
    /// Rows with a CFA that is proven at each instruction.
    pub proven_cfa: u64,
    /// Rows that are entirely proven at each instruction.
    pub proven: u64,
    /// Proven rows of functions that store on the stack by an index or a number that only a run
    /// knows. They hold if each such store is inside its array.
    pub assuming_bounds: u64,
    /// Proven rows of functions with a call of an unknown function that is assumed not to return.
    pub assuming_noreturn: u64,
    /// Proven rows with rules for registers that the calling convention does not preserve: these are
    /// not judged.
    pub partly_judged: u64,
    /// Rows with a refuted rule.
    pub refuted: u64,
    /// Rows with an unproven rule, and none refuted.
    pub unproven: u64,
    /// Rows without a reached instruction.
    pub unreached: u64,
    /// Bytes of code with an entry.
    pub bytes: u64,
}

impl RowTotals {
    /// Adds other totals.
    pub fn add(&mut self, other: &RowTotals) {
        self.rows += other.rows;
        self.proven_cfa += other.proven_cfa;
        self.proven += other.proven;
        self.assuming_bounds += other.assuming_bounds;
        self.assuming_noreturn += other.assuming_noreturn;
        self.partly_judged += other.partly_judged;
        self.refuted += other.refuted;
        self.unproven += other.unproven;
        self.unreached += other.unreached;
        self.bytes += other.bytes;
    }

    /// Counts the rows of a unit; `wrong` are rows that another check refutes.
    fn count(&mut self, subject: &CheckSubject<'_>, report: &UnitReport, wrong: &BTreeSet<Vaddr>) {
        for row in report
            .rows
            .iter()
            .filter(|row| subject.is_reported(row.start))
        {
            self.rows += 1;
            if wrong.contains(&row.start) || report.misaligned_rows.contains(&row.start) {
                self.refuted += 1;
                continue;
            }
            let Some(verdicts) = row.verdicts else {
                self.unreached += 1;
                continue;
            };
            self.proven_cfa += u64::from(verdicts.cfa == Verdict::Proven);
            match verdicts.worst() {
                Verdict::Proven => {
                    self.proven += 1;
                    self.assuming_bounds += u64::from(report.assumes_bounds);
                    self.assuming_noreturn += u64::from(!report.assumed_noreturn.is_empty());
                    self.partly_judged += u64::from(subject.unpreserved_at(row.start.0) != 0);
                }
                Verdict::Unproven => self.unproven += 1,
                Verdict::Refuted => self.refuted += 1,
            }
        }
    }
}

/// The report of a file.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Counts.
    pub totals: RowTotals,
    /// Findings, in the order of addresses.
    pub findings: Vec<Finding>,
    /// Starts of functions with rows that depend on an assumption: each store by an index or a
    /// number that only a run knows is inside its array. [`RowTotals::assuming_bounds`] counts the
    /// rows. In the order of addresses.
    pub functions_assuming_bounds: Vec<Vaddr>,
    /// Calls of unknown functions that are assumed not to return. [`RowTotals::assuming_noreturn`]
    /// counts the rows of their functions. In the order of addresses.
    pub calls_assumed_noreturn: Vec<Vaddr>,
    /// Returns of functions to their callers, and their behavior.
    exits: Vec<(Vaddr, ReturnBehavior)>,
    /// Other exits of functions.
    other_exits: Vec<Vaddr>,
    /// Functions that another one continues in with another CFA than their first rows say, and the
    /// distance of that CFA above the stack pointer.
    entered_with_frame: BTreeMap<Vaddr, i64>,
    /// The jumps among these.
    jumps_with_frame: Vec<JumpEdge>,
    /// Indirect jumps into other units otherwise than to functions.
    indirect_edges: Vec<JumpEdge>,
    /// Jumps to functions, with the registers that hold addresses of the jumping code.
    jumps_with_address: Vec<(Vaddr, u64)>,
    /// Functions that jump to a register's entry value, and the register.
    entry_register_jumps: Vec<(Vaddr, u8)>,
    reached_outside: ReachedOutside,
}

impl CheckReport {
    /// Checks all of a file on a number of threads. `progress` receives the number of units done,
    /// and their total.
    #[must_use]
    pub fn from_subject(
        subject: &mut CheckSubject<'_>,
        threads: NonZeroUsize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> CheckReport {
        let signals = signal::findings(subject);
        // Rows with a fault that is not about a location.
        let outermost = finding::outermost(subject);
        let outermost = outermost.filter(|at| subject.origin_at(*at) == CodeOrigin::HandWritten);
        let places = signals
            .iter()
            .map(|finding| finding.address)
            .chain(outermost);
        let places: Vec<Vaddr> = places.collect();
        let wrong = places.iter().filter_map(|at| subject.row_at(*at)).collect();
        let mut report = CheckReport::check_units(subject, threads, &wrong, &progress);
        // What callers rely on is known for certain once the function was checked, and its callees.
        let mut checks = 1;
        while report.update_program(subject) {
            report = CheckReport::check_units(subject, threads, &wrong, &progress);
            checks += 1;
            if checks == MAX_CHECKS {
                report.withdraw_proof(subject);
                break;
            }
        }
        // Other findings in their entries have the same cause.
        let extent = |at: Vaddr| subject.program().index_containing(at.0);
        let reported: Vec<usize> = places.iter().filter_map(|at| extent(*at)).collect();
        report.findings.retain(|finding| {
            extent(finding.address).is_none_or(|place| !reported.contains(&place))
        });
        report.drop_shared_body_findings(subject);
        report.findings.extend(signals);
        let ways_out = report.findings.iter();
        let ways_out = ways_out.filter(|finding| finding.code == FindingCode::EntryTooShort);
        report.reached_outside.reported = ways_out
            .flat_map(|finding| finding.related.iter().copied())
            .collect();
        report
            .findings
            .extend(finding::file_findings(subject, &report.reached_outside));
        report.findings.extend(sframe::findings(subject));
        let key = |finding: &Finding| (finding.address, finding.code, finding.computed.clone());
        report
            .findings
            .retain(|finding| subject.is_reported(finding.address));
        report.findings.sort_by_cached_key(key);
        report.findings.dedup();
        report
    }

    /// Sets how the functions of a subject return, and how they are entered. Returns whether that
    /// is new.
    fn update_program(&self, subject: &mut CheckSubject<'_>) -> bool {
        let has_new_returns = self.settle_returns(subject);
        let has_links =
            subject.find_link_registers(&self.jumps_with_address, &self.entry_register_jumps);
        let has_parts = subject.find_parts(&self.jumps_with_frame);
        let has_edges = subject.unite_along(&self.indirect_edges);
        has_new_returns || has_links || has_parts || has_edges
    }

    /// Sets how functions return: those that name a function whose returns are new are checked
    /// again, until nothing is new. Returns whether anything was.
    fn settle_returns(&self, subject: &mut CheckSubject<'_>) -> bool {
        let mut changed = subject.set_return_behaviors(&self.exits, &self.other_exits);
        let Some(mut unit_checker) = UnitChecker::new(subject.table().abi()) else {
            return false;
        };
        let is_new = !changed.is_empty();
        let units = if is_new {
            subject.referring_units()
        } else {
            BTreeMap::new()
        };
        while !changed.is_empty() {
            let affected: BTreeSet<usize> = (changed
                .iter()
                .filter_map(|index| units.get(index))
                .flatten()
                .copied())
            .collect();
            changed.clear();
            for unit in affected {
                let mut report = subject.check_unit(&mut unit_checker, unit);
                report.exits.append(&mut report.tail_calls);
                changed.extend(subject.set_return_behaviors(&report.exits, &report.other_exits));
            }
        }
        is_new
    }

    /// Takes all proofs back: not all is known that functions rely on.
    fn withdraw_proof(&mut self, subject: &CheckSubject<'_>) {
        let totals = &mut self.totals;
        totals.unproven += core::mem::take(&mut totals.proven);
        totals.proven_cfa = 0;
        totals.assuming_bounds = 0;
        totals.assuming_noreturn = 0;
        totals.partly_judged = 0;
        let extents = subject.program().extents().iter();
        let starts = extents.map(|extent| Vaddr(extent.start));
        let findings = starts.map(|at| Finding::new(at, FindingCode::GivenUp, Severity::Unproven));
        self.findings.extend(findings);
    }

    /// Drops findings that exist only because a function was checked as if called, although another
    /// one continues in it. Its first row is reported, and findings that remain with that row
    /// repaired.
    fn drop_shared_body_findings(&mut self, subject: &CheckSubject<'_>) {
        let Some(machine) = Lifter::new(subject.table().abi()) else {
            return;
        };
        let mut analyzer = Analyzer::new(machine);
        let key = |finding: &Finding| (finding.address, finding.code, finding.subject.clone());
        for (at, cfa) in &self.entered_with_frame {
            let again = subject.check_unit_entered_with_frame(&mut analyzer, *at, *cfa);
            let again = finding::unit_findings(subject, &again);
            let again: BTreeSet<_> = again.iter().map(key).collect();
            let extent = subject.program().extent_at(at.0);
            let is_inside = |finding: &Finding| {
                let at = finding.address.0;
                extent.is_some_and(|extent| extent.start <= at && at < extent.end)
            };
            self.findings
                .retain(|finding| !is_inside(finding) || again.contains(&key(finding)));
        }
    }

    fn check_units(
        subject: &CheckSubject<'_>,
        threads: NonZeroUsize,
        wrong: &BTreeSet<Vaddr>,
        progress: &(impl Fn(usize, usize) + Sync),
    ) -> CheckReport {
        let units = subject.program().unit_count();
        let next = AtomicUsize::new(0);
        let whole = Mutex::new(CheckReport::default());
        let work = || {
            let mut part = CheckReport::default();
            let Some(mut prover) = UnitChecker::new(subject.table().abi()) else {
                return;
            };
            loop {
                let first = next.fetch_add(UNITS_PER_BATCH, Ordering::Relaxed);
                if first >= units {
                    break;
                }
                for unit in first..units.min(first + UNITS_PER_BATCH) {
                    let report = subject.check_unit(&mut prover, unit);
                    part.totals.count(subject, &report, wrong);
                    let begin = report.rows.first().filter(|_| report.assumes_bounds);
                    part.functions_assuming_bounds
                        .extend(begin.map(|row| row.start));
                    part.findings
                        .extend(finding::unit_findings(subject, &report));
                    part.calls_assumed_noreturn.extend(report.assumed_noreturn);
                    let outside = &mut part.reached_outside;
                    outside.targets.extend(report.targets_outside);
                    outside.behind_calls.extend(report.ends_behind_calls);
                    part.jumps_with_address.extend(report.jumps_with_address);
                    part.entry_register_jumps
                        .extend(report.entry_register_jumps);
                    part.exits.extend(report.exits);
                    part.exits.extend(report.tail_calls);
                    part.other_exits.extend(report.other_exits);
                    part.entered_with_frame.extend(report.entered_with_frame);
                    part.jumps_with_frame.extend(report.jumps_with_frame);
                    part.indirect_edges.extend(report.indirect_edges);
                }
                progress(first, units);
            }
            let mut whole = whole.lock().unwrap_or_else(PoisonError::into_inner);
            whole.add(part);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get() {
                scope.spawn(work);
            }
            work();
        });
        let mut report = whole.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.functions_assuming_bounds.sort_unstable();
        report.calls_assumed_noreturn.sort_unstable();
        let extents = subject.program().extents().iter();
        report.totals.bytes = extents.map(|extent| extent.end - extent.start).sum();
        report
    }

    fn add(&mut self, part: CheckReport) {
        self.totals.add(&part.totals);
        self.findings.extend(part.findings);
        self.functions_assuming_bounds
            .extend(part.functions_assuming_bounds);
        self.calls_assumed_noreturn
            .extend(part.calls_assumed_noreturn);
        let outside = part.reached_outside;
        self.reached_outside.targets.extend(outside.targets);
        self.reached_outside
            .behind_calls
            .extend(outside.behind_calls);
        self.jumps_with_address.extend(part.jumps_with_address);
        self.entry_register_jumps.extend(part.entry_register_jumps);
        self.exits.extend(part.exits);
        self.other_exits.extend(part.other_exits);
        self.entered_with_frame.extend(part.entered_with_frame);
        self.jumps_with_frame.extend(part.jumps_with_frame);
        self.indirect_edges.extend(part.indirect_edges);
    }
}

/// How often a file is checked, each time with more known about how its functions are entered. Then
/// nothing is proven.
const MAX_CHECKS: usize = 16;

/// Number of units in a thread's batch.
const UNITS_PER_BATCH: usize = 64;
