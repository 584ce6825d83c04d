//! Buffers borrowed by walks, because all of them are too large for the stacks of signal handlers:
//! memos of last walks, rows, evaluators.
//!
//! There are a few of each. Each thread prefers one slot, and shares it if there are many threads.
//! If another thread or an interrupted walk uses the slot, the next free one is taken. Nothing
//! waits, allocates or makes system calls, and nothing has to be freed when a thread ends.
//!
//! A handler that jumps out of a walk leaves a slot taken forever. Then fewer remain; a walk that
//! finds none does without. A forked child takes back what its parent's other threads held, of
//! buffers that it can make anew.
//!
//! Async-signal-safe.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use unspool_cfi::evaluate::Evaluator;
use unspool_rows::{Register, Row};

use super::process_epoch;
use super::readable_memory::control_block;
use crate::walk::Memo;

/// The usual number of threads that walk at once. An unused slot takes no memory.
const SLOTS_PER_POOL: usize = 32;

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
    ROWS.with_any(|row| {
        row.clear(RETURN_ADDRESS);
        work(row)
    })
}

/// Runs `work` with an evaluator: on the stack, if no slot is free.
pub fn with_evaluator<R>(work: impl FnOnce(&mut Evaluator<'static>) -> R) -> R {
    EVALUATORS.with_any(work)
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
    /// The process with a call that uses it ([`process_epoch`]), or zero.
    user: AtomicU32,
    /// Whether the value was made. Only the call that has set `user` uses both.
    is_made: UnsafeCell<bool>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: only the call that has set `user` uses the value, until it resets that. Other threads, and
// signal handlers in the same thread, take another slot meanwhile.
unsafe impl<T: Send> Sync for PoolSlot<T> {}

impl<T: PooledBuffer> PoolSlot<T> {
    /// Takes the slot, if it is free: the process that had it before, or zero.
    fn take(&self, own: u32) -> Option<u32> {
        let before = self.user.load(Ordering::Relaxed);
        let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
        let is_free = before == 0 || before != own && !T::IS_STORED;
        let is_taken = is_free && self.user.compare_exchange(before, own, taken, not).is_ok();
        is_taken.then_some(before)
    }

    /// The value, made at the first call, and after `parent` has left it as it may be.
    ///
    /// # Safety
    ///
    /// The caller has set `user`, and does not use the value after resetting it.
    #[expect(clippy::mut_from_ref, reason = "`user` is a lock")]
    unsafe fn value(&self, parent: u32) -> &mut T {
        // SAFETY: the caller's promise.
        let is_made = unsafe { &mut *self.is_made.get() };
        // SAFETY: as above.
        let value = unsafe { &mut *self.value.get() };
        if !T::IS_STORED && (parent != 0 || !*is_made) {
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
                    user: AtomicU32::new(0),
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

    /// Runs `work` with a buffer: on the stack, if no slot is free.
    pub fn with_any<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.with(|buffer| match buffer {
            Some(buffer) => work(buffer),
            None => with_own(work),
        })
    }

    /// Runs `work` with a free slot, if there is one: this thread's, if possible.
    pub fn with<R>(&self, work: impl FnOnce(Option<&mut T>) -> R) -> R {
        let hash = control_block().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let first = usize::try_from(hash).unwrap_or(0) % SLOTS_PER_POOL;
        let own = process_epoch::current();
        let mut slots = self.0.iter().cycle().skip(first).take(SLOTS_PER_POOL);
        let Some((slot, parent)) = slots.find_map(|slot| Some((slot, slot.take(own)?))) else {
            return work(None);
        };
        // SAFETY: `user` was set just now.
        let result = work(Some(unsafe { slot.value(parent) }));
        slot.user.store(0, Ordering::Release);
        result
    }
}

impl<T: PooledBuffer> Default for BufferPool<T> {
    fn default() -> Self {
        BufferPool::new()
    }
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
