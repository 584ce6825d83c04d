//! Writing to the memory of a stopped process.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;

use unspool_rows::{Memory as _, RuntimeAddr};

use super::{Process, StopState};
use crate::{NoRegisters, RunningMemory, Snapshot as _, procfs};

/// Why memory was not written, or not as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryWriteError {
    /// The process runs again.
    #[error("the process is not stopped any more")]
    Running,
    /// A thread did not stop, and could see a part of the change.
    #[error("thread {tid} is not stopped, and could see a part of the change: try again")]
    ThreadRuns {
        /// The thread.
        tid: u32,
    },
    /// The process itself may not write there.
    #[error("the process may not write to {addr} itself: nothing is written")]
    ReadOnly {
        /// The first such address.
        addr: RuntimeAddr,
    },
    /// The system refuses.
    #[error("cannot write: {0}")]
    Io(#[from] io::Error),
    /// Other bytes are there after the write.
    #[error("{addr} has other bytes than were written: another process writes there, too")]
    Changed {
        /// The first address of the write.
        addr: RuntimeAddr,
    },
}

impl Process {
    /// Writes to memory that the process may write to. All its threads are stopped, so none sees a
    /// part of the change; other processes can, in memory that they share. The bytes are read back.
    /// [`Process::memory`] may still have the old ones.
    ///
    /// # Errors
    ///
    /// [`MemoryWriteError`]. Only after [`MemoryWriteError::Io`] or [`MemoryWriteError::Changed`] anything may have
    /// been written.
    pub fn write(&self, addr: RuntimeAddr, bytes: &[u8]) -> Result<(), MemoryWriteError> {
        let is_stopped = matches!(&*self.stop.borrow(), StopState::Active { tracer, .. } if !tracer.has_released());
        if !is_stopped {
            return Err(MemoryWriteError::Running);
        }
        let has_stopped = |registers: &Result<_, NoRegisters>| {
            matches!(registers, Ok(_) | Err(NoRegisters::Exited))
        };
        let mut threads = self.threads.iter();
        if let Some(runs) = threads.find(|thread| !has_stopped(&thread.registers)) {
            return Err(MemoryWriteError::ThreadRuns { tid: runs.tid });
        }
        self.check_writable(addr, bytes.len())?;
        let mut options = OpenOptions::new();
        let memory = options.write(true).open(procfs::path(self.reader, "mem"))?;
        memory.write_all_at(bytes, addr.0)?;
        let mut now = vec![0; bytes.len()];
        let read = self.memory_now().read(addr, &mut now);
        if read.is_err() || now != bytes {
            return Err(MemoryWriteError::Changed { addr });
        }
        Ok(())
    }

    /// The memory as it is at each read.
    #[must_use]
    pub fn memory_now(&self) -> RunningMemory {
        RunningMemory(self.reader.unsigned_abs())
    }

    fn check_writable(&self, addr: RuntimeAddr, count: usize) -> Result<(), MemoryWriteError> {
        let end = addr.0.checked_add(count as u64);
        let end = end.ok_or(MemoryWriteError::ReadOnly { addr })?;
        let mut at = addr;
        while at.0 < end {
            let mapping = self.mappings().find(at);
            let mapping = mapping.filter(|mapping| mapping.permissions.write);
            at = mapping.ok_or(MemoryWriteError::ReadOnly { addr: at })?.end;
        }
        Ok(())
    }
}
