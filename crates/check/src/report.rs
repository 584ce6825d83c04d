//! What was found of a whole file.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use unspool_ir::Vaddr;
use unspool_synth::{Analyzer, Machine, Returns};

use crate::authors::Maker;
use crate::finding::{self, Code, Finding};
use crate::judge::Verdict;
use crate::prover::Prover;
use crate::subject::Subject;
use crate::unit::UnitReport;
use crate::{sframe, signal};

/// How many rows there are of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// All rows.
    pub rows: u64,
    /// Rows whose CFA is proven at each instruction.
    pub proven_cfa: u64,
    /// Rows of which all is proven at each instruction.
    pub proven: u64,
    /// Of these, rows of functions that store on the stack by an index or a number that only a run knows: they hold if each such store is inside
    /// its array.
    pub assuming_bounds: u64,
    /// Rows of which something is refuted.
    pub refuted: u64,
    /// Rows of which something is unproven, and nothing refuted.
    pub unproven: u64,
    /// Rows to none of whose instructions anything leads.
    pub unreached: u64,
    /// Bytes of code that entries cover.
    pub bytes: u64,
}

impl Totals {
    /// Takes in those of something else.
    pub fn add(&mut self, other: &Totals) {
        self.rows += other.rows;
        self.proven_cfa += other.proven_cfa;
        self.proven += other.proven;
        self.assuming_bounds += other.assuming_bounds;
        self.refuted += other.refuted;
        self.unproven += other.unproven;
        self.unreached += other.unreached;
        self.bytes += other.bytes;
    }

    /// Counts the rows of a unit; of some it is known elsewhere that they are wrong.
    fn count(&mut self, report: &UnitReport, wrong: &BTreeSet<Vaddr>) {
        for row in &report.rows {
            self.rows += 1;
            if wrong.contains(&row.start) || report.inside.contains(&row.start) {
                self.refuted += 1;
                continue;
            }
            let Some(judgement) = row.judgement else {
                self.unreached += 1;
                continue;
            };
            self.proven_cfa += u64::from(judgement.cfa == Verdict::Proven);
            match judgement.worst() {
                Verdict::Proven => {
                    self.proven += 1;
                    self.assuming_bounds += u64::from(report.assumes_bounds);
                }
                Verdict::Unproven => self.unproven += 1,
                Verdict::Refuted => self.refuted += 1,
            }
        }
    }
}

/// What was found of a file.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Counts.
    pub totals: Totals,
    /// What is wrong, in the order of addresses.
    pub findings: Vec<Finding>,
    /// The begins of functions whose rows are proven only if each store by an index or a number that only a run knows is inside its array:
    /// [`Totals::assuming_bounds`] counts the rows. In the order of addresses.
    pub assuming_bounds: Vec<Vaddr>,
    /// Where functions return to their callers, and how.
    exits: Vec<(Vaddr, Returns)>,
    /// Where control leaves them otherwise.
    others: Vec<Vaddr>,
    /// Functions that control goes on in with another CFA than their first rows say, and how far that is above the stack pointer.
    ahead: BTreeMap<Vaddr, i64>,
}

impl Report {
    /// Judges all of a file, with so many threads. `progress` is told how many units are done, of how many.
    #[must_use]
    pub fn of(
        subject: &mut Subject<'_>,
        threads: NonZeroUsize,
        progress: impl Fn(usize, usize) + Sync,
    ) -> Report {
        let signals = signal::findings(subject);
        // Rows of which something is refuted that is not about what they say is where.
        let outermost = finding::outermost(subject);
        let outermost = outermost.filter(|at| subject.maker_at(*at) == Maker::People);
        let places = signals.iter().map(|finding| finding.at).chain(outermost);
        let places: Vec<Vaddr> = places.collect();
        let wrong = places.iter().filter_map(|at| subject.row_at(*at)).collect();
        let mut report = Report::once(subject, threads, &wrong, &progress);
        // What callers may expect of a function is known for certain when it was judged.
        if subject.learn(&report.exits, &report.others) {
            report = Report::once(subject, threads, &wrong, &progress);
        }
        // What else is told of their entries is told for the same cause.
        let extent = |at: Vaddr| subject.program().containing(at.0);
        let told: Vec<usize> = places.iter().filter_map(|at| extent(*at)).collect();
        report
            .findings
            .retain(|finding| extent(finding.at).is_none_or(|place| !told.contains(&place)));
        report.spare_shared(subject);
        report.findings.extend(signals);
        let ways_out = report.findings.iter();
        let ways_out = ways_out.filter(|finding| finding.code == Code::EntryTooShort);
        let told = ways_out
            .flat_map(|finding| finding.related.iter().copied())
            .collect();
        report.findings.extend(finding::of_whole(subject, &told));
        report.findings.extend(sframe::findings(subject));
        let key = |finding: &Finding| (finding.at, finding.code, finding.computed.clone());
        report.findings.sort_by_cached_key(key);
        report.findings.dedup();
        report
    }

    /// Leaves out what was found of functions only because they were judged as functions that are called, where control goes on in them otherwise: their first
    /// rows are told, and what is found with those mended.
    fn spare_shared(&mut self, subject: &Subject<'_>) {
        let Some(machine) = Machine::of(subject.table().abi()) else {
            return;
        };
        let mut analyzer = Analyzer::new(machine);
        let key = |finding: &Finding| (finding.at, finding.code, finding.subject.clone());
        for (at, cfa) in &self.ahead {
            let again = subject.judge_shared(&mut analyzer, *at, *cfa);
            let again = finding::of_unit(subject, &again);
            let again: BTreeSet<_> = again.iter().map(key).collect();
            let extent = subject.program().extent_at(at.0);
            let is_inside = |finding: &Finding| {
                let at = finding.at.0;
                extent.is_some_and(|extent| extent.start <= at && at < extent.end)
            };
            self.findings
                .retain(|finding| !is_inside(finding) || again.contains(&key(finding)));
        }
    }

    fn once(
        subject: &Subject<'_>,
        threads: NonZeroUsize,
        wrong: &BTreeSet<Vaddr>,
        progress: &(impl Fn(usize, usize) + Sync),
    ) -> Report {
        let units = subject.program().units();
        let next = AtomicUsize::new(0);
        let whole = Mutex::new(Report::default());
        let work = || {
            let mut part = Report::default();
            let Some(mut prover) = Prover::of(subject.table().abi()) else {
                return;
            };
            loop {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                if first >= units {
                    break;
                }
                for unit in first..units.min(first + BATCH) {
                    let report = subject.judge_unit(&mut prover, unit);
                    part.totals.count(&report, wrong);
                    let begin = report.rows.first().filter(|_| report.assumes_bounds);
                    part.assuming_bounds.extend(begin.map(|row| row.start));
                    part.findings.extend(finding::of_unit(subject, &report));
                    part.exits.extend(report.exits);
                    part.others.extend(report.others);
                    part.ahead.extend(report.ahead);
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
        report.assuming_bounds.sort_unstable();
        let extents = subject.program().extents().iter();
        report.totals.bytes = extents.map(|extent| extent.end - extent.start).sum();
        report
    }

    fn add(&mut self, part: Report) {
        self.totals.add(&part.totals);
        self.findings.extend(part.findings);
        self.assuming_bounds.extend(part.assuming_bounds);
        self.exits.extend(part.exits);
        self.others.extend(part.others);
        self.ahead.extend(part.ahead);
    }
}

/// How many units a thread takes at once.
const BATCH: usize = 64;
