//! Which of several threads that crash reports.

use core::sync::atomic::{AtomicU64, Ordering};

/// Who reports. Whoever has begun keeps the turn: nothing follows but the end of the process.
///
/// Async-signal-safe.
#[derive(Debug)]
pub struct ReporterLock(AtomicU64);

/// What a thread that asks is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockAttempt {
    /// It is the first, and reports.
    Acquired,
    /// It reports already: a signal has interrupted its handler.
    Reentered,
    /// Another thread of the process reports.
    HeldByOther,
}

impl ReporterLock {
    /// Nobody reports.
    #[must_use]
    pub const fn new() -> ReporterLock {
        ReporterLock(AtomicU64::new(0))
    }

    /// Asks for a thread of a process. A process that was forked while its parent reported has the
    /// parent's note, which says nothing about it.
    pub fn try_acquire(&self, process: i32, thread: i32) -> LockAttempt {
        let [process, thread] = [process, thread].map(|id| u64::from(id.cast_unsigned()));
        let this = process << 32 | thread;
        let take = |holder: u64| (holder >> 32 != process).then_some(this);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        match self.0.fetch_update(set, fetch, take) {
            Ok(_) => LockAttempt::Acquired,
            Err(holder) if holder == this => LockAttempt::Reentered,
            Err(_) => LockAttempt::HeldByOther,
        }
    }
}

impl Default for ReporterLock {
    fn default() -> Self {
        ReporterLock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_of_a_process_reports() {
        let turn = ReporterLock::new();
        assert_eq!(turn.try_acquire(10, 11), LockAttempt::Acquired);
        assert_eq!(turn.try_acquire(10, 12), LockAttempt::HeldByOther);
        assert_eq!(turn.try_acquire(10, 11), LockAttempt::Reentered);
        // Forked meanwhile, or after it.
        assert_eq!(turn.try_acquire(13, 13), LockAttempt::Acquired);
        assert_eq!(turn.try_acquire(13, 11), LockAttempt::HeldByOther);
    }
}
