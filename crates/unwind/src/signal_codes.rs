//! Why the kernel sends signals (sigaction(2)).

/// The causes of signals that the kernel sends for the program's actions, by their `si_code`
/// (`asm-generic/siginfo.h`).
const KERNEL_SI_CODES: [(i32, i32, &str); 35] = [
    (libc::SIGSEGV, 1, "address not mapped"),
    (libc::SIGSEGV, 2, "access not permitted"),
    (libc::SIGSEGV, 3, "failed check of bounds"),
    (libc::SIGSEGV, 4, "access not permitted by a protection key"),
    (libc::SIGSEGV, 10, "return address not on the shadow stack"),
    (
        libc::SIGSEGV,
        SI_KERNEL,
        "address not canonical, or privileged instruction",
    ),
    (libc::SIGBUS, 1, "address not aligned"),
    (libc::SIGBUS, 2, "nothing behind the mapping"),
    (libc::SIGBUS, 3, "hardware error of the object"),
    (libc::SIGBUS, 4, "memory error in use"),
    (libc::SIGBUS, 5, "memory error found"),
    // The processor raises a different exception if the base is the stack or frame pointer.
    (libc::SIGBUS, SI_KERNEL, "address not canonical"),
    (libc::SIGILL, 1, "illegal opcode"),
    (libc::SIGILL, 2, "illegal operand"),
    (libc::SIGILL, 3, "illegal addressing mode"),
    (libc::SIGILL, 4, "illegal trap"),
    (libc::SIGILL, 5, "privileged opcode"),
    (libc::SIGILL, 6, "privileged register"),
    (libc::SIGILL, 7, "coprocessor error"),
    (libc::SIGILL, 8, "internal stack error"),
    (libc::SIGFPE, 1, "integer division by zero"),
    (libc::SIGFPE, 2, "integer overflow"),
    (libc::SIGFPE, 3, "floating-point division by zero"),
    (libc::SIGFPE, 4, "floating-point overflow"),
    (libc::SIGFPE, 5, "floating-point underflow"),
    (libc::SIGFPE, 6, "inexact floating-point result"),
    (libc::SIGFPE, 7, "invalid floating-point operation"),
    (libc::SIGTRAP, 1, "breakpoint"),
    (libc::SIGTRAP, 2, "trace trap"),
    (libc::SIGTRAP, 3, "branch trap"),
    (libc::SIGTRAP, 4, "hardware breakpoint or watchpoint"),
    (libc::SIGTRAP, 6, "performance event"),
    (libc::SIGTRAP, SI_KERNEL, "breakpoint"),
    (libc::SIGSYS, 1, "system call refused by a filter"),
    (libc::SIGSYS, 2, "system call for the program to dispatch"),
];

/// The address is unknown to the kernel, or there is none.
pub const SI_KERNEL: i32 = 0x80;

/// Why the kernel has sent a signal for what the program did, by the signal's number and `si_code`;
/// `None` for unknown codes, and for signals that a process has sent.
#[must_use]
pub fn cause(number: i32, code: i32) -> Option<&'static str> {
    let mut causes = KERNEL_SI_CODES.iter();
    let found = causes.find(|(of, with, _)| (*of, *with) == (number, code));
    found.map(|(_, _, cause)| *cause)
}
