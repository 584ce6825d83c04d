//! Checks unwind tables against the machine code: the share of proven rows, and the speed.
//!
//! `cargo bench -p unspool-bench --bench check -- [FILE…]`. Without files: the big ELF files of
//! this machine. No peer proves rows; the speed of decoding alone is the limit.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable};
use unspool_elf::ElfFile;

fn main() -> anyhow::Result<()> {
    println!(
        "file | MB of code | rows | CFA proven | all proven | refuted | unproven | never reached | MB/s, one thread | s, all threads"
    );
    for path in &unspool_bench::big_files() {
        measure(path)?;
    }
    Ok(())
}

fn measure(path: &PathBuf) -> anyhow::Result<()> {
    let (report, one) = check(path, NonZeroUsize::MIN)?;
    let all = std::thread::available_parallelism()?;
    let (_, whole) = check(path, all)?;
    let totals = report.totals;
    let percent = |count: u64| unspool_bench::share(count, totals.rows) * 100.0;
    let megabytes = unspool_bench::share(totals.bytes, 1_000_000);
    println!(
        "{} | {megabytes:.1} | {} | {:.3} % | {:.3} % | {} | {} | {} | {:.1} | {:.2}",
        path.display(),
        totals.rows,
        percent(totals.proven_cfa),
        percent(totals.proven),
        totals.refuted,
        totals.unproven,
        totals.unreached,
        megabytes / one.as_secs_f64(),
        whole.as_secs_f64(),
    );
    Ok(())
}

/// The report of a file, and its time after the table was read.
fn check(path: &PathBuf, threads: NonZeroUsize) -> anyhow::Result<(CheckReport, Duration)> {
    let file = ElfFile::open(path)?;
    let declarations = DeclaredTable::read(&file)?;
    let started = Instant::now();
    let mut subject = CheckSubject::new(&file, &declarations, CodeOrigin::from_file(&file))?;
    let report = CheckReport::from_subject(&mut subject, threads, |_, _| {});
    Ok((report, started.elapsed()))
}
