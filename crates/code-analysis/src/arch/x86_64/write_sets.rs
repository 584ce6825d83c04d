//! Write sets: registers and memory that generic opcodes write.
//!
//! A query of the decoder library takes as long as a decode. Its answer depends only on the opcode
//! if the operands contain no register that the instruction also uses implicitly. So each opcode is
//! queried once.

use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::operands::{
    compute_memory, immediate, load, load_vector, overwrite, overwrite_perhaps, size, store_vector,
};
use super::{RAX, RBX, RCX, RDI, RDX, RSI, bit, number};
use crate::op::{Op, bits};
use crate::state::SCRATCH;

/// The write set of an opcode.
#[derive(Debug, Clone, Copy)]
struct WriteSet {
    /// Registers that are not operands.
    implicit: u32,
    /// Bit n: operand n is written.
    operands: u8,
    /// Bit n: operand n is read.
    read: u8,
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
        let mut results = Results {
            clobbered: u64::from(effect.implicit) | unlisted_writes(insn),
            ..Results::default()
        };
        let mut memory = None;
        for operand in 0..insn.op_count() {
            let is = |operands: u8| operands & (1 << operand) != 0;
            let access = OperandAccess {
                is_written: is(effect.operands),
                is_read: is(effect.read),
                is_conditional: is(effect.conditional),
            };
            match insn.op_kind(operand) {
                OpKind::Register => results.add(insn, insn.op_register(operand), access),
                OpKind::Memory => memory = Some(access),
                _ => {}
            }
        }
        if is_lossy(insn) {
            results.sources = 0;
        } else if is_wide_multiplication(insn) {
            // One factor may be 1.
            results.clobbered &= !(bit(RAX) | bit(RDX));
            results.computed = 1 << RAX | 1 << RDX;
            results.sources |= 1 << RAX;
        } else if insn.mnemonic() == Mnemonic::Mulx {
            results.sources |= 1 << RDX;
        }
        match memory {
            Some(access) if access.is_written => results.store(insn, access, ops),
            Some(_) if results.has_vector => load_vector(insn, ops),
            Some(access) if access.is_read && results.computed != 0 && size(insn) == 8 => {
                load(insn, SCRATCH, ops);
                results.sources |= 1 << SCRATCH;
            }
            _ => {}
        }
        results.finish(insn, ops);
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
        // By the signs of another operand, or on processors with shadow stacks only.
        let is_masked = matches!(
            insn.mnemonic(),
            Mnemonic::Vmaskmovps
                | Mnemonic::Vmaskmovpd
                | Mnemonic::Vpmaskmovd
                | Mnemonic::Vpmaskmovq
                | Mnemonic::Rdsspd
                | Mnemonic::Rdsspq
        );
        let is_perhaps = |access| matches!(access, OpAccess::CondWrite | OpAccess::ReadCondWrite);
        let is_read = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let (mut operands, mut read, mut perhaps) = (0, 0, 0);
        for operand in 0..insn.op_count() {
            let access = info.op_access(operand);
            operands |= u8::from(is_written(access)) << operand;
            read |= u8::from(is_read(access)) << operand;
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
            read,
            conditional: perhaps,
        }
    }
}

/// How an instruction accesses an operand.
#[derive(Debug, Clone, Copy)]
struct OperandAccess {
    is_written: bool,
    is_read: bool,
    is_conditional: bool,
}

/// Registers that an instruction writes, by what may be in them then.
#[derive(Debug, Default)]
struct Results {
    /// Something else. The low half of a register is, since the upper half is cleared.
    clobbered: u64,
    /// The value of a source, perhaps.
    computed: u32,
    /// Registers whose values may stay or move.
    sources: u32,
    /// Whether an operand is a vector register.
    has_vector: bool,
}

