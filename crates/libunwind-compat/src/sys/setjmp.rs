//! The exports of `libunwind-setjmp.so.0`. The C library's own `longjmp` hides the addresses in its
//! buffers (glibc since 2.4), so programs linked with the library get the C library's functions.
//! Only the two resumption points of libunwind's `longjmp` are here.

use core::arch::naked_asm;

/// `_UI_longjmp_cont`: a frame is resumed here with the continuation address in `rax`, and the
/// return value of `setjmp` in `rdx`.
///
/// # Safety
///
/// The stack pointer is that of the frame at the address.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UI_longjmp_cont"))]
#[unsafe(naked)]
pub unsafe extern "C" fn longjmp_continues() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_register rip, rax",
        "mov rcx, rax",
        ".cfi_register rip, rcx",
        "mov rax, rdx",
        "jmp rcx",
        ".cfi_endproc",
    )
}

/// `_UI_siglongjmp_cont`: returns to the address on top of the stack.
///
/// # Safety
///
/// The top of the stack has a return address.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UI_siglongjmp_cont"))]
#[unsafe(naked)]
pub unsafe extern "C" fn siglongjmp_continues() {
    naked_asm!(".cfi_startproc", "ret", ".cfi_endproc")
}
