#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement prints, and stops at a bug"
)]
//! Compiled tables: size, the cost of building, verifying and opening them, and lookups against
//! framehop.
//!
//! `cargo bench -p unspool-bench --bench tables [-- FILE…]`

mod command;
mod lookups;
mod peer;

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use unspool_bench::{Durations, Scratch, files, map, millis, time, unspool, version};
use unspool_compiled_table::{
    CompiledTable, EncodedTable, ExecutableCode, ModuleKey, TablePart, encode,
};
use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, TableSource};

const ROUNDS: usize = 9;

fn main() -> anyhow::Result<()> {
    let unspool = unspool()?;
    println!("{}\nframehop {}", version(&unspool)?, peer::version()?);
    let folder = Scratch::new()?;
    let output = folder.join("table");
    let files = files();
    // This precedes memory use by this program itself: see `unspool_bench::wait`.
    let commands = files
        .iter()
        .map(|path| command::measure(&unspool, path, &output))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (path, command) in files.iter().zip(&commands) {
        measure(path, command, &output).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn measure(path: &Path, command: &command::Cost, output: &Path) -> anyhow::Result<()> {
    println!("{}", path.display());
    let file = ElfFile::open(path)?;
    let made = tables::compile(&file, TableSource::Auto)?;
    let source: u64 = made.source.sections.iter().map(|origin| origin.size).sum();
    sizes(&made.encoded, source + made.source.hdr_size);
    build(&file)?;
    command::print(command, &file)?;
    std::fs::write(output, &made.encoded.bytes)?;
    open(&made.encoded.bytes, output)?;
    let compiled = CompiledTable::open(&made.encoded.bytes)?;
    lookups::measure(&file, &made.source.table, &compiled)
}

/// The cost of opening a table, in memory and from its file, with its pages in memory too.
fn open(bytes: &[u8], path: &Path) -> anyhow::Result<()> {
    let (mut in_memory, mut from_file) = (Durations::default(), Durations::default());
    for _ in 0..100 * ROUNDS {
        let (took, opened) = time(|| CompiledTable::open(black_box(bytes)));
        black_box(opened?);
        in_memory.extend([took]);
        let (took, mapped) = time(|| -> anyhow::Result<_> {
            let mapped = map(&File::open(path)?)?;
            black_box(CompiledTable::open(&mapped)?);
            Ok(mapped)
        });
        drop(mapped?);
        from_file.extend([took]);
    }
    for (name, sample) in [
        ("open, bytes in memory", in_memory),
        ("open, map, open", from_file),
    ] {
        let micros = |duration| millis(duration) * 1e3;
        println!(
            "  {name:<24}{:>9.2} µs, p99 {:.2}",
            micros(sample.median()),
            micros(sample.p99())
        );
    }
    Ok(())
}

fn sizes(encoded: &EncodedTable, source: u64) {
    let share = |bytes: usize| per(bytes as f64, source as f64);
    println!(
        "  bytes / source          {:.3} whole, {:.3} rows, {:.3} entries, {:.3} call sites",
        share(encoded.bytes.len()),
        share(encoded.part(TablePart::Rows)),
        share(encoded.part(TablePart::Entries)),
        share(encoded.part(TablePart::Calls)),
    );
}

/// The cost of reading rows, encoding them, and verifying the result.
fn build(file: &ElfFile) -> anyhow::Result<()> {
    let [mut reads, mut layouts, mut compiles, mut proofs]: [Durations; 4] = Default::default();
    let mut rows = 0;
    for _ in 0..ROUNDS {
        let (read, reading) = time(|| tables::read(file, TableSource::Auto));
        let reading = reading?;
        rows = reading.table.row_count();
        let no_code = ExecutableCode::default();
        let (layout, encoded) = time(|| {
            encode(
                &reading.table,
                ModuleKey {
                    build_id: &[],
                    content: &[0; 20],
                },
                &no_code,
                &[],
            )
        });
        encoded?;
        let (compile, made) = time(|| tables::compile(file, TableSource::Auto));
        let made = made?;
        let (proof, comparison) =
            time(|| tables::verify(file, &reading.table, &made.encoded.bytes));
        anyhow::ensure!(comparison?.is_equal(), "the table differs from its source");
        reads.extend([read]);
        layouts.extend([layout]);
        compiles.extend([compile]);
        proofs.extend([proof]);
    }
    let rate = |duration: Duration| per(rows as f64, duration.as_secs_f64()) / 1e6;
    let (read, layout) = (reads.median(), layouts.median());
    let (compile, proof) = (compiles.median(), proofs.median());
    println!(
        "  read + lay out, 1 core  {:>9.2} million rows/s",
        rate(read + layout)
    );
    println!(
        "    read                  {:>9.2} million rows/s",
        rate(read)
    );
    println!(
        "    lay out               {:>9.2} million rows/s",
        rate(layout)
    );
    println!("  compile                 {:>9.2} ms", millis(compile));
    println!(
        "  verify                  {:>9.2} ms, {:.2} million rows/s",
        millis(proof),
        rate(proof)
    );
    println!(
        "  compile and verify      {:>9.2} ms",
        millis(compile + proof)
    );
    Ok(())
}

fn per(a: f64, b: f64) -> f64 {
    a / b.max(f64::MIN_POSITIVE)
}
