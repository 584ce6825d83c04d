//! x86-64: registers, and the kernel's record of a signal.

use unspool_rows::{CfaRule, Expression, Register, RegisterRule};

pub(crate) const RBP: Register = Register(6);
pub(crate) const RSP: Register = Register(7);
pub(crate) const RIP: Register = Register(16);

/// `mov $15, %rax; syscall`: `rt_sigreturn`, as every C library and the kernel's own writes it.
pub const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// Where the kernel's record of a signal, a `ucontext_t`, has the registers, by DWARF number, in bytes
/// (asm/sigcontext.h). The stack pointer is at the record where a trampoline runs.
pub const IN_CONTEXT: [u64; 17] = [
    144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
];

/// Where it has the frame pointer.
pub(crate) const RBP_IN_CONTEXT: u64 = IN_CONTEXT[6];
/// Where it has the stack pointer.
pub const RSP_IN_CONTEXT: u64 = IN_CONTEXT[7];
/// Where it has the code address.
pub const RIP_IN_CONTEXT: u64 = IN_CONTEXT[16];

/// Whether an expression says that a word is in the kernel's record, at the stack pointer, and is no more
/// than that but for an end.
fn is_in_context(expression: Expression<'_>, register: Register, end: &[u8]) -> bool {
    let place = IN_CONTEXT.get(usize::from(register.0)).copied();
    super::beside(RSP, expression).is_some_and(|(distance, rest)| {
        place == u64::try_from(distance).ok() && place.is_some() && rest == end
    })
}

/// Whether a rule says that a register is where the kernel's record has it.
pub(crate) fn is_saved_in_context(register: Register, rule: Option<RegisterRule<'_>>) -> bool {
    matches!(rule, Some(RegisterRule::Expression(at)) if is_in_context(at, register, &[]))
}

/// Whether a CFA is the stack pointer that the kernel's record has.
pub(crate) fn is_cfa_in_context(cfa: CfaRule<'_>) -> bool {
    const DEREF: u8 = 0x06;
    matches!(cfa, CfaRule::Expression(cfa) if is_in_context(cfa, RSP, &[DEREF]))
}
