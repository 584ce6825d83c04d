//! The own process, as a snapshot.

use std::io;

use unspool_rows::{Abi, Memory, RuntimeAddr, Unreadable};

use unspool_unwind::local::{ABI, OwnMemory};

use crate::maps::{Mapping, Mappings};
use crate::surroundings::ProcFiles;
use crate::{AuxVector, MappedFile, ProcessError, Snapshot, mapped_file, procfs, read_memory};

/// The own process, as the calling thread sees it. It serves [walks of its own
/// stack](crate::snapshot_unwinder::SnapshotUnwinder::walk_from) that need more detail than
/// [`unspool_unwind::local`] has. The caller's frames on that stack cannot change meanwhile. Other
/// threads keep running and are not in [`Snapshot::threads`].
///
/// It allocates and opens files, so it must not be used in signal handlers.
#[derive(Debug)]
pub struct OwnProcess {
    thread: i32,
    mappings: Mappings,
    auxv: AuxVector,
    memory: KernelReadMemory,
}

impl OwnProcess {
    /// Reads the present mappings.
    ///
    /// # Errors
    ///
    /// `/proc` is missing or unreadable: if a process has more rights than its user, its files
    /// there belong to root.
    pub fn new() -> Result<OwnProcess, ProcessError> {
        let thread = procfs::own_thread().map_err(|source| ProcessError::Proc {
            path: "/proc/thread-self".into(),
            source,
        })?;
        let around = ProcFiles::read(thread)?;
        let assigned = around.mappings.with_copied_text(&KernelReadMemory);
        Ok(OwnProcess {
            thread,
            mappings: assigned.unwrap_or(around.mappings),
            auxv: around.auxv,
            memory: KernelReadMemory,
        })
    }

    /// Opens the file behind a mapping, and tells whether it still is the mapped one.
    ///
    /// # Errors
    ///
    /// The mapping has no file, or no [`FileRoute`](crate::FileRoute) leads to one; the error is
    /// that of the path.
    pub fn open_mapped_file(&self, mapping: &Mapping) -> io::Result<MappedFile> {
        mapped_file::open(self.thread, mapping)
    }
}

/// The own memory, read through the kernel, which knows about mappings that another thread removed.
#[derive(Debug)]
struct KernelReadMemory;

impl Memory for KernelReadMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        match read_memory(std::process::id(), addr, into) {
            Ok(read) if read == into.len() => Ok(()),
            // Part of it is missing, or a sandbox forbids this call.
            _ => OwnMemory::without_stack().read(addr, into),
        }
    }
}

impl Snapshot for OwnProcess {
    fn abi(&self) -> Abi {
        ABI
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
