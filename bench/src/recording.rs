//! Recordings by perf, to measure unwinders with.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use unspool_elf::ElfFile;
use unspool_perf_events::{
    DataFile, FileRecord, Record, RecordHeader, SampleFormat, SampleId, SampleRecord,
};
use unspool_table_store::{Store, TableSource, compile};

use crate::Scratch;

/// The workloads: stacks of a few functions in random order, and of typical programs.
///
/// # Errors
///
/// The compiler is missing or fails.
pub fn workloads(folder: &Scratch) -> anyhow::Result<Vec<(String, Command)>> {
    let deep = folder.compile(
        "deep",
        "deep.cpp",
        include_str!("../benches/record/deep.cpp"),
        &[],
    )?;
    let depths = ["20", "60", "200"].iter().map(|depth| {
        let mut command = Command::new(&deep);
        command.args([depth, "20000"]);
        (format!("deep, {depth}"), command)
    });
    let mut python = Command::new("python3");
    let program = "import json,re\nfor n in range(300): re.sub('(a|b)+c', lambda m: json.dumps([m.group()] * 9), 'abababc' * 300)";
    python.args(["-S", "-c", program]);
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-c", "-o"]);
    compiler.args([folder.join("deep.o"), folder.join("deep.cpp")]);
    let others = [("python3", python), ("c++ -O2", compiler)];
    let others = others.map(|(name, command)| (name.to_owned(), command));
    Ok(depths.chain(others).collect())
}

/// Records a command by perf, with the largest stack copies.
///
/// # Errors
///
/// perf is missing, or may not record.
pub fn record(command: &Command, path: &Path) -> anyhow::Result<()> {
    record_with(command, path, "cpu-clock:u", "dwarf,65528")
}

/// The same with another event, and another size of stack copies.
///
/// # Errors
///
/// perf is missing, or may not record.
pub fn record_with(
    command: &Command,
    path: &Path,
    event: &str,
    call_graph: &str,
) -> anyhow::Result<()> {
    let recorded = Command::new("perf")
        .args(["record", "-q", "-e", event, "-F", "2999"])
        .args(["--call-graph", call_graph, "-o"])
        .arg(path)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let recorded = recorded.context("cannot run perf (Debian package linux-perf)")?;
    anyhow::ensure!(recorded.success(), "perf record failed");
    Ok(())
}

/// Compiles the tables of all files, as a recorder does when it first sees them.
///
/// # Errors
///
/// The recording cannot be read, or a table cannot be kept.
pub fn compile_tables(file: &DataFile, store: &Store) -> anyhow::Result<()> {
    let mut seen_ids = HashSet::new();
    file.read(|record: FileRecord<'_>| {
        if let Record::Mmap(mapped) = record.record
            && mapped.is_executable
            && seen_ids.insert(mapped.name.to_vec())
            && let Ok(elf) = ElfFile::open(Path::new(OsStr::from_bytes(mapped.name)))
            && let Ok(made) = compile(&elf, TableSource::Auto)
        {
            store.keep(&store.stable(&elf), &made.encoded.bytes)?;
        }
        anyhow::Ok(())
    })?;
    Ok(())
}

/// A copied sample.
#[derive(Debug)]
pub struct OwnedSample {
    format: SampleFormat,
    header: RecordHeader,
    bytes: Vec<u8>,
}

impl OwnedSample {
    /// `None` for records other than samples.
    #[must_use]
    pub fn read(file: &DataFile, record: &FileRecord<'_>) -> Option<Self> {
        matches!(record.record, Record::Sample(_)).then_some(())?;
        Some(OwnedSample {
            format: file.events().get(record.event)?.format,
            header: record.header,
            bytes: record.bytes.to_vec(),
        })
    }

    /// The sample, and where it was taken.
    #[must_use]
    pub fn sample(&self) -> Option<(SampleId, SampleRecord<'_>)> {
        match self.format.read(self.header, &self.bytes).ok()? {
            (origin, Record::Sample(sample)) => Some((origin, sample)),
            _ => None,
        }
    }
}
