//! The own process, seen as others are.

use std::io;

use unspool_rows::{Abi, Memory, RuntimeAddr, Unreadable};

use unspool_unwind::local::{ABI, OwnMemory};

use crate::maps::{Mapping, Mappings};
use crate::surroundings::ProcFiles;
use crate::{
    AuxVector, MappedFile, ProcessError, Signal, Snapshot, Thread, mapped_file, procfs, read_memory,
};

/// The own process, as the calling thread sees it: for [walks of its own stack](crate::space::Space::walk_from) that are to tell more than
/// [`unspool_unwind::local`] can. What is further out on that stack stands still as long as the thread is here; other threads go on, and none is in
/// [`Snapshot::threads`].
///
/// It allocates and opens files: it is nothing for signal handlers.
#[derive(Debug)]
pub struct OwnProcess {
    thread: i32,
    mappings: Mappings,
    auxv: AuxVector,
    memory: KernelReadMemory,
}

impl OwnProcess {
    /// Reads what is mapped now.
    ///
    /// # Errors
    ///
    /// `/proc` is not there, or is not to be read: the files of a process that has more rights than its user belong to root.
    pub fn new() -> Result<OwnProcess, ProcessError> {
        let thread = procfs::own_thread().map_err(|source| ProcessError::Proc {
            path: "/proc/thread-self".into(),
            source,
        })?;
        let around = ProcFiles::read(thread)?;
        Ok(OwnProcess {
            thread,
            mappings: around.mappings,
            auxv: around.auxv,
            memory: KernelReadMemory,
        })
    }

    /// Opens the file behind a mapping, and says whether it still is the mapped one.
    ///
    /// # Errors
    ///
    /// The mapping comes from no file, or no file can be reached in any of the ways of [`Route`](crate::Route); the error is that of the path.
    pub fn open_mapped_file(&self, mapping: &Mapping) -> io::Result<MappedFile> {
        mapped_file::open(self.thread, mapping)
    }
}

/// The own memory, read by the kernel, which knows what another thread has unmapped meanwhile.
#[derive(Debug)]
struct KernelReadMemory;

impl Memory for KernelReadMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        match read_memory(std::process::id(), addr, into) {
            Ok(read) if read == into.len() => Ok(()),
            // Not all of it is there, or a sandbox forbids to ask so.
            _ => OwnMemory::without_stack().read(addr, into),
        }
    }
}

impl Snapshot for OwnProcess {
    fn abi(&self) -> Abi {
        ABI
    }

    fn threads(&self) -> &[Thread] {
        &[]
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

    fn signal(&self) -> Option<&Signal> {
        None
    }

    fn pac_mask(&self) -> u64 {
        0
    }
}