impl Results {
    fn add(&mut self, insn: &Instruction, register: Register, access: OperandAccess) {
        self.has_vector |= register.is_vector_register();
        let Some(number) = number(register) else {
            return;
        };
        let is_whole = register.is_gpr64();
        // The rest of the register stays, and its part may be put back.
        let is_part = !is_whole && !register.is_gpr32() && !is_new_part(insn);
        let stays = is_part || access.is_conditional;
        if access.is_written && (is_whole || stays) {
            self.computed |= 1 << number;
        } else if access.is_written {
            self.clobbered |= bit(number);
        }
        if access.is_written && stays || access.is_read && is_whole {
            self.sources |= 1 << number;
        }
    }

    /// Lifts the store to the memory operand.
    fn store(&mut self, insn: &Instruction, access: OperandAccess, ops: &mut Vec<Op>) {
        if access.is_conditional || insn.op_mask() != Register::None {
            overwrite_perhaps(insn, ops);
        } else if self.has_vector {
            store_vector(insn, ops);
        } else if is_lossy(insn) || !access.is_read && self.sources == 0 {
            overwrite(insn, ops);
        } else {
            compute_memory(insn, self.sources, access.is_read, ops);
        }
    }

    fn finish(self, insn: &Instruction, ops: &mut Vec<Op>) {
        let mut clobbered = self.clobbered;
        if self.sources == 0 {
            clobbered |= u64::from(self.computed);
        } else if self.computed != 0 {
            ops.push(Op::Compute {
                to: self.computed,
                from: self.sources,
            });
        }
        let is_kept_elsewhere =
            self.has_vector || matches!(insn.mnemonic(), Mnemonic::Wrfsbase | Mnemonic::Wrgsbase);
        if is_kept_elsewhere && self.computed == 0 {
            ops.extend(bits(self.sources.into()).map(|from| Op::Escape { from }));
        }
        if clobbered != 0 {
            ops.push(Op::Clobber {
                registers: clobbered,
            });
        }
    }
}

/// Whether an instruction that writes a part of a register puts something new there.
fn is_new_part(insn: &Instruction) -> bool {
    let is_set = insn.op_count() == 1 && !insn.is_stack_instruction();
    let is_set = is_set && insn.condition_code() != ConditionCode::None;
    is_set || is_lossy(insn) || insn.mnemonic() == Mnemonic::Mov && immediate(insn, 1).is_some()
}

/// Whether `rdx` and `rax` get the product of `rax` and a factor of 64 bits.
fn is_wide_multiplication(insn: &Instruction) -> bool {
    let is_whole = match insn.op0_kind() {
        OpKind::Register => insn.op0_register().is_gpr64(),
        _ => size(insn) == 8,
    };
    matches!(insn.mnemonic(), Mnemonic::Mul | Mnemonic::Imul) && insn.op_count() == 1 && is_whole
}

/// Whether nothing of an instruction's operands is left in its results, except by chance.
fn is_lossy(insn: &Instruction) -> bool {
    let is_same = insn.op0_register() == insn.op1_register();
    // With the number, all is left.
    let is_other = |number: i64| {
        let bytes = match insn.op0_kind() {
            OpKind::Register => insn.op0_register().size(),
            _ => insn.memory_size().size(),
        };
        let unused = 64_usize.saturating_sub(8 * bytes).min(63);
        let low = |number: i64| number.cast_unsigned() << unused;
        immediate(insn, 1).is_some_and(|own| low(own) != low(number))
    };
    match insn.mnemonic() {
        Mnemonic::And => is_other(-1),
        Mnemonic::Or | Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar => is_other(0),
        Mnemonic::Bts | Mnemonic::Btr => immediate(insn, 1).is_some(),
        Mnemonic::Sbb => insn.op0_kind() == insn.op1_kind() && is_same,
        _ => false,
    }
}

/// Registers that are written and that the decoder library does not list.
fn unlisted_writes(insn: &Instruction) -> u64 {
    match insn.mnemonic() {
        // Results of its leaf functions (Intel SDM, volume 2, GETSEC).
        Mnemonic::Getsec | Mnemonic::Getsecq => bit(RAX) | bit(RBX) | bit(RCX),
        // Processors without user interrupts have RDPKRU there, and ignore the prefix.
        Mnemonic::Clui => bit(RAX) | bit(RDX),
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
