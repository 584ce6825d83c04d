//! Capturing the registers of a caller, and entering landing pads.

use core::arch::naked_asm;

use crate::walk::LandingFrame;

/// The body of a naked function that calls `$function` with its own arguments. `$argument` is
/// replaced by a [`LandingFrame`] of its caller, as after the return.
macro_rules! call_with_frame {
    ($argument:literal, $function:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 72",
            ".cfi_adjust_cfa_offset 72",
            "mov [rsp], rbx",
            "mov [rsp + 8], rbp",
            "mov [rsp + 16], r12",
            "mov [rsp + 24], r13",
            "mov [rsp + 32], r14",
            "mov [rsp + 40], r15",
            "lea rax, [rsp + 80]",
            "mov [rsp + 48], rax",
            "mov rax, [rsp + 72]",
            "mov [rsp + 56], rax",
            "mov qword ptr [rsp + 64], 0",
            concat!("mov ", $argument, ", rsp"),
            "call {function}",
            "add rsp, 72",
            ".cfi_adjust_cfa_offset -72",
            "ret",
            ".cfi_endproc",
            function = sym $function,
        )
    };
}
pub(super) use call_with_frame;

/// Continues in a frame, at its code address: a landing pad, with its two arguments. Landing pads
/// expect nothing of other registers.
///
/// # Safety
///
/// The frame is of this thread and has not returned, and a landing pad of its function is at the
/// address.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn land(frame: &LandingFrame, first: u64, second: u64) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rax, rsi",
        "mov rbx, [rdi]",
        "mov rbp, [rdi + 8]",
        "mov r12, [rdi + 16]",
        "mov r13, [rdi + 24]",
        "mov r14, [rdi + 32]",
        "mov r15, [rdi + 40]",
        "mov rcx, [rdi + 56]",
        "mov rsp, [rdi + 48]",
        "jmp rcx",
        ".cfi_endproc",
    )
}
