//! A timer that interrupts this thread.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::zeroed;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::descent::OwnStack;

/// Microseconds from the end of one sample to the next.
const PERIOD: libc::suseconds_t = 97;

/// The work at each sample, in the signal handler.
struct SampleWork<'w> {
    /// Only if code at these addresses is interrupted.
    within: Range<u64>,
    each: &'w mut dyn FnMut(&OwnStack),
    stack: OwnStack,
}

/// The current work, or null.
static NOW: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Runs `work`, and calls `each` in a signal handler whenever this thread is interrupted in code at
/// certain addresses.
pub(crate) fn sample<T>(
    within: Range<u64>,
    each: &mut dyn FnMut(&OwnStack),
    during: impl FnOnce() -> T,
) -> anyhow::Result<T> {
    let mut work = SampleWork {
        within,
        each,
        stack: OwnStack::without_frame_pointers()?,
    };
    handle(libc::SIGALRM)?;
    NOW.store((&raw mut work).cast(), Ordering::Relaxed);
    arm(PERIOD)?;
    let done = during();
    arm(0)?;
    NOW.store(ptr::null_mut(), Ordering::Relaxed);
    Ok(done)
}

fn handle(signal: c_int) -> io::Result<()> {
    // SAFETY: all zeros is a valid value: no flags, no signals, the default action.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = interrupted as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler has the type for SA_SIGINFO, and may run at any time, as documented
    // there.
    match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Requests one signal after a number of microseconds, or none with zero.
fn arm(microseconds: libc::suseconds_t) -> io::Result<()> {
    // SAFETY: all zeros is a valid value.
    let mut timer: libc::itimerval = unsafe { zeroed() };
    timer.it_value.tv_usec = microseconds;
    // SAFETY: the pointer is to a value that outlives the call.
    match unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// # Safety
///
/// Only the kernel calls it, in the thread that is in [`sample`].
unsafe extern "C" fn interrupted(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: returns the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it belongs to this thread.
    let kept = unsafe { *errno };
    let work: *mut SampleWork<'_> = NOW.load(Ordering::Relaxed).cast();
    // SAFETY: null, or the value in `sample`, which has no other user meanwhile. The process has
    // one thread that gets the signal, and the handler blocks the signal.
    if let Some(work) = unsafe { work.as_mut() } {
        // SAFETY: SA_SIGINFO's third argument is a ucontext_t.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let [.., rip] = context
            .uc_mcontext
            .gregs
            .first_chunk::<17>()
            .copied()
            .unwrap_or_default();
        if work.within.contains(&rip.cast_unsigned()) {
            (work.each)(&work.stack);
        }
        // A failure means no more samples, which the report shows.
        let _ = arm(PERIOD);
    }
    // SAFETY: as above.
    unsafe { *errno = kept };
}
