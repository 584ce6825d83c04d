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

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use unspool_bench::Scratch;
use unspool_bench::recording::{record, workloads};
use unspool_elf::{ElfFile, SegmentMapping};
use unspool_perf_events::{DataFile, FileRecord, Record, SampleRecord};
use unspool_rows::{Arch, Register, RuntimeAddr};
use unspool_table_store::{self as tables, NativeObject};

mod steps;

const DEBIAN_LIBUNWIND: &str = "/usr/lib/x86_64-linux-gnu/libunwind-x86_64.so.8";

/// Passes over all samples, after one that is reported separately.
const ROUNDS: &str = "12";

/// The bytes of a path in a file of samples.
const NAME: usize = 256;

/// The most frames of a walk.
const MAX_FRAMES: u32 = 1024;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &'static str| {
        let words = arguments.iter().skip_while(move |word| *word != name);
        words.skip(1).filter(|word| *word != "--bench")
    };
    let folder = Scratch::new()?;
    let driver = Driver::new(&folder)?;
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
            let samples = samples_of(&recording, &folder)?;
            driver.run(&name, &samples, MAX_FRAMES)?;
        }
    }
    Ok(())
}

/// The C program that walks.
struct Driver<'f> {
    folder: &'f Scratch,
    path: PathBuf,
}

impl<'f> Driver<'f> {
    fn new(folder: &'f Scratch) -> anyhow::Result<Self> {
        let native = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/native-table");
        let include = format!("-I{}", native.display());
        let source = include_str!("remote.c");
        let headers =
            unspool_testing::packages::libunwind_headers().map_err(anyhow::Error::from_boxed)?;
        let headers = format!("-I{}", headers.display());
        let options = [&include, &headers, "-D_GNU_SOURCE"];
        let path = folder.compile("remote", "remote.c", source, &options)?;
        Ok(Driver { folder, path })
    }

    /// Makes it walk samples, at most this many steps each, and prints the times.
    fn run(&self, name: &str, samples: &[u8], most: u32) -> anyhow::Result<()> {
        let file = self.folder.join("samples");
        std::fs::write(&file, samples)?;
        let output = Command::new(&self.path)
            .arg(&file)
            .args([ROUNDS, DEBIAN_LIBUNWIND])
            .arg(ours()?)
            .arg(most.to_string())
            .env("UNSPOOL_TABLE_PATH", self.folder.join(""))
            .env_remove("UNSPOOL_TABLES")
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {errors}", output.status);
        print(name, &String::from_utf8(output.stdout)?)
    }
}

/// Unspool's shared object with libunwind's names, as built by `cargo xtask shared-objects`.
fn ours() -> anyhow::Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let file = target.context("no target folder")?;
    let file = file.join("shared-object/libunwind/libunwind-x86_64.so.8");
    ensure!(file.exists(), "not there: run cargo xtask shared-objects");
    Ok(file)
}

/// The times of one unwinder, as the driver prints them.
struct UnwinderTimes<'t> {
    name: &'t str,
    samples: u64,
    frames: u64,
    same: u64,
    left_over: u64,
    first: f64,
    whole: f64,
    steps: f64,
    again: f64,
}

impl<'t> UnwinderTimes<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let mut words = line.split('\t');
        let name = words.next()?;
        let mut number = || words.next()?.parse().ok();
        let (samples, frames, same, left_over) = (number()?, number()?, number()?, number()?);
        let mut time = || words.next()?.parse().ok();
        Some(UnwinderTimes {
            name,
            samples,
            frames,
            same,
            left_over,
            first: time()?,
            whole: time()?,
            steps: time()?,
            again: time()?,
        })
    }
}

