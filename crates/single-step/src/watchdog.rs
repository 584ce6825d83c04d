//! Ends processes that run for too long.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use libc::c_int;

use crate::sys;

/// Time until processes that ignore the signal, or were started meanwhile, are killed.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// A thread that ends processes that run for too long.
pub(crate) struct Watchdog {
    shared: Arc<(Mutex<WatchdogState>, Condvar)>,
}

#[derive(Default)]
struct WatchdogState {
    processes: BTreeSet<i32>,
    is_over: bool,
    timed_out: bool,
}

impl Watchdog {
    /// Sends a signal at the time limit, and kills the processes that remain soon after.
    pub(crate) fn start(limit: Duration, root: i32, signal: c_int) -> Watchdog {
        let watched = WatchdogState {
            processes: BTreeSet::from([root]),
            ..WatchdogState::default()
        };
        let shared = Arc::new((Mutex::new(watched), Condvar::new()));
        let seen = Arc::clone(&shared);
        std::thread::spawn(move || {
            let (watched, changed) = &*seen;
            let locked = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(locked, limit, |watched| !watched.is_over);
            let (mut watched, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let mut signal = signal;
            while !watched.is_over {
                watched.timed_out = true;
                let processes = watched.processes.iter();
                processes.for_each(|process| sys::signal(*process, signal));
                let waited = changed.wait_timeout(watched, KILL_TIMEOUT);
                watched = waited.unwrap_or_else(PoisonError::into_inner).0;
                signal = libc::SIGKILL;
            }
        });
        Watchdog { shared }
    }

    /// Sets the processes to end.
    pub(crate) fn watch(&self, processes: BTreeSet<i32>) {
        let watched = self.shared.0.lock();
        watched.unwrap_or_else(PoisonError::into_inner).processes = processes;
    }

    /// Ends the thread. Returns whether the limit was reached.
    pub(crate) fn stop(&self) -> bool {
        let mut watched = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        watched.is_over = true;
        self.shared.1.notify_all();
        watched.timed_out
    }
}
