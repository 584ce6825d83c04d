//! Descriptions of signals.

use super::CrashSignal;
use super::text::TextBuffer;

/// The handled signals: those that end a process for an error of its own.
pub const HANDLED_SIGNALS: [(i32, &[u8]); 7] = [
    (libc::SIGSEGV, b"SIGSEGV"),
    (libc::SIGBUS, b"SIGBUS"),
    (libc::SIGILL, b"SIGILL"),
    (libc::SIGFPE, b"SIGFPE"),
    (libc::SIGABRT, b"SIGABRT"),
    (libc::SIGTRAP, b"SIGTRAP"),
    (libc::SIGSYS, b"SIGSYS"),
];

/// The causes of signals that the kernel sends for the program's actions, by their `si_code`
/// (`asm-generic/siginfo.h`).
const KERNEL_SI_CODES: [(i32, i32, &[u8]); 35] = [
    (libc::SIGSEGV, 1, b"address not mapped"),
    (libc::SIGSEGV, 2, b"access not permitted"),
    (libc::SIGSEGV, 3, b"failed check of bounds"),
    (
        libc::SIGSEGV,
        4,
        b"access not permitted by a protection key",
    ),
    (libc::SIGSEGV, 10, b"return address not on the shadow stack"),
    (
        libc::SIGSEGV,
        SI_KERNEL,
        b"address not canonical, or privileged instruction",
    ),
    (libc::SIGBUS, 1, b"address not aligned"),
    (libc::SIGBUS, 2, b"nothing behind the mapping"),
    (libc::SIGBUS, 3, b"hardware error of the object"),
    (libc::SIGBUS, 4, b"memory error in use"),
    (libc::SIGBUS, 5, b"memory error found"),
    // The processor raises a different exception if the base is the stack or frame pointer.
    (libc::SIGBUS, SI_KERNEL, b"address not canonical"),
    (libc::SIGILL, 1, b"illegal opcode"),
    (libc::SIGILL, 2, b"illegal operand"),
    (libc::SIGILL, 3, b"illegal addressing mode"),
    (libc::SIGILL, 4, b"illegal trap"),
    (libc::SIGILL, 5, b"privileged opcode"),
    (libc::SIGILL, 6, b"privileged register"),
    (libc::SIGILL, 7, b"coprocessor error"),
    (libc::SIGILL, 8, b"internal stack error"),
    (libc::SIGFPE, 1, b"integer division by zero"),
    (libc::SIGFPE, 2, b"integer overflow"),
    (libc::SIGFPE, 3, b"floating-point division by zero"),
    (libc::SIGFPE, 4, b"floating-point overflow"),
    (libc::SIGFPE, 5, b"floating-point underflow"),
    (libc::SIGFPE, 6, b"inexact floating-point result"),
    (libc::SIGFPE, 7, b"invalid floating-point operation"),
    (libc::SIGTRAP, 1, b"breakpoint"),
    (libc::SIGTRAP, 2, b"trace trap"),
    (libc::SIGTRAP, 3, b"branch trap"),
    (libc::SIGTRAP, 4, b"hardware breakpoint or watchpoint"),
    (libc::SIGTRAP, 6, b"performance event"),
    (libc::SIGTRAP, SI_KERNEL, b"breakpoint"),
    (libc::SIGSYS, 1, b"system call refused by a filter"),
    (libc::SIGSYS, 2, b"system call for the program to dispatch"),
];

/// The address is unknown to the kernel, or there is none.
const SI_KERNEL: i32 = 0x80;

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
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`: the faulting address, if it was a fault.
    pub address: u64,
    /// `si_pid` and `si_uid`: the sending process and its user, if the code implies them.
    pub sender: (i32, u32),
}

impl Signal {
    /// Whether a process has sent it, instead of the kernel for the program's actions.
    #[must_use]
    pub fn is_sent(&self) -> bool {
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
        let this = (self.number, self.code);
        let cause = KERNEL_SI_CODES
            .iter()
            .find(|(number, code, _)| (*number, *code) == this);
        match cause {
            Some((_, _, cause)) => text.put(cause),
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
