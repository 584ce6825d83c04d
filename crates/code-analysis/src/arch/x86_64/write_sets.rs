//! Write sets: registers and memory that generic opcodes write.
//!
//! A query of the decoder library takes as long as a decode. Its answer depends only on the opcode
//! if the operands contain no register that the instruction also uses implicitly. So each opcode is
//! queried once.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::operands::{immediate, load_vector, overwrite, overwrite_perhaps, store_vector};
use super::{RAX, RBX, RCX, RDI, RSI, bit, number};
use crate::op::Op;

/// The write set of an opcode.
#[derive(Debug, Clone, Copy)]
struct WriteSet {
    /// Registers that are not operands.
    implicit: u32,
    /// Bit n: operand n is written.
    operands: u8,
    /// Bit n: operand n is conditionally written.
    conditional: u8,
}

/// Write sets of the opcodes seen so far.
pub(super) struct WriteSets {
    cache: Vec<Option<WriteSet>>,
    factory: InstructionInfoFactory,
}

impl core::fmt::Debug for WriteSets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("WriteSets").finish_non_exhaustive()
    }
}

impl Default for WriteSets {
    fn default() -> Self {
        WriteSets {
            cache: Vec::new(),
            factory: InstructionInfoFactory::new(),
        }
    }
}

impl WriteSets {
    /// Lifts an instruction by its write set.
    pub(super) fn lift(&mut self, insn: &Instruction, ops: &mut Vec<Op>) {
        if has_no_effect(insn) {
            return;
        }
        let effect = self.write_set(insn);
        let mut registers = u64::from(effect.implicit);
        let mut memory = None;
        let mut is_vector = false;
        for operand in 0..insn.op_count() {
            let is_written = effect.operands & (1 << operand) != 0;
            match insn.op_kind(operand) {
                OpKind::Register => {
                    let register = insn.op_register(operand);
                    is_vector |= register.is_vector_register();
                    if is_written {
                        registers |= number(register).map_or(0, bit);
                    }
                }
                OpKind::Memory => {
                    let is_certain = effect.conditional & (1 << operand) == 0;
                    memory = Some((is_written, is_certain && insn.op_mask() == Register::None));
                }
                _ => {}
            }
        }
        match memory {
            Some((true, false)) => overwrite_perhaps(insn, ops),
            Some((true, true)) if is_vector => store_vector(insn, ops),
            Some((true, true)) => overwrite(insn, ops),
            Some((false, _)) if is_vector => load_vector(insn, ops),
            _ => {}
        }
        registers |= unlisted_writes(insn);
        if registers != 0 {
            ops.push(Op::Clobber { registers });
        }
    }

    fn write_set(&mut self, insn: &Instruction) -> WriteSet {
        let opcode = insn.code() as usize;
        if let Some(Some(effect)) = self.cache.get(opcode) {
            return *effect;
        }
        let effect = self.query_library(insn);
        if self.cache.len() <= opcode {
            self.cache.resize(opcode + 1, None);
        }
        if let Some(known) = self.cache.get_mut(opcode) {
            *known = Some(effect);
        }
        effect
    }

    fn query_library(&mut self, insn: &Instruction) -> WriteSet {
        let mut plain = *insn;
        // Registers that no instruction uses implicitly.
        const UNUSED: [[Register; 4]; 5] = [
            [
                Register::R12,
                Register::R12D,
                Register::R12W,
                Register::R12L,
            ],
            [
                Register::R13,
                Register::R13D,
                Register::R13W,
                Register::R13L,
            ],
            [
                Register::R14,
                Register::R14D,
                Register::R14W,
                Register::R14L,
            ],
            [
                Register::R15,
                Register::R15D,
                Register::R15W,
                Register::R15L,
            ],
            [
                Register::R10,
                Register::R10D,
                Register::R10W,
                Register::R10L,
            ],
        ];
        let mut used = 0;
        for (operand, names) in (0..insn.op_count()).zip(UNUSED) {
            let register = insn.op_register(operand);
            if insn.op_kind(operand) == OpKind::Register && register.is_gpr() {
                let [whole, half, quarter, byte] = names;
                let name = match register.size() {
                    8 => whole,
                    4 => half,
                    2 => quarter,
                    _ => byte,
                };
                plain.set_op_register(operand, name);
                used |= number(name).map_or(0, bit);
            }
        }
        if insn.is_string_instruction() {
            // With a repeat prefix, which not every instruction of the opcode has.
            plain.set_has_rep_prefix(true);
        }
        let info = self.factory.info(&plain);
        let is_written = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        // By the signs of another operand.
        let is_masked = matches!(
            insn.mnemonic(),
            Mnemonic::Vmaskmovps
                | Mnemonic::Vmaskmovpd
                | Mnemonic::Vpmaskmovd
                | Mnemonic::Vpmaskmovq
        );
        let is_perhaps = |access| matches!(access, OpAccess::CondWrite | OpAccess::ReadCondWrite);
        let (mut operands, mut perhaps) = (0, 0);
        for operand in 0..insn.op_count() {
            let access = info.op_access(operand);
            operands |= u8::from(is_written(access)) << operand;
            perhaps |= u8::from(is_masked || is_perhaps(access)) << operand;
        }
        let mut implicit = 0;
        for register in info.used_registers() {
            if is_written(register.access()) {
                implicit |= number(register.register()).map_or(0, bit);
            }
        }
        WriteSet {
            implicit: u32::try_from(implicit & !used).unwrap_or_default(),
            operands,
            conditional: perhaps,
        }
    }
}

/// Registers that are written and that the decoder library does not list.
fn unlisted_writes(insn: &Instruction) -> u64 {
    match insn.mnemonic() {
        // Results of its leaf functions (Intel SDM, volume 2, GETSEC).
        Mnemonic::Getsec | Mnemonic::Getsecq => bit(RAX) | bit(RBX) | bit(RCX),
        // The address behind the output (VIA PadLock Programming Guide).
        Mnemonic::Xsha1 | Mnemonic::Xsha256 | Mnemonic::Xsha512 | Mnemonic::Xsha512_alt => bit(RDI),
        Mnemonic::Montmul => bit(RSI),
        _ => 0,
    }
}

/// Whether an instruction only changes flags: fences and memory probes, for example.
fn has_no_effect(insn: &Instruction) -> bool {
    let number = || immediate(insn, 1);
    // Writing a 32-bit register clears its upper half.
    let is_left = match insn.op0_kind() {
        OpKind::Memory => true,
        OpKind::Register => insn.op0_register().is_gpr64(),
        _ => false,
    };
    let is_same =
        || insn.op1_kind() == OpKind::Register && insn.op0_register() == insn.op1_register();
    match insn.mnemonic() {
        Mnemonic::Or => is_left && (number() == Some(0) || is_same()),
        Mnemonic::And => is_left && (number() == Some(-1) || is_same()),
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xor => is_left && number() == Some(0),
        _ => false,
    }
}
