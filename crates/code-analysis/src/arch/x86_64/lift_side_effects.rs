//! Moves of the low four or eight bytes of SSE and AVX `xmm` registers are exact; all other writes
//! to one invalidate it. A write to a `ymm` or `zmm` register counts as one to its low end, an
//! `xmm` register.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

use super::lift::{OpcodeClass, lift_by_class};
use super::operands::{MemoryOperand, memory};
use super::{RCX, RDI, bit, number};
use crate::op::Op;
use crate::side_effects::SideEffect;

/// DWARF number of xmm0 (psABI, "DWARF Register Number Mapping"); the next fifteen follow.
const XMM0: u8 = 17;

/// Number of vector registers with consecutive DWARF numbers.
const COUNT: usize = 16;

/// Decodes instructions, and lifts their side effects.
pub(crate) struct SideEffectLifter {
    factory: InstructionInfoFactory,
    /// Operations of [`lift_by_class`], which are reported elsewhere.
    lifted_ops: Vec<Op>,
}

impl core::fmt::Debug for SideEffectLifter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SideEffectLifter").finish_non_exhaustive()
    }
}

impl Default for SideEffectLifter {
    fn default() -> Self {
        SideEffectLifter {
            factory: InstructionInfoFactory::new(),
            lifted_ops: Vec::new(),
        }
    }
}

impl SideEffectLifter {
    /// Lifts the side effects of the first instruction of some bytes.
    pub(crate) fn lift(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<SideEffect>) {
        let insn = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if insn.is_invalid() || insn.flow_control() != FlowControl::Next {
            return;
        }
        self.lift_escapes(&insn, ops);
        self.store(&insn, ops);
        if stops_midway(&insn) {
            ops.push(SideEffect::Interruptible);
        }
        if !may_be_vector(bytes) {
            return;
        }
        let is_masked = insn.op_mask() != Register::None;
        if is_masked || !lift_move(&insn, ops) {
            self.clobber(&insn, ops);
        }
    }

    /// Lifts escapes: registers that an instruction reads without exact operations.
    fn lift_escapes(&mut self, insn: &Instruction, ops: &mut Vec<SideEffect>) {
        self.lifted_ops.clear();
        let kind = OpcodeClass::from_opcode(insn.code());
        let is_listed = matches!(
            kind,
            OpcodeClass::BitStore
                | OpcodeClass::StringStore
                | OpcodeClass::CompareExchange
                | OpcodeClass::ConditionalMove
                | OpcodeClass::ExchangeAdd
        );
        if !is_listed && lift_by_class(kind, insn, &mut self.lifted_ops) {
            return;
        }
        let info = self.factory.info(insn);
        let is_read = |operand: &u32| {
            !matches!(
                info.op_access(*operand),
                OpAccess::None | OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess
            )
        };
        let operands = (0..insn.op_count()).filter(is_read);
        let registers = operands.filter(|operand| insn.op_kind(*operand) == OpKind::Register);
        let registers = registers.filter_map(|operand| number(insn.op_register(operand)));
        let registers = registers.fold(0, |all, register| all | bit(register));
        if registers != 0 {
            ops.push(SideEffect::Escape { registers });
        }
    }

    /// Lifts memory writes to other addresses than a register plus a displacement.
    fn store(&mut self, insn: &Instruction, ops: &mut Vec<SideEffect>) {
        let is_written = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        let is_implicit = matches!(
            insn.op0_kind(),
            OpKind::MemoryESRDI
                | OpKind::MemoryESEDI
                | OpKind::MemoryESDI
                | OpKind::MemorySegRDI
                | OpKind::MemorySegEDI
                | OpKind::MemorySegDI
        );
        let access = self.factory.info(insn).op0_access();
        if !is_written(access) {
            return;
        }
        if is_implicit {
            ops.push(SideEffect::StoreString {
                base: RDI,
                bytes: u8::try_from(insn.memory_size().size()).unwrap_or(u8::MAX),
                count: is_repeated(insn).then_some(RCX),
            });
            return;
        }
        if insn.op0_kind() != OpKind::Memory {
            return;
        }
        let is_bit = matches!(
            insn.mnemonic(),
            Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        ) && insn.op1_kind() == OpKind::Register;
        match memory(insn) {
            MemoryOperand::Simple { base, .. } if is_bit => {
                ops.push(SideEffect::StoreUnbounded { base });
            }
            MemoryOperand::Simple { .. }
            | MemoryOperand::Scattered { .. }
            | MemoryOperand::Entry { base: Some(_), .. } => {}
            MemoryOperand::Entry { base: None, .. } | MemoryOperand::Other => {
                ops.push(SideEffect::StoreElsewhere);
            }
        }
    }

