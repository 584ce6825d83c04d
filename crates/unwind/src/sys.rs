//! The system calls of this crate that are neither ptrace's nor a mapping's.
#![expect(unsafe_code, reason = "system calls")]

/// The user that this process acts as.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}
