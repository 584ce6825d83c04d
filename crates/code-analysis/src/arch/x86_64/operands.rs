//! Operands, and memory reads and writes through them.

use iced_x86::{Instruction, OpKind, Register};

use super::{RAX, RDX, bit, number};
use crate::op::{Op, UNBOUNDED};
use crate::state::SCRATCH;

/// The register with the target of an indirect jump or call. A far one's is not known.
pub(super) fn target(insn: &Instruction, ops: &mut Vec<Op>) -> u8 {
    if insn.op0_kind() == OpKind::Register {
        return number(insn.op0_register()).unwrap_or(SCRATCH);
    }
    if insn.memory_size().size() == 8 {
        load(insn, SCRATCH, ops);
    } else {
        ops.push(Op::Clobber {
            registers: bit(SCRATCH),
        });
    }
    SCRATCH
}

/// Address of a memory operand.
pub(super) enum MemoryOperand {
    /// A register plus a displacement.
    Simple { base: u8, offset: i32 },
    /// A table entry, by index.
    Entry {
        base: Option<u8>,
        index: u8,
        scale: u32,
        offset: i32,
    },
    /// A register plus numbers from a vector register, each with the same number of bytes.
    Scattered { base: u8 },
    /// Something else: relative to a segment, or an address of 32 bits, for example.
    Other,
}

pub(super) fn memory(insn: &Instruction) -> MemoryOperand {
    let displacement = insn.memory_displacement64().cast_signed();
    let (base, index) = (insn.memory_base(), insn.memory_index());
    if insn.segment_prefix() == Register::FS || insn.segment_prefix() == Register::GS {
        return MemoryOperand::Other;
    }
    let Ok(offset) = i32::try_from(displacement) else {
        return MemoryOperand::Other;
    };
    let is_64 = |register: Register| register.is_gpr64();
    match (base, index) {
        (base, Register::None) if is_64(base) => {
            number(base).map_or(MemoryOperand::Other, |base| MemoryOperand::Simple {
                base,
                offset,
            })
        }
        (Register::None, index) if is_64(index) && insn.memory_index_scale() == 1 => number(index)
            .map_or(MemoryOperand::Other, |base| MemoryOperand::Simple {
                base,
                offset,
            }),
        (base, index) if is_64(index) && (is_64(base) || base == Register::None) => {
            let Some(index) = number(index) else {
                return MemoryOperand::Other;
            };
            MemoryOperand::Entry {
                base: number(base),
                index,
                scale: insn.memory_index_scale(),
                offset,
            }
        }
        (base, index) if is_64(base) && index.is_vector_register() => number(base)
            .map_or(MemoryOperand::Other, |base| MemoryOperand::Scattered {
                base,
            }),
        _ => MemoryOperand::Other,
    }
}

/// `to` is loaded from the 8-byte memory operand.
pub(super) fn load(insn: &Instruction, to: u8, ops: &mut Vec<Op>) {
    if insn.is_ip_rel_memory_operand() {
        let value = insn.ip_rel_memory_address();
        ops.extend([
            Op::Address { to, value },
            Op::Load {
                to,
                base: to,
                offset: 0,
            },
        ]);
        return;
    }
    let loaded = match memory(insn) {
        MemoryOperand::Simple { base, offset } => Op::Load { to, base, offset },
        MemoryOperand::Entry {
            base,
            index,
            scale: 8,
            offset,
        } => Op::LoadIndexed {
            to,
            base,
            index,
            size: 8,
            offset,
        },
        _ => {
            // At an address that is not tracked.
            ops.push(Op::Clobber {
                registers: bit(SCRATCH),
            });
            Op::Load {
                to,
                base: SCRATCH,
                offset: 0,
            }
        }
    };
    ops.push(loaded);
}

