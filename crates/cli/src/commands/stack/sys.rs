//! The system calls for signals, each as one safe function.
#![expect(unsafe_code, reason = "signals are handled by system calls")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;

use libc::c_int;

/// A set of signals.
#[derive(Clone, Copy)]
pub(super) struct SignalSet(libc::sigset_t);

/// A received signal.
#[derive(Clone, Copy)]
pub(super) struct ReceivedSignal {
    pub(super) number: c_int,
    /// Sent by the kernel (for example, for the terminal), not by a program.
    pub(super) by_kernel: bool,
}

impl SignalSet {
    fn empty() -> SignalSet {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initializes the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialized above.
        SignalSet(unsafe { set.assume_init() })
    }

    pub(super) fn from_signals(signals: impl IntoIterator<Item = c_int>) -> SignalSet {
        let mut set = SignalSet::empty();
        for signal in signals {
            let set: *mut libc::sigset_t = &raw mut set.0;
            // SAFETY: `set` points to an initialized set.
            unsafe { libc::sigaddset(set, signal) };
        }
        set
    }

    /// Blocks the signals in the calling thread too; returns those that it blocked before.
    pub(super) fn block(&self) -> io::Result<SignalSet> {
        set_mask(libc::SIG_BLOCK, self)
    }

    /// Waits for one of the signals, which all threads block; `None` on an interruption.
    pub(super) fn wait(&self) -> Option<ReceivedSignal> {
        // `SI_KERNEL` of sigaction(2).
        const SI_KERNEL: c_int = 0x80;
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: both point to values of this type; the kernel fills the second.
        let number = unsafe { libc::sigwaitinfo(&raw const self.0, info.as_mut_ptr()) };
        // SAFETY: the structure consists of numbers, for which all zeros is a valid value.
        let info = unsafe { info.assume_init() };
        (number > 0).then_some(ReceivedSignal {
            number,
            by_kernel: info.si_code == SI_KERNEL,
        })
    }
}

fn set_mask(how: c_int, set: &SignalSet) -> io::Result<SignalSet> {
    let mut before = SignalSet::empty();
    // SAFETY: both point to sets; the kernel writes the second.
    let error = unsafe { libc::pthread_sigmask(how, &raw const set.0, &raw mut before.0) };
    match error {
        0 => Ok(before),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Makes the child that `command` starts block the signals in `mask` and no others.
pub(super) fn start_with_mask(command: &mut Command, mask: SignalSet) {
    let closure = move || set_mask(libc::SIG_SETMASK, &mask).map(drop);
    // SAFETY: between fork and exec only async-signal-safe calls are allowed, and no allocation.
    // The closure calls sigemptyset and pthread_sigmask, and builds its error from a number.
    unsafe { command.pre_exec(closure) };
}

/// Makes the child that `command` starts ignore a signal.
pub(super) fn start_ignoring(command: &mut Command, signal: c_int) {
    let closure = move || match set_action(signal, libc::SIG_IGN) {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed, and no allocation.
    // The closure calls signal, and builds its error from a number.
    unsafe { command.pre_exec(closure) };
}

/// Resets `SIGCHLD` to its default action, so that an exited child waits to be collected; returns
/// whether the signal was ignored before.
pub(super) fn keep_ended_children() -> bool {
    set_action(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN
}

/// Sets the action of a signal to `SIG_IGN` or `SIG_DFL`; returns the one before.
fn set_action(signal: c_int, action: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: callers pass one of the two actions that run no handler.
    unsafe { libc::signal(signal, action) }
}

/// Delivers a signal to the calling thread, blocked or not.
pub(super) fn take(signal: c_int) {
    // SAFETY: raise touches no memory; no handler of this process runs.
    unsafe { libc::raise(signal) };
    // It cannot fail for a valid set.
    let _ = set_mask(libc::SIG_UNBLOCK, &SignalSet::from_signals([signal]));
}

/// Whether this process ignores a signal.
pub(super) fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, the kernel only writes the current one to the last argument's
    // target.
    unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the structure consists of numbers, for which all zeros is a valid value.
    let action = unsafe { action.assume_init() };
    action.sa_sigaction == libc::SIG_IGN
}

/// Sends a signal to a process. A process that has exited needs none.
pub(super) fn send(pid: u32, signal: c_int) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill touches no memory.
        unsafe { libc::kill(pid, signal) };
    }
}
