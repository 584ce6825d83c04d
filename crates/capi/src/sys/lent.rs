//! Storage that is lent to walks: memories of last walks, which `unw_backtrace` verifies instead of walking again, rows, what they
//! are evaluated in, and what names are looked up in: all of it is too large for the stacks of signal handlers.
//!
//! There are a few of each. A thread has one that it uses first, and shares it with others where there are many threads.
//! Whoever finds it in use, by another thread or by a walk that a signal handler has interrupted, takes the next that is free.
//! Nobody waits, allocates or calls the system, and there is nothing to be given back when a thread
//! ends.
//!
//! Two leave one taken for good: a handler that jumps out of a walk, and a fork while another thread
//! walks, in the child. They are so many fewer; who finds none goes without.
//!
//! Async-signal-safe.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use unspool_cfi::evaluate::Evaluator;
use unspool_ir::Row;
use unspool_unwind::Memo;

use crate::cursor::RETURN_ADDRESS;
use crate::names::Scratch;
use crate::sys::os;

/// As many as threads usually walk at once. One that was never used takes no memory.
const COUNT: usize = 16;

/// Memories of last walks: what is in one holds whoever put it there, since a walk that uses it compares every word.
pub(super) type Memos = Lent<Memo>;

/// What rows of the own process are evaluated in.
static EVALUATORS: Lent<Evaluator<'static>> = Lent([const { Slot::new(Evaluator::new()) }; COUNT]);

/// Rows.
static ROWS: Lent<Row<'static>> = Lent([const { Slot::new(Row::new(RETURN_ADDRESS)) }; COUNT]);

/// Has something done with a row that has no rules: on the stack, if there is no other.
pub fn with_row<R>(work: impl FnOnce(&mut Row<'static>) -> R) -> R {
    ROWS.with(|row| match row {
        Some(row) => {
            row.clear(RETURN_ADDRESS);
            work(row)
        }
        None => with_own_row(work),
    })
}

#[cold]
#[inline(never)]
fn with_own_row<R>(work: impl FnOnce(&mut Row<'static>) -> R) -> R {
    work(&mut const { Row::new(RETURN_ADDRESS) })
}

/// What names are looked up in.
static SCRATCHES: Lent<Scratch> = Lent([const { Slot::new(Scratch::EMPTY) }; COUNT]);

/// Has something done with what names are looked up in: on the stack, if there is no other.
pub fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCHES.with(|scratch| match scratch {
        Some(scratch) => work(scratch),
        None => with_own_scratch(work),
    })
}

#[cold]
#[inline(never)]
fn with_own_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    work(&mut const { Scratch::EMPTY })
}

/// Has something done with what a row is evaluated in: on the stack, if there is no other.
pub fn with_evaluator<R>(work: impl FnOnce(&mut Evaluator<'static>) -> R) -> R {
    EVALUATORS.with(|evaluator| match evaluator {
        Some(evaluator) => work(evaluator),
        None => with_own(work),
    })
}

#[cold]
#[inline(never)]
fn with_own<R>(work: impl FnOnce(&mut Evaluator<'static>) -> R) -> R {
    work(&mut const { Evaluator::new() })
}

pub(super) struct Lent<T>([Slot<T>; COUNT]);

struct Slot<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

impl<T> Slot<T> {
    const fn new(value: T) -> Self {
        Slot {
            is_taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }
}

// SAFETY: the value is used by the one who has set `is_taken`, and by nobody after it was reset.
unsafe impl<T: Send> Sync for Slot<T> {}

impl Memos {
    pub(super) const fn new() -> Self {
        Lent([const { Slot::new(Memo::new()) }; COUNT])
    }
}

impl<T> Lent<T> {
    /// Has one used, if there is one that nobody uses now: this thread's, if possible.
    pub(super) fn with<R>(&self, work: impl FnOnce(Option<&mut T>) -> R) -> R {
        let hash = os::thread_address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = usize::try_from(hash).unwrap_or(0) % COUNT;
        let mut slots = self.0.iter().cycle().skip(first).take(COUNT);
        let Some(slot) = slots.find(|slot| !slot.is_taken.swap(true, Ordering::Acquire)) else {
            return work(None);
        };
        // SAFETY: `is_taken` was not set, and is now.
        let result = work(Some(unsafe { &mut *slot.value.get() }));
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
    fn who_finds_one_in_use_takes_another() {
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
