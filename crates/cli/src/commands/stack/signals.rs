//! Signals that come to us while a command runs are the command's.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\) it sends to every process in the foreground, the
//! command included, so that we only have to outlive it and report. What a program sends to us
//! alone (`kill`, `timeout`, a service manager) is passed on. What a program sends to the whole
//! process group looks no different, so that the command gets it twice.

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

/// Signals that neither end us nor are lost: they wait until it is known whom to pass them to.
pub(super) struct BlockedSignals {
    signals: SignalSet,
    before: SignalSet,
    ignored_children: bool,
}

impl BlockedSignals {
    /// Holds signals back from this thread and from those that it starts from now on. A signal
    /// that we were started to ignore (`nohup`) stays ignored, by the command too.
    pub(super) fn new() -> io::Result<BlockedSignals> {
        let heeded = TERMINATION_SIGNALS
            .into_iter()
            .filter(|signal| !sys::is_ignored(*signal));
        let signals = SignalSet::from_signals(heeded);
        let before = signals.block()?;
        Ok(BlockedSignals {
            signals,
            before,
            // Where `SIGCHLD` is ignored, the kernel forgets how a command ended.
            ignored_children: sys::keep_ended_children(),
        })
    }

    /// Lets the command get signals as if it were started without us.
    pub(super) fn restore_mask_in(&self, command: &mut Command) {
        sys::start_with_mask(command, self.before);
        if self.ignored_children {
            sys::start_ignoring(command, libc::SIGCHLD);
        }
    }

    /// Passes the signals on to the process `pid`, from now until our end. That comes right
    /// after the end of `pid`, so its number is not in other use meanwhile.
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

/// Signals that are passed on to the command; the value is the one that it dies of, or 0.
pub(super) struct ForwardedSignals(Arc<AtomicI32>);

impl ForwardedSignals {
    /// From now on signals are for us again: the command stands still before the signal `number`,
    /// which the kernel delivers when we end.
    pub(super) fn stop_forwarding(&self, number: i32) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// Ends us by a signal, or passes it on to the process `pid` unless that is dying.
fn take_or_send(signal: ReceivedSignal, pid: u32, dying_of: &AtomicI32) {
    match dying_of.load(Ordering::Relaxed) {
        0 if is_for_all(signal) => {}
        0 => sys::send(pid, signal.number),
        // What was sent to both of us may come to us later than to the command.
        same if same == signal.number => dying_of.store(ANY_SIGNAL, Ordering::Relaxed),
        _ => sys::take(signal.number),
    }
}

/// No signal has this number.
const ANY_SIGNAL: i32 = -1;

/// Says which signal killed a command that could not be stopped before: the kernel does not ask
/// a tracer about `SIGKILL`, nor when a limit or seccomp kills.
pub(super) fn report_exit(status: ExitStatus) {
    if let Some(signal) = status.signal() {
        let name = text::name_or_number(signal);
        output::notice(&format_args!(
            "signal {name} ended the command and could not be intercepted: there are no stacks"
        ));
    }
}

/// Ends us by the `SIGINT` that ended the command: after Ctrl-C a shell ends its loop, or goes on
/// to the next command, by how its child died. An exit status alone would mean that the command
/// took care of it.
pub(super) fn die_by_sigint(status: ExitStatus) {
    if status.signal() == Some(libc::SIGINT) {
        sys::take(libc::SIGINT);
    }
}

/// Whether the terminal sent it, to all processes in the foreground.
fn is_for_all(signal: ReceivedSignal) -> bool {
    signal.by_kernel && [libc::SIGINT, libc::SIGQUIT].contains(&signal.number)
}
