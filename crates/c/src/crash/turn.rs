//! Which of several threads that crash reports.

use core::sync::atomic::{AtomicU64, Ordering};

/// Who reports. Whoever has begun keeps the turn: nothing follows but the end of the process.
///
/// Async-signal-safe.
#[derive(Debug)]
pub struct Turn(AtomicU64);

/// What a thread that asks is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// It is the first, and reports.
    First,
    /// It reports already: a signal has interrupted its handler.
    Again,
    /// Another thread of the process reports.
    Another,
}

impl Turn {
    /// Nobody reports.
    #[must_use]
    pub const fn new() -> Turn {
        Turn(AtomicU64::new(0))
    }

    /// Asks for a thread of a process. A process that was forked while its parent reported has the
    /// parent's note, which says nothing about it.
    pub fn ask(&self, process: i32, thread: i32) -> Asked {
        let [process, thread] = [process, thread].map(|id| u64::from(id.cast_unsigned()));
        let this = process << 32 | thread;
        let take = |holder: u64| (holder >> 32 != process).then_some(this);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        match self.0.fetch_update(set, fetch, take) {
            Ok(_) => Asked::First,
            Err(holder) if holder == this => Asked::Again,
            Err(_) => Asked::Another,
        }
    }
}

impl Default for Turn {
    fn default() -> Self {
        Turn::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_of_a_process_reports() {
        let turn = Turn::new();
        assert_eq!(turn.ask(10, 11), Asked::First);
        assert_eq!(turn.ask(10, 12), Asked::Another);
        assert_eq!(turn.ask(10, 11), Asked::Again);
        // Forked meanwhile, or after it.
        assert_eq!(turn.ask(13, 13), Asked::First);
        assert_eq!(turn.ask(13, 11), Asked::Another);
    }
}
