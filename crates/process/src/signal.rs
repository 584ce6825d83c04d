//! A signal as the kernel describes it: `siginfo_t`, from ptrace and from core files.

use unspool_rows::RuntimeAddr;
use unspool_unwind::signal_codes::{self, SI_KERNEL};

use crate::little_endian::{i32_at, u32_at};

/// The size of the kernel's `siginfo_t`, in bytes.
pub(crate) const SIGINFO_SIZE: usize = 128;

/// A signal for one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// The thread that the signal is for.
    pub tid: u32,
    /// The signal's number.
    pub number: i32,
    /// `si_code`: the reason. Positive if the kernel sent it because of the program's own action, 0
    /// or negative if a program sent it. See sigaction(2).
    pub code: i32,
    /// The address that the program accessed or executed, for signals with one (`SIGSEGV`,
    /// `SIGBUS`, `SIGILL`, `SIGFPE`, `SIGTRAP` sent by the kernel).
    pub address: Option<RuntimeAddr>,
    /// The sender, if a program sent it.
    pub sender: Option<Sender>,
}

/// The program that sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Its process id.
    pub pid: u32,
    /// Its real user id.
    pub uid: u32,
}

impl Signal {
    /// Reads a `siginfo_t` of a 64-bit little-endian kernel: `si_signo` at 0, `si_code` at 8,
    /// and the union at 16. `None` if it is shorter than the first 24 bytes.
    pub(crate) fn parse(tid: u32, siginfo: &[u8]) -> Option<Signal> {
        let number = i32_at(siginfo, 0)?;
        let code = i32_at(siginfo, 8)?;
        let (low, high) = (u32_at(siginfo, 16)?, u32_at(siginfo, 20)?);
        Some(Signal {
            tid,
            number,
            code,
            address: has_address(number, code)
                .then(|| RuntimeAddr(u64::from(high) << 32 | u64::from(low))),
            sender: has_sender(code).then_some(Sender {
                pid: low,
                uid: high,
            }),
        })
    }

    /// Why the kernel sent it, in words: `address not mapped`. `None` if a program sent it, or the
    /// code is unknown.
    #[must_use]
    pub fn cause(&self) -> Option<&'static str> {
        signal_codes::cause(self.number, self.code)
    }

    /// The signal's name, for instance `SIGSEGV`; `None` for a real-time or unknown signal.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        signal_name(self.number)
    }
}

/// The name of signal `number`, for instance `SIGSEGV`; `None` for a real-time or unknown signal.
#[must_use]
pub fn signal_name(number: i32) -> Option<&'static str> {
    let entry = NAMES.iter().find(|(found, _)| *found == number);
    entry.map(|(_, name)| *name)
}

/// Whether the union holds `si_addr`: the kernel sent the signal because of an instruction.
fn has_address(number: i32, code: i32) -> bool {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
    ];
    faults.contains(&number) && code > 0 && code != SI_KERNEL
}

/// Whether the union holds `si_pid` and `si_uid`: a program called kill, sigqueue, tgkill, or
/// sent a message to a queue.
fn has_sender(code: i32) -> bool {
    [
        libc::SI_USER,
        libc::SI_QUEUE,
        libc::SI_TKILL,
        libc::SI_MESGQ,
    ]
    .contains(&code)
}

/// Whether signal `number` kills a process that neither handles nor ignores it (signal(7)).
pub(crate) fn kills_by_default(number: i32) -> bool {
    let harmless = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ];
    !harmless.contains(&number)
}

/// Whether `number` is a signal that stops a process by default.
pub(crate) fn stops_by_default(number: i32) -> bool {
    [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&number)
}

const NAMES: [(i32, &str); 31] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGSTKFLT, "SIGSTKFLT"),
    (libc::SIGCHLD, "SIGCHLD"),
    (libc::SIGCONT, "SIGCONT"),
    (libc::SIGSTOP, "SIGSTOP"),
    (libc::SIGTSTP, "SIGTSTP"),
    (libc::SIGTTIN, "SIGTTIN"),
    (libc::SIGTTOU, "SIGTTOU"),
    (libc::SIGURG, "SIGURG"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
    (libc::SIGVTALRM, "SIGVTALRM"),
    (libc::SIGPROF, "SIGPROF"),
    (libc::SIGWINCH, "SIGWINCH"),
    (libc::SIGIO, "SIGIO"),
    (libc::SIGPWR, "SIGPWR"),
    (libc::SIGSYS, "SIGSYS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn siginfo(number: i32, code: i32, union: u64) -> [u8; SIGINFO_SIZE] {
        let mut bytes = [0; SIGINFO_SIZE];
        bytes[0..4].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&code.to_le_bytes());
        bytes[16..24].copy_from_slice(&union.to_le_bytes());
        bytes
    }

    #[test]
    fn a_fault_has_an_address_and_a_sent_signal_a_sender() {
        let fault = Signal::parse(7, &siginfo(libc::SIGSEGV, 1, 0xdead_0000)).unwrap();
        assert_eq!(fault.address, Some(RuntimeAddr(0xdead_0000)));
        assert_eq!((fault.sender, fault.name()), (None, Some("SIGSEGV")));

        let sent = Signal::parse(7, &siginfo(libc::SIGSEGV, 0, 5 << 32 | 9)).unwrap();
        assert_eq!(sent.address, None);
        assert_eq!(sent.sender, Some(Sender { pid: 9, uid: 5 }));

        let kernel = Signal::parse(7, &siginfo(libc::SIGSEGV, 0x80, 0)).unwrap();
        assert_eq!((kernel.address, kernel.sender), (None, None));
    }

    #[test]
    fn a_short_siginfo_is_refused() {
        let bytes = siginfo(11, 1, 0);
        for end in 0..24 {
            assert_eq!(Signal::parse(1, &bytes[..end]), None);
        }
    }

    #[test]
    fn default_actions() {
        assert!(kills_by_default(libc::SIGSEGV) && kills_by_default(libc::SIGRTMIN()));
        assert!(!kills_by_default(libc::SIGCHLD) && !kills_by_default(libc::SIGTSTP));
        assert!(stops_by_default(libc::SIGTSTP) && !stops_by_default(libc::SIGINT));
    }
}