    /// Lifts registers that an instruction writes, or may write.
    fn clobber(&mut self, insn: &Instruction, ops: &mut Vec<SideEffect>) {
        // It clears everything above the low 16 bytes.
        if insn.is_invalid() || insn.mnemonic() == Mnemonic::Vzeroupper {
            return;
        }
        let info = self.factory.info(insn);
        let written = info.used_registers().iter().filter(|used| {
            !matches!(
                used.access(),
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            )
        });
        let registers = written.filter_map(|used| vector(used.register()));
        let registers = registers.fold(0, |all, register| all | bit(register));
        if registers != 0 {
            ops.push(SideEffect::Clobber { registers });
        }
    }
}

/// Whether a string instruction is repeated.
fn is_repeated(insn: &Instruction) -> bool {
    insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
}

/// Whether an instruction may be interrupted midway: a repeated string instruction (Intel SDM,
/// volume 2, REP), and gathers or scatters (VPGATHERDD).
fn stops_midway(insn: &Instruction) -> bool {
    is_repeated(insn) || insn.is_vsib()
}

/// Whether bytes begin an instruction that may use vector registers: a two-byte opcode, or a VEX,
/// EVEX or XOP prefix.
fn may_be_vector(bytes: &[u8]) -> bool {
    let is_prefix = |byte: &&u8| {
        matches!(
            byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
        )
    };
    let opcode = bytes.iter().find(|byte| !is_prefix(byte));
    matches!(opcode, Some(0x0f | 0xc4 | 0xc5 | 0x62 | 0x8f))
}

/// The DWARF number of a vector register, or of the `xmm` register that is its low end.
fn vector(register: Register) -> Option<u8> {
    if !register.is_vector_register() {
        return None;
    }
    let index = register.number();
    let index = u8::try_from(index).ok().filter(|_| index < COUNT)?;
    Some(XMM0 + index)
}

/// Lifts a move of the low bytes. Returns whether the instruction is one.
fn lift_move(insn: &Instruction, ops: &mut Vec<SideEffect>) -> bool {
    use Mnemonic as M;
    let bits = match insn.mnemonic() {
        M::Movaps
        | M::Movapd
        | M::Movups
        | M::Movupd
        | M::Movdqa
        | M::Movdqu
        | M::Lddqu
        | M::Movsd
        | M::Movq
        // The low eight bytes, from or to memory.
        | M::Movlps
        | M::Movlpd
        | M::Vmovaps
        | M::Vmovapd
        | M::Vmovups
        | M::Vmovupd
        | M::Vmovdqa
        | M::Vmovdqu
        | M::Vlddqu
        | M::Vmovsd
        | M::Vmovq => 64,
        M::Movss | M::Vmovss | M::Movd | M::Vmovd => 32,
        M::Pxor | M::Xorps | M::Xorpd | M::Vpxor | M::Vxorps | M::Vxorpd => {
            return lift_zero(insn, ops);
        }
        _ => return false,
    };
    lift_low_bits(insn, bits, ops)
}

/// Lifts an exclusive or with itself as zero. Returns whether the instruction is one.
fn lift_zero(insn: &Instruction, ops: &mut Vec<SideEffect>) -> bool {
    let last = insn.op_count().saturating_sub(1);
    let (a, b) = (
        insn.op_register(last.saturating_sub(1)),
        insn.op_register(last),
    );
    let is_register = insn.op_kind(last) == OpKind::Register;
    match vector(insn.op0_register()) {
        Some(to) if is_register && a == b => {
            ops.push(SideEffect::Zero { to });
            true
        }
        _ => false,
    }
}

