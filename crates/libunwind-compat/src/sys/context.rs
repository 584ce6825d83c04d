//! Capturing and setting the registers of the own process.
//!
//! The layout is that of `ucontext_t` (`<sys/ucontext.h>`), so that contexts of libunwind, of the C
//! library and of the kernel are interchangeable.

use core::arch::{asm, naked_asm};
use core::ffi::{c_int, c_void};

use unspool_rows::Register;

use crate::remote_cfi::ABI;

/// The offset of the code address in a `ucontext_t`, in bytes.
pub(super) const CODE_ADDRESS: u64 = 168;

/// The address of a register in a context.
pub(super) fn address(context: *mut c_void, register: u16) -> u64 {
    let context = context.addr() as u64;
    let record = ABI.arch.spec().signal_record;
    let address = record.and_then(|record| record.address(context, Register(register)));
    address.unwrap_or(context)
}

/// `unw_getcontext`: captures the caller's registers, as after the return.
///
/// # Safety
///
/// `context` has room for a `ucontext_t`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_getcontext"))]
#[unsafe(naked)]
pub unsafe extern "C" fn getcontext(context: *mut c_void) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        "mov [rdi + 40], r8",
        "mov [rdi + 48], r9",
        "mov [rdi + 56], r10",
        "mov [rdi + 64], r11",
        "mov [rdi + 72], r12",
        "mov [rdi + 80], r13",
        "mov [rdi + 88], r14",
        "mov [rdi + 96], r15",
        "mov [rdi + 104], rdi",
        "mov [rdi + 112], rsi",
        "mov [rdi + 120], rbp",
        "mov [rdi + 128], rbx",
        "mov [rdi + 136], rdx",
        "mov [rdi + 144], rax",
        "mov [rdi + 152], rcx",
        "lea rax, [rsp + 8]",
        "mov [rdi + 160], rax",
        "mov rax, [rsp]",
        "mov [rdi + 168], rax",
        // uc_mcontext.fpregs, and its call-preserved part.
        "lea rax, [rdi + 424]",
        "mov [rdi + 224], rax",
        "fnstenv [rax]",
        "fldenv [rax]",
        "stmxcsr [rax + 24]",
        "xor eax, eax",
        "ret",
        ".cfi_endproc",
    )
}

/// `_Ux86_64_setcontext`: continues at a context. It does not return.
///
/// # Safety
///
/// `context` is from [`getcontext`], and the function that called it has not returned.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_setcontext"))]
#[unsafe(naked)]
pub unsafe extern "C" fn setcontext(context: *mut c_void) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rax, [rdi + 224]",
        "fldenv [rax]",
        "ldmxcsr [rax + 24]",
        "jmp {enter}",
        ".cfi_endproc",
        enter = sym enter,
    )
}

/// Continues at a context, with all its general registers except r11, which no call preserves.
///
/// # Safety
///
/// The context is of a frame of this thread that has not returned.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter(context: *mut c_void) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov r8, [rdi + 40]",
        "mov r9, [rdi + 48]",
        "mov r10, [rdi + 56]",
        "mov r11, [rdi + 168]",
        "mov r12, [rdi + 72]",
        "mov r13, [rdi + 80]",
        "mov r14, [rdi + 88]",
        "mov r15, [rdi + 96]",
        "mov rsi, [rdi + 112]",
        "mov rbp, [rdi + 120]",
        "mov rbx, [rdi + 128]",
        "mov rdx, [rdi + 136]",
        "mov rax, [rdi + 144]",
        "mov rcx, [rdi + 152]",
        "mov rsp, [rdi + 160]",
        "mov rdi, [rdi + 104]",
        "jmp r11",
        ".cfi_endproc",
    )
}

/// Continues an interrupted frame like the kernel after its handler: with all registers and the
/// signal mask.
///
/// # Safety
///
/// The kernel made the context for a signal of this thread, and its frame has not returned.
pub(super) unsafe fn return_from_signal(context: u64) -> ! {
    // SAFETY: `rt_sigreturn` takes the context from the top of the stack and does not return.
    unsafe {
        asm!(
            "mov rsp, {context}",
            "mov eax, 15",
            "syscall",
            context = in(reg) context,
            options(noreturn),
        )
    }
}

/// The body of a naked function that calls `$function` with its own arguments. `$argument` is
/// replaced by a context with its caller's preserved registers, and without the state behind them.
macro_rules! call_with_context {
    ($argument:literal, $function:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "sub rsp, 184",
            ".cfi_adjust_cfa_offset 184",
            "mov [rsp + 72], r12",
            "mov [rsp + 80], r13",
            "mov [rsp + 88], r14",
            "mov [rsp + 96], r15",
            "mov [rsp + 120], rbp",
            "mov [rsp + 128], rbx",
            "mov rax, [rsp + 184]",
            "mov [rsp + 168], rax",
            "lea rax, [rsp + 192]",
            "mov [rsp + 160], rax",
            concat!("mov ", $argument, ", rsp"),
            "call {function}",
            "add rsp, 184",
            ".cfi_adjust_cfa_offset -184",
            "ret",
            ".cfi_endproc",
            function = sym $function,
        )
    };
}
pub(super) use call_with_context;
