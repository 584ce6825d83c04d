//! Time and page faults.

use std::io;
use std::mem::MaybeUninit;

/// The time-stamp counter. Earlier work is finished, and later work has not started.
#[inline]
pub(crate) fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: lfence is part of SSE2, which every x86-64 processor has.
    unsafe { _mm_lfence() };
    // SAFETY: Linux lets programs read the counter unless they ask it not to (PR_SET_TSC).
    let now = unsafe { _rdtsc() };
    // SAFETY: as above.
    unsafe { _mm_lfence() };
    now
}

/// Page faults of this process so far that needed no reading from disk.
pub(crate) fn minor_faults() -> io::Result<i64> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is to memory of the right type.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getrusage succeeded, so it has written all of it (getrusage(2)).
    Ok(unsafe { usage.assume_init() }.ru_minflt)
}