fn lift_low_bits(insn: &Instruction, bits: u8, ops: &mut Vec<SideEffect>) -> bool {
    let last = insn.op_count().saturating_sub(1);
    let bytes = bits / 8;
    match (insn.op0_kind(), insn.op_kind(last)) {
        (OpKind::Register, OpKind::Register) => {
            // With three registers, the last has the low bytes.
            let (to, from) = (insn.op0_register(), insn.op_register(last));
            let any = |register| vector(register).or_else(|| number(register));
            let (Some(to), Some(from)) = (any(to), any(from)) else {
                return false;
            };
            let is_single = matches!(insn.mnemonic(), Mnemonic::Movss | Mnemonic::Vmovss);
            ops.push(if is_single {
                SideEffect::Insert { to, from }
            } else {
                SideEffect::Copy { to, from, bits }
            });
        }
        (OpKind::Register, OpKind::Memory) => {
            let Some(to) = vector(insn.op0_register()) else {
                // Eight or four bytes into a general register are not a vector move.
                return false;
            };
            if insn.is_ip_rel_memory_operand() {
                let address = insn.ip_rel_memory_address();
                ops.push(SideEffect::LoadConstant { to, address, bytes });
                return true;
            }
            match memory(insn) {
                MemoryOperand::Simple { base, offset } => ops.push(SideEffect::Load {
                    to,
                    base,
                    offset,
                    bytes,
                }),
                _ => return false,
            }
        }
        (OpKind::Memory, OpKind::Register) => {
            if let (Some(from), MemoryOperand::Simple { base, offset }) =
                (vector(insn.op_register(last)), memory(insn))
            {
                ops.push(SideEffect::Store {
                    base,
                    offset,
                    from,
                    bytes,
                });
            }
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(bytes: &[u8]) -> Vec<SideEffect> {
        let mut ops = Vec::new();
        SideEffectLifter::default().lift(bytes, 0x1000, &mut ops);
        ops
    }

    /// Bytes from binutils, assembled from the lines above them.
    #[test]
    fn moves_are_classified() {
        let (xmm0, xmm1, xmm2, xmm9) = (17, 18, 19, 26);
        let copy = |to, from, bits| SideEffect::Copy { to, from, bits };
        let cases: [(&[u8], SideEffect); 11] = [
            // movsd %xmm0,0x8(%rsp)
            (
                &[0xf2, 0x0f, 0x11, 0x44, 0x24, 0x08],
                SideEffect::Store {
                    base: 7,
                    offset: 8,
                    from: xmm0,
                    bytes: 8,
                },
            ),
            // movss %xmm9,-0x14(%rbp)
            (
                &[0xf3, 0x44, 0x0f, 0x11, 0x4d, 0xec],
                SideEffect::Store {
                    base: 6,
                    offset: -0x14,
                    from: xmm9,
                    bytes: 4,
                },
            ),
            // vmovapd 0x10(%rsp),%ymm2
            (
                &[0xc5, 0xfd, 0x28, 0x54, 0x24, 0x10],
                SideEffect::Load {
                    to: xmm2,
                    base: 7,
                    offset: 0x10,
                    bytes: 8,
                },
            ),
            // movss 0x10(%rip),%xmm1
            (
                &[0xf3, 0x0f, 0x10, 0x0d, 0x10, 0, 0, 0],
                SideEffect::LoadConstant {
                    to: xmm1,
                    address: 0x1018,
                    bytes: 4,
                },
            ),
            // movapd %xmm0,%xmm1
            (&[0x66, 0x0f, 0x28, 0xc8], copy(xmm1, xmm0, 64)),
            // movq %xmm0,%rax
            (&[0x66, 0x48, 0x0f, 0x7e, 0xc0], copy(0, xmm0, 64)),
            // movd %edi,%xmm2
            (&[0x66, 0x0f, 0x6e, 0xd7], copy(xmm2, 5, 32)),
            // vmovsd %xmm2,%xmm1,%xmm0
            (&[0xc5, 0xf3, 0x10, 0xc2], copy(xmm0, xmm2, 64)),
            // movss %xmm1,%xmm0
            (
                &[0xf3, 0x0f, 0x10, 0xc1],
                SideEffect::Insert {
                    to: xmm0,
                    from: xmm1,
                },
            ),
            // vxorps %xmm1,%xmm1,%xmm1
            (&[0xc5, 0xf0, 0x57, 0xc9], SideEffect::Zero { to: xmm1 }),
            // addsd %xmm1,%xmm0
            (
                &[0xf2, 0x0f, 0x58, 0xc1],
                SideEffect::Clobber { registers: 1 << 17 },
            ),
        ];
        for (bytes, expected) in cases {
            let mut effects = ops(bytes);
            effects.retain(|effect| !matches!(effect, SideEffect::Escape { .. }));
            assert_eq!(effects, [expected], "{bytes:02x?}");
        }
    }

    /// Bytes from binutils, assembled from the lines above them.
    #[test]
    fn implicit_writes_are_lifted() {
        let string = |bytes, count| SideEffect::StoreString {
            base: RDI,
            bytes,
            count,
        };
        let take = |registers| SideEffect::Escape { registers };
        let cases: [(&[u8], &[SideEffect]); 10] = [
            // rep stos %rax,%es:(%rdi)
            (
                &[0xf3, 0x48, 0xab],
                &[take(1), string(8, Some(RCX)), SideEffect::Interruptible],
            ),
            // movsb %ds:(%rsi),%es:(%rdi)
            (&[0xa4], &[string(1, None)]),
            // repz cmpsb %es:(%rdi),%ds:(%rsi)
            (&[0xf3, 0xa6], &[SideEffect::Interruptible]),
            // maskmovdqu %xmm1,%xmm0
            (&[0x66, 0x0f, 0xf7, 0xc1], &[string(16, None)]),
            // btc %eax,(%rsp)
            (
                &[0x0f, 0xbb, 0x04, 0x24],
                &[take(1), SideEffect::StoreUnbounded { base: 7 }],
            ),
            // mov %rax,%fs:0x10
            (
                &[0x64, 0x48, 0x89, 0x04, 0x25, 0x10, 0, 0, 0],
                &[SideEffect::StoreElsewhere],
            ),
            // movq %rsp,%xmm0
            (
                &[0x66, 0x48, 0x0f, 0x6e, 0xc4],
                &[
                    take(1 << 7),
                    SideEffect::Copy {
                        to: 17,
                        from: 7,
                        bits: 64,
                    },
                ],
            ),
            // cmovne %rsp,%rax
            (&[0x48, 0x0f, 0x45, 0xc4], &[take(1 << 7)]),
            // mov %rsp,%rax: the analysis tracks it
            (&[0x48, 0x89, 0xe0], &[]),
            // cmp %rsp,%rax
            (&[0x48, 0x39, 0xe0], &[]),
        ];
        for (bytes, expected) in cases {
            assert_eq!(ops(bytes), expected, "{bytes:02x?}");
        }
    }

    #[test]
    fn unknown_moves_clobber_their_target() {
        // movsd (%rdi,%rsi,8),%xmm0; movsd %fs:0x0,%xmm0; pxor %xmm1,%xmm0
        for bytes in [
            &[0xf2, 0x0f, 0x10, 0x04, 0xf7][..],
            &[0x64, 0xf2, 0x0f, 0x10, 0x04, 0x25, 0, 0, 0, 0],
            &[0x66, 0x0f, 0xef, 0xc1],
        ] {
            let lost = SideEffect::Clobber { registers: 1 << 17 };
            assert_eq!(ops(bytes), [lost], "{bytes:02x?}");
        }
        // mov %rsp,%rbp; vzeroupper; pop %rbx; cut short
        for bytes in [
            &[0x48, 0x89, 0xe5][..],
            &[0xc5, 0xf8, 0x77],
            &[0x5b],
            &[0xf2, 0x0f],
        ] {
            assert_eq!(ops(bytes), [], "{bytes:02x?}");
        }
    }
}
