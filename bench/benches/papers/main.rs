//! The tables of the papers that unspool is based on, for this machine: the space of tables, what
//! they cover, and the time of a frame.
//!
//! `cargo xtask shared-objects && cargo bench -p unspool-bench --bench papers`. The space is that of
//! hackbench and its libraries, as in the papers, and of the files that are given. gcc compiles each
//! once: libc in half a minute, gdb in a quarter of an hour with gigabytes of memory. Covered are
//! all files below /usr/lib and /usr/bin. The samples are perf's, of hackbench and gzip.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use unspool_bench::Scratch;
use unspool_bench::eh_elf::{EhElf, text_bytes};
use unspool_bench::recording::record_with;
use unspool_bench::remote::{Driver, MAX_FRAMES, UnwinderTimes, busiest_processes, samples_of};
use unspool_elf::ElfFile;
use unspool_table_store::{self as tables, FileStats, TableSource};

mod coverage;
mod replayed;

/// What `perf record --call-graph` takes: the papers' copies of the stack.
const CALL_GRAPH: &str = "dwarf,4096";

fn main() -> anyhow::Result<()> {
    let given = std::env::args_os().skip(1).filter(|arg| arg != "--bench");
    let given: Vec<PathBuf> = given.map(PathBuf::from).collect();
    let hackbench = PathBuf::from("/usr/bin/hackbench");
    anyhow::ensure!(
        hackbench.exists(),
        "no {}: install it (Debian package rt-tests)",
        hackbench.display()
    );
    space(&hackbench, &given)?;
    coverage::print(&["/usr/lib", "/usr/bin"])?;
    time(&hackbench)
}

/// Where objects of gcc are kept.
fn kept() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The first table: bytes in each form, rows and bodies.
fn space(hackbench: &Path, given: &[PathBuf]) -> anyhow::Result<()> {
    let libraries = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libpthread.so.0",
        "/lib64/ld-linux-x86-64.so.2",
    ];
    let mut paths: Vec<PathBuf> = libraries.map(PathBuf::from).to_vec();
    paths.push(hackbench.to_path_buf());
    println!(
        "| space | code+rodata | `.eh_frame` | rows | different | eh_elf bodies | eh_elf | of code+rodata | growth \
         | compact | of code+rodata | growth | native | of code+rodata | growth |"
    );
    println!("|---|{}", "---|".repeat(14));
    let mut total = Space::default();
    for path in &paths {
        let space = Space::of(path)?;
        total.add(&space);
        space.print();
    }
    total.name = "all four".to_owned();
    total.print();
    for path in given {
        Space::of(path)?.print();
    }
    Ok(())
}

/// A file's bytes in each form.
#[derive(Default)]
struct Space {
    name: String,
    program: u64,
    source: u64,
    rows: u64,
    distinct_rows: u64,
    bodies: u64,
    eh_elf: u64,
    compact: u64,
    native: u64,
}

impl Space {
    fn of(path: &Path) -> anyhow::Result<Self> {
        let file = ElfFile::open(path)?;
        let made = tables::compile(&file, TableSource::Auto)?;
        let stats = FileStats::from_file(&file, &made.source, Some(&made.encoded))?;
        let eh_elf = EhElf::from_table(&made.source.table)?;
        let name = path.file_name().context("no file name")?;
        Ok(Space {
            name: name.to_string_lossy().into_owned(),
            program: stats.program_bytes,
            source: stats.section_bytes,
            rows: stats.rows,
            distinct_rows: stats.distinct_rows,
            bodies: eh_elf.bodies as u64,
            eh_elf: text_bytes(&eh_elf.object(kept())?)?,
            compact: stats.table_bytes(),
            native: stats.native_bytes,
        })
    }

    fn add(&mut self, other: &Space) {
        self.program += other.program;
        self.source += other.source;
        self.rows += other.rows;
        self.distinct_rows += other.distinct_rows;
        self.bodies += other.bodies;
        self.eh_elf += other.eh_elf;
        self.compact += other.compact;
        self.native += other.native;
    }

    fn print(&self) {
        let form = |bytes: u64| {
            format!(
                "{bytes} | {:.1} % | {:.2}",
                100.0 * unspool_bench::share(bytes, self.program),
                unspool_bench::share(bytes, self.source)
            )
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            self.name,
            self.program,
            self.source,
            self.rows,
            self.distinct_rows,
            self.bodies,
            form(self.eh_elf),
            form(self.compact),
            form(self.native)
        );
    }
}

/// The second table: each way to unwind the same samples.
fn time(hackbench: &Path) -> anyhow::Result<()> {
    let folder = Scratch::new()?;
    let target = kept().parent().context("no target folder")?;
    let driver = Driver::new(&folder, target)?;
    let mut messages = Command::new(hackbench);
    messages.args(["--groups", "10", "--process", "--loops", "100"]);
    let mut gzip = Command::new("gzip");
    gzip.args(["-k", "-c", "/usr/bin/gdb"]);
    for (name, command) in [("hackbench", messages), ("gzip", gzip)] {
        let recording = folder.join("perf.data");
        record_with(&command, &recording, "cpu-clock", CALL_GRAPH)?;
        let processes = busiest_processes(&recording)?;
        let eh_elf = |file: &ElfFile| {
            let made = tables::compile(file, TableSource::Auto)?;
            EhElf::from_table(&made.source.table)?.object(kept())
        };
        let samples = samples_of(&recording, &processes, &folder, Some(&eh_elf))?;
        let ways = driver.run(&samples, MAX_FRAMES)?;
        let compact = replayed::measure(&recording, &processes, &folder, &driver.stack_sums()?)?;
        print_ways(name, &ways, &compact)?;
    }
    Ok(())
}

fn print_ways(
    name: &str,
    ways: &[UnwinderTimes],
    compact: &replayed::ReplayedTimes,
) -> anyhow::Result<()> {
    let by_name = |name: &str| {
        let found = ways.iter().find(|way| way.name == name);
        found.with_context(|| format!("no times of {name}"))
    };
    let (uncached, cached) = (
        by_name("libunwind, no cache")?,
        by_name("libunwind, global cache")?,
    );
    let mut lines = Vec::new();
    for (title, way) in [
        ("libunwind, no cache", uncached),
        ("libunwind, cached", cached),
        ("eh_elf: a tree, gcc -O2", by_name("eh_elf")?),
        (
            "unspool, compact, as libunwind",
            by_name("unspool, global cache")?,
        ),
        ("unspool, native", by_name("objects, by callback")?),
    ] {
        lines.push((title, way.frames, way.same, way.whole, way.steps));
    }
    lines.insert(
        3,
        (
            "unspool, compact",
            compact.frames,
            compact.same,
            compact.whole,
            compact.whole,
        ),
    );
    println!(
        "| {name}, {} samples | frames | stacks as libunwind's | total, ms | ns a frame | steps alone \
         | times faster than libunwind | than libunwind, cached |",
        uncached.samples
    );
    println!("|---|{}", "---|".repeat(7));
    for (title, frames, same, whole, steps) in lines {
        #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
        let total = frames as f64 * whole / 1e6;
        println!(
            "| {title} | {frames} | {same} | {total:.2} | {whole:.0} | {steps:.0} | {:.1} | {:.1} |",
            uncached.whole / whole,
            cached.whole / whole
        );
    }
    Ok(())
}
