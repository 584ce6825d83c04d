//! Inline assembly that pushes, calls and pops, in Rust.
#![no_std]

use core::arch::asm;

unsafe extern "C-unwind" {
    fn callee(n: i32);
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn through(n: i32) -> i64 {
    let kept = i64::from(n);
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
            in("edi") n,
            clobber_abi("C"),
        );
    }
    kept + 1
}
