//! Comparisons of a system call's result with zero, which tell a new thread from the old one.

use core::cmp::Ordering;

use super::decode::{bits, is_svc};

/// Whether an instruction compares the result register with zero: `cmp x0, #0`, and for the low
/// half, `cmp w0, #0`.
pub(in crate::arch) fn tests_result(insn: u32) -> bool {
    insn & 0x7fff_ffff == 0x7100_001f
}

/// Whether code ends with a system call, the comparison of its result, and at most one conditional
/// branch: the flags are of that comparison still.
pub(in crate::arch) fn ends_with_tested_syscall(code: [u32; 3]) -> bool {
    match code {
        [call, test, branch] if is_conditional(branch) => is_svc(call) && tests_result(test),
        [_, call, test] => is_svc(call) && tests_result(test),
    }
}

/// Whether a conditional branch is taken, if it depends on the comparison of a value with zero:
/// `tested` before, or the result register in the instruction itself (Arm ARM, C1.2.4 and C6.2,
/// "CBZ", "TBZ").
pub(in crate::arch) fn is_taken(
    insn: u32,
    tested: Option<Ordering>,
    result: Option<Ordering>,
) -> Option<bool> {
    const RESULT: u32 = 0;
    const SIGN_BIT: u32 = 63;
    if is_conditional(insn) {
        let tested = tested?;
        return match bits(insn, 0, 4) {
            // eq, ne
            0 => Some(tested.is_eq()),
            1 => Some(tested.is_ne()),
            // mi, lt
            4 | 11 => Some(tested.is_lt()),
            // pl, ge
            5 | 10 => Some(tested.is_ge()),
            12 => Some(tested.is_gt()),
            13 => Some(tested.is_le()),
            _ => None,
        };
    }
    let result = result.filter(|_| bits(insn, 0, 5) == RESULT)?;
    let is_inverted = bits(insn, 24, 1) == 1;
    let holds = match bits(insn, 25, 6) {
        // cbz, cbnz
        0b01_1010 => result.is_eq(),
        // tbz, tbnz of the sign
        0b01_1011 if bits(insn, 31, 1) << 5 | bits(insn, 19, 5) == SIGN_BIT => result.is_ge(),
        _ => return None,
    };
    Some(holds != is_inverted)
}

/// `b.cond`.
fn is_conditional(insn: u32) -> bool {
    insn >> 24 == 0x54
}
