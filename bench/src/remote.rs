//! The C program that walks perf's samples through libunwind's interface, by native objects, and by
//! the papers' form of a table; and its input.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use unspool_elf::{ElfFile, SegmentMapping};
use unspool_perf_events::{DataFile, FileRecord, Record, SampleRecord};
use unspool_rows::{Arch, Register, RuntimeAddr};
use unspool_table_store::{self as tables, NativeObject};

use crate::Scratch;

const DEBIAN_LIBUNWIND: &str = "/usr/lib/x86_64-linux-gnu/libunwind-x86_64.so.8";

/// Passes over all samples, after one that is reported separately.
pub const ROUNDS: usize = 11;

/// The bytes of a path in a file of samples.
const NAME: usize = 256;

/// The most frames of a walk.
pub const MAX_FRAMES: u32 = 1024;

/// The C program that walks.
#[derive(Debug)]
pub struct Driver<'f> {
    folder: &'f Scratch,
    path: PathBuf,
    ours: PathBuf,
}

impl<'f> Driver<'f> {
    /// Compiles it. `target` is Cargo's target folder, with the output of `cargo xtask
    /// shared-objects`.
    ///
    /// # Errors
    ///
    /// The compiler or these objects are missing.
    pub fn new(folder: &'f Scratch, target: &Path) -> anyhow::Result<Self> {
        let native = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/native-table");
        let include = format!("-I{}", native.display());
        let source = include_str!("remote/remote.c");
        let headers =
            unspool_testing::packages::libunwind_headers().map_err(anyhow::Error::from_boxed)?;
        let headers = format!("-I{}", headers.display());
        let options = [&include, &headers, "-D_GNU_SOURCE"];
        let path = folder.compile("remote", "remote.c", source, &options)?;
        let ours = target.join("shared-object/libunwind/libunwind-x86_64.so.8");
        ensure!(ours.exists(), "not there: run cargo xtask shared-objects");
        Ok(Driver { folder, path, ours })
    }

    /// Makes it walk samples, at most this many steps each.
    ///
    /// # Errors
    ///
    /// It cannot be run, or fails.
    pub fn run(&self, samples: &[u8], most: u32) -> anyhow::Result<Vec<UnwinderTimes>> {
        let file = self.folder.join("samples");
        std::fs::write(&file, samples)?;
        let output = Command::new(&self.path)
            .arg(&file)
            .arg((ROUNDS + 1).to_string())
            .arg(DEBIAN_LIBUNWIND)
            .arg(&self.ours)
            .arg(most.to_string())
            .arg(self.folder.join("sums"))
            .env("UNSPOOL_TABLE_PATH", self.folder.join(""))
            .env_remove("UNSPOOL_TABLES")
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {errors}", output.status);
        let text = String::from_utf8(output.stdout)?;
        let times: Option<Vec<_>> = text.lines().map(UnwinderTimes::parse).collect();
        times.context("the driver says something else")
    }

    /// The sums of the stacks that its first unwinder found in the last run.
    ///
    /// # Errors
    ///
    /// It has not run.
    pub fn stack_sums(&self) -> anyhow::Result<Vec<u64>> {
        let bytes = std::fs::read(self.folder.join("sums"))?;
        let (sums, _) = bytes.as_chunks::<8>();
        Ok(sums.iter().copied().map(u64::from_ne_bytes).collect())
    }
}

