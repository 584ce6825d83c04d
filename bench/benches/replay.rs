//! Unwinds copied stacks of samples recorded by perf: unspool against framehop.
//!
//! `cargo bench -p unspool-bench --bench replay`. With `--workload TEXT`, only those whose name
//! contains it; with `--native`, unspool by native tables. With `--callgrind`, one pass of each
//! after the first, for `valgrind --tool=callgrind --toggle-collect='*replay::ours'`.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use framehop::Unwinder as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use unspool_bench::recording::{OwnedSample, compile_tables, record, workloads};
use unspool_bench::{Durations, Scratch, framehop_module, ratio, version};
use unspool_elf::{ElfFile, SegmentMapping};
use unspool_perf_events::{DataFile, FileRecord, Record, SampleRecord};
use unspool_rows::{Arch, Register, RuntimeAddr};
use unspool_sampler::{ProcessSpace, Replay};
use unspool_symbols::ModuleFinder;
use unspool_table_store::{Store, TableForm};

/// Timed passes, after an untimed one.
const PASSES: usize = 5;

/// The number of samples unwound in a row, as a recorder finds them in a ring.
const BATCH_SAMPLES: usize = 16;

/// The registers that framehop needs, by their DWARF numbers.
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        arguments
            .iter()
            .skip_while(move |word| *word != name)
            .nth(1)
    };
    let only = after("--workload");
    let has = |name: &str| arguments.iter().any(|word| word == name);
    let passes = if has("--callgrind") { 1 } else { PASSES };
    let form = if has("--native") {
        TableForm::Native
    } else {
        TableForm::Compact
    };
    println!(
        "{}; ns a frame of {BATCH_SAMPLES} samples: p50 and p99 of those walked just before, p50 at first",
        version("perf")?
    );
    println!(
        "{:<12}{:>8}{:>7}{:>10}{:>10}  {:<19}  {:<19}  framehop / ours",
        "", "samples", "frames", "addresses", "agree", "  ours", "  framehop"
    );
    let folder = Scratch::new()?;
    for (name, command) in workloads(&folder)? {
        if only.is_none_or(|only| name.contains(only.as_str())) {
            measure(&name, &command, &folder, form, passes)?;
        }
    }
    Ok(())
}

fn measure(
    name: &str,
    command: &Command,
    folder: &Scratch,
    form: TableForm,
    passes: usize,
) -> anyhow::Result<()> {
    let path = folder.join("perf.data");
    record(command, &path)?;
    let file = DataFile::open(&path)?;
    let store = Store::new(None, Some(folder.join("cache").into()), None).with_form(form);
    compile_tables(&file, &store)?;
    let mut replay = Replay::new(&file, ModuleFinder::from_environment(), store)?;
    let mut theirs = Framehop::default();
    let mut first = FirstPass::default();
    file.read(|file_record: FileRecord<'_>| {
        match &file_record.record {
            Record::Sample(sample) => {
                let space = replay.space(file_record.sample_id.pid);
                let ours = ours(&mut replay, &space, file_record.sample_id.tid, sample);
                first.note(ours, theirs.unwind(sample));
            }
            record => {
                theirs.note(record)?;
                replay.note(record)?;
            }
        }
        anyhow::Ok(())
    })?;
    let mut copies = Vec::new();
    file.read(|file_record: FileRecord<'_>| {
        copies.extend(OwnedSample::read(&file, &file_record));
        anyhow::Ok(())
    })?;
    let mut took = [WalkTimes::default(), WalkTimes::default()];
    for pass in 0..2 * passes {
        for row in copies.chunks_exact(BATCH_SAMPLES) {
            time(row, pass % 2 == 0, &mut replay, &mut theirs, &mut took);
        }
    }
    let [us, them] = took;
    let nanos = |duration: Duration| duration.as_secs_f64() * 1e9;
    println!(
        "{name:<12}{:>8}{:>7}{:>10}{:>8.2} %  {:>6.1}{:>7.1}{:>6.1}  {:>6.1}{:>7.1}{:>6.1}  {:>5.1}x{:>5.1}x",
        first.samples,
        first.frames / first.samples.max(1),
        first.addresses.len(),
        first.agreed_percent(),
        nanos(us.again.median()),
        nanos(us.again.p99()),
        nanos(us.first.median()),
        nanos(them.again.median()),
        nanos(them.again.p99()),
        nanos(them.first.median()),
        ratio(them.again.median(), us.again.median()),
        ratio(them.first.median(), us.first.median()),
    );
    Ok(())
}

