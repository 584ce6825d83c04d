//! Memories of last walks, which `unw_backtrace` verifies instead of walking again.
//!
//! Each thread has one that it uses first, and shares it with others where there are many threads: what is in
//! it holds whoever put it there, since a walk that uses it compares every word. Whoever finds it in use,
//! by another thread or by a walk that a signal handler has interrupted, takes the next that is free.
//! Nobody waits, allocates or calls the system, and there is nothing to be given back when a thread
//! ends.
//!
//! Two leave a memory taken for good: a handler that jumps out of a walk, and a fork while another thread
//! walks, in the child. They are so many memories fewer; who finds none walks without.
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

    /// Has a memory used, if there is one that nobody uses now: this thread's, if possible.
    pub(super) fn with<R>(&self, walk: impl FnOnce(Option<&mut Memo>) -> R) -> R {
        let hash = os::thread_address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = usize::try_from(hash).unwrap_or(0) % COUNT;
        let mut slots = self.0.iter().cycle().skip(first).take(COUNT);
        let Some(slot) = slots.find(|slot| !slot.is_taken.swap(true, Ordering::Acquire)) else {
            return walk(None);
        };
        // SAFETY: `is_taken` was not set, and is now.
        let result = walk(Some(unsafe { &mut *slot.memo.get() }));
        slot.is_taken.store(false, Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    static MEMOS: Memos = Memos::new();

    /// Takes all memories that are left, one within the other, and says which they are.
    fn take_all(taken: &mut Vec<*mut Memo>) {
        MEMOS.with(|memo| {
            if let Some(memo) = memo {
                taken.push(memo);
                take_all(taken);
            }
        });
    }

    /// As after a fork while others walk: what they have taken is passed over.
    #[test]
    fn who_finds_a_memory_in_use_takes_another() {
        let mut twice = [const { Vec::new() }; 2];
        for taken in &mut twice {
            take_all(taken);
            let first = taken.first().copied();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), COUNT);
            MEMOS.with(|memo| assert_eq!(memo.map(core::ptr::from_mut), first));
        }
        assert_eq!(twice[0], twice[1]);
    }
}
