//! Entering landing pads.

use core::arch::naked_asm;

use unspool_unwind::local::caller_registers::{CallerRegisters, continue_at};

/// Continues in a frame, at its code address: a landing pad, with its two arguments. Landing pads
/// expect nothing of other registers.
///
/// Debuggers stop here when they step over a call that throws: the probe `libgcc:unwind` has the
/// stack pointer and the landing pad (SystemTap's notes, sys/sdt.h; gdb, "Exception Handling").
///
/// # Safety
///
/// The frame is of this thread and has not returned, and a landing pad of its function is at the
/// address.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn land(frame: &CallerRegisters, first: u64, second: u64) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "2: nop",
        "jmp {continue_at}",
        ".cfi_endproc",
        ".pushsection .note.stapsdt, \"\", @note",
        ".balign 4",
        ".4byte 4f - 3f, 7f - 5f, 3",
        "3: .asciz \"stapsdt\"",
        "4: .balign 4",
        "5: .8byte 2b, _.stapsdt.base, 0",
        ".asciz \"libgcc\"",
        ".asciz \"unwind\"",
        ".asciz \"8@48(%rdi) 8@56(%rdi)\"",
        "7: .balign 4",
        ".popsection",
        // Tools that read notes compare its address with the file's.
        ".pushsection .stapsdt.base, \"aGR\", @progbits, .stapsdt.base, comdat",
        ".weak _.stapsdt.base",
        ".hidden _.stapsdt.base",
        "_.stapsdt.base: .space 1",
        ".size _.stapsdt.base, 1",
        ".popsection",
        continue_at = sym continue_at,
    )
}
