//! Memories of last walks, which `unw_backtrace` verifies instead of walking again.
//!
//! Each thread has one that it uses, and shares it with others where there are many threads: what is in it
//! holds whoever put it there, since a walk that uses it compares every word. Whoever finds it in use
//! walks without: another thread, or a signal handler that has interrupted a walk. Nobody waits,
//! allocates or calls the system, and there is nothing to be given back when a thread ends. A
//! handler that jumps out of a walk leaves its thread without a memory.
//!
//! Async-signal-safe.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use unspool_unwind::Memo;

use crate::sys::os;

/// As many as threads usually walk at once. One that was never used takes no memory.
const COUNT: usize = 16;

pub(super) struct Memos([Slot; COUNT]);

struct Slot {
    is_taken: AtomicBool,
    memo: UnsafeCell<Memo>,
}

// SAFETY: the memo is used by the one who has set `is_taken`, and by nobody after it was reset.
unsafe impl Sync for Slot {}

impl Memos {
    pub(super) const fn new() -> Self {
        Memos(
            [const {
                Slot {
                    is_taken: AtomicBool::new(false),
                    memo: UnsafeCell::new(Memo::new()),
                }
            }; COUNT],
        )
    }

    /// Has this thread's memory used, if nobody uses it now.
    pub(super) fn with<R>(&self, walk: impl FnOnce(Option<&mut Memo>) -> R) -> R {
        let hash = os::thread_address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = usize::try_from(hash).unwrap_or(0) % COUNT;
        match self.0.get(at) {
            Some(slot) if !slot.is_taken.swap(true, Ordering::Acquire) => {
                // SAFETY: `is_taken` was not set, and is now.
                let result = walk(Some(unsafe { &mut *slot.memo.get() }));
                slot.is_taken.store(false, Ordering::Release);
                result
            }
            _ => walk(None),
        }
    }
}
