//! Buffers borrowed by walks, because all of them are too large for the stacks of signal handlers:
//! memos of last walks, rows, evaluators.
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
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use unspool_cfi::evaluate::Evaluator;
use unspool_rows::{Register, Row};

use crate::walk::Memo;

/// The usual number of threads that walk at once. An unused slot takes no memory.
const SLOTS_PER_POOL: usize = 16;

/// What a [`BufferPool`] lends.
pub trait PooledBuffer: Send + 'static {
    /// Its content when it is lent for the first time.
    const EMPTY: Self;

    /// Whether it is there from the start, in each slot: for a large buffer of which walks touch a
    /// part, and for one of zeros, which takes no memory. Another is written when it is first lent,
    /// so that a library does not contain it for each slot.
    const IS_STORED: bool = false;
}

impl PooledBuffer for Memo {
    const EMPTY: Memo = Memo::new();
    const IS_STORED: bool = true;
}

impl PooledBuffer for Evaluator<'static> {
    const EMPTY: Evaluator<'static> = Evaluator::new();
}

impl PooledBuffer for Row<'static> {
    const EMPTY: Row<'static> = Row::new(RETURN_ADDRESS);
}

const RETURN_ADDRESS: Register = Register(16);

static EVALUATORS: BufferPool<Evaluator<'static>> = BufferPool::new();
static ROWS: BufferPool<Row<'static>> = BufferPool::new();

/// Runs `work` with an empty row: on the stack, if no slot is free.
pub fn with_row<R>(work: impl FnOnce(&mut Row<'static>) -> R) -> R {
    ROWS.with(|row| match row {
        Some(row) => {
            row.clear(RETURN_ADDRESS);
            work(row)
        }
        None => with_own(work),
    })
}

/// Runs `work` with an evaluator: on the stack, if no slot is free.
pub fn with_evaluator<R>(work: impl FnOnce(&mut Evaluator<'static>) -> R) -> R {
    EVALUATORS.with(|evaluator| match evaluator {
        Some(evaluator) => work(evaluator),
        None => with_own(work),
    })
}

/// Runs `work` with a buffer on the stack.
#[cold]
#[inline(never)]
pub fn with_own<T: PooledBuffer, R>(work: impl FnOnce(&mut T) -> R) -> R {
    work(&mut const { T::EMPTY })
}

/// Buffers of one kind.
#[derive(Debug)]
pub struct BufferPool<T>([PoolSlot<T>; SLOTS_PER_POOL]);

#[derive(Debug)]
struct PoolSlot<T> {
    is_in_use: AtomicBool,
    /// Whether the value was made. Only the call that has set `is_in_use` uses both.
    is_made: UnsafeCell<bool>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: only the call that has set `is_in_use` uses the value, until it resets the flag. Other
// threads, and signal handlers in the same thread, take another slot meanwhile.
unsafe impl<T: Send> Sync for PoolSlot<T> {}

impl<T: PooledBuffer> PoolSlot<T> {
    /// The value, made at the first call.
    ///
    /// # Safety
    ///
    /// The caller has set `is_in_use`, and does not use the value after resetting it.
    #[expect(clippy::mut_from_ref, reason = "`is_in_use` is a lock")]
    unsafe fn value(&self) -> &mut T {
        // SAFETY: the caller's promise.
        let is_made = unsafe { &mut *self.is_made.get() };
        // SAFETY: as above.
        let value = unsafe { &mut *self.value.get() };
        if !T::IS_STORED && !*is_made {
            value.write(const { T::EMPTY });
            *is_made = true;
        }
        // SAFETY: it was written, now or before, or it is there from the start.
        unsafe { value.assume_init_mut() }
    }
}

impl<T: PooledBuffer> BufferPool<T> {
    /// No buffer was lent.
    #[must_use]
    pub const fn new() -> Self {
        BufferPool(
            [const {
                PoolSlot {
                    is_in_use: AtomicBool::new(false),
                    is_made: UnsafeCell::new(false),
                    value: UnsafeCell::new(if T::IS_STORED {
                        MaybeUninit::new(T::EMPTY)
                    } else {
                        MaybeUninit::uninit()
                    }),
                }
            }; SLOTS_PER_POOL],
        )
    }

    /// Runs `work` with a free slot, if there is one: this thread's, if possible.
    pub fn with<R>(&self, work: impl FnOnce(Option<&mut T>) -> R) -> R {
        let hash = thread_address().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = usize::try_from(hash).unwrap_or(0) % SLOTS_PER_POOL;
        let mut slots = self.0.iter().cycle().skip(first).take(SLOTS_PER_POOL);
        let Some(slot) = slots.find(|slot| !slot.is_in_use.swap(true, Ordering::Acquire)) else {
            return work(None);
        };
        // SAFETY: `is_in_use` was clear, and is set now.
        let result = work(Some(unsafe { slot.value() }));
        slot.is_in_use.store(false, Ordering::Release);
        result
    }
}

impl<T: PooledBuffer> Default for BufferPool<T> {
    fn default() -> Self {
        BufferPool::new()
    }
}

/// An address that is unique to this thread while it runs.
fn thread_address() -> u64 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::__errno_location() }.addr() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    static MEMOS: BufferPool<Memo> = BufferPool::new();

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
