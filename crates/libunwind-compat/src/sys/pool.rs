//! Buffers borrowed by walks, because all of them are too large for the stacks of signal handlers.
//! There are memos of last walks, which `unw_backtrace` verifies instead of walking again. There
//! are rows, evaluators, and buffers for name look-ups.
//!
//! There are a few of each. Each thread prefers one slot, and shares it if there are many threads.
//! If another thread or an interrupted walk uses the slot, the next free one is taken. Nothing
//! waits, allocates or makes system calls, and nothing has to be freed when a thread ends.
//!
//! Two events leave a slot taken forever: a handler that jumps out of a walk, and a fork while
//! another thread walks, in the child. Then fewer slots remain; a walk that finds none does
//! without.
//!
//! Async-signal-safe.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use unspool_cfi::evaluate::Evaluator;
use unspool_rows::Row;
use unspool_unwind::Memo;

use crate::cursor::RETURN_ADDRESS;
use crate::names::NameBuffers;
use crate::sys::os;

/// The usual number of threads that walk at once. An unused slot takes no memory.
const SLOTS_PER_POOL: usize = 16;

/// Memos of last walks. They may be any thread's, since a walk that uses one compares every word.
pub(super) type MemoPool = BufferPool<Memo>;

/// Evaluators for rows of the own process.
static EVALUATORS: BufferPool<Evaluator<'static>> =
    BufferPool([const { PoolSlot::new(Evaluator::new()) }; SLOTS_PER_POOL]);

/// Rows.
static ROWS: BufferPool<Row<'static>> =
    BufferPool([const { PoolSlot::new(Row::new(RETURN_ADDRESS)) }; SLOTS_PER_POOL]);

/// Runs `work` with an empty row: on the stack, if no slot is free.
pub fn with_row<R>(work: impl FnOnce(&mut Row<'static>) -> R) -> R {
    ROWS.with(|row| match row {
        Some(row) => {
            row.clear(RETURN_ADDRESS);
            work(row)
        }
        None => with_stack_row(work),
    })
}

#[cold]
#[inline(never)]
fn with_stack_row<R>(work: impl FnOnce(&mut Row<'static>) -> R) -> R {
    work(&mut const { Row::new(RETURN_ADDRESS) })
}

/// Buffers for name look-ups.
static SCRATCHES: BufferPool<NameBuffers> =
    BufferPool([const { PoolSlot::new(NameBuffers::EMPTY) }; SLOTS_PER_POOL]);

/// Runs `work` with buffers for name look-ups: on the stack, if no slot is free.
pub fn with_name_buffers<R>(work: impl FnOnce(&mut NameBuffers) -> R) -> R {
    SCRATCHES.with(|scratch| match scratch {
        Some(scratch) => work(scratch),
        None => with_stack_buffers(work),
    })
}

#[cold]
#[inline(never)]
fn with_stack_buffers<R>(work: impl FnOnce(&mut NameBuffers) -> R) -> R {
    work(&mut const { NameBuffers::EMPTY })
}

/// Runs `work` with an evaluator: on the stack, if no slot is free.
pub fn with_evaluator<R>(work: impl FnOnce(&mut Evaluator<'static>) -> R) -> R {
    EVALUATORS.with(|evaluator| match evaluator {
        Some(evaluator) => work(evaluator),
        None => with_stack_evaluator(work),
    })
}

#[cold]
#[inline(never)]
fn with_stack_evaluator<R>(work: impl FnOnce(&mut Evaluator<'static>) -> R) -> R {
    work(&mut const { Evaluator::new() })
}

pub(super) struct BufferPool<T>([PoolSlot<T>; SLOTS_PER_POOL]);

struct PoolSlot<T> {
    is_in_use: AtomicBool,
    value: UnsafeCell<T>,
}

impl<T> PoolSlot<T> {
    const fn new(value: T) -> Self {
        PoolSlot {
            is_in_use: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }
}

// SAFETY: only the call that has set `is_in_use` uses the value, until it resets the flag. Other
// threads, and signal handlers in the same thread, take another slot meanwhile.
unsafe impl<T: Send> Sync for PoolSlot<T> {}

impl MemoPool {
    pub(super) const fn new() -> Self {
        BufferPool([const { PoolSlot::new(Memo::new()) }; SLOTS_PER_POOL])
    }
}

impl<T> BufferPool<T> {
    /// Runs `work` with a free slot, if there is one: this thread's, if possible.
    pub(super) fn with<R>(&self, work: impl FnOnce(Option<&mut T>) -> R) -> R {
        let hash = os::thread_address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = usize::try_from(hash).unwrap_or(0) % SLOTS_PER_POOL;
        let mut slots = self.0.iter().cycle().skip(first).take(SLOTS_PER_POOL);
        let Some(slot) = slots.find(|slot| !slot.is_in_use.swap(true, Ordering::Acquire)) else {
            return work(None);
        };
        // SAFETY: `is_in_use` was clear, and is set now.
        let result = work(Some(unsafe { &mut *slot.value.get() }));
        slot.is_in_use.store(false, Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    static MEMOS: MemoPool = MemoPool::new();

    /// Takes all remaining memos, nested, and returns them.
    fn take_all(taken: &mut Vec<*mut Memo>) {
        MEMOS.with(|memo| {
            if let Some(memo) = memo {
                taken.push(memo);
                take_all(taken);
            }
        });
    }

    /// As after a fork while other threads walk: their slots are skipped.
    #[test]
    fn a_busy_slot_is_skipped() {
        let mut twice = [const { Vec::new() }; 2];
        for taken in &mut twice {
            take_all(taken);
            let first = taken.first().copied();
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), SLOTS_PER_POOL);
            MEMOS.with(|memo| assert_eq!(memo.map(core::ptr::from_mut), first));
        }
        assert_eq!(twice[0], twice[1]);
    }
}
