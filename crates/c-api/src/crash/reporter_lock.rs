//! Choosing one of several crashing threads as the reporter.

use core::sync::atomic::{AtomicU64, Ordering};

/// The reporting thread. It keeps the lock: the process ends after the report.
///
/// Async-signal-safe.
#[derive(Debug)]
pub(crate) struct ReporterLock(AtomicU64);

/// The result for a thread that tries to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockAttempt {
    /// It is the first, and must report.
    Acquired,
    /// It is reporting already: a signal has interrupted its handler.
    Reentered,
    /// Another thread of the process is reporting.
    HeldByOther,
}

impl ReporterLock {
    /// No thread is reporting.
    #[must_use]
    pub(crate) const fn new() -> ReporterLock {
        ReporterLock(AtomicU64::new(0))
    }

    /// Tries to acquire it for a thread of a process. A process forked during its parent's report
    /// has the parent's entry, which does not count.
    pub(crate) fn try_acquire(&self, process: i32, thread: i32) -> LockAttempt {
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
        // Forked during the report, or after it.
        assert_eq!(turn.try_acquire(13, 13), LockAttempt::Acquired);
        assert_eq!(turn.try_acquire(13, 11), LockAttempt::HeldByOther);
    }
}
