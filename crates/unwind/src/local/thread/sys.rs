//! A word of thread-local storage, what it leads to, and its end.
#![expect(unsafe_code, reason = "thread-local storage, mappings, pthread's keys")]

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

use super::{NoRoom, Own};
use crate::local::sys::stack;
use crate::walk::Memo;

/// A value for one thread, and for signal handlers in it one at a time.
pub(super) struct Shared<T> {
    value: UnsafeCell<T>,
    is_in_use: AtomicBool,
}

impl<T> Shared<T> {
    const fn new(value: T) -> Self {
        Shared {
            value: UnsafeCell::new(value),
            is_in_use: AtomicBool::new(false),
        }
    }

    /// Calls `body` with the value, or with nothing if that is in use: this is then a handler that
    /// has interrupted its user.
    #[inline(always)]
    pub(super) fn with<R>(&self, body: impl FnOnce(Option<&mut T>) -> R) -> R {
        // Only handlers come between, and they leave the mark as they find it.
        if self.is_in_use.load(Ordering::Relaxed) {
            return body(None);
        }
        self.is_in_use.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the value is its thread's (it is not `Sync`), and whoever else asks in this
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
fn word() -> *const Own {
    let value: *const Own;
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

fn set_word(value: *const Own) {
    // SAFETY: as in `word`; nobody else writes it.
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

/// What this thread keeps. Async-signal-safe. Not to be kept: it is gone when the thread ends.
#[inline(always)]
pub(super) fn own<'a>() -> Option<&'a Own> {
    // SAFETY: null, or mapped and written by `prepare_thread` before the word was set, and mapped until
    // `release` has reset it at the end of the thread, when none of its walks is under way.
    unsafe { word().as_ref() }
}

/// Maps what a thread keeps, and sets the word. Not async-signal-safe.
pub(super) fn prepare_thread() -> Result<(), NoRoom> {
    if own().is_some() {
        return Ok(());
    }
    let key = key()?;
    let own = map()?;
    let fresh = Own {
        stack: stack().unwrap_or_default(),
        memo: Shared::new(Memo::new()),
    };
    // SAFETY: fresh memory for an `Own`, aligned to a page.
    unsafe { own.write(fresh) };
    // SAFETY: the key is there for good; the value is for `release`.
    let failed = unsafe { libc::pthread_setspecific(key, own.cast()) };
    if failed != 0 {
        unmap(own);
        return Err(NoRoom(failed));
    }
    // Before, it was not all there; a handler may come at any moment.
    compiler_fence(Ordering::SeqCst);
    set_word(own);
    Ok(())
}

fn map() -> Result<*mut Own, NoRoom> {
    // SAFETY: a new mapping, at no particular place.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            mem::size_of::<Own>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    match at {
        libc::MAP_FAILED => Err(NoRoom(libc::ENOMEM)),
        at => Ok(at.cast()),
    }
}

fn unmap(own: *mut Own) {
    // SAFETY: it was mapped by `map` with this length, and nobody can have a reference any more.
    unsafe { libc::munmap(own.cast(), mem::size_of::<Own>()) };
}

/// The end of a thread, by its key.
unsafe extern "C" fn release(own: *mut c_void) {
    set_word(ptr::null());
    compiler_fence(Ordering::SeqCst);
    unmap(own.cast());
}

/// The key whose destructor gives back what a thread keeps. Made when it is first asked for.
fn key() -> Result<libc::pthread_key_t, NoRoom> {
    /// The key and one, or 0.
    static KEY: AtomicU64 = AtomicU64::new(0);
    let known = |word: u64| libc::pthread_key_t::try_from(word.wrapping_sub(1)).ok();
    if let Some(key) = known(KEY.load(Ordering::Acquire)) {
        return Ok(key);
    }
    let mut key = 0;
    // SAFETY: `key` is this function's; `release` takes what `prepare_thread` sets.
    let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(release)) };
    if failed != 0 {
        return Err(NoRoom(failed));
    }
    let made = u64::from(key) + 1;
    match KEY.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(key),
        Err(theirs) => {
            // SAFETY: made above, and nobody has seen it.
            unsafe { libc::pthread_key_delete(key) };
            known(theirs).ok_or(NoRoom(libc::EAGAIN))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a handler sees that interrupts a user.
    #[test]
    fn a_value_in_use_is_not_shared() {
        let shared = Shared::new(1);
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
