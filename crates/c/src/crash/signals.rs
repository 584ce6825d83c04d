//! What is said of a signal.

use super::Fault;
use super::text::Text;

/// The signals that are caught: those that end a process for an error of its own.
pub const CAUGHT: [(i32, &[u8]); 7] = [
    (libc::SIGSEGV, b"SIGSEGV"),
    (libc::SIGBUS, b"SIGBUS"),
    (libc::SIGILL, b"SIGILL"),
    (libc::SIGFPE, b"SIGFPE"),
    (libc::SIGABRT, b"SIGABRT"),
    (libc::SIGTRAP, b"SIGTRAP"),
    (libc::SIGSYS, b"SIGSYS"),
];

/// Signals of the kernel's own, by their `si_code` (`asm-generic/siginfo.h`).
const CAUSES: [(i32, i32, &[u8]); 12] = [
    (libc::SIGSEGV, 1, b"address not mapped"),
    (libc::SIGSEGV, 2, b"access not permitted"),
    (
        libc::SIGSEGV,
        128,
        b"address not canonical, or privileged instruction",
    ),
    (libc::SIGBUS, 1, b"address not aligned"),
    (libc::SIGBUS, 2, b"nothing behind the mapping"),
    (libc::SIGILL, 1, b"illegal opcode"),
    (libc::SIGILL, 2, b"illegal operand"),
    (libc::SIGFPE, 1, b"integer division by zero"),
    (libc::SIGFPE, 2, b"integer overflow"),
    (libc::SIGFPE, 3, b"floating-point division by zero"),
    (libc::SIGTRAP, 1, b"breakpoint"),
    (libc::SIGTRAP, 128, b"breakpoint"),
];

/// So near to the stack pointer a fault may come of a stack that is full, in bytes.
const NEAR_STACK: u64 = 64 << 10;

/// The first lines of a report.
pub(super) fn describe(fault: &Fault, text: &mut Text<'_>) {
    text.put(b"unspool: signal ");
    name(fault.signal, text);
    if fault.code > 0 {
        cause(fault, text);
    } else {
        let (process, user) = fault.sender;
        text.put(b", sent by process ");
        text.signed(process);
        text.put(b" (user ");
        text.decimal(u64::from(user));
        text.put(b")");
    }
    text.put(b"\nprocess ");
    text.signed(fault.process);
    text.put(b", thread ");
    text.signed(fault.thread);
    text.put(b" \"");
    text.quote(&fault.name);
    text.put(b"\"\n");
    text.flush();
}

/// Adds the name of a signal, or its number.
pub fn name(signal: i32, text: &mut Text<'_>) {
    match CAUGHT.iter().find(|(number, _)| *number == signal) {
        Some((_, name)) => text.put(name),
        None => text.signed(signal),
    }
}

fn cause(fault: &Fault, text: &mut Text<'_>) {
    let is_this =
        |(signal, code, _): &&(i32, i32, _)| (*signal, *code) == (fault.signal, fault.code);
    match CAUSES.iter().find(is_this) {
        Some((_, _, cause)) => {
            text.put(b", ");
            text.put(cause);
        }
        None => {
            text.put(b", code ");
            text.signed(fault.code);
        }
    }
    text.put(b", at ");
    text.address(fault.address);
    let stack_pointer = fault.registers[7];
    let is_near = stack_pointer.abs_diff(fault.address) < NEAR_STACK;
    if fault.signal == libc::SIGSEGV && is_near {
        text.put(b": near the stack pointer, so the stack may be full");
    }
}
