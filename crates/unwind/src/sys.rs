//! The system calls of this crate that are neither ptrace's nor a mapping's.
#![expect(unsafe_code, reason = "system calls")]

/// The user that this process acts as.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether the program runs with more rights than its caller (setuid, setgid, capabilities).
pub(crate) fn is_privileged() -> bool {
    // SAFETY: reads a value that the kernel gave the process at its start; cannot fail.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
