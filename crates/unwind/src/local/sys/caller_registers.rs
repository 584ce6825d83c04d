//! The registers of a caller that calls preserve: captured when it calls, and set to continue there.
//!
//! A shadow stack (CET) has the return addresses of all frames, and nothing else. With the registers
//! goes its pointer: each frame further out is one word up. A signal frame is no exception: the
//! kernel has put one word there for it, beside the address that the handler returns to.

use core::arch::naked_asm;

/// The registers of a function at a call that it has made, as after the return.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallerRegisters {
    /// rbx, rbp, r12 to r15, as [`SavedRegisters::REGISTERS`](unspool_rows::packed_row::SavedRegisters).
    pub preserved: [u64; 6],
    /// The stack pointer.
    pub stack_pointer: u64,
    /// The code address: the return address.
    pub code: u64,
    /// The shadow stack's pointer; of no meaning in a thread without one.
    pub shadow_stack_pointer: u64,
}

impl CallerRegisters {
    /// The DWARF numbers of all but the last.
    pub const NUMBERS: [u16; 8] = [3, 6, 12, 13, 14, 15, 7, 16];

    /// All but the last, in the order of [`CallerRegisters::NUMBERS`].
    #[must_use]
    pub fn values(&self) -> [u64; 8] {
        let [rbx, rbp, r12, r13, r14, r15] = self.preserved;
        let (rsp, rip) = (self.stack_pointer, self.code);
        [rbx, rbp, r12, r13, r14, r15, rsp, rip]
    }
}

/// The body of a naked function that calls a function with its own arguments. The one in the named
/// register is replaced by the [`CallerRegisters`] of its caller.
#[macro_export]
macro_rules! call_with_caller_registers {
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
            // Without a shadow stack this does nothing.
            "rdsspq rax",
            "add rax, 8",
            "mov [rsp + 64], rax",
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

/// Continues in a frame further out, with `first` in rax and `second` in rdx. No other register has
/// a meaning there.
///
/// # Safety
///
/// The frame is of this thread and has not returned, and its code expects that at the address.
#[unsafe(naked)]
pub unsafe extern "C" fn continue_at(registers: &CallerRegisters, first: u64, second: u64) -> ! {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        // The words between the two shadow stack pointers. At most 255 can be dropped at once.
        "xor eax, eax",
        "rdsspq rax",
        "test rax, rax",
        "jz 4f",
        "mov rcx, [rdi + 64]",
        "sub rcx, rax",
        "sar rcx, 3",
        "mov eax, 255",
        "2:",
        "cmp rcx, rax",
        "jle 3f",
        "incsspq rax",
        "sub rcx, rax",
        "jmp 2b",
        "3:",
        "test rcx, rcx",
        "jle 4f",
        "incsspq rcx",
        "4:",
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
