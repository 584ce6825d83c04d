//! Signals that unspool receives while a command runs are for the command.
//!
//! The terminal sends its signals (Ctrl-C, Ctrl-\) to every process in the foreground, including
//! the command. Unspool only has to outlive it and report. A signal sent to unspool alone (by
//! `kill`, `timeout`, a service manager) is passed on. A signal sent to the whole process group
//! looks the same, so the command gets it twice.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use super::sys::{self, ReceivedSignal, SignalSet};
use super::text;
use crate::output;

/// The signals that ask a program to end.
const TERMINATION_SIGNALS: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Blocked signals: they stay pending until the process to pass them to is known.
pub(super) struct BlockedSignals {
    signals: SignalSet,
    before: SignalSet,
    ignored_children: bool,
}

impl BlockedSignals {
    /// Blocks signals in this thread and in those that it starts later. A signal that was ignored
    /// when unspool started (`nohup`) stays ignored, by the command too.
    pub(super) fn new() -> io::Result<BlockedSignals> {
        let heeded = TERMINATION_SIGNALS
            .into_iter()
            .filter(|signal| !sys::is_ignored(*signal));
        let signals = SignalSet::from_signals(heeded);
        let before = signals.block()?;
        Ok(BlockedSignals {
            signals,
            before,
            // If `SIGCHLD` is ignored, the kernel discards a command's exit status.
            ignored_children: sys::keep_ended_children(),
        })
    }

    /// Restores the signal mask in the command, as if it were started without unspool.
    pub(super) fn restore_mask_in(&self, command: &mut Command) {
        sys::start_with_mask(command, self.before);
        if self.ignored_children {
            sys::start_ignoring(command, libc::SIGCHLD);
        }
    }

    /// Passes the signals on to the process `pid`, from now until unspool exits. Unspool exits
    /// right after `pid`, so its ID is not reused meanwhile.
    pub(super) fn forward_to(self, pid: u32) -> io::Result<ForwardedSignals> {
        let dying_of = Arc::new(AtomicI32::new(0));
        let passed_on = ForwardedSignals(Arc::clone(&dying_of));
        let pass_on = move || {
            loop {
                if let Some(signal) = self.signals.wait() {
                    take_or_send(signal, pid, &dying_of);
                }
            }
        };
        thread::Builder::new()
            .name("unspool-signals".into())
            .spawn(pass_on)
            .map(|_| passed_on)
    }
}

/// Signals that are passed on to the command; the value is the signal that it dies of, or 0.
pub(super) struct ForwardedSignals(Arc<AtomicI32>);

impl ForwardedSignals {
    /// Signals are for unspool again: the command is stopped before the signal `number`, which the
    /// kernel delivers when unspool exits.
    pub(super) fn stop_forwarding(&self, number: i32) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// Ends unspool by a signal, or passes it on to the process `pid` unless that is dying.
fn take_or_send(signal: ReceivedSignal, pid: u32, dying_of: &AtomicI32) {
    match dying_of.load(Ordering::Relaxed) {
        0 if is_for_all(signal) => {}
        0 => sys::send(pid, signal.number),
        // A signal for both may reach unspool later than the command.
        same if same == signal.number => dying_of.store(ANY_SIGNAL, Ordering::Relaxed),
        _ => sys::take(signal.number),
    }
}

/// Not a valid signal number.
const ANY_SIGNAL: i32 = -1;

/// Reports the signal that killed a command which could not be stopped first. The kernel does not
/// notify a tracer of `SIGKILL`, nor of a kill by a limit or seccomp.
pub(super) fn report_exit(status: ExitStatus) {
    if let Some(signal) = status.signal() {
        let name = text::name_or_number(signal);
        output::notice(&format_args!(
            "signal {name} ended the command and could not be intercepted: there are no stacks"
        ));
    }
}

/// Ends unspool by the `SIGINT` that ended the command: after Ctrl-C, a shell decides by its
/// child's death whether to end its loop or continue. An exit status alone would mean that the
/// command handled the signal.
pub(super) fn die_by_sigint(status: ExitStatus) {
    if status.signal() == Some(libc::SIGINT) {
        sys::take(libc::SIGINT);
    }
}

/// Whether the terminal sent it, to all processes in the foreground.
fn is_for_all(signal: ReceivedSignal) -> bool {
    signal.by_kernel && [libc::SIGINT, libc::SIGQUIT].contains(&signal.number)
}
