//! A process that this program does not stop: it runs, or another program has stopped it.

use std::io;

use unspool_elf::ElfFile;
use unspool_rows::memory::Unreadable;
use unspool_rows::{Abi, Arch, Endian, Memory, RuntimeAddr};

use crate::file_provider::{FileProblem, FileProvider, identified_file};
use crate::maps::{Mapping, Mappings};
use crate::{AuxVector, ProcessError, Snapshot, mapped_file, procfs, read_memory};

/// A process of this machine that is not stopped by this program. Its threads are unknown.
#[derive(Debug)]
pub struct UnstoppedProcess<M> {
    pid: i32,
    mappings: Mappings,
    auxv: AuxVector,
    memory: M,
}

impl<M: Memory> UnstoppedProcess<M> {
    /// A process by the text of its `/proc/PID/maps`, with its memory from elsewhere.
    #[must_use]
    pub fn new(pid: u32, maps: &[u8], memory: M) -> UnstoppedProcess<M> {
        let mappings = Mappings::parse(maps);
        let is_vdso =
            |mapping: &&Mapping| mapping.name.as_deref().is_some_and(|name| name == "[vdso]");
        let vdso = mappings.iter().find(is_vdso).map(|mapping| mapping.start);
        UnstoppedProcess {
            // No process has such an ID.
            pid: i32::try_from(pid).unwrap_or(i32::MAX),
            auxv: vdso.map_or_else(AuxVector::default, AuxVector::with_vdso),
            mappings,
            memory,
        }
    }
}

impl UnstoppedProcess<RunningMemory> {
    /// A process that runs: its mappings as they are now, and its memory at each read.
    ///
    /// # Errors
    ///
    /// There is no such process, or it may not be inspected.
    pub fn open(pid: u32) -> Result<UnstoppedProcess<RunningMemory>, ProcessError> {
        let id = i32::try_from(pid).unwrap_or(i32::MAX);
        let maps = procfs::read(id, "maps").map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ProcessError::NoSuchProcess { pid },
            io::ErrorKind::PermissionDenied => ProcessError::from_refusal(id, id),
            _ => ProcessError::Proc {
                path: procfs::path(id, "maps"),
                source,
            },
        })?;
        Ok(UnstoppedProcess::new(pid, &maps, RunningMemory(pid)))
    }
}

impl<M: Memory> Snapshot for UnstoppedProcess<M> {
    fn abi(&self) -> Abi {
        Abi {
            arch: Arch::HOST,
            endian: Endian::Little,
        }
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    fn auxv(&self) -> &AuxVector {
        &self.auxv
    }

    fn memory(&self) -> &dyn Memory {
        &self.memory
    }
}

impl<M: Memory> FileProvider for UnstoppedProcess<M> {
    fn file(&self, mapping: &Mapping) -> Result<ElfFile, FileProblem> {
        identified_file(self, mapping, mapped_file::open(self.pid, mapping))
    }
}

/// The memory of a running process, by its ID. Two reads may see different states.
#[derive(Debug)]
pub struct RunningMemory(pub(crate) u32);

impl Memory for RunningMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let read = read_memory(self.0, addr, into).unwrap_or(0);
        if read == into.len() {
            return Ok(());
        }
        Err(Unreadable::unmapped(RuntimeAddr(
            addr.0.wrapping_add(read as u64),
        )))
    }
}
