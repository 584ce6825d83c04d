//! What is particular to an architecture: where frames, code and the kernel's records have what.

use unspool_rows::{Arch, Expression, Register, leb128};

pub(crate) mod aarch64;
pub(crate) mod x86_64;

/// Whether code begins as a signal handler's trampoline does.
pub(crate) fn begins_trampoline(arch: Arch, code: &[u8]) -> bool {
    match arch {
        Arch::X86_64 => code.starts_with(&x86_64::TRAMPOLINE),
        _ => false,
    }
}

/// The register that a function keeps its frame pointer in, if it keeps one; `None` for an architecture
/// whose stacks are not walked.
#[must_use]
pub fn frame_pointer(arch: Arch) -> Option<Register> {
    match arch {
        Arch::X86_64 => Some(x86_64::RBP),
        Arch::Aarch64 => Some(aarch64::FP),
        _ => None,
    }
}

/// The distance from a register that an expression begins with, and its other bytes.
pub(crate) fn beside(
    register: Register,
    Expression(bytes): Expression<'_>,
) -> Option<(i64, &[u8])> {
    /// `DW_OP_breg0`: the register and a number.
    const BREG0: u16 = 0x70;
    let (operation, mut rest) = bytes.split_first()?;
    if u16::from(*operation) != BREG0 + register.0 {
        return None;
    }
    let distance = leb128::signed(&mut rest)?;
    Some((distance, rest))
}
