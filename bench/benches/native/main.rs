//! Native tables: their size, their build time, and the time of a step, compared with C code in the
//! style of the work of 2018.
//!
//! `cargo bench -p unspool-bench --bench native -- [--no-c] [FILE…]`. Without files: ld.so and
//! libc. gcc takes minutes for libc's C, and a quarter of an hour and gigabytes for gdb's, once:
//! its output is kept below the target folder. `--no-c` skips it.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use unspool_bench::eh_elf::{compiled, gcc};
use unspool_elf::ElfFile;
use unspool_native_table::{ModuleKey, Outline};
use unspool_table_store::{self as tables, TableSource};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let with_c = !arguments.iter().any(|argument| argument == "--no-c");
    let mut files: Vec<PathBuf> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .map(PathBuf::from)
        .collect();
    if files.is_empty() {
        files.extend(
            [
                "/lib64/ld-linux-x86-64.so.2",
                "/lib/x86_64-linux-gnu/libc.so.6",
            ]
            .map(PathBuf::from),
        );
    }
    let folder = tempfile::tempdir()?;
    let native = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/native-table");
    let timer = folder.path().join("step");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/native/step.c");
    gcc(&["-O2", "-I", &native.to_string_lossy()], &source, &timer)?;
    for file in &files {
        measure(file, with_c, folder.path(), &timer)?;
    }
    Ok(())
}

fn measure(path: &Path, with_c: bool, folder: &Path, timer: &Path) -> anyhow::Result<()> {
    let file = ElfFile::open(path)?;
    let started = Instant::now();
    let reading = tables::read(&file, TableSource::Auto)?;
    let read = started.elapsed();
    let started = Instant::now();
    let outline = Outline::from_table(&reading.table)?;
    let bytes = unspool_native_table::object(
        &outline,
        ModuleKey {
            build_id: &[0; 20],
            content: &[0; 20],
        },
    )?;
    let made = started.elapsed();
    let source: u64 = reading.sections.iter().map(|origin| origin.size).sum();
    println!(
        "{}: {} rows, {} different; read in {:.1} ms",
        path.display(),
        outline.source_rows(),
        outline.rows().len(),
        read.as_secs_f64() * 1e3
    );
    let direct = folder.join("native.so");
    std::fs::write(&direct, bytes)?;
    print_size("native", &direct, source, made.as_secs_f64())?;
    let mut objects = vec![direct];
    if with_c {
        let mut c = String::new();
        unspool_native_table::c::source(&outline, "a table", &mut c)?;
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (object, seconds) = compiled(&c, &["-O2", "-fPIC", "-shared"], kept)?;
        print_size("C, gcc -O2", &object, source, seconds)?;
        objects.push(object);
    }
    let mut addresses = String::new();
    for span in reading.table.spans() {
        writeln!(addresses, "{:x}", span.start.0)?;
    }
    let list = folder.join("addresses");
    std::fs::write(&list, addresses)?;
    let status = Command::new(timer).args(&objects).arg(&list).status()?;
    ensure!(status.success(), "{}: {status}", timer.display());
    Ok(())
}

/// The loaded bytes of all sections.
fn print_size(what: &str, object: &Path, source: u64, seconds: f64) -> anyhow::Result<()> {
    let output = Command::new("size").arg(object).output().context("size")?;
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().last().unwrap_or_default();
    let columns: Vec<u64> = last
        .split_whitespace()
        .take(3)
        .filter_map(|word| word.parse().ok())
        .collect();
    let loaded: u64 = columns.iter().sum();
    println!(
        "{what}: {loaded} bytes loaded, {:.2} of its source's {source}; made in {seconds:.3} s",
        unspool_bench::share(loaded, source)
    );
    Ok(())
}
