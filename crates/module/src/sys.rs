//! What the system is asked: to map a file, whose the process is, and whom a mount is trusted with.
#![expect(
    unsafe_code,
    reason = "a memory map is only as stable as the file beneath it; calls of the C library"
)]

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd as _;

use memmap2::Mmap;

/// Maps all of `file`, read-only and private.
///
/// If another process truncates the file while it is mapped, reading the lost pages raises
/// `SIGBUS`; if it overwrites the file in place, the bytes change. Package managers and linkers
/// replace files by renaming, which does neither. Small files are read instead of mapped.
pub(crate) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is read-only and only ever seen as `&[u8]` by parsers that check every
    // bound and assume nothing that an earlier read established about the bytes, so a change
    // beneath them can give a wrong result, but no invalid reference. That the file is not
    // truncated beneath the map is the documented condition above.
    unsafe { Mmap::map(file) }
}

/// Whether the program has more rights than its caller (`AT_SECURE`: setuid, setgid, capabilities).
pub(crate) fn is_privileged() -> bool {
    // SAFETY: takes a number, and yields 0 for one that is not known.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The user that this process acts as.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the kernel honours set-user-ID bits on the mount that a file is on; `false` if it does not say.
pub(crate) fn honours_setuid(file: &File) -> bool {
    // SAFETY: plain numbers.
    let mut about: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open, and `about` is this function's.
    let failed = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) };
    failed == 0 && about.f_flag & libc::ST_NOSUID == 0
}
