//! A word of thread-local storage, the state that it points to, and its end.
#![expect(
    unsafe_code,
    reason = "thread-local storage, mappings, the ends of threads"
)]

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

use super::{PrepareError, ThreadWalkState};
use crate::local::sys::stack;
use crate::walk::Memo;

/// A value for one thread, and for the signal handlers in it, one at a time.
pub(super) struct ReentrantCell<T> {
    value: UnsafeCell<T>,
    is_in_use: AtomicBool,
}

impl<T> ReentrantCell<T> {
    const fn new(value: T) -> Self {
        ReentrantCell {
            value: UnsafeCell::new(value),
            is_in_use: AtomicBool::new(false),
        }
    }

    /// Calls `body` with the value, or with nothing if it is in use: this is then a handler that
    /// interrupted its user.
    #[inline(always)]
    pub(super) fn with<R>(&self, body: impl FnOnce(Option<&mut T>) -> R) -> R {
        // Only handlers can run in between, and they restore the mark.
        if self.is_in_use.load(Ordering::Relaxed) {
            return body(None);
        }
        self.is_in_use.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the value belongs to its thread (it is not `Sync`), and any other call in this
        // thread before the mark is removed gets nothing.
        let result = body(Some(unsafe { &mut *self.value.get() }));
        compiler_fence(Ordering::SeqCst);
        self.is_in_use.store(false, Ordering::Relaxed);
        result
    }
}

// The word. Hidden: each library that this is linked into has its own.
global_asm!(
    ".pushsection .tbss.unspool_unwind_own, \"awT\", @nobits",
    ".p2align 3",
    ".globl unspool_unwind_own",
    ".hidden unspool_unwind_own",
    ".type unspool_unwind_own, @object",
    ".size unspool_unwind_own, 8",
    "unspool_unwind_own:",
    ".zero 8",
    ".popsection",
);

/// The word of this thread.
#[inline(always)]
fn word() -> *const ThreadWalkState {
    let value: *const ThreadWalkState;
    // SAFETY: loads the word, which every thread has, by its offset from the thread pointer, which
    // the loader has put into the global offset table (initial exec).
    unsafe {
        asm!(
            "mov {value}, qword ptr [rip + unspool_unwind_own@gottpoff]",
            "mov {value}, qword ptr fs:[{value}]",
            value = out(reg) value,
            options(readonly, nostack, preserves_flags),
        );
    }
    value
}

fn set_word(value: *const ThreadWalkState) {
    // SAFETY: as in `word`; no one else writes it.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + unspool_unwind_own@gottpoff]",
            "mov qword ptr fs:[{at}], {value}",
            at = out(reg) _,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// The word of a thread that has freed its state: its end would not be reported again.
const ENDED: *const ThreadWalkState = ptr::without_provenance(1);

/// This thread's state. Async-signal-safe. Not to be kept: it is freed when the thread ends.
#[inline(always)]
pub(super) fn own<'a>() -> Option<&'a ThreadWalkState> {
    let word = word();
    if word.addr() <= ENDED.addr() {
        return None;
    }
    // SAFETY: mapped and written by `prepare_thread` before the word was set, and mapped until
    // `release` has reset it at the end of the thread, when none of its walks is under way.
    unsafe { word.as_ref() }
}

/// Maps a thread's state, and sets the word. Not async-signal-safe.
pub(super) fn prepare_thread() -> Result<(), PrepareError> {
    if own().is_some() {
        return Ok(());
    }
    if word() == ENDED {
        return Err(PrepareError(libc::ESRCH));
    }
    let own = map()?;
    let fresh = ThreadWalkState {
        stack: stack().unwrap_or_default(),
        memo: ReentrantCell::new(Memo::new()),
    };
    // SAFETY: fresh memory for a `ThreadWalkState`, aligned to a page.
    unsafe { own.write(fresh) };
    if let Err(none) = at_thread_exit(release, own.cast()) {
        unmap(own);
        return Err(none);
    }
    // Before this the state was incomplete; a handler may run at any moment.
    compiler_fence(Ordering::SeqCst);
    set_word(own);
    Ok(())
}

fn map() -> Result<*mut ThreadWalkState, PrepareError> {
    // SAFETY: a new mapping, at any address.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            mem::size_of::<ThreadWalkState>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    match at {
        libc::MAP_FAILED => Err(PrepareError(libc::ENOMEM)),
        at => Ok(at.cast()),
    }
}

fn unmap(own: *mut ThreadWalkState) {
    // SAFETY: `map` mapped it with this length, and there can be no references left.
    unsafe { libc::munmap(own.cast(), mem::size_of::<ThreadWalkState>()) };
}

/// The end of a thread.
unsafe extern "C" fn release(own: *mut c_void) {
    set_word(ENDED);
    compiler_fence(Ordering::SeqCst);
    unmap(own.cast());
}

type AtExit = unsafe extern "C" fn(*mut c_void);

/// Has a function of this library called when this thread ends. Until then the library stays
/// loaded: a plugin that is closed meanwhile is unloaded later. (The destructor of a key from
/// `pthread_key_create` would be called even after unloading.)
#[cfg(target_env = "gnu")]
fn at_thread_exit(function: AtExit, argument: *mut c_void) -> Result<(), PrepareError> {
    unsafe extern "C" {
        /// The function that compilers call for C++'s thread-local variables.
        fn __cxa_thread_atexit_impl(
            function: AtExit,
            argument: *mut c_void,
            in_library: *const c_void,
        ) -> c_int;
    }
    let in_library = function as *const c_void;
    // SAFETY: the function takes the argument, and is in the library of `in_library`.
    match unsafe { __cxa_thread_atexit_impl(function, argument, in_library) } {
        0 => Ok(()),
        _ => Err(PrepareError(libc::ENOMEM)),
    }
}

/// Other C libraries have no such function.
#[cfg(not(target_env = "gnu"))]
fn at_thread_exit(_: AtExit, _: *mut c_void) -> Result<(), PrepareError> {
    Err(PrepareError(libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The view of a handler that interrupts a user.
    #[test]
    fn a_value_in_use_is_not_shared() {
        let shared = ReentrantCell::new(1);
        for _ in 0..2 {
            shared.with(|outer| {
                let outer = outer.unwrap();
                *outer += 1;
                shared.with(|inner| assert_eq!(inner, None));
                shared.with(|inner| assert_eq!(inner, None));
                *outer += 1;
            });
        }
        shared.with(|value| assert_eq!(value, Some(&mut 5)));
    }
}
