//! Reading an arena, and searching in it.
//!
//! Addresses in an arena are numbers. They are converted to pointers for each access.

use unspool_bpf::Assembler;
use unspool_bpf::insn::{AluOp, Cond, Reg, Size};

use AluOp::{Add, And, Arsh, Mul, Rsh, Sub};
use Cond::Eq;
use Reg::{R1, R2, R4, R5};

/// `dst = *(size *)(address + off)`, for an address in the arena.
pub(crate) fn read(asm: &mut Assembler<'_>, size: Size, dst: Reg, address: Reg, off: i16) {
    asm.cast_kern(dst, address);
    asm.ldx(size, dst, dst, off);
}

/// Searches `R5` ascending numbers at the address `R1`, with `stride` bytes from each to the next.
/// `R1` becomes the address of the first one above `limit`. Clobbers `R2`, `R4` and `R5`.
///
/// No branch depends on the numbers, since processors cannot predict it.
pub(crate) fn upper_bound(asm: &mut Assembler<'_>, size: Size, stride: i32, limit: Reg) {
    let (last, done) = (asm.new_label(), asm.new_label());
    // `flag = -1` if the number at the address `flag` is at most the limit, else 0.
    let is_at_most = |asm: &mut Assembler<'_>, flag: Reg| {
        read(asm, size, flag, flag, 0);
        asm.alu64(Sub, flag, limit);
        asm.alu64(Sub, flag, 1);
        asm.alu64(Arsh, flag, 63);
    };
    asm.jmp(Eq, R5, 0, done);
    let again = asm.bind_new_label();
    asm.may_goto(done);
    asm.mov64(R4, R5);
    asm.alu64(Rsh, R4, 1);
    asm.jmp(Eq, R4, 0, last);
    asm.alu64(Sub, R5, R4);
    asm.alu64(Mul, R4, stride);
    asm.mov64(R2, R1);
    asm.alu64(Add, R2, R4);
    asm.alu64(Sub, R2, stride);
    is_at_most(asm, R2);
    asm.alu64(And, R4, R2);
    asm.alu64(Add, R1, R4);
    asm.ja(again);
    asm.bind(last);
    asm.mov64(R2, R1);
    is_at_most(asm, R2);
    asm.alu64(And, R2, stride);
    asm.alu64(Add, R1, R2);
    asm.bind(done);
}
