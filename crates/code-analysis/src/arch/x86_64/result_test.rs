//! Comparisons of a system call's result with zero, which tell a new thread from the old one.

use core::cmp::Ordering;

/// Whether an instruction compares the result register with zero: `test %rax, %rax`, and for the
/// low half, `test %eax, %eax`.
pub(in crate::arch) fn tests_result(insn: &[u8]) -> bool {
    matches!(insn, [0x48, 0x85, 0xc0] | [0x85, 0xc0])
}

/// Whether code ends with a system call, the comparison of its result, and at most one conditional
/// jump: the flags are of that comparison still.
pub(in crate::arch) fn ends_with_tested_syscall(code: &[u8]) -> bool {
    let is_test = |code: &[u8]| {
        let calls = |test: &[u8]| test.ends_with(&[0x0f, 0x05]);
        let wide = code.strip_suffix(&[0x48, 0x85, 0xc0]);
        wide.or(code.strip_suffix(&[0x85, 0xc0])).is_some_and(calls)
    };
    match code {
        [before @ .., 0x0f, 0x80..=0x8f, _, _, _, _] if is_test(before) => true,
        [before @ .., 0x70..=0x7f, _] if is_test(before) => true,
        before => is_test(before),
    }
}

/// Whether a conditional jump after a comparison with zero is taken, if its condition is known
/// (Intel SDM, volume 2, "Jcc").
pub(in crate::arch) fn is_taken(insn: &[u8], tested: Ordering) -> Option<bool> {
    let condition = match insn {
        [opcode @ 0x70..=0x7f, ..] | [0x0f, opcode @ 0x80..=0x8f, ..] => opcode & 0xf,
        _ => return None,
    };
    match condition {
        // e, ne
        0x4 => Some(tested.is_eq()),
        0x5 => Some(tested.is_ne()),
        // s, l
        0x8 | 0xc => Some(tested.is_lt()),
        // ns, ge
        0x9 | 0xd => Some(tested.is_ge()),
        // le, g
        0xe => Some(tested.is_le()),
        0xf => Some(tested.is_gt()),
        _ => None,
    }
}
