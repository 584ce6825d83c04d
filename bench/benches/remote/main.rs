//! Unwinds perf's samples through libunwind's interface, as perf does: by Debian's libunwind, by
//! unspool's, by unspool's with `UNSPOOL_TABLES=native`, and by native objects. Whole walks are
//! timed, including their start, of untouched samples and of samples that were just walked. Steps
//! alone are timed as in the papers.
//!
//! `cargo xtask shared-objects && cargo bench -p unspool-bench --bench remote`. With `--workload TEXT`, only
//! those whose name contains it. With `--steps FILE…`, one step each from addresses of these files,
//! by Rust's peers, too. Samples are those of the process with the most of them, with its last
//! mappings.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::path::Path;

use anyhow::Context as _;
use unspool_bench::Scratch;
use unspool_bench::recording::{record, workloads};
use unspool_bench::remote::{Driver, MAX_FRAMES, UnwinderTimes, busiest_processes, samples_of};

mod steps;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &'static str| {
        let words = arguments.iter().skip_while(move |word| *word != name);
        words.skip(1).filter(|word| *word != "--bench")
    };
    let folder = Scratch::new()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let driver = Driver::new(&folder, target.context("no target folder")?)?;
    let files: Vec<_> = after("--steps").collect();
    for path in &files {
        steps::measure(Path::new(path), &driver, &folder)?;
    }
    if !files.is_empty() {
        return Ok(());
    }
    let only = after("--workload").next();
    for (name, command) in workloads(&folder)? {
        if only.is_none_or(|only| name.contains(only.as_str())) {
            let recording = folder.join("perf.data");
            record(&command, &recording)?;
            let processes = busiest_processes(&recording)?;
            let samples = samples_of(&recording, &processes, &folder, None)?;
            print(&name, &driver.run(&samples, MAX_FRAMES)?)?;
        }
    }
    Ok(())
}

fn print(workload: &str, ways: &[UnwinderTimes]) -> anyhow::Result<()> {
    let [uncached, cached, ..] = ways else {
        anyhow::bail!("the driver says too little");
    };
    println!(
        "{workload}: {} samples; ns a frame, medians, and how many times libunwind's without and with cache",
        uncached.samples
    );
    println!(
        "{:<24}{:>8}{:>6}{:>10}{:>8}  {:<22}  {:>6}  again",
        "", "frames", "same", "left over", "first", "whole", "steps"
    );
    for way in ways {
        let times = |of: fn(&UnwinderTimes) -> f64| {
            let [by_uncached, by_cached] = [uncached, cached].map(|other| of(other) / of(way));
            format!("{:>7.1}{by_uncached:>6.1}x{by_cached:>6.1}x", of(way))
        };
        println!(
            "{:<24}{:>8}{:>6}{:>10}{:>8.1}  {:<22}  {:>6.1}  {}",
            way.name,
            way.frames,
            way.same,
            way.left_over,
            way.first,
            times(|way| way.whole),
            way.steps,
            times(|way| way.again),
        );
    }
    Ok(())
}
