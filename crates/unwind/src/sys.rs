//! The system calls of this crate that are neither ptrace's nor a mapping's.
#![expect(unsafe_code, reason = "system calls and mapping files")]

use std::fs::File;
use std::io;

/// Maps a file read-only.
pub(crate) fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is private to this value and read-only. Another process may change the
    // file underneath; what reads the mapping treats its bytes as untrusted at every access, so
    // changed bytes cost a wrong answer. Truncating it in place raises SIGBUS; table files are
    // replaced by renaming only, and belong to the user or root (`check_trust`).
    unsafe { memmap2::Mmap::map(file) }
}

/// The user that this process acts as.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}
