//! x86-64: registers, and the kernel's record of a signal.

use unspool_rows::{CfaRule, Expression, Register, RegisterRule};

pub(crate) const RBP: Register = Register(6);
pub(crate) const RSP: Register = Register(7);
pub(crate) const RIP: Register = Register(16);

/// `mov $15, %rax; syscall`: `rt_sigreturn`, as all C libraries and the kernel write it.
pub const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// The offsets of registers in the kernel's signal record, a `ucontext_t`, by DWARF number, in
/// bytes (asm/sigcontext.h). In a trampoline the stack pointer is at the record.
pub const IN_CONTEXT: [u64; 17] = [
    144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
];

/// The frame pointer's offset.
pub(crate) const RBP_IN_CONTEXT: u64 = IN_CONTEXT[6];
/// The stack pointer's offset.
pub const RSP_IN_CONTEXT: u64 = IN_CONTEXT[7];
/// The code address's offset.
pub const RIP_IN_CONTEXT: u64 = IN_CONTEXT[16];

/// Whether an expression is just the address of a register in the kernel's record at the stack
/// pointer, followed by `end`.
fn is_in_context(expression: Expression<'_>, register: Register, end: &[u8]) -> bool {
    let place = IN_CONTEXT.get(usize::from(register.0)).copied();
    super::beside(RSP, expression).is_some_and(|(distance, rest)| {
        place == u64::try_from(distance).ok() && place.is_some() && rest == end
    })
}

/// Whether a rule restores a register from the kernel's record.
pub(crate) fn is_saved_in_context(register: Register, rule: Option<RegisterRule<'_>>) -> bool {
    matches!(rule, Some(RegisterRule::Expression(at)) if is_in_context(at, register, &[]))
}

/// Whether a CFA is the stack pointer in the kernel's record.
pub(crate) fn is_cfa_in_context(cfa: CfaRule<'_>) -> bool {
    const DEREF: u8 = 0x06;
    matches!(cfa, CfaRule::Expression(cfa) if is_in_context(cfa, RSP, &[DEREF]))
}
