//! Effects of the most frequent instructions on a [`VerifierState`], from their bytes.
//!
//! Most instructions change registers without a rule, and a full decode takes several times as long
//! as seeing that. The answers here have the same effect on all verifier states as those of
//! `lift.rs` and `write_sets.rs`; a test compares them. Everything else is left to these.

use super::fast_decode::X86FastInsn;
use super::lift::move_stack_pointer;
use super::{DWARF, RAX, RSP, bit};
use crate::op::Op;
use crate::verifier::state::{RegisterContents, VerifierState};

/// Preconditions for an instruction to preserve a verifier state, by opcode.
mod precondition {
    /// The opcode is supported here.
    pub(super) const SUPPORTED: u8 = 1;
    /// The register beside the operand must have unknown contents.
    pub(super) const REGISTER: u8 = 2;
    /// The same for the operand, if it is a register.
    pub(super) const OPERAND: u8 = 4;
    /// The same for the register in the opcode.
    pub(super) const OPCODE: u8 = 8;
    /// The operand must not be on the stack, if it is in memory.
    pub(super) const MEMORY: u8 = 16;
    /// The operand must not be on the stack, if the register beside it is one that calls preserve.
    pub(super) const RESTORES: u8 = 32;
    /// Registers have one byte.
    pub(super) const BYTE: u8 = 64;
}

/// Preconditions of an opcode, by its index: one-byte opcodes, then those behind 0x0f. One-byte
/// opcodes that are not listed are unsupported. Those behind 0x0f are `SUPPORTED`: `FastDecoder`
/// only admits opcodes that this is right for.
pub(super) fn preconditions_of(place: usize) -> u8 {
    use precondition::{BYTE, MEMORY, OPCODE, OPERAND, REGISTER, RESTORES, SUPPORTED};
    const OF_OPERAND: u8 = SUPPORTED | OPERAND | MEMORY;
    let byte = if place & 1 == 0 { BYTE } else { 0 };
    match place {
        // The eight arithmetic opcodes; the last only compares.
        0x38..=0x3d | 0x84 | 0x85 | 0xa8 | 0xa9 => SUPPORTED,
        0x00..=0x3f if place & 7 < 2 => OF_OPERAND | byte,
        0x00..=0x3f if place & 7 < 4 => SUPPORTED | REGISTER | byte,
        0x8a => SUPPORTED | REGISTER | BYTE,
        0x8b => SUPPORTED | REGISTER | OPERAND | RESTORES,
        0x8d => SUPPORTED | REGISTER | MEMORY,
        0x89 => OF_OPERAND | REGISTER,
        0x80..=0x83 | 0x88 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 => OF_OPERAND | byte,
        0xb0..=0xb7 => SUPPORTED | OPCODE | BYTE,
        0xb8..=0xbf => SUPPORTED | OPCODE,
        // `movsxd`, `imul`, `cmov`, `movzx`, `movsx`
        0x63 | 0x69 | 0x6b | 0x140..=0x14f | 0x1af | 0x1b6 | 0x1b7 | 0x1be | 0x1bf => {
            SUPPORTED | REGISTER
        }
        0x190..=0x19f => OF_OPERAND | BYTE,
        // Vector stores.
        0x111 | 0x113 | 0x117 | 0x129 | 0x17f => SUPPORTED | MEMORY,
        // Jumps, and unsupported opcodes.
        0x180..=0x18f | ..0x100 => 0,
        // Vectors, and comparisons.
        _ => SUPPORTED,
    }
}

/// The opcode digit or register in ModRM.
fn digit(modrm: u8) -> u8 {
    modrm >> 3 & 7
}

/// Registers that calls preserve, by machine encoding: bit n stands for register n.
const PRESERVED: u16 = 0b1111_0000_0010_1000;

/// Address of a memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FastMemoryOperand {
    /// A register plus a displacement.
    Simple { base: u8, offset: i32 },
    /// The same plus a scaled index.
    Indexed {
        base: u8,
        index: u8,
        scale: u8,
        offset: i32,
    },
    /// The instruction's address plus a displacement.
    Relative,
}

/// A register by machine encoding.
fn register(number: u8) -> u8 {
    DWARF.get(usize::from(number & 15)).copied().unwrap_or(RAX)
}

