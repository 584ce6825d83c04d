//! Lookups in a compiled table against framehop's steps.
//!
//! A step does a little more: it computes the caller's registers from the row. If framehop must
//! find the row first, that is a small part of its time. In the hot set, which fits its cache of
//! 509 addresses, it is most of it: its best case.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Context as _;
use unspool_bench::{Durations, Random, prefetch, ratio, time};
use unspool_compiled_table::call_test::{CALL_WINDOW_BYTES, CallTest, window};
use unspool_compiled_table::{CallSiteRow, CallSites, CompiledTable, ExecutableCode};
use unspool_elf::ElfFile;
use unspool_rows::table::Span;
use unspool_rows::{Arch, Table, Vaddr};
use unspool_table_store as tables;

use crate::ROUNDS;
use crate::peer::FramehopPeer;

const LOOKUPS: usize = 200_000;

/// The number of lookups timed together: reading the clock takes longer than one of them.
const BATCH: usize = 64;

/// The measurements: chained lookups wait for the previous one, others only for the clock.
const NAMES: [&str; 5] = [
    "random call sites, chained",
    "  code read later",
    "random pcs, chained",
    "random pcs, independent",
    "64 hot pcs, chained",
];

/// The times of batches.
#[derive(Default)]
struct Contest {
    ours: Durations,
    peer: Durations,
}

/// Measures and prints all of them.
pub(crate) fn measure(
    file: &ElfFile,
    table: &Table,
    compiled: &CompiledTable<'_>,
) -> anyhow::Result<()> {
    let spans: Vec<Span> = table.spans().collect();
    let code = tables::code(file);
    let (start, text) = *code
        .ranges
        .iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .context("no code")?;
    let ours = CompiledLookup {
        compiled,
        call_sites: compiled.call_sites(),
        start,
        text,
    };
    let peer = FramehopPeer::new(file)?;
    let sites = return_addresses(file.abi().arch, start, text, &spans);
    let pcs = random_pcs(&spans);
    check_answers(&ours, &peer, &sites, &pcs)?;

    let mut contests: [Contest; NAMES.len()] = Default::default();
    for round in 0..ROUNDS {
        let sites = shuffled(&sites, round);
        let hot = shuffled(&pcs[..pcs.len().min(64)], round);
        let pcs = shuffled(&pcs, round);
        let turns = [
            (
                chained(&sites, |site| ours.row_of_call(site)),
                chained(&sites, |site| peer.step_return(site)),
            ),
            (
                call_site_rows(&ours, &sites)?,
                chained(&sites, |site| peer.step_return(site)),
            ),
            (
                chained(&pcs, |pc| ours.row_at(pc)),
                chained(&pcs, |pc| peer.step(pc)),
            ),
            (
                independent(&pcs, |pc| ours.row_at(pc)),
                independent(&pcs, |pc| peer.step(pc)),
            ),
            (
                chained(&hot, |pc| ours.row_at(pc)),
                chained(&hot, |pc| peer.step(pc)),
            ),
        ];
        for (contest, (ours, peer)) in contests.iter_mut().zip(turns) {
            contest.ours.extend(ours);
            contest.peer.extend(peer);
        }
    }
    print(&contests);
    Ok(())
}

fn print(contests: &[Contest]) {
    println!(
        "  {:<28}{:>9}{:>9}{:>16}{:>9}{:>10}{:>9}",
        format!("ns, over batches of {BATCH}"),
        "p50",
        "p99",
        "framehop p50",
        "p99",
        "ratio p50",
        "p99"
    );
    let nanos = |batch: Duration| batch.as_secs_f64() * 1e9 / BATCH as f64;
    for (name, Contest { ours, peer }) in NAMES.iter().zip(contests) {
        println!(
            "    {name:<26}{:>9.1}{:>9.1}{:>16.1}{:>9.1}{:>10.3}{:>9.3}",
            nanos(ours.median()),
            nanos(ours.p99()),
            nanos(peer.median()),
            nanos(peer.p99()),
            ratio(ours.median(), peer.median()),
            ratio(ours.p99(), peer.p99()),
        );
    }
}

/// Both must answer nearly all: giving up is fast.
fn check_answers(
    ours: &CompiledLookup<'_>,
    peer: &FramehopPeer,
    sites: &[Vaddr],
    pcs: &[Vaddr],
) -> anyhow::Result<()> {
    let share = |questions: &[Vaddr], answers: &dyn Fn(Vaddr) -> bool| {
        let answered = questions.iter().filter(|question| answers(**question));
        100.0 * answered.count() as f64 / questions.len() as f64
    };
    let shares = [
        share(sites, &|site| ours.row_of_call(site) != NONE),
        share(sites, &|site| peer.step_return(site) != 0),
        share(pcs, &|pc| ours.row_at(pc) != NONE),
        share(pcs, &|pc| peer.step(pc) != 0),
    ];
    let [our_sites, peer_sites, our_pcs, peer_pcs] = shares;
    println!(
        "  answered: call sites {our_sites:.2} %, framehop {peer_sites:.2} %; pcs {our_pcs:.2} %, framehop {peer_pcs:.2} %"
    );
    anyhow::ensure!(
        shares.iter().all(|share| *share > 95.0),
        "too few look-ups are answered to compare their times"
    );
    Ok(())
}

/// The answer without a row.
const NONE: u64 = u64::MAX;

