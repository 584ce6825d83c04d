//! What `libunwind-setjmp.so.0` exports where the C library's own `longjmp` serves, which hides the
//! addresses in its buffers (glibc since 2.4): the two places where libunwind's `longjmp` has a
//! frame resumed. Programs that are linked with the library get the C library's functions.

use core::arch::naked_asm;

/// `_UI_longjmp_cont`: a frame is resumed here with the address to go on at in `rax`, and what `setjmp`
/// is to return there in `rdx`.
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

/// `_UI_siglongjmp_cont`: goes back to the address on top of the stack.
///
/// # Safety
///
/// There is one.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UI_siglongjmp_cont"))]
#[unsafe(naked)]
pub unsafe extern "C" fn siglongjmp_continues() {
    naked_asm!(".cfi_startproc", "ret", ".cfi_endproc")
}
