//! Tables synthesized from code alone, compared with the compilers' tables.
//!
//! `cargo bench -p unspool-bench --bench synth -- [FILE…]`. Without files: the big ELF files of
//! this machine. The file's own table is not used for the synthesis, only compared with its result:
//! for each row, at its first instruction. If its separate debug file is installed (libc6-dbg), the
//! file is also measured with its symbols. Two rules can differ and both be right, since a pushed
//! register is in two locations until it is written: then the code decides.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::time::Instant;

use unspool_bench::synthesis_quality;
use unspool_elf::{DebugFiles, ElfFile, SearchRoots, Symbols};
use unspool_synthesis::synthesize;

/// The most refuted rows to print for each file.
const MAX_EXAMPLES: usize = 20;

fn main() -> anyhow::Result<()> {
    println!(
        "file | functions known by | rows | made | CFA right | by the same register | registers right | the same | refuted at | s, one thread"
    );
    for path in &unspool_bench::big_files() {
        let file = ElfFile::open(path)?;
        measure(&file, file.symbols(), "own symbols")?;
        if let Some(debug) = DebugFiles::locate(&file, &SearchRoots::default()).debug {
            let symbols = Symbols::new(&file, Some(&debug));
            measure(&file, &symbols, "debug file")?;
        }
    }
    Ok(())
}

fn measure(file: &ElfFile, symbols: &Symbols, by: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    let synthesis = synthesize(file, symbols, &[])?;
    let seconds = started.elapsed().as_secs_f64();
    let mut refuted = Vec::new();
    let counts = synthesis_quality::compare(file, &synthesis.table, |at| refuted.push(at))?;
    let percent = |count: u64| unspool_bench::share(count, counts.rows) * 100.0;
    println!(
        "{} | {by} | {} | {:.3} % | {:.3} % | {:.3} % | {:.3} % | {:.3} % | {} | {seconds:.2}",
        file.path().display(),
        counts.rows,
        percent(counts.covered),
        percent(counts.cfa),
        percent(counts.same),
        percent(counts.registers),
        percent(counts.same_registers),
        counts.refuted,
    );
    for at in refuted.iter().take(MAX_EXAMPLES) {
        println!("  {at}");
    }
    Ok(())
}
