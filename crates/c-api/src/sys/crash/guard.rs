//! Guarded calls: after a fault in one, the report continues.
//!
//! Memory is checked before it is read, except mapped module files. If such a file was truncated,
//! its pages are still mapped, and reading them raises `SIGBUS`.
//!
//! Async-signal-safe.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use unspool_unwind::call_with_caller_registers;
use unspool_unwind::local::caller_registers::{CallerRegisters, continue_at};

/// The caller of the reporting thread's innermost [`catch_fault`], or null.
static CALLER: AtomicPtr<CallerRegisters> = AtomicPtr::new(ptr::null_mut());

/// The body of a guarded call, and its result.
struct GuardedCall<F, R> {
    body: Option<F>,
    result: Option<R>,
}

/// Calls `body`; returns `None` if that faults. Then its values are not dropped.
///
/// Only for the reporting thread; there is one.
pub(crate) fn catch_fault<R: Copy>(body: impl FnOnce() -> R) -> Option<R> {
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(job: *mut c_void) {
        // SAFETY: `catch_fault` passes its job, which has no other user meanwhile.
        let job = unsafe { &mut *job.cast::<GuardedCall<F, R>>() };
        job.result = job.body.take().map(|body| body());
    }
    fn of<F: FnOnce() -> R, R>(_: &GuardedCall<F, R>) -> HandlerFn {
        run::<F, R>
    }
    let mut job = GuardedCall {
        body: Some(body),
        result: None,
    };
    let run = of(&job);
    let outer = CALLER.load(Ordering::Relaxed);
    // SAFETY: the function takes this job.
    unsafe { call(run, (&raw mut job).cast()) };
    CALLER.store(outer, Ordering::Relaxed);
    job.result
}

type HandlerFn = unsafe extern "C" fn(*mut c_void);

/// # Safety
///
/// The function can be called with the job.
#[unsafe(naked)]
unsafe extern "C" fn call(handler: HandlerFn, job: *mut c_void) {
    call_with_caller_registers!("rdx", call_from)
}

unsafe extern "C" fn call_from(handler: HandlerFn, job: *mut c_void, caller: &mut CallerRegisters) {
    CALLER.store(caller, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { handler(job) };
}

/// Clears the guard. The process may have been forked while its parent was in a guarded call.
pub(super) fn reset() {
    CALLER.store(ptr::null_mut(), Ordering::Relaxed);
}

/// The maximum distance of a handler's frame from the interrupted guarded call, in bytes: both are
/// on one stack for handlers, or on the reserve.
const MAX_FRAME_DISTANCE_BYTES: usize = 1 << 20;

/// Continues after the innermost [`catch_fault`], from a handler that has interrupted it. Returns
/// if there is none on this stack: a process that shares this one's memory may have one elsewhere.
///
/// The handlers are installed with the same signal mask.
pub(super) fn resume_after_fault() {
    let here = 0_u8;
    let caller = CALLER.load(Ordering::Relaxed);
    if caller.addr().wrapping_sub((&raw const here).addr()) > MAX_FRAME_DISTANCE_BYTES {
        return;
    }
    // SAFETY: saved by `call_from`, which has not returned: it is further out on this stack.
    if let Some(saved) = unsafe { caller.as_ref() } {
        // SAFETY: the caller of `call` is further out on the same stack; frames in between own
        // nothing that must be released.
        unsafe { continue_at(saved, 0, 0) };
    }
}
