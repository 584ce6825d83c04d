//! Signals that come to us while a command runs are the command's.
//!
//! What the terminal sends (Ctrl-C, Ctrl-\) it sends to every process in the foreground, the
//! command included, so that we only have to outlive it and report. What a program sends to us
//! alone (`kill`, `timeout`, a service manager) is passed on.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::thread;

use super::sys::{self, Received, SignalSet};

/// The signals that ask a program to end.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Signals that neither end us nor are lost: they wait until it is known whom to pass them to.
pub(super) struct Held {
    signals: SignalSet,
    before: SignalSet,
}

impl Held {
    /// Holds signals back from this thread and from those that it starts from now on. A signal
    /// that we were started to ignore (`nohup`) stays ignored, by the command too.
    pub(super) fn new() -> io::Result<Held> {
        let heeded = ENDING
            .into_iter()
            .filter(|signal| !sys::is_ignored(*signal));
        let signals = SignalSet::of(heeded);
        let before = signals.block()?;
        Ok(Held { signals, before })
    }

    /// Lets the command get signals as if it were started without us.
    pub(super) fn spare(&self, command: &mut Command) {
        sys::start_with_mask(command, self.before);
    }

    /// Passes the signals on to the process `pid`, from now until our end. That comes right
    /// after the end of `pid`, so its number is not in other use meanwhile.
    pub(super) fn pass_on_to(self, pid: u32) -> io::Result<()> {
        let pass_on = move || {
            loop {
                if let Some(signal) = self.signals.wait().filter(|signal| !is_for_all(*signal)) {
                    sys::send(pid, signal.number);
                }
            }
        };
        thread::Builder::new()
            .name("unspool-signals".into())
            .spawn(pass_on)
            .map(drop)
    }
}

/// Ends us by the `SIGINT` that ended the command: after Ctrl-C a shell ends its loop, or goes on
/// to the next command, by how its child died. An exit status alone would mean that the command
/// took care of it.
pub(super) fn die_of_the_same(status: ExitStatus) {
    if status.signal() == Some(libc::SIGINT) {
        sys::take(libc::SIGINT);
    }
}

/// Whether the terminal sent it, to all processes in the foreground.
fn is_for_all(signal: Received) -> bool {
    signal.by_kernel && [libc::SIGINT, libc::SIGQUIT].contains(&signal.number)
}