fn print(workload: &str, text: &str) -> anyhow::Result<()> {
    let ways: Option<Vec<UnwinderTimes<'_>>> = text.lines().map(UnwinderTimes::parse).collect();
    let ways = ways.context("the driver says something else")?;
    let [uncached, cached, ..] = ways.as_slice() else {
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
    for way in &ways {
        let times = |of: fn(&UnwinderTimes<'_>) -> f64| {
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

/// The modules and samples of a process in the driver's format: numbers of 8 bytes. First the
/// number of modules. For each: the first address, the end, the load bias, its path, and its
/// object's. Then the number of samples. For each: the registers, the start of the copied stack,
/// its size, and the stack.
fn samples_of(recording: &Path, folder: &Scratch) -> anyhow::Result<Vec<u8>> {
    let file = DataFile::open(recording)?;
    let mut counts: HashMap<u32, usize> = HashMap::new();
    file.read(|record: FileRecord<'_>| {
        if let Record::Sample(_) = record.record {
            *counts.entry(record.sample_id.pid).or_default() += 1;
        }
        anyhow::Ok(())
    })?;
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let (pid, _) = most.context("no samples")?;
    let (mut modules, mut samples) = (HashMap::new(), DriverInput::default());
    file.read(|record: FileRecord<'_>| {
        match &record.record {
            Record::Mmap(mapped) if mapped.pid == pid && mapped.is_executable => {
                let path = Path::new(OsStr::from_bytes(mapped.name));
                let mapping = SegmentMapping {
                    start: RuntimeAddr(mapped.start),
                    length: mapped.size,
                    file_offset: mapped.offset,
                    executable: true,
                    page_size: 4096,
                };
                if path.is_absolute()
                    && let Ok(file) = ElfFile::open(path)
                {
                    modules.insert(mapped.start, module_at(&file, &mapping, folder)?);
                }
            }
            Record::Sample(sample) if record.sample_id.pid == pid => samples.add(sample),
            _ => {}
        }
        anyhow::Ok(())
    })?;
    let mut modules: Vec<_> = modules.into_iter().collect();
    modules.sort_by_key(|(start, _)| *start);
    let modules: Vec<_> = modules.into_iter().map(|(_, module)| module).collect();
    Ok(samples.with(&modules))
}

#[derive(Default)]
struct DriverInput {
    count: u64,
    bytes: Vec<u8>,
}

impl DriverInput {
    /// Adds a sample of user code with registers.
    fn add(&mut self, sample: &SampleRecord<'_>) {
        let register = |number| sample.user.known()?.get(Arch::X86_64, Register(number));
        let registers: Option<Vec<u64>> = (0..17).map(register).collect();
        if let Some(registers) = registers {
            let start = registers.get(7).copied().unwrap_or_default();
            self.push(&registers, start, sample.stack.bytes);
        }
    }

    /// Adds a sample; without a stack it shares the previous one's.
    fn push(&mut self, registers: &[u64], start: u64, stack: &[u8]) {
        let (stack, _) = stack.as_chunks::<8>();
        self.count += 1;
        let numbers = registers
            .iter()
            .copied()
            .chain([start, 8 * stack.len() as u64]);
        self.bytes.extend(numbers.flat_map(u64::to_le_bytes));
        self.bytes.extend(stack.as_flattened());
    }

    /// The samples, preceded by modules.
    fn with(&self, modules: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = (modules.len() as u64).to_le_bytes().to_vec();
        bytes.extend(modules.iter().flatten());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(&self.bytes);
        bytes
    }
}

fn module_at(
    file: &ElfFile,
    mapping: &SegmentMapping,
    folder: &Scratch,
) -> anyhow::Result<Vec<u8>> {
    let bias = file.load_bias(mapping).map_or(0, |bias| bias.0);
    let addresses = mapping.start.0..mapping.start.0 + mapping.length;
    module(file, addresses, bias, folder)
}

/// The driver's record of a module.
fn module(
    file: &ElfFile,
    addresses: Range<u64>,
    bias: u64,
    folder: &Scratch,
) -> anyhow::Result<Vec<u8>> {
    let numbers = [addresses.start, addresses.end, bias];
    let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    let key = tables::own_key(file);
    let object = match NativeObject::from_file(file, &key) {
        Ok(object) => {
            let path = folder.join(&format!("{key}.native.so"));
            std::fs::write(&path, object.bytes())?;
            path.to_string_lossy().into_owned()
        }
        Err(_) => String::new(),
    };
    for name in [file.path().to_string_lossy().into_owned(), object] {
        ensure!(name.len() < NAME, "{name}: too long");
        let end = bytes.len() + NAME;
        bytes.extend(name.bytes());
        bytes.resize(end, 0);
    }
    Ok(bytes)
}
