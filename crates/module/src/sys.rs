//! What the system is asked: whose the process is, and whom a mount is trusted with.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::fs::File;
use std::mem;
use std::os::fd::AsRawFd as _;

/// Whether the program has more rights than its caller (`AT_SECURE`: setuid, setgid, capabilities).
pub(crate) fn is_privileged() -> bool {
    // SAFETY: takes a number, and yields 0 for one that is not known.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the kernel honours set-user-ID bits on the mount that a file is on; `false` if it does not say.
pub(crate) fn honours_setuid(file: &File) -> bool {
    // SAFETY: plain numbers.
    let mut about: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the descriptor is open, and `about` is this function's.
    let failed = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) };
    failed == 0 && about.f_flag & libc::ST_NOSUID == 0
}