impl X86FastInsn<'_> {
    fn is_wide(&self) -> bool {
        self.rex & 8 != 0
    }

    fn is_in_memory(&self) -> bool {
        self.modrm() < 0xc0
    }

    /// The register in ModRM beside the operand.
    fn reg(&self) -> u8 {
        digit(self.modrm()) | (self.rex & 4) << 1
    }

    /// The register that is the operand, its address's base, or in the opcode.
    fn rm(&self, low: u8) -> u8 {
        low & 7 | (self.rex & 1) << 3
    }

    fn operand(&self) -> u8 {
        self.rm(self.modrm())
    }

    /// The register that contains a byte register: without REX, four are second bytes.
    fn of_byte(&self, number: u8) -> u8 {
        match (self.rex, number) {
            (0, 4..8) => number - 4,
            _ => number,
        }
    }

    fn memory(&self) -> FastMemoryOperand {
        let modrm = self.modrm();
        let (mode, low) = (modrm >> 6, modrm & 7);
        if mode == 0 && low == 5 {
            return FastMemoryOperand::Relative;
        }
        let mut at = self.modrm_offset + 1;
        let mut base = self.rm(low);
        let mut times = None;
        if low == 4 {
            let sib = self.byte(at);
            times = self.index(sib).map(|index| (index, 1 << (sib >> 6)));
            base = self.rm(sib);
            at += 1;
        }
        let offset = match mode {
            0 => 0,
            1 => self.byte(at).cast_signed().into(),
            _ => self.number_at(at),
        };
        let base = register(base);
        match times {
            None => FastMemoryOperand::Simple { base, offset },
            Some((index, scale)) => FastMemoryOperand::Indexed {
                base,
                index,
                scale,
                offset,
            },
        }
    }

    /// The index register, if SIB has one.
    #[inline]
    fn index(&self, sib: u8) -> Option<u8> {
        const NONE: u8 = 4;
        let number = digit(sib) | (self.rex & 2) << 2;
        (number != NONE).then(|| register(number))
    }

    fn number_at(&self, at: usize) -> i32 {
        let bytes = self.window.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes))
    }

    /// The immediate at its end, of 1 or 4 bytes.
    fn number(&self, size: usize) -> i32 {
        let at = self.length - size;
        match size {
            1 => self.byte(at).cast_signed().into(),
            _ => self.number_at(at),
        }
    }

    /// Whether it certainly preserves `state` and falls through.
    #[must_use]
    #[inline(always)]
    pub(crate) fn preserves(&self, state: &VerifierState) -> bool {
        const COMPARE: u8 = 7;
        let mut needs = self.preconditions;
        let modrm = self.modrm();
        if !self.is_two_byte && self.opcode & 0xfc == 0x80 && digit(modrm) == COMPARE {
            needs = precondition::SUPPORTED;
        }
        let is = |what: u8| needs & what != 0;
        let is_lost = |number: u8| {
            let register = self.whole(number, is(precondition::BYTE));
            register != RSP && state.get(register) == RegisterContents::Other
        };
        let (reg, low) = (self.reg(), modrm & 7);
        let mut leaves = is(precondition::SUPPORTED);
        leaves &= !is(precondition::REGISTER) || is_lost(reg);
        leaves &= !is(precondition::OPCODE) || is_lost(self.rm(self.opcode));
        if needs & (precondition::OPERAND | precondition::MEMORY | precondition::RESTORES) == 0 {
            return leaves;
        }
        if modrm >= 0xc0 {
            return leaves && (!is(precondition::OPERAND) || is_lost(self.rm(low)));
        }
        let is_restored = is(precondition::RESTORES) && PRESERVED >> reg & 1 != 0;
        if !is(precondition::MEMORY) && !is_restored {
            return leaves;
        }
        let base = match low {
            4 => {
                let sib = self.byte(self.modrm_offset + 1);
                // An unknown stack pointer is still on the stack.
                let is_near =
                    |index| state.holds_stack_address(index) || register(self.rm(sib)) == RSP;
                leaves &= !self.index(sib).is_some_and(is_near);
                sib
            }
            // Relative to the instruction.
            5 if modrm < 0x40 => return leaves,
            _ => low,
        };
        leaves && !state.holds_stack_address(register(self.rm(base)))
    }

    /// Whether it is a no-operation, like padding.
    #[must_use]
    #[inline]
    pub(crate) fn is_nop(&self) -> bool {
        if !self.is_two_byte {
            self.opcode == 0x90 && self.rex & 1 == 0
        } else {
            self.opcode == 0x1f
        }
    }

    /// Emits the operations that act on verifier states. They may differ from those of
    /// [`super::X86Lifter::lift`]. Returns `false` if the instruction needs a full decode.
    #[inline(always)]
    pub(crate) fn emit_ops(&self, mut see: impl FnMut(Op)) -> bool {
        self.emit(&mut see).is_some()
    }

    /// Emits the operations; `None`, and no operations, if the instruction is not supported here.
    /// Control flow is [separate](X86FastInsn::flow).
    #[inline]
    fn emit(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        if !self.is_two_byte {
            self.emit_one_byte(see)
        } else {
            self.emit_two_byte(see)
        }
    }

    fn emit_one_byte(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        let is_byte = self.opcode & 1 == 0;
        match self.opcode {
            // The eight arithmetic opcodes, of which the last only compares; jumps.
            0x38..=0x3d | 0x84 | 0x85 | 0xa8 | 0xa9 | 0x70..=0x7f | 0xeb | 0xe8 | 0xe9 | 0xc3 => {}
            // With itself as operand, it may change nothing.
            0x08..=0x0b | 0x20..=0x23 if self.is_with_itself() => return None,
            0x00..=0x3f => match self.opcode & 7 {
                0 | 1 => self.change_operand(is_byte, see)?,
                2 | 3 => self.change_register(is_byte, see)?,
                5 if self.is_wide() => return None,
                _ => change(RAX, see)?,
            },
            0x50..=0x57 => {
                let from = register(self.rm(self.opcode));
                (from != RSP).then_some(())?;
                see(move_stack_pointer(-8));
                see(Op::Store {
                    base: RSP,
                    offset: 0,
                    from,
                });
            }
            0x58..=0x5f => {
                let to = register(self.rm(self.opcode));
                (to != RSP).then_some(())?;
                see(Op::Load {
                    to,
                    base: RSP,
                    offset: 0,
                });
                see(move_stack_pointer(8));
            }
            0x63 | 0x69 | 0x6b => self.change_register(false, see)?,
            0x80 | 0x81 | 0x83 => self.compute_with_number(see)?,
            0x88 => {
                if self.is_in_memory() {
                    self.store(1, see);
                } else {
                    self.change_operand(true, see)?;
                }
            }
            0x89 => {
                if self.is_in_memory() {
                    self.store_register(see)?;
                } else {
                    self.copy(self.operand(), self.reg(), see)?;
                }
            }
            0x8a => self.change_register(true, see)?,
            0x8b => {
                if self.is_in_memory() {
                    self.load(see)?;
                } else {
                    self.copy(self.reg(), self.operand(), see)?;
                }
            }
            0x8d => self.take_address(see)?,
            0x90 if self.rex & 1 == 0 => {}
            0x98 => change(RAX, see)?,
            0x99 => change(DWARF[2], see)?,
            0xb0..=0xb7 => change(register(self.of_byte(self.rm(self.opcode))), see)?,
            0xb8..=0xbf => change(register(self.rm(self.opcode)), see)?,
            0xc0 | 0xc1 | 0xd0..=0xd3 => self.change_operand(is_byte, see)?,
            0xc6 | 0xc7 => {
                if self.is_in_memory() {
                    self.store(if is_byte { 1 } else { self.size() }, see);
                } else {
                    self.change_operand(is_byte, see)?;
                }
            }
            0xf6 | 0xf7 => match digit(self.modrm()) {
                2 | 3 => self.change_operand(is_byte, see)?,
                _ => {
                    change(RAX, see)?;
                    if !is_byte {
                        change(DWARF[2], see)?;
                    }
                }
            },
            0xff if matches!(digit(self.modrm()), 2 | 4) => {}
            _ => return None,
        }
        Some(())
    }

    fn emit_two_byte(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        let vector = match (self.opcode, self.prefix) {
            (0x11, 0xf3) => 4,
            (0x11, 0xf2) | (0x13 | 0x17, _) | (0x7f, 0) => 8,
            (0x11 | 0x29 | 0x7f, _) => 16,
            _ => 0,
        };
        match self.opcode {
            _ if vector != 0 && self.is_in_memory() => self.store(vector, see),
            0x40..=0x4f | 0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf => self.change_register(false, see)?,
            0x90..=0x9f => self.change_operand(true, see)?,
            // Vectors, jumps, comparisons, no-operations.
            _ => {}
        }
        Some(())
    }

    fn is_with_itself(&self) -> bool {
        !self.is_in_memory() && self.reg() == self.operand()
    }

    /// Size in bytes of an operand that is not a byte.
    fn size(&self) -> u16 {
        match (self.is_wide(), self.prefix) {
            (true, _) => 8,
            (false, 0x66) => 2,
            (false, _) => 4,
        }
    }

    fn change_register(&self, is_byte: bool, see: &mut impl FnMut(Op)) -> Option<()> {
        change(self.whole(self.reg(), is_byte), see)
    }

    fn change_operand(&self, is_byte: bool, see: &mut impl FnMut(Op)) -> Option<()> {
        (!self.is_in_memory()).then_some(())?;
        change(self.whole(self.operand(), is_byte), see)
    }

    /// The register with this encoding, which may be a byte register's.
    fn whole(&self, number: u8, is_byte: bool) -> u8 {
        register(if is_byte {
            self.of_byte(number)
        } else {
            number
        })
    }

    /// Lifts one of the eight arithmetic opcodes with an immediate.
    fn compute_with_number(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        const ADD: u8 = 0;
        const SUBTRACT: u8 = 5;
        const COMPARE: u8 = 7;
        let digit = digit(self.modrm());
        if digit == COMPARE {
            return Some(());
        }
        let is_byte = self.opcode == 0x80;
        let number = self.number(if self.opcode == 0x81 { 4 } else { 1 });
        if is_byte || !self.is_wide() || !matches!(digit, ADD | SUBTRACT) {
            // Operations that change no bits are left to the decoder.
            let may_be_idle = matches!(number, 0 | -1);
            (!may_be_idle).then_some(())?;
            return self.change_operand(is_byte, see);
        }
        (!self.is_in_memory()).then_some(())?;
        let bytes = match digit {
            ADD => number,
            _ => number.checked_neg()?,
        };
        let to = register(self.operand());
        see(Op::Add {
            to,
            from: to,
            bytes,
        });
        Some(())
    }

    fn copy(&self, to: u8, from: u8, see: &mut impl FnMut(Op)) -> Option<()> {
        let (to, from) = (register(to), register(from));
        if self.is_wide() {
            see(Op::Add { to, from, bytes: 0 });
        } else {
            change(to, see)?;
        }
        Some(())
    }

    fn load(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        let to = register(self.reg());
        match self.memory() {
            FastMemoryOperand::Simple { base, offset } if self.is_wide() => {
                see(Op::Load { to, base, offset });
            }
            _ => change(to, see)?,
        }
        Some(())
    }

    fn take_address(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        let to = register(self.reg());
        match self.memory() {
            FastMemoryOperand::Simple { base, offset } if self.is_wide() => see(Op::Add {
                to,
                from: base,
                bytes: offset,
            }),
            _ => change(to, see)?,
        }
        Some(())
    }

    fn store_register(&self, see: &mut impl FnMut(Op)) -> Option<()> {
        match self.memory() {
            FastMemoryOperand::Simple { base, offset } if self.is_wide() => {
                let from = register(self.reg());
                see(Op::Store { base, offset, from });
            }
            // This saves a register by an index.
            FastMemoryOperand::Indexed { .. } if self.is_wide() => return None,
            _ => self.store(self.size(), see),
        }
        Some(())
    }

    /// Lifts a store of something else.
    fn store(&self, size: u16, see: &mut impl FnMut(Op)) {
        match self.memory() {
            FastMemoryOperand::Simple { base, offset } => see(Op::Overwrite { base, offset, size }),
            FastMemoryOperand::Indexed {
                base,
                index,
                scale,
                offset,
            } => {
                let mut near = |base, index| {
                    see(Op::OverwriteIndexed {
                        base,
                        index: Some(index),
                        scale,
                        offset,
                        size,
                    });
                };
                near(base, index);
                if scale == 1 {
                    near(index, base);
                }
            }
            FastMemoryOperand::Relative => {}
        }
    }
}

