//! A program with inline assembly that calls a function which takes a backtrace.

use std::arch::asm;
use std::backtrace::Backtrace;

extern "C" fn callee() {
    println!("{}", Backtrace::force_capture());
}

#[inline(never)]
fn through(n: i64) -> i64 {
    // SAFETY: the stack is unchanged, and all registers that a call may change are declared as
    // clobbered.
    unsafe {
        asm!(
            "push r12",
            "push r13",
            "call {callee}",
            "pop r13",
            "pop r12",
            callee = sym callee,
            clobber_abi("C"),
        );
    }
    n + 1
}

fn main() {
    let count = i64::try_from(std::env::args().count());
    println!("{}", through(count.unwrap_or(0)));
}
