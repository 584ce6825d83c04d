//! A third unwinder, elfutils' libdw, for copied stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use unspool_perf_events::{DataFile, MmapRecord, Record, SampleRecord};
use unspool_rows::Arch;

use super::frames::FileAddress;
use crate::{Error, packages, programs};

/// A mapping of code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CodeMapping {
    end: u64,
    offset: u64,
    path: String,
}

/// The mappings of a process, by start address.
type AddressMap = BTreeMap<u64, CodeMapping>;

/// The frames of some samples of a recording, by their indices in the order of time.
///
/// # Errors
///
/// The program cannot be built or run, or its output cannot be parsed.
pub(super) fn frames(
    file: &DataFile,
    wanted: &BTreeSet<usize>,
    folder: &Path,
) -> Result<BTreeMap<usize, Vec<FileAddress>>, Error> {
    let mut libdw = Libdw::start(folder)?;
    let mut spaces: BTreeMap<u32, AddressMap> = BTreeMap::new();
    let mut found = BTreeMap::new();
    let mut number = 0;
    file.read(|item| -> Result<(), Error> {
        match &item.record {
            Record::Sample(sample) => {
                if wanted.contains(&number) {
                    let space = spaces.entry(item.sample_id.pid).or_default();
                    found.insert(number, libdw.unwind(space, sample)?);
                }
                number += 1;
            }
            Record::Mmap(mapped) if mapped.is_executable => {
                map(spaces.entry(mapped.pid).or_default(), mapped);
            }
            Record::Comm(named) if named.is_exec => drop(spaces.remove(&named.pid)),
            Record::Fork(task) if task.pid != task.parent_pid => {
                let parent = spaces.get(&task.parent_pid).cloned();
                spaces.insert(task.pid, parent.unwrap_or_default());
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

/// Adds a mapping, and replaces overlapping ones.
fn map(address_map: &mut AddressMap, mmap: &MmapRecord<'_>) {
    let end = mmap.start.saturating_add(mmap.size);
    address_map.retain(|start, old| old.end <= mmap.start || *start >= end);
    let mapping = CodeMapping {
        end,
        offset: mmap.offset,
        path: String::from_utf8_lossy(mmap.name).into_owned(),
    };
    address_map.insert(mmap.start, mapping);
}

/// The program that uses libdw.
struct Libdw {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The last mappings sent to it.
    address_map: AddressMap,
}

impl Libdw {
    fn start(folder: &Path) -> Result<Self, Error> {
        packages::path("/usr/include/elfutils/libdwfl.h")?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/script_compare/libdw.c");
        let mut compiler = Command::new(packages::path("/usr/bin/gcc")?);
        compiler.args(["-O1", "-Wall", "-Werror"]);
        let libraries = ["-ldw", "-lelf"].map(str::to_owned);
        let program = programs::build(compiler, &source, &libraries, folder)?;
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Libdw {
            to: child.stdin.take().ok_or("no pipe")?,
            from: BufReader::new(child.stdout.take().ok_or("no pipe")?),
            child,
            address_map: AddressMap::new(),
        })
    }

    fn unwind(
        &mut self,
        address_map: &AddressMap,
        sample: &SampleRecord<'_>,
    ) -> Result<Vec<FileAddress>, Error> {
        let Some(registers) = sample.user.known() else {
            return Ok(Vec::new());
        };
        let mut text = String::new();
        if self.address_map != *address_map {
            text.push_str("files\n");
            for (start, CodeMapping { offset, path, .. }) in address_map {
                writeln!(text, "file {start:x} {offset:x} {path}")?;
            }
            self.address_map.clone_from(address_map);
        }
        text.push_str("registers");
        let mut stack = 0;
        for (register, value) in registers.iter(Arch::X86_64) {
            write!(text, " {value:x}")?;
            if register == Arch::X86_64.spec().stack_pointer {
                stack = value;
            }
        }
        write!(text, "\nstack {stack:x} ")?;
        for byte in sample.stack.bytes {
            write!(text, "{byte:02x}")?;
        }
        text.push_str("\nunwind\n");
        self.to.write_all(text.as_bytes())?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let addresses = line
            .split_whitespace()
            .map(|word| u64::from_str_radix(word, 16));
        addresses
            .map(|address| Ok(place(address_map, address?)))
            .collect()
    }
}

impl Drop for Libdw {
    fn drop(&mut self) {
        // It has no state to lose.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address as `perf script` prints it.
fn place(address_map: &AddressMap, address: u64) -> FileAddress {
    let below = address_map.range(..=address).next_back();
    match below.filter(|(_, mapping)| address < mapping.end) {
        Some((start, CodeMapping { offset, path, .. })) => FileAddress {
            address: address - start + offset,
            file: path.clone(),
        },
        None => FileAddress {
            address,
            file: "[unknown]".to_owned(),
        },
    }
}
