//! The bytes of a core file: mapped, because cores are large and little of one is read.
#![expect(unsafe_code, reason = "mapping a file is unsafe")]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// The contents of a core file.
#[derive(Debug)]
pub(super) enum Contents {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Contents {
    pub(super) fn map(file: &File) -> io::Result<Contents> {
        // The kernel cannot map nothing.
        if file.metadata()?.len() == 0 {
            return Ok(Contents::Owned(Vec::new()));
        }
        // SAFETY: the mapping is private and only read. `Core::open` tells its callers that
        // nobody may change or shorten the file while it is open.
        let mapped = unsafe { Mmap::map(file) }?;
        Ok(Contents::Mapped(mapped))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Contents::Mapped(mapped) => mapped,
            Contents::Owned(owned) => owned,
        }
    }
}
