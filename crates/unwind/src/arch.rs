//! Architecture-specific parts: registers, trampolines, and the kernel's signal records.

use unspool_rows::{Arch, Expression, Register, leb128};

pub(crate) mod aarch64;
pub(crate) mod x86_64;

/// Whether code begins like a signal handler's trampoline.
pub(crate) fn begins_trampoline(arch: Arch, code: &[u8]) -> bool {
    match arch {
        Arch::X86_64 => code.starts_with(&x86_64::TRAMPOLINE),
        _ => false,
    }
}

/// The ABI's frame pointer register; `None` for an architecture without stack walks.
#[must_use]
pub fn frame_pointer(arch: Arch) -> Option<Register> {
    match arch {
        Arch::X86_64 => Some(x86_64::RBP),
        Arch::Aarch64 => Some(aarch64::FP),
        _ => None,
    }
}

/// The offset from a register at the start of an expression, and the remaining bytes.
pub(crate) fn beside(
    register: Register,
    Expression(bytes): Expression<'_>,
) -> Option<(i64, &[u8])> {
    /// `DW_OP_breg0`: the register, encoded in the opcode, and an offset.
    const BREG0: u16 = 0x70;
    let (operation, mut rest) = bytes.split_first()?;
    if u16::from(*operation) != BREG0 + register.0 {
        return None;
    }
    let distance = leb128::signed(&mut rest)?;
    Some((distance, rest))
}
