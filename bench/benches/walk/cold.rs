//! The first walk of a fresh process: this program runs itself for each sample.

use std::process::Command;

use anyhow::Context as _;
use unspool_bench::{Random, time};

use crate::peers::Peer;
use crate::scenario::random_stack;
use crate::sys::{DescentPath, minor_faults};
use crate::visit::{Clock, ONCE, Visitor};
use crate::workload::sites;

/// The argument that makes this program such a process, followed by the peer's name and a number.
pub(crate) const ARGUMENT: &str = "--cold-start";

const DEPTH: usize = 64;

/// The result of one fresh process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ColdStart {
    /// The time to open the peer, in microseconds.
    pub(crate) open: f64,
    /// Its minor page faults.
    pub(crate) open_faults: f64,
    /// The time of the first walk, in microseconds.
    pub(crate) first: f64,
    /// Its minor page faults.
    pub(crate) faults: f64,
    /// The time of a second walk of another descent along the same path, in microseconds.
    pub(crate) second: f64,
}

/// Runs a fresh process.
pub(crate) fn start(peer: &str, number: usize) -> anyhow::Result<ColdStart> {
    let output = Command::new(std::env::current_exe()?)
        .args([ARGUMENT, peer, &number.to_string()])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "cold start: {}", errors.trim());
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let mut next = || anyhow::Ok(numbers.next().context("too few numbers")??);
    Ok(ColdStart {
        open: next()?,
        open_faults: next()?,
        first: next()?,
        faults: next()?,
        second: next()?,
    })
}

/// The work of such a process; prints its figures.
pub(crate) fn run(peer: &Peer, number: u64) -> anyhow::Result<()> {
    let functions = peer.build.load()?;
    let clock = Clock::calibrate();
    let before = minor_faults()?;
    let (open, walker) = time(|| (peer.open)().map(|make| make()));
    let open_faults = minor_faults()? - before;
    let mut visitor = Visitor::new(walker?, clock);
    let pool = sites(32_768, &mut Random::new(0x5eed));
    let stack = random_stack(number, &pool, DEPTH);
    let mut path = DescentPath::new(&functions, &stack)?;
    let (first, faults) = visitor.first(&mut path)?;
    let mut second = Vec::new();
    visitor.visit(&mut path, ONCE, &mut second)?;
    let second = second.first().context("no sample")?.walk;
    let open = open.as_secs_f64() * 1e6;
    let first = first.walk / 1e3;
    let second = second / 1e3;
    println!("{open} {open_faults} {first} {faults} {second}");
    Ok(())
}