/// `to` is loaded from the 4-byte memory operand, sign-extended.
pub(super) fn load_distance(insn: &Instruction, to: u8, ops: &mut Vec<Op>) {
    ops.push(match memory(insn) {
        MemoryOperand::Entry {
            base,
            index,
            scale: 4,
            offset,
        } => Op::LoadIndexed {
            to,
            base,
            index,
            size: 4,
            offset,
        },
        MemoryOperand::Entry {
            base: Some(a),
            index: b,
            scale: 1,
            offset,
        } => Op::LoadSum { to, a, b, offset },
        MemoryOperand::Simple { base, offset } => Op::LoadLow {
            to,
            base,
            offset,
            size: 4,
        },
        _ => Op::Clobber { registers: bit(to) },
    });
}

/// Size of the memory operand in bytes; unbounded if the decoder library does not know it.
pub(super) fn size(insn: &Instruction) -> u16 {
    match insn.memory_size().size() {
        0 => UNBOUNDED,
        size => u16::try_from(size).unwrap_or(UNBOUNDED),
    }
}

/// The base, displacement and size of the memory operand, if it is that simple and the size is
/// bounded.
fn simple(insn: &Instruction) -> Option<(u8, i32, u16)> {
    let size = size(insn);
    if size == UNBOUNDED {
        return None;
    }
    match memory(insn) {
        MemoryOperand::Simple { base, offset } => Some((base, offset, size)),
        _ => None,
    }
}

/// Weak update of the memory operand.
pub(super) fn overwrite_perhaps(insn: &Instruction, ops: &mut Vec<Op>) {
    match simple(insn) {
        Some((base, offset, size)) => ops.push(Op::WeakOverwrite { base, offset, size }),
        None => overwrite(insn, ops),
    }
}

/// Weak update of the bits in the memory operand: a register has the bit's index, without a bound.
pub(super) fn overwrite_bits(insn: &Instruction, ops: &mut Vec<Op>) {
    match memory(insn) {
        MemoryOperand::Simple { base, .. } | MemoryOperand::Scattered { base } => {
            ops.push(Op::OverwriteUnbounded { base });
        }
        MemoryOperand::Entry { base, index, .. } => {
            let registers = base.into_iter().chain([index]);
            ops.extend(registers.map(|base| Op::OverwriteUnbounded { base }));
        }
        MemoryOperand::Other => {}
    }
}

/// Stores the processor's state to the memory operand.
pub(super) fn save_state(insn: &Instruction, ops: &mut Vec<Op>) {
    match memory(insn) {
        MemoryOperand::Simple { base, offset } => ops.push(Op::SaveState {
            base,
            offset,
            chosen: [RAX, RDX],
        }),
        _ => overwrite(insn, ops),
    }
}

/// Stores a vector register to the memory operand.
pub(super) fn store_vector(insn: &Instruction, ops: &mut Vec<Op>) {
    match simple(insn) {
        Some((base, offset, size)) => ops.push(Op::StoreUntracked { base, offset, size }),
        None => overwrite(insn, ops),
    }
}

/// Loads a vector register from the memory operand.
pub(super) fn load_vector(insn: &Instruction, ops: &mut Vec<Op>) {
    if let Some((base, offset, size)) = simple(insn) {
        ops.push(Op::EscapeMemory { base, offset, size });
    }
}

/// Strong update of the memory operand.
pub(super) fn overwrite(insn: &Instruction, ops: &mut Vec<Op>) {
    let size = size(insn);
    match memory(insn) {
        MemoryOperand::Simple { base, offset } => ops.push(match size {
            UNBOUNDED => Op::WeakOverwrite { base, offset, size },
            _ => Op::Overwrite { base, offset, size },
        }),
        MemoryOperand::Entry {
            base,
            index,
            scale,
            offset,
        } => {
            let scale = u8::try_from(scale).unwrap_or(1);
            let near = |base, index| Op::OverwriteIndexed {
                base,
                index,
                scale,
                offset,
                size,
            };
            ops.extend(base.map(|base| near(base, Some(index))));
            // Either of the two may have the address.
            if scale == 1 {
                ops.push(near(index, base));
            }
        }
        MemoryOperand::Scattered { base } => ops.push(Op::OverwriteIndexed {
            base,
            index: None,
            scale: 1,
            offset: 0,
            size: UNBOUNDED,
        }),
        MemoryOperand::Other => overwrite_elsewhere(insn, ops),
    }
}

