//! Descriptions of signals.

use unspool_unwind::signal_codes::{self, SI_KERNEL};

use super::CrashSignal;
use super::text::TextBuffer;

/// The handled signals: those that end a process for an error of its own.
pub(crate) const HANDLED_SIGNALS: [(i32, &[u8]); 7] = [
    (libc::SIGSEGV, b"SIGSEGV"),
    (libc::SIGBUS, b"SIGBUS"),
    (libc::SIGILL, b"SIGILL"),
    (libc::SIGFPE, b"SIGFPE"),
    (libc::SIGABRT, b"SIGABRT"),
    (libc::SIGTRAP, b"SIGTRAP"),
    (libc::SIGSYS, b"SIGSYS"),
];

/// Signals sent by a process, by their `si_code`: the description, and whether the kernel names the
/// sender (sigaction(2)).
const USER_SI_CODES: [(i32, &[u8], bool); 7] = [
    (libc::SI_USER, b"sent", true),
    (libc::SI_QUEUE, b"queued", true),
    (libc::SI_TKILL, b"sent", true),
    (libc::SI_MESGQ, b"sent with a message", true),
    (libc::SI_TIMER, b"sent by a timer of the process", false),
    (
        libc::SI_ASYNCIO,
        b"sent by input or output that has ended",
        false,
    ),
    (libc::SI_SIGIO, b"sent by a file that is ready", false),
];

/// A signal, from the kernel's `siginfo_t`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    /// Its number.
    pub(crate) number: i32,
    /// `si_code`.
    pub(crate) code: i32,
    /// `si_addr`: the faulting address, if it was a fault.
    pub(crate) address: u64,
    /// `si_pid` and `si_uid`: the sending process and its user, if the code implies them.
    pub(crate) sender: (i32, u32),
}

impl Signal {
    /// Whether a process has sent it, instead of the kernel for the program's actions.
    #[must_use]
    pub(crate) fn is_sent(&self) -> bool {
        self.code <= 0
    }

    /// The faulting address.
    fn fault_address(&self) -> Option<u64> {
        (!self.is_sent() && self.code != SI_KERNEL).then_some(self.address)
    }

    /// Adds its name, or its number.
    pub(crate) fn name(&self, text: &mut TextBuffer<'_>) {
        match HANDLED_SIGNALS
            .iter()
            .find(|(number, _)| *number == self.number)
        {
            Some((_, name)) => text.put(name),
            None => text.signed(self.number),
        }
    }

    /// Adds its cause.
    pub(crate) fn origin(&self, text: &mut TextBuffer<'_>) {
        text.put(b", ");
        if self.is_sent() {
            self.write_sender(text);
        } else {
            self.write_cause(text);
        }
        if let Some(address) = self.fault_address() {
            text.put(b", at ");
            text.address(address);
        }
    }

    fn write_sender(&self, text: &mut TextBuffer<'_>) {
        let sending = USER_SI_CODES.iter().find(|(code, ..)| *code == self.code);
        let Some((_, what, has_sender)) = sending else {
            text.put(b"sent, code ");
            text.signed(self.code);
            return;
        };
        text.put(what);
        if *has_sender {
            let (process, user) = self.sender;
            text.put(b" by process ");
            text.signed(process);
            text.put(b" (user ");
            text.decimal(u64::from(user));
            text.put(b")");
        }
    }

    fn write_cause(&self, text: &mut TextBuffer<'_>) {
        match signal_codes::cause(self.number, self.code) {
            Some(cause) => text.put(cause.as_bytes()),
            None => {
                text.put(b"code ");
                text.signed(self.code);
            }
        }
    }
}

/// The maximum distance from the stack pointer of a fault by a full stack, in bytes.
const MAX_OVERFLOW_DISTANCE_BYTES: u64 = 64 << 10;

/// The first lines of a report.
pub(super) fn describe(signal: &CrashSignal, text: &mut TextBuffer<'_>) {
    text.put(b"unspool: signal ");
    signal.signal.name(text);
    signal.signal.origin(text);
    let stack_pointer = signal.registers[7];
    let is_near = |address: u64| stack_pointer.abs_diff(address) < MAX_OVERFLOW_DISTANCE_BYTES;
    if signal.signal.number == libc::SIGSEGV && signal.signal.fault_address().is_some_and(is_near) {
        text.put(b": near the stack pointer, so the stack may be full");
    }
    text.put(b"\nprocess ");
    text.signed(signal.process);
    text.put(b", thread ");
    text.signed(signal.thread);
    text.put(b" \"");
    text.quote(&signal.name);
    text.put(b"\"\n");
    text.flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::text::tests::text;

    fn origin(number: i32, code: i32) -> std::string::String {
        let signal = Signal {
            number,
            code,
            address: 0x1f,
            sender: (7, 1000),
        };
        text(|text| signal.origin(text))
    }

    /// sigaction(2) lists the fields of siginfo for each code: the sender only for some sent
    /// signals, the address only for faults that have one.
    #[test]
    fn the_code_says_what_else_is_known() {
        let at = ", at 0x000000000000001f";
        let by = " by process 7 (user 1000)";
        for (number, code, expected) in [
            (libc::SIGABRT, 0, std::format!(", sent{by}")),
            (libc::SIGABRT, -1, std::format!(", queued{by}")),
            (libc::SIGABRT, -2, ", sent by a timer of the process".into()),
            (libc::SIGABRT, -3, std::format!(", sent with a message{by}")),
            (
                libc::SIGABRT,
                -4,
                ", sent by input or output that has ended".into(),
            ),
            (libc::SIGABRT, -5, ", sent by a file that is ready".into()),
            (libc::SIGSEGV, -6, std::format!(", sent{by}")),
            (libc::SIGABRT, -60, ", sent, code -60".into()),
            (libc::SIGSEGV, 1, std::format!(", address not mapped{at}")),
            (libc::SIGSEGV, 99, std::format!(", code 99{at}")),
            (libc::SIGTRAP, 128, ", breakpoint".into()),
            (libc::SIGABRT, 128, ", code 128".into()),
        ] {
            assert_eq!(origin(number, code), expected);
        }
    }
}