/// Lifts a register write; stack pointer changes are left to the decoder.
fn change(register: u8, see: &mut impl FnMut(Op)) -> Option<()> {
    (register != RSP).then_some(())?;
    see(Op::Clobber {
        registers: bit(register),
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::fast_decode::FastDecoder;
    use super::super::{SYSV_ABI, X86Lifter};
    use super::*;
    use crate::code::{InsnId, LiftedCode};

    const ADDRESS: u64 = 0x40_0000;

    /// Verifier states in which each register holds a stack address, or is saved somewhere.
    fn frames() -> Vec<VerifierState> {
        let mut frames = vec![VerifierState::entry(&SYSV_ABI)];
        for shift in 0..3_i16 {
            let mut frame = VerifierState::entry(&SYSV_ABI);
            for register in 0..16_u8 {
                if i16::from(register) % 3 == shift {
                    let at = -0x1000 - 16 * i16::from(register);
                    assert!(frame.set_register(register, RegisterContents::StackAddress(at)));
                }
            }
            frames.push(frame);
            for register in SYSV_ABI.preserved {
                let at = -0x1000 - 16 * i16::from(*register) + 0x34;
                assert!(frame.set_saved_at(*register, at));
            }
            frames.push(frame);
        }
        frames
    }

    /// Results of operations on verifier states.
    fn outcome(ops: &[Op], before: &[VerifierState]) -> Vec<Option<VerifierState>> {
        let apply = |state: &VerifierState| {
            let mut frame = *state;
            let is_complete = ops.iter().all(|op| frame.transfer(*op, &SYSV_ABI).is_ok());
            is_complete.then_some(frame)
        };
        before.iter().map(apply).collect()
    }

    #[test]
    fn preserved_registers_are_those_of_the_abi() {
        let preserved = (0..16).filter(|number| PRESERVED >> number & 1 != 0);
        let preserved: Vec<u8> = preserved.map(register).collect();
        assert_eq!(preserved, SYSV_ABI.preserved);
    }

    #[test]
    fn fast_transfer_agrees_with_the_lifter() {
        let lengths = FastDecoder::default();
        let frames = frames();
        let mut lifter = X86Lifter::default();
        let prefixes: [&[u8]; 4] = [&[], &[0x66], &[0xf2], &[0xf3]];
        let rexes: [&[u8]; 7] = [&[], &[0x40], &[0x48], &[0x49], &[0x4c], &[0x45], &[0x4f]];
        let escapes: [&[u8]; 2] = [&[], &[0x0f]];
        let tails = [[0x34, 0, 0, 0, 0x10, 0, 0, 0], [0; 8], [0xff; 8]];
        let (mut handled, mut left) = (0, 0);
        for (prefix, rex) in prefixes.iter().flat_map(|p| rexes.map(|rex| (p, rex))) {
            for (escape, opcode) in escapes.iter().flat_map(|e| (0..=255).map(move |o| (e, o))) {
                let sibs = [0x24, 0x25, 0x9d];
                let operands = (0..=255).flat_map(|modrm| sibs.map(|sib| (modrm, sib)));
                for ((modrm, sib), tail) in operands.flat_map(|o| tails.map(|tail| (o, tail))) {
                    // Without SIB, this byte is a displacement.
                    let opcode: &[u8] = &[opcode, modrm, sib];
                    let mut bytes = [*prefix, rex, escape, opcode].concat();
                    bytes.extend(tail);
                    bytes.resize(32, 0xc3);
                    let mut ops = Vec::new();
                    let Some(fast_insn) =
                        lengths.fast_decode(bytes.first_chunk().expect("it is as long"))
                    else {
                        continue;
                    };
                    let mut code = LiftedCode::default();
                    let insn = bytes.get(..fast_insn.length).expect("it is there");
                    lifter.lift(insn, ADDRESS, &mut code);
                    let expected = outcome(code.ops_of(InsnId(0)), &frames);
                    for (before, after) in frames.iter().zip(&expected) {
                        if fast_insn.preserves(before) {
                            let is_so = *after == Some(*before);
                            assert!(is_so && code.flow(InsnId(0)).is_none(), "{insn:x?}");
                            left += 1;
                        }
                    }
                    if fast_insn.emit(&mut |op| ops.push(op)).is_none() {
                        continue;
                    }
                    let is_so = outcome(&ops, &frames) == expected;
                    assert!(is_so, "{insn:x?}: {ops:?}, {:?}", code.ops_of(InsnId(0)));
                    handled += 1;
                }
            }
        }
        assert!(handled > 300_000 && left > 1_000_000, "{handled} {left}");
    }
}