/// Weak update of the memory operand, which is relative to a segment or has an address of 32 bits.
/// The segment may begin at 0, and the stack may be below 4 GiB.
fn overwrite_elsewhere(insn: &Instruction, ops: &mut Vec<Op>) {
    let registers = [insn.memory_base(), insn.memory_index()].map(number);
    for base in registers.into_iter().flatten() {
        ops.push(match registers {
            [Some(_), Some(_)] => Op::OverwriteIndexed {
                base,
                index: None,
                scale: 1,
                offset: 0,
                size: UNBOUNDED,
            },
            _ => Op::WeakOverwrite {
                base,
                offset: insn.memory_displacement32().cast_signed(),
                size: size(insn),
            },
        });
    }
}

/// The memory operand is computed from registers, and from its old value if that is `kept`.
pub(super) fn compute_memory(insn: &Instruction, from: u32, kept: bool, ops: &mut Vec<Op>) {
    match simple(insn) {
        Some((base, offset, 8)) => {
            if kept {
                let to = SCRATCH;
                ops.push(Op::Load { to, base, offset });
            }
            let to = 1 << SCRATCH;
            let from = if kept { from | to } else { from };
            let stored = Op::Store {
                base,
                offset,
                from: SCRATCH,
            };
            ops.extend([Op::Compute { to, from }, stored]);
        }
        _ if kept => overwrite_perhaps(insn, ops),
        _ => overwrite(insn, ops),
    }
}

/// Stores a register, or its low bytes, to the memory operand.
pub(super) fn store(insn: &Instruction, ops: &mut Vec<Op>) {
    let register = insn.op1_register();
    match (number(register), memory(insn)) {
        (Some(from), MemoryOperand::Simple { base, offset }) if register.is_gpr64() => {
            ops.push(Op::Store { base, offset, from });
        }
        (
            Some(from),
            MemoryOperand::Entry {
                base: Some(base),
                index,
                scale: 8,
                offset,
            },
        ) if register.is_gpr64() => ops.push(Op::StoreIndexed {
            base,
            index,
            offset,
            from,
        }),
        (Some(from), MemoryOperand::Simple { base, offset }) if is_low(register) => {
            let size = u8::try_from(register.size()).unwrap_or(u8::MAX);
            ops.push(Op::StoreLow {
                base,
                offset,
                from,
                size,
            });
        }
        (from, MemoryOperand::Other) if register.is_gpr64() => {
            ops.extend(from.map(|from| Op::Escape { from }));
            overwrite(insn, ops);
        }
        _ => overwrite(insn, ops),
    }
}

/// Whether a register is the low end of a 64-bit register. The second byte is not.
pub(super) fn is_low(register: Register) -> bool {
    let is_second = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    number(register).is_some() && !is_second
}

/// The number of the first operand, if it is a 64-bit register.
pub(super) fn whole_destination(insn: &Instruction) -> Option<u8> {
    let is_whole = insn.op0_kind() == OpKind::Register && insn.op0_register().is_gpr64();
    is_whole.then(|| number(insn.op0_register())).flatten()
}

/// The 64-bit register that is operand 1.
pub(super) fn whole_source(insn: &Instruction) -> Option<u8> {
    let is_whole = insn.op1_kind() == OpKind::Register && insn.op1_register().is_gpr64();
    is_whole.then(|| number(insn.op1_register())).flatten()
}

/// An immediate operand, sign-extended.
pub(super) fn immediate(insn: &Instruction, operand: u32) -> Option<i64> {
    insn.try_immediate(operand).ok().map(u64::cast_signed)
}
