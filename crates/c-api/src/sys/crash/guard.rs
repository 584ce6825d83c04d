//! What may fault, and the report goes on.
//!
//! Memory is asked for before it is read, but for what modules have mapped of their files: of a file
//! that was cut short since, the pages are still mapped, and reading them is a `SIGBUS`.
//!
//! Async-signal-safe.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::context::{self, CallerContext, call_with_caller_context};

/// Who called the innermost [`catch_fault`] of the thread that reports, or null.
static CALLER: AtomicPtr<CallerContext> = AtomicPtr::new(ptr::null_mut());

/// The body of a guarded call, and what it yields.
struct GuardedCall<F, R> {
    body: Option<F>,
    result: Option<R>,
}

/// Calls `body`; yields `None` if that faults. What it was to drop then is not dropped.
///
/// For the thread that reports, of which there is one.
pub(crate) fn catch_fault<R: Copy>(body: impl FnOnce() -> R) -> Option<R> {
    unsafe extern "C" fn run<F: FnOnce() -> R, R>(job: *mut c_void) {
        // SAFETY: `catch_fault` passes its job, which nobody else uses meanwhile.
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
unsafe extern "C" fn call(run: HandlerFn, job: *mut c_void) {
    call_with_caller_context!("rdx", call_from)
}

unsafe extern "C" fn call_from(run: HandlerFn, job: *mut c_void, saved: &mut CallerContext) {
    CALLER.store(saved, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { run(job) };
}

/// No call of this process is guarded. It may have been forked while its parent reported.
pub(super) fn reset() {
    CALLER.store(ptr::null_mut(), Ordering::Relaxed);
}

/// How far from a handler's frame that of the call may be which it has interrupted, in bytes: both are on
/// one stack for handlers, or on the reserve.
const MAX_FRAME_DISTANCE_BYTES: usize = 1 << 20;

/// Goes on behind the innermost [`catch_fault`], from a handler that has interrupted it. Returns if there is
/// none on this stack: a process that shares this one's memory may have one elsewhere.
///
/// The handlers are such that the signal mask is the same.
pub(super) fn resume_after_fault() {
    let here = 0_u8;
    let caller = CALLER.load(Ordering::Relaxed);
    if caller.addr().wrapping_sub((&raw const here).addr()) > MAX_FRAME_DISTANCE_BYTES {
        return;
    }
    // SAFETY: what `call_from` was given, which has not returned: it is further out on this stack.
    if let Some(saved) = unsafe { caller.as_ref() } {
        // SAFETY: the caller of `call` waits for it, further out on the same stack; what lies between
        // owns nothing that is missed.
        unsafe { context::enter(saved, 0) };
    }
}