/// A sum of a stack's frames, as the driver writes it.
#[must_use]
pub fn stack_sum(frames: &[u64]) -> u64 {
    frames.iter().fold(0xcbf2_9ce4_8422_2325, |sum, frame| {
        (sum ^ frame).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The times of one unwinder, as the driver prints them; in nanoseconds a frame.
#[derive(Debug, Clone)]
pub struct UnwinderTimes {
    /// The unwinder.
    pub name: String,
    /// The number of samples.
    pub samples: u64,
    /// Frames after the innermost one, of all samples.
    pub frames: u64,
    /// Stacks that are those of the first unwinder.
    pub same: u64,
    /// Steps that the objects do not have.
    pub left_over: u64,
    /// The first pass.
    pub first: f64,
    /// Whole walks: the median of the other passes.
    pub whole: f64,
    /// The same without the start of walks.
    pub steps: f64,
    /// Walks of samples that were just walked.
    pub again: f64,
}

impl UnwinderTimes {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        let name = words.next()?.to_owned();
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

/// Samples in the driver's format: numbers of 8 bytes. First the number of modules. For each: the
/// first address, the end, the load bias, its path, its native object's, and that of its table in
/// the papers' form. Then the number of samples. For each: the registers, the start of the copied
/// stack, its size, and the stack.
#[derive(Debug, Default)]
pub struct DriverInput {
    /// The number of samples.
    pub count: u64,
    bytes: Vec<u8>,
}

impl DriverInput {
    /// Adds a sample of user code with registers.
    fn add(&mut self, sample: &SampleRecord<'_>) {
        if let Some(registers) = registers(sample) {
            let start = registers.get(7).copied().unwrap_or_default();
            self.push(&registers, start, sample.stack.bytes);
        }
    }

    /// Adds a sample; without a stack it shares the previous one's.
    pub fn push(&mut self, registers: &[u64], start: u64, stack: &[u8]) {
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
    #[must_use]
    pub fn with(&self, modules: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = (modules.len() as u64).to_le_bytes().to_vec();
        bytes.extend(modules.iter().flatten());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(&self.bytes);
        bytes
    }
}

/// The registers of a sample of user code.
#[must_use]
pub fn registers(sample: &SampleRecord<'_>) -> Option<Vec<u64>> {
    let register = |number| sample.user.known()?.get(Arch::X86_64, Register(number));
    (0..17).map(register).collect()
}

/// Makes the table of a file in the papers' form.
pub type EhElfCompiler<'c> = &'c dyn Fn(&ElfFile) -> anyhow::Result<PathBuf>;

/// The samples of some processes that have the same mappings, with these.
///
/// # Errors
///
/// The recording cannot be read, or a table of its files cannot be made.
pub fn samples_of(
    recording: &Path,
    processes: &HashSet<u32>,
    folder: &Scratch,
    eh_elf: Option<EhElfCompiler<'_>>,
) -> anyhow::Result<Vec<u8>> {
    let file = DataFile::open(recording)?;
    let (mut modules, mut samples) = (HashMap::new(), DriverInput::default());
    file.read(|record: FileRecord<'_>| {
        match &record.record {
            Record::Mmap(mapped) if processes.contains(&mapped.pid) && mapped.is_executable => {
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
                    let bias = file.load_bias(&mapping).map_or(0, |bias| bias.0);
                    let addresses = mapped.start..mapped.start + mapped.size;
                    modules.insert(
                        mapped.start,
                        module(&file, addresses, bias, folder, eh_elf)?,
                    );
                }
            }
            Record::Sample(sample) if processes.contains(&record.sample_id.pid) => {
                samples.add(sample);
            }
            _ => {}
        }
        anyhow::Ok(())
    })?;
    let mut modules: Vec<_> = modules.into_iter().collect();
    modules.sort_by_key(|(start, _)| *start);
    let modules: Vec<_> = modules.into_iter().map(|(_, module)| module).collect();
    Ok(samples.with(&modules))
}

/// The process with the most samples, and those that were forked from it and have run no other
/// program since.
///
/// # Errors
///
/// The recording cannot be read, or has no samples.
pub fn busiest_processes(recording: &Path) -> anyhow::Result<HashSet<u32>> {
    let file = DataFile::open(recording)?;
    let (mut creators, mut own) = (HashMap::new(), HashSet::new());
    let mut sampled = Vec::new();
    file.read(|record: FileRecord<'_>| {
        match &record.record {
            Record::Fork(task) if task.pid != task.parent_pid => {
                creators.insert(task.pid, task.parent_pid);
            }
            Record::Comm(named) if named.is_exec => {
                own.insert(named.pid);
            }
            Record::Sample(_) => sampled.push(record.sample_id.pid),
            _ => {}
        }
        anyhow::Ok(())
    })?;
    // The process that ran the program.
    let program = |mut pid: u32| {
        while !own.contains(&pid)
            && let Some(creator) = creators.get(&pid)
        {
            pid = *creator;
        }
        pid
    };
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for pid in &sampled {
        *counts.entry(program(*pid)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    let (most, _) = most.context("no samples")?;
    let mut processes: HashSet<u32> = sampled.into_iter().collect();
    processes.retain(|pid| program(*pid) == most);
    processes.insert(most);
    Ok(processes)
}

/// The driver's record of a module.
///
/// # Errors
///
/// A table of the file cannot be made.
pub fn module(
    file: &ElfFile,
    addresses: Range<u64>,
    bias: u64,
    folder: &Scratch,
    eh_elf: Option<EhElfCompiler<'_>>,
) -> anyhow::Result<Vec<u8>> {
    let numbers = [addresses.start, addresses.end, bias];
    let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
    let key = tables::own_key(file);
    let object = match NativeObject::from_file(file, &key) {
        Ok(object) => {
            let path = folder.join(&format!("{key}.native.so"));
            std::fs::write(&path, object.bytes())?;
            path
        }
        Err(_) => PathBuf::new(),
    };
    let eh_elf = eh_elf.map_or_else(|| Ok(PathBuf::new()), |compile| compile(file))?;
    for path in [file.path(), object.as_path(), eh_elf.as_path()] {
        let name = path.as_os_str().as_bytes();
        ensure!(name.len() < NAME, "{}: too long", path.display());
        let end = bytes.len() + NAME;
        bytes.extend(name);
        bytes.resize(end, 0);
    }
    Ok(bytes)
}
