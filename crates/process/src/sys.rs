//! Reading the memory of another process, as a safe function.
//!
//! Addresses of the other process can do no harm here: they are plain numbers, which the kernel
//! checks.
#![expect(unsafe_code, reason = "process_vm_readv is a system call")]

use std::io;

use libc::{c_void, pid_t};

/// A range of the other process's memory: address and length in bytes.
pub(crate) type RemoteRange = (usize, usize);

/// Copies `ranges` of the memory of `pid` one after the other into `into`. Returns how many bytes
/// it copied: fewer than requested if a page of a range cannot be read. At most [`MAX_RANGES`]
/// ranges are read.
pub(crate) fn read_memory(
    pid: pid_t,
    into: &mut [u8],
    ranges: &[RemoteRange],
) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast::<c_void>(),
        iov_len: into.len(),
    };
    let remote: Vec<libc::iovec> = ranges
        .iter()
        .take(MAX_RANGES)
        .map(|(start, length)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(*start),
            iov_len: *length,
        })
        .collect();
    let count = libc::c_ulong::try_from(remote.len()).unwrap_or(0);
    // SAFETY: `local` is one vector that describes `into`, which is uniquely borrowed, so the
    // kernel writes nowhere else. `remote` has `count` entries with addresses of the other process,
    // which the kernel checks.
    let copied =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), count, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// The kernel's limit of ranges in one call (`UIO_MAXIOV`).
pub(crate) const MAX_RANGES: usize = 1024;
