//! Core files: ELF64 little-endian cores of x86-64 and AArch64, as the kernel and gdb write
//! them (core(5)).
//!
//! A truncated or partly malformed core yields its intact parts. [`Core::problems`] lists the
//! others with their file offsets.

use std::fs::File;
use std::path::Path;

use unspool_elf::ElfFile;
use unspool_files::FileMap;
use unspool_rows::{Abi, Endian, Memory};

use crate::file_provider::{FileProblem, FileSearch};
use crate::loaded_objects::CoreObjects;
use crate::maps::Mappings;
use crate::{AuxVector, Signal, Snapshot, Thread, registers};

mod elf;
mod error;
mod mappings;
mod memory;
mod notes;

pub use error::{CoreError, CoreProblem};
pub use memory::CoreMemory;

use crate::program_header::{PT_NOTE, ProgramHeader};
use elf::CoreHeaders;
use notes::CoreNotes;

/// A core file.
#[derive(Debug)]
pub struct Core {
    abi: Abi,
    memory: CoreMemory,
    mappings: Mappings,
    has_file_list: bool,
    threads: Vec<Thread>,
    signal: Option<Signal>,
    process: Option<ProcessInfo>,
    auxv: AuxVector,
    pac_mask: u64,
    problems: Vec<CoreProblem>,
}

/// The process of a core file (`NT_PRPSINFO`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its process ID.
    pub pid: u32,
    /// The name of its first thread, at most 15 bytes.
    pub name: String,
    /// The beginning of its command line, at most 79 bytes, with blanks between the arguments.
    pub arguments: String,
}

impl Core {
    /// Opens a core file, which is mapped, not read ([`FileMap`]). If the file is truncated
    /// meanwhile, the lost part becomes unreadable
    /// ([`UnreadableReason::Truncated`](unspool_rows::memory::UnreadableReason::Truncated)).
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is not an ELF64 little-endian core file of a supported
    /// architecture, or ends before its first program header.
    pub fn open(path: impl AsRef<Path>) -> Result<Core, CoreError> {
        let path = path.as_ref();
        let file = unspool_files::open(path).map_err(|source| CoreError::Open {
            path: path.to_path_buf(),
            source,
        })?;
        Core::from_file(&file, path)
    }

    /// The core file that `file` has open; `path` names it in errors.
    ///
    /// # Errors
    ///
    /// Those of [`Core::open`].
    pub fn from_file(file: &File, path: &Path) -> Result<Core, CoreError> {
        let contents = FileMap::new(file).map_err(|source| CoreError::Open {
            path: path.to_path_buf(),
            source,
        })?;
        Core::from_contents(contents)
    }

    /// Parses the bytes of a core file.
    ///
    /// # Errors
    ///
    /// Those of [`Core::open`], except for opening.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Core, CoreError> {
        Core::from_contents(bytes.into())
    }

    fn from_contents(contents: FileMap) -> Result<Core, CoreError> {
        let bytes: &[u8] = &contents;
        let headers = elf::read(bytes)?;
        let mut abi_info = read_notes(bytes, &headers);
        let mut problems: Vec<CoreProblem> = headers.problem.into_iter().collect();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let loads = memory::loads(&headers.segments, length, &mut problems);
        problems.append(&mut abi_info.problems);
        if abi_info.threads.is_empty() {
            problems.push(CoreProblem::NoThreads);
        }
        let mappings = mappings::build(&abi_info.files, &loads, &abi_info.auxv);
        let memory = CoreMemory::new(contents, loads);
        if let Some(layout) = registers::layout(headers.arch) {
            layout.find_syscalls(&mut abi_info.threads, &memory);
        }
        Ok(Core {
            abi: Abi {
                arch: headers.arch,
                endian: Endian::Little,
            },
            mappings,
            has_file_list: !abi_info.files.is_empty(),
            memory,
            threads: abi_info.threads,
            signal: abi_info.signal,
            process: abi_info.process,
            auxv: abi_info.auxv,
            pac_mask: abi_info.pac_mask,
            problems,
        })
    }

    /// Finds the files of mappings for which the core names none, and the mappings that it lacks: by
    /// the loaded objects' headers in memory, the dynamic loader's list, and the program given. Not
    /// every writer records the names (`NT_FILE`).
    ///
    /// # Errors
    ///
    /// The program given cannot be read, or the core's program cannot be this one.
    pub fn find_objects(&mut self, search: &FileSearch) -> Result<(), FileProblem> {
        let program = search
            .executable
            .as_deref()
            .map(ElfFile::open)
            .transpose()?;
        let objects = CoreObjects {
            memory: &self.memory,
            auxv: &self.auxv,
            program: program.as_ref(),
            open: &|path| search.open(path).ok(),
            find: &|id| search.find(id),
        };
        let assigned = objects.assign(self.mappings.clone());
        let unplaced = || FileProblem::Unplaced {
            path: search.executable.clone().unwrap_or_default(),
        };
        self.mappings = assigned.ok_or_else(unplaced)?;
        Ok(())
    }

    /// The recorded memory.
    #[must_use]
    pub fn memory(&self) -> &CoreMemory {
        &self.memory
    }

    /// The process, if recorded.
    #[must_use]
    pub fn process(&self) -> Option<&ProcessInfo> {
        self.process.as_ref()
    }

    /// The parts that could not be read.
    #[must_use]
    pub fn problems(&self) -> &[CoreProblem] {
        &self.problems
    }
}

impl Snapshot for Core {
    fn abi(&self) -> Abi {
        self.abi
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    fn has_all_mappings(&self) -> bool {
        self.has_file_list
    }

    fn auxv(&self) -> &AuxVector {
        &self.auxv
    }

    fn memory(&self) -> &dyn Memory {
        &self.memory
    }

    fn signal(&self) -> Option<&Signal> {
        self.signal.as_ref()
    }

    fn pac_mask(&self) -> u64 {
        self.pac_mask
    }
}

fn read_notes(bytes: &[u8], headers: &CoreHeaders) -> CoreNotes {
    let mut abi_info = CoreNotes::default();
    // Valid segments do not overlap. This bounds the work when a file refers to the same notes
    // again and again.
    let mut budget = bytes.len();
    for segment in headers
        .segments
        .iter()
        .filter(|segment| segment.kind == PT_NOTE)
    {
        let notes = contents_of(bytes, segment);
        let notes = notes.get(..budget).unwrap_or(notes);
        budget -= notes.len();
        abi_info.read(headers.arch, segment.offset, notes);
    }
    abi_info.name_first_thread();
    abi_info
}

/// The part of a segment that is in the file.
fn contents_of<'a>(bytes: &'a [u8], segment: &ProgramHeader) -> &'a [u8] {
    let start = usize::try_from(segment.offset).unwrap_or(usize::MAX);
    let size = usize::try_from(segment.file_size).unwrap_or(usize::MAX);
    let rest = bytes.get(start..).unwrap_or(&[]);
    rest.get(..size).unwrap_or(rest)
}