/// Durations both on samples, ours first or last: each once, and once more with what that has brought to the
/// cache. Who comes last finds the copies there at first, which does not count.
fn time(
    row: &[OwnedSample],
    ours_first: bool,
    replay: &mut Replay,
    theirs: &mut Framehop,
    [us, them]: &mut [WalkTimes; 2],
) {
    let samples: Vec<_> = row.iter().filter_map(OwnedSample::sample).collect();
    let spaces = samples.iter().map(|(origin, _)| replay.space(origin.pid));
    let spaces: Vec<_> = spaces.collect();
    let mut by_us = || {
        per_frame(|| {
            let walks = samples.iter().zip(&spaces);
            let frames = walks
                .map(|((origin, sample), space)| ours(replay, space, origin.tid, sample).len());
            frames.sum()
        })
    };
    let mut by_them = || {
        let walks = samples.iter();
        per_frame(|| walks.map(|(_, sample)| theirs.unwind(sample).len()).sum())
    };
    if ours_first {
        us.first.extend(by_us());
        us.again.extend(by_us());
        by_them();
        them.again.extend(by_them());
    } else {
        them.first.extend(by_them());
        them.again.extend(by_them());
        by_us();
        us.again.extend(by_us());
    }
}

/// The times of walks per frame.
#[derive(Default)]
struct WalkTimes {
    first: Durations,
    again: Durations,
}

/// The time of walks per frame; `None` without frames.
fn per_frame(walk: impl FnOnce() -> usize) -> Option<Duration> {
    let begun = Instant::now();
    let frames = walk();
    let took = begun.elapsed();
    took.checked_div(u32::try_from(frames).ok()?)
}

/// The results of the first pass.
#[derive(Default)]
struct FirstPass {
    samples: usize,
    frames: usize,
    agreed: usize,
    addresses: HashSet<u64>,
}

impl FirstPass {
    fn note(&mut self, ours: &[unspool_profile::RawFrame], theirs: &[u64]) {
        let ours: Vec<u64> = ours.iter().map(|frame| frame.code.address().0).collect();
        self.samples += 1;
        self.frames += ours.len();
        self.agreed += usize::from(ours == theirs);
        self.addresses.extend(ours);
    }

    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    fn agreed_percent(&self) -> f64 {
        self.agreed as f64 * 100.0 / self.samples.max(1) as f64
    }
}

#[inline(never)]
fn ours<'r>(
    replay: &'r mut Replay,
    space: &ProcessSpace,
    tid: u32,
    sample: &SampleRecord<'_>,
) -> &'r [unspool_profile::RawFrame] {
    replay.unwind(space, tid, sample).frames
}

/// framehop, with the last process's mappings.
#[derive(Default)]
struct Framehop {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    found: Vec<u64>,
}

impl Framehop {
    fn note(&mut self, record: &Record<'_>) -> anyhow::Result<()> {
        match record {
            Record::Comm(named) if named.is_exec => self.unwinder = UnwinderX86_64::new(),
            Record::Mmap(mapped) if mapped.is_executable && mapped.name.starts_with(b"/") => {
                let path = Path::new(std::str::from_utf8(mapped.name)?);
                let Ok(file) = ElfFile::open(path) else {
                    return Ok(());
                };
                let bias = file.load_bias(&SegmentMapping {
                    start: RuntimeAddr(mapped.start),
                    length: mapped.size,
                    file_offset: mapped.offset,
                    executable: true,
                    page_size: 4096,
                });
                if let Some(bias) = bias
                    && let Some(module) = framehop_module(&file, bias.0)?
                {
                    self.unwinder.add_module(module);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn unwind(&mut self, sample: &SampleRecord<'_>) -> &[u64] {
        self.found.clear();
        let register = |register| sample.user.known()?.get(Arch::X86_64, register);
        let (Some(pc), Some(sp), Some(fp)) = (register(RIP), register(RSP), register(RBP)) else {
            return &self.found;
        };
        let mut read = |address: u64| {
            let at = address
                .checked_sub(sp)
                .and_then(|at| usize::try_from(at).ok());
            let word = at.and_then(|at| sample.stack.bytes.get(at..)?.first_chunk());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(())
        };
        let start = UnwindRegsX86_64::new(pc, sp, fp);
        let mut frames = self
            .unwinder
            .iter_frames(pc, start, &mut self.cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            self.found.push(frame.address());
        }
        &self.found
    }
}
