//! Two threads that walk concurrently, against one alone.

use std::sync::Barrier;
use std::thread;

use anyhow::Context as _;

use crate::peers::MakeWalker;
use crate::scenario::Scenario;
use crate::sys::WorkFunctions;
use crate::visit::{Clock, Visitor};

/// Rounds of each thread between two barriers.
const ROUNDS: u64 = 3;

/// A stack size that is enough for any path.
const STACK: usize = 16 << 20;

/// Mean nanoseconds per frame in the slowest of this many concurrent threads.
pub(crate) fn walk(
    threads: usize,
    scenario: &Scenario,
    functions: &WorkFunctions,
    make: &MakeWalker,
    clock: Clock,
) -> anyhow::Result<f64> {
    let barrier = Barrier::new(threads);
    let work = |number: u64| -> anyhow::Result<f64> {
        let mut visitor = Visitor::new(make(), clock);
        let warm = scenario.round(number, functions, &mut visitor);
        barrier.wait();
        warm?;
        let (mut sum, mut count) = (0.0, 0.0);
        for round in 1..=ROUNDS {
            for sample in scenario.round(round * 2 + number, functions, &mut visitor)? {
                sum += sample.frame;
                count += 1.0;
            }
        }
        Ok(sum / count)
    };
    thread::scope(|scope| {
        let mut running = Vec::new();
        for number in 0..threads as u64 {
            let builder = thread::Builder::new().stack_size(STACK);
            running.push(builder.spawn_scoped(scope, move || work(number))?);
        }
        let mut slowest: f64 = 0.0;
        for thread in running {
            let mean = thread.join().ok().context("a thread has panicked")??;
            slowest = slowest.max(mean);
        }
        Ok(slowest)
    })
}
