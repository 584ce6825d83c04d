//! A lock that a fork leaves usable.

use core::sync::atomic::{AtomicU64, Ordering};

use super::process_epoch;
use super::readable_memory::control_block;

/// A lock. A child that is forked while another thread holds it takes it over. It waits, so it is
/// not for signal handlers.
#[derive(Debug)]
pub struct ForkSafeLock {
    /// [`own_mark`] of the holder, or zero.
    holder: AtomicU64,
}

/// Who holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockHolder {
    /// No thread.
    Nobody,
    /// The calling one: a signal handler has interrupted it.
    ThisThread,
    /// Another one.
    OtherThread,
    /// One of the parent, which this process does not have.
    ParentsThread,
}

const THREAD_BITS: u32 = 41;

/// The calling thread and its process: the control block's address, of which six bits are zero and
/// 17 others, and the number of the process.
fn own_mark() -> u64 {
    u64::from(process_epoch::current()) << THREAD_BITS | control_block() >> 6
}

impl ForkSafeLock {
    /// A lock that nobody holds.
    #[must_use]
    pub const fn new() -> Self {
        ForkSafeLock {
            holder: AtomicU64::new(0),
        }
    }

    /// Who holds it. Async-signal-safe.
    #[must_use]
    pub fn holder(&self) -> LockHolder {
        LockHolder::from_mark(self.holder.load(Ordering::Relaxed))
    }

    /// Runs `change` as the holder. If that was a parent's thread, `repair` runs first: a change may
    /// have been made by half.
    pub fn with<R>(&self, repair: impl FnOnce(), change: impl FnOnce() -> R) -> R {
        loop {
            let mark = self.holder.load(Ordering::Relaxed);
            match LockHolder::from_mark(mark) {
                LockHolder::Nobody if self.take(mark) => break,
                LockHolder::ParentsThread if self.take(mark) => {
                    repair();
                    break;
                }
                LockHolder::OtherThread | LockHolder::ThisThread => wait(),
                _ => {}
            }
        }
        let result = change();
        self.holder.store(0, Ordering::Release);
        result
    }

    fn take(&self, before: u64) -> bool {
        let (taken, not) = (Ordering::Acquire, Ordering::Relaxed);
        let exchanged = self.holder.compare_exchange(before, own_mark(), taken, not);
        exchanged.is_ok()
    }
}

impl Default for ForkSafeLock {
    fn default() -> Self {
        ForkSafeLock::new()
    }
}

impl LockHolder {
    fn from_mark(mark: u64) -> LockHolder {
        let own = own_mark();
        match mark {
            0 => LockHolder::Nobody,
            _ if mark == own => LockHolder::ThisThread,
            _ if mark >> THREAD_BITS == own >> THREAD_BITS => LockHolder::OtherThread,
            _ => LockHolder::ParentsThread,
        }
    }
}

/// Lets another thread run. It may have a lower priority, so yielding to it does not suffice.
/// Async-signal-safe.
pub fn wait() {
    // SAFETY: takes any number.
    unsafe { libc::usleep(1) };
}
