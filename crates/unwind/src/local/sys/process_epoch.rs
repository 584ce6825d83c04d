//! A number that a forked child does not have in common with its parent.
//!
//! The kernel keeps it in a page that it clears in a child (`MADV_WIPEONFORK`, Linux 4.14). So what
//! another thread of the parent held at the fork is known to be held by nobody. A child that shares
//! its parent's memory (`vfork`) shares the number, too.
//!
//! Async-signal-safe, except [`begin`].

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The number of processes without a parent, and of all where the kernel does not do that.
const FIRST: u32 = 1;

/// The number of this process, in memory that a forked child finds empty.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The highest number of this process and its ancestors.
static LAST: AtomicU32 = AtomicU32::new(FIRST);

/// Gets the page.
pub(crate) fn begin() {
    if !PAGE.load(Ordering::Relaxed).is_null() {
        return;
    }
    let length = size_of::<AtomicU32>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let page = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the memory has no other user.
    let is_cleared = unsafe { libc::madvise(page, length, libc::MADV_WIPEONFORK) } == 0;
    let own = page.cast::<AtomicU32>();
    // SAFETY: zero is a value of the type.
    unsafe { &*own }.store(FIRST, Ordering::Relaxed);
    if is_cleared {
        PAGE.store(own, Ordering::Release);
    }
}

/// The number of this process: not zero.
pub(crate) fn current() -> u32 {
    // SAFETY: null, or a page that is never unmapped; zero is a value of the type.
    let Some(own) = (unsafe { PAGE.load(Ordering::Acquire).as_ref() }) else {
        return FIRST;
    };
    match own.load(Ordering::Acquire) {
        0 => next(own),
        number => number,
    }
}

/// Takes a number that no ancestor had.
#[cold]
fn next(own: &AtomicU32) -> u32 {
    let new = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match own.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(others) => others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code of a forked child that runs `work`.
    fn in_child(work: impl FnOnce() -> u32) -> i32 {
        // SAFETY: the child calls nothing but `work` and `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let code = i32::try_from(work() & 0xff).unwrap_or(255);
                // SAFETY: takes any number.
                unsafe { libc::_exit(code) }
            }
            child => {
                let mut status = 0;
                // SAFETY: writes to this function's variable.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                assert_eq!(waited, child);
                libc::WEXITSTATUS(status)
            }
        }
    }

    #[test]
    fn each_generation_of_children_has_another_number() {
        begin();
        let own = current();
        let children = [(); 2].map(|()| in_child(|| 16 * current() + u32::from(current() == own)));
        // Siblings share theirs, which no ancestor has.
        let expected = i32::try_from(16 * (own + 1)).unwrap();
        assert_eq!(children, [expected; 2]);
        let of_grandchild = in_child(|| {
            current();
            in_child(current).cast_unsigned()
        });
        assert_eq!(of_grandchild.cast_unsigned(), own + 2);
        assert_eq!(current(), own);
    }
}
