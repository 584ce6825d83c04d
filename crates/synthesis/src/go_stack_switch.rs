//! The row of `runtime.asmcgocall`, which runs C code on the thread's own stack.
//!
//! It saves the goroutine and the depth of the goroutine's stack (`runtime/asm_amd64.s`), at
//! offsets from the stack pointer that Go's versions changed. So they are read from its code.

use core::ops::Range;

use unspool_rows::Vaddr;
use unspool_rows::expression::operation::{
    DW_OP_BREG0, DW_OP_DEREF, DW_OP_MINUS, DW_OP_PLUS_UCONST,
};
use unspool_rows::leb128::put_signed;

/// The register of `DW_OP_breg7`.
const RSP: u8 = 7;
/// `g.stack.hi`: the top of a goroutine's stack.
const STACK_TOP: u8 = 8;
/// `sub %rdx, %rdi`: the depth of the goroutine's stack.
const DEPTH: [u8; 3] = [0x48, 0x29, 0xd7];
/// `mov 8(%rdi), %rsi`: the top of its stack.
const LOAD_TOP: [u8; 4] = [0x48, 0x8b, 0x77, STACK_TOP];

/// Code that runs on the thread's stack, and the expression of its CFA on the goroutine's.
pub(crate) struct SwitchedCode {
    pub(crate) range: Range<Vaddr>,
    pub(crate) cfa: Vec<u8>,
}

/// Finds the code of `runtime.asmcgocall` on the thread's stack. `start` is the address of `code`.
pub(crate) fn find(code: &[u8], start: Vaddr) -> Option<SwitchedCode> {
    let computed = position(code, &DEPTH)? + DEPTH.len();
    // mov %rdi, DEPTH(%rsp)
    let (depth, length) = rsp_offset(code.get(computed..)?, [0x89, 0x7c, 0x3c])?;
    let first = computed + length;
    let loaded = first + position(code.get(first..)?, &LOAD_TOP)?;
    // mov GOROUTINE(%rsp), %rdi; its length depends on the offset.
    let goroutine = [5, 4].into_iter().find_map(|length| {
        let before = code.get(loaded.checked_sub(length)?..)?;
        let (offset, found) = rsp_offset(before, [0x8b, 0x7c, 0x3c])?;
        (found == length).then_some(offset)
    })?;
    // sub DEPTH(%rsp), %rsi
    let last = loaded + LOAD_TOP.len();
    let (subtracted, length) = rsp_offset(code.get(last..)?, [0x2b, 0x74, 0x34])?;
    (subtracted == depth).then(|| SwitchedCode {
        range: start.offset(first as u64)..start.offset((last + length) as u64),
        cfa: caller_cfa(goroutine, depth),
    })
}

/// The offset in an operand `OFFSET(%rsp)`, and the instruction's length. The instruction has a REX
/// prefix, an opcode, and the ModRM byte of an 8-bit offset or of none.
fn rsp_offset(code: &[u8], [opcode, near, none]: [u8; 3]) -> Option<(u8, usize)> {
    match *code {
        [0x48, found, modrm, 0x24, offset, ..] if (found, modrm) == (opcode, near) => {
            Some((offset, 5))
        }
        [0x48, found, modrm, 0x24, ..] if (found, modrm) == (opcode, none) => Some((0, 4)),
        _ => None,
    }
}

/// `*(*(rsp + goroutine) + 8) - *(rsp + depth) + 8`.
fn caller_cfa(goroutine: u8, depth: u8) -> Vec<u8> {
    let mut expression = Vec::new();
    for (offset, then) in [
        (
            goroutine,
            &[DW_OP_DEREF, DW_OP_PLUS_UCONST, STACK_TOP, DW_OP_DEREF][..],
        ),
        (depth, &[DW_OP_DEREF, DW_OP_MINUS, DW_OP_PLUS_UCONST, 8]),
    ] {
        expression.push(DW_OP_BREG0 + RSP);
        put_signed(&mut expression, offset.into());
        expression.extend(then);
    }
    expression
}

fn position(code: &[u8], wanted: &[u8]) -> Option<usize> {
    code.windows(wanted.len()).position(|found| found == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go 1.19 and 1.24 have it, from the depth on.
    #[test]
    fn offsets_of_two_versions() {
        let old = "48 29 d7 48 89 7c 24 28 48 89 df 48 89 d9 ff d0 64 48 8b 0c 25 f8 ff ff ff \
                   48 8b 7c 24 30 48 8b 77 08 48 2b 74 24 28 48 89 f4 c3";
        let new = "48 29 d7 48 89 3c 24 e8 00 00 00 00 48 8b 7c 24 08 48 8b 77 08 48 2b 34 24 c3";
        for (text, range, cfa) in [
            (old, 8..39, "77 30 06 23 08 06 77 28 06 1c 23 08"),
            (new, 7..25, "77 08 06 23 08 06 77 00 06 1c 23 08"),
        ] {
            let byte = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
            let bytes = |text: &str| text.split_whitespace().map(byte).collect::<Vec<u8>>();
            let found = find(&bytes(text), Vaddr(0x1000)).unwrap();
            let start = Vaddr(0x1000 + range.start);
            assert_eq!(found.range, start..Vaddr(0x1000 + range.end));
            assert_eq!(found.cfa, bytes(cfa));
        }
    }
}