struct CompiledLookup<'c> {
    compiled: &'c CompiledTable<'c>,
    call_sites: CallSites<'c>,
    start: Vaddr,
    /// The code of the table.
    text: &'c [u8],
}

impl CompiledLookup<'_> {
    fn row_at(&self, pc: Vaddr) -> u64 {
        let hit = self.compiled.lookup(pc).ok().flatten();
        hit.map_or(NONE, |hit| u64::from(hit.row.0))
    }

    /// The row of the call that returns to an address.
    fn row_of_call(&self, site: Vaddr) -> u64 {
        let before = window(self.text, self.offset(site));
        match self.call_sites.row(site, before) {
            Ok(Some(row)) => u64::from(row.0),
            _ => self.row_at(Vaddr(site.0 - 1)),
        }
    }

    fn offset(&self, address: Vaddr) -> usize {
        usize::try_from(address.0 - self.start.0).unwrap_or(0)
    }
}

/// As [`CompiledLookup::row_of_call`], chained, with the code checked later.
fn call_site_rows(ours: &CompiledLookup<'_>, sites: &[Vaddr]) -> anyhow::Result<Durations> {
    let mut later = DelayedChecks::new(ours.call_sites.test(), ours.text);
    let took = chained(sites, |site| match ours.call_sites.lookup(site) {
        Ok(Some(call_site_row)) => {
            later.check(call_site_row, ours.offset(site));
            u64::from(call_site_row.row().0)
        }
        _ => ours.row_at(Vaddr(site.0 - 1)),
    });
    anyhow::ensure!(later.finish(), "a claim of a call site does not hold");
    Ok(took)
}

/// Call site rows with pending checks: the code is prefetched and checked eight lookups later. A
/// walk can do that if it backtracks after a failed check.
struct DelayedChecks<'c> {
    test: CallTest,
    text: &'c [u8],
    /// Each with the offset in the code to which its call returns.
    waiting: [Option<(CallSiteRow, usize)>; 8],
    next: usize,
    all_hold: bool,
}

impl<'c> DelayedChecks<'c> {
    fn new(test: CallTest, text: &'c [u8]) -> Self {
        DelayedChecks {
            test,
            text,
            waiting: [None; 8],
            next: 0,
            all_hold: true,
        }
    }

    fn check(&mut self, row: CallSiteRow, end: usize) {
        prefetch(self.text, end.saturating_sub(CALL_WINDOW_BYTES));
        let before = self.waiting[self.next].replace((row, end));
        self.next = (self.next + 1) % self.waiting.len();
        self.look_at(before);
    }

    fn look_at(&mut self, waiting: Option<(CallSiteRow, usize)>) {
        if let Some((call_site_row, end)) = waiting {
            self.all_hold &= call_site_row.holds(&self.test, window(self.text, end));
        }
    }

    /// Checks the pending ones, and returns whether all are valid.
    fn finish(mut self) -> bool {
        for waiting in std::mem::take(&mut self.waiting) {
            self.look_at(waiting);
        }
        self.all_hold
    }
}

/// This many queries in random order, in memory for sequential reading.
fn shuffled(questions: &[Vaddr], seed: usize) -> Vec<Vaddr> {
    let mut random = Random::new(seed as u64 + 1);
    (0..LOOKUPS)
        .map(|_| questions[random.below(questions.len())])
        .collect()
}

/// Runs a chain of lookups: each address is computed from the previous answer, by adding a zero
/// that the CPU cannot predict.
fn chained(questions: &[Vaddr], mut ask: impl FnMut(Vaddr) -> u64) -> Durations {
    let mask = black_box(0_u64);
    let mut last = 0;
    let took = in_batches(questions, |question| {
        last = ask(question.offset(last & mask));
    });
    black_box(last);
    took
}

/// Runs lookups that the CPU may overlap.
fn independent(questions: &[Vaddr], mut ask: impl FnMut(Vaddr) -> u64) -> Durations {
    let mut all = 0;
    let took = in_batches(questions, |question| all ^= ask(question));
    black_box(all);
    took
}

fn in_batches(questions: &[Vaddr], mut ask: impl FnMut(Vaddr)) -> Durations {
    questions
        .chunks_exact(BATCH)
        .map(|batch| time(|| batch.iter().for_each(|question| ask(*question))).0)
        .collect()
}

/// Return addresses in a range of code, of calls that the table covers.
fn return_addresses(arch: Arch, start: Vaddr, text: &[u8], spans: &[Span]) -> Vec<Vaddr> {
    let range = ExecutableCode {
        ranges: vec![(start, text)],
    };
    let is_covered = |address: &Vaddr| {
        let call = Vaddr(address.0 - 1);
        let after = spans.partition_point(|span| span.start <= call);
        after > 0 && call < spans[after - 1].end
    };
    let mut addresses = range.call_addresses(arch);
    addresses.retain(is_covered);
    addresses
}

/// Addresses spread evenly over the code that the table covers.
fn random_pcs(spans: &[Span]) -> Vec<Vaddr> {
    let mut random = Random::new(7);
    let mut ends = Vec::with_capacity(spans.len());
    let mut covered = 0;
    for span in spans {
        covered += usize::try_from(span.end.0 - span.start.0).unwrap_or(0);
        ends.push(covered);
    }
    (0..LOOKUPS)
        .map(|_| {
            let at = random.below(covered);
            let span = ends.partition_point(|end| *end <= at);
            Vaddr(spans[span].end.0 - (ends[span] - at) as u64)
        })
        .collect()
}
