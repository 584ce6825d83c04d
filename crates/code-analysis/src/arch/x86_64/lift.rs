//! Exact operations of the mnemonics that move stack addresses, saved registers or addresses of
//! jump tables.

use std::sync::LazyLock;

use iced_x86::{Code as Opcode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::operands::{
    MemoryOperand, immediate, is_low, load, load_distance, memory, overwrite, overwrite_bits,
    overwrite_perhaps, save_state, size, store, whole_destination, whole_source,
};
use super::{RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, bit, number};
use crate::op::{FillContents, Op, UNBOUNDED};
use crate::state::SCRATCH;

/// How an opcode is lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpcodeClass {
    /// By its write set.
    Generic,
    /// By its control flow and its write set.
    ControlFlow,
    Move,
    Push,
    Pop,
    LoadAddress,
    AddSub,
    And,
    Xor,
    Exchange,
    ExchangeAdd,
    CompareExchange,
    ConditionalMove,
    Widen,
    SignExtend,
    VectorMove,
    StringStore,
    /// Another string instruction.
    StringLoad,
    /// A store to the address in a register, without a memory operand.
    PointerStore,
    /// A store to the address in a register, without any operand.
    ImplicitStore,
    /// A bit store: a register has the bit's index, if the operand is in memory.
    BitStore,
    /// A store of the processor's state, or of the components in a mask.
    SaveState,
    /// A store of matrix rows.
    TileStore,
    /// It sets the direction of string instructions.
    Direction,
    Leave,
    Enter,
    Compare,
    /// It writes flags, or marks a jump target.
    NoEffect,
    /// Padding between functions.
    Nop,
    /// It should not be reached, except in kernels.
    Halt,
}

impl OpcodeClass {
    pub(super) fn from_opcode(opcode: Opcode) -> OpcodeClass {
        if opcode.flow_control() != FlowControl::Next {
            return OpcodeClass::ControlFlow;
        }
        match opcode.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movnti | Mnemonic::Movdiri => OpcodeClass::Move,
            Mnemonic::Push => OpcodeClass::Push,
            Mnemonic::Pop => OpcodeClass::Pop,
            Mnemonic::Lea => OpcodeClass::LoadAddress,
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => OpcodeClass::AddSub,
            Mnemonic::And => OpcodeClass::And,
            Mnemonic::Xor => OpcodeClass::Xor,
            Mnemonic::Xchg => OpcodeClass::Exchange,
            Mnemonic::Xadd => OpcodeClass::ExchangeAdd,
            Mnemonic::Cmpxchg | Mnemonic::Cmpxchg16b => OpcodeClass::CompareExchange,
            Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Cmovne
            | Mnemonic::Cmovno
            | Mnemonic::Cmovnp
            | Mnemonic::Cmovns
            | Mnemonic::Cmovo
            | Mnemonic::Cmovp
            | Mnemonic::Cmovs => OpcodeClass::ConditionalMove,
            Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Cdqe => OpcodeClass::Widen,
            Mnemonic::Movsx => OpcodeClass::SignExtend,
            Mnemonic::Movq
            | Mnemonic::Vmovq
            | Mnemonic::Pextrq
            | Mnemonic::Vpextrq
            | Mnemonic::Pinsrq
            | Mnemonic::Vpinsrq
            | Mnemonic::Kmovq
            | Mnemonic::Rdfsbase
            | Mnemonic::Rdgsbase => OpcodeClass::VectorMove,
            Mnemonic::Stosb
            | Mnemonic::Stosw
            | Mnemonic::Stosd
            | Mnemonic::Stosq
            | Mnemonic::Movsb
            | Mnemonic::Movsw
            | Mnemonic::Movsd
            | Mnemonic::Movsq
            | Mnemonic::Insb
            | Mnemonic::Insw
            | Mnemonic::Insd => OpcodeClass::StringStore,
            Mnemonic::Lodsb
            | Mnemonic::Lodsw
            | Mnemonic::Lodsd
            | Mnemonic::Lodsq
            | Mnemonic::Outsb
            | Mnemonic::Outsw
            | Mnemonic::Outsd
            | Mnemonic::Scasb
            | Mnemonic::Scasw
            | Mnemonic::Scasd
            | Mnemonic::Scasq
            | Mnemonic::Cmpsb
            | Mnemonic::Cmpsw
            | Mnemonic::Cmpsd
            | Mnemonic::Cmpsq => OpcodeClass::StringLoad,
            Mnemonic::Movdir64b
            | Mnemonic::Enqcmd
            | Mnemonic::Enqcmds
            | Mnemonic::Maskmovq
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Clzero => OpcodeClass::PointerStore,
            Mnemonic::Ccs_encrypt
            | Mnemonic::Ccs_hash
            | Mnemonic::Montmul
            | Mnemonic::Rdmsrlist
            | Mnemonic::Vmsave
            | Mnemonic::Xcryptcbc
            | Mnemonic::Xcryptcfb
            | Mnemonic::Xcryptctr
            | Mnemonic::Xcryptecb
            | Mnemonic::Xcryptofb
            | Mnemonic::Xsha1
            | Mnemonic::Xsha256
            | Mnemonic::Xsha512
            | Mnemonic::Xsha512_alt
            | Mnemonic::Xstore
            | Mnemonic::Xstore_alt => OpcodeClass::ImplicitStore,
            Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => OpcodeClass::BitStore,
            Mnemonic::Xsave
            | Mnemonic::Xsave64
            | Mnemonic::Xsaveopt
            | Mnemonic::Xsaveopt64
            | Mnemonic::Xsavec
            | Mnemonic::Xsavec64
            | Mnemonic::Xsaves
            | Mnemonic::Xsaves64 => OpcodeClass::SaveState,
            Mnemonic::Tilestored => OpcodeClass::TileStore,
            Mnemonic::Std | Mnemonic::Cld => OpcodeClass::Direction,
            Mnemonic::Leave => OpcodeClass::Leave,
            Mnemonic::Enter => OpcodeClass::Enter,
            Mnemonic::Cmp => OpcodeClass::Compare,
            Mnemonic::Test | Mnemonic::Endbr64 => OpcodeClass::NoEffect,
            Mnemonic::Nop => OpcodeClass::Nop,
            Mnemonic::Hlt => OpcodeClass::Halt,
            _ => OpcodeClass::Generic,
        }
    }
}

/// The classes of all opcodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpcodeClasses(&'static [OpcodeClass]);

impl Default for OpcodeClasses {
    fn default() -> Self {
        static ALL: LazyLock<Vec<OpcodeClass>> =
            LazyLock::new(|| Opcode::values().map(OpcodeClass::from_opcode).collect());
        OpcodeClasses(&ALL)
    }
}

impl OpcodeClasses {
    /// The class of an instruction.
    #[inline]
    pub(super) fn class_of(self, insn: &Instruction) -> OpcodeClass {
        let kind = self.0.get(insn.code() as usize);
        kind.copied().unwrap_or(OpcodeClass::Generic)
    }
}

/// Lifts an instruction of a class. Returns whether nothing is left to do.
#[inline]
pub(super) fn lift_by_class(class: OpcodeClass, insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    match class {
        OpcodeClass::Generic | OpcodeClass::ControlFlow => false,
        OpcodeClass::Move => lift_move(insn, ops),
        OpcodeClass::Push => lift_push(insn, ops),
        OpcodeClass::Pop => lift_pop(insn, ops),
        OpcodeClass::LoadAddress => lift_lea(insn, ops),
        OpcodeClass::AddSub => lift_add_sub(insn, ops),
        OpcodeClass::And => lift_and(insn, ops),
        OpcodeClass::Xor => lift_xor(insn, ops),
        OpcodeClass::Exchange => lift_exchange(insn, ops),
        OpcodeClass::ExchangeAdd => lift_exchange_add(insn, ops),
        OpcodeClass::CompareExchange => lift_compare_exchange(insn, ops),
        OpcodeClass::ConditionalMove => lift_conditional_move(insn, ops),
        OpcodeClass::Widen => lift_widen(insn, ops),
        OpcodeClass::SignExtend => lift_sign_extend(insn, ops),
        OpcodeClass::VectorMove => lift_vector_move(insn, ops),
        OpcodeClass::StringStore => lift_string_store(insn, ops),
        OpcodeClass::StringLoad => lift_string_load(insn, ops),
        OpcodeClass::PointerStore => lift_pointer_store(insn, ops),
        OpcodeClass::ImplicitStore => lift_implicit_store(insn, ops),
        OpcodeClass::BitStore => lift_bit_store(insn, ops),
        OpcodeClass::SaveState => {
            save_state(insn, ops);
            true
        }
        OpcodeClass::TileStore => lift_tile_store(insn, ops),
        OpcodeClass::Direction => {
            let is_down = insn.mnemonic() == Mnemonic::Std;
            ops.push(Op::Direction { is_down });
            true
        }
        OpcodeClass::Leave => lift_leave(insn, ops),
        OpcodeClass::Enter => lift_enter(insn, ops),
        OpcodeClass::Halt => {
            ops.push(Op::Halt);
            true
        }
        OpcodeClass::Compare | OpcodeClass::NoEffect | OpcodeClass::Nop => true,
    }
}

pub(super) fn lift_move(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    use OpKind::{Memory as Mem, Register as Reg};
    match (insn.op0_kind(), insn.op1_kind()) {
        (Reg, Reg) => {
            let (Some(to), Some(from)) = (number(insn.op0_register()), number(insn.op1_register()))
            else {
                let has_segment = (0..2).any(|it| insn.op_register(it).is_segment_register());
                return !has_segment && lift_vector_move(insn, ops);
            };
            match insn.op0_register() {
                register if register.is_gpr64() => ops.push(Op::Add { to, from, bytes: 0 }),
                register if register.is_gpr32() => ops.push(Op::Bound {
                    to,
                    from,
                    limit: u32::MAX,
                }),
                _ => return false,
            }
        }
        (Reg, Mem) if insn.op0_register().is_gpr64() => {
            let Some(to) = number(insn.op0_register()) else {
                return false;
            };
            load(insn, to, ops);
        }
        (Reg, Mem) if insn.op0_register().is_gpr32() => {
            let Some(to) = number(insn.op0_register()) else {
                return false;
            };
            load_distance(insn, to, ops);
        }
        (Mem, Reg) => store(insn, ops),
        (Mem, _) => overwrite(insn, ops),
        (Reg, _) => {
            let register = insn.op0_register();
            let is_whole = register.is_gpr64() || register.is_gpr32();
            let (Some(to), Some(value), true) = (number(register), immediate(insn, 1), is_whole)
            else {
                return false;
            };
            let mask = if register.is_gpr32() {
                0xffff_ffff
            } else {
                u64::MAX
            };
            let value = value.cast_unsigned() & mask;
            ops.push(Op::Constant { to, value });
        }
        _ => return false,
    }
    true
}

/// Adds to the stack pointer.
pub(super) fn move_stack_pointer(bytes: i32) -> Op {
    Op::Add {
        to: RSP,
        from: RSP,
        bytes,
    }
}

/// Lifts a push or pop without exact operations: of the flags, a segment register, two bytes.
pub(super) fn lift_other_push_pop(insn: &Instruction, before: usize, ops: &mut Vec<Op>) {
    // The write set includes the stack pointer.
    for op in ops.iter_mut().skip(before) {
        if let Op::Clobber { registers } = op {
            *registers &= !bit(RSP);
        }
    }
    let size = insn.stack_pointer_increment();
    match u16::try_from(-size) {
        Ok(size @ 1..) => ops.extend([
            move_stack_pointer(-i32::from(size)),
            Op::Overwrite {
                base: RSP,
                offset: 0,
                size,
            },
        ]),
        // An address relative to the stack pointer is computed after its change (Intel SDM, POP).
        _ => ops.insert(before, move_stack_pointer(size)),
    }
    let is_popped = insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::SP;
    if is_popped && insn.mnemonic() == Mnemonic::Pop {
        ops.push(Op::Unknown { to: RSP });
    }
}

pub(super) fn lift_push(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.stack_pointer_increment() != -8 {
        return false;
    }
    let is_register = insn.op_count() > 0 && insn.op0_kind() == OpKind::Register;
    let is_memory = insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory;
    let register = is_register.then(|| number(insn.op0_register())).flatten();
    let from = match register {
        // The value before the push.
        Some(RSP) => {
            ops.push(Op::Add {
                to: SCRATCH,
                from: RSP,
                bytes: 0,
            });
            Some(SCRATCH)
        }
        None if is_memory => {
            load(insn, SCRATCH, ops);
            Some(SCRATCH)
        }
        register => register,
    };
    ops.push(move_stack_pointer(-8));
    ops.push(match from {
        Some(from) => Op::Store {
            base: RSP,
            offset: 0,
            from,
        },
        None => Op::Overwrite {
            base: RSP,
            offset: 0,
            size: 8,
        },
    });
    true
}

pub(super) fn lift_pop(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.stack_pointer_increment() != 8 {
        return false;
    }
    let register = match insn.op0_kind() {
        OpKind::Register => number(insn.op0_register()),
        _ => None,
    };
    match register {
        Some(to) => {
            ops.push(Op::Load {
                to,
                base: RSP,
                offset: 0,
            });
            if to != RSP {
                ops.push(move_stack_pointer(8));
            }
        }
        None => {
            ops.push(Op::Load {
                to: SCRATCH,
                base: RSP,
                offset: 0,
            });
            ops.push(move_stack_pointer(8));
            // An address relative to the stack pointer is computed after its change (Intel SDM,
            // POP).
            match memory(insn) {
                _ if insn.op0_kind() != OpKind::Memory => {}
                MemoryOperand::Simple { base, offset } => ops.push(Op::Store {
                    base,
                    offset,
                    from: SCRATCH,
                }),
                MemoryOperand::Entry {
                    base: Some(base),
                    index,
                    scale: 8,
                    offset,
                } => ops.push(Op::StoreIndexed {
                    base,
                    index,
                    offset,
                    from: SCRATCH,
                }),
                _ => overwrite(insn, ops),
            }
        }
    }
    true
}

pub(super) fn lift_lea(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let Some(to) = whole_destination(insn) else {
        return false;
    };
    if insn.is_ip_rel_memory_operand() {
        ops.push(Op::Address {
            to,
            value: insn.ip_rel_memory_address(),
        });
        return true;
    }
    // Segment registers do not matter here.
    match memory(insn) {
        MemoryOperand::Simple { base, offset } => ops.push(Op::Add {
            to,
            from: base,
            bytes: offset,
        }),
        MemoryOperand::Entry {
            base: None,
            index,
            scale: 1,
            offset,
        } => ops.push(Op::Add {
            to,
            from: index,
            bytes: offset,
        }),
        MemoryOperand::Entry {
            base: Some(base),
            index,
            scale: 1,
            offset,
        } => {
            ops.push(Op::Sum {
                to,
                a: base,
                b: index,
            });
            if offset != 0 {
                ops.push(Op::Add {
                    to,
                    from: to,
                    bytes: offset,
                });
            }
        }
        MemoryOperand::Entry {
            base: Some(base), ..
        } => ops.push(Op::AddUnknown { to, base }),
        _ if insn.memory_base() == Register::None && insn.memory_index() == Register::None => {
            ops.push(Op::Constant {
                to,
                value: insn.memory_displacement64(),
            });
        }
        _ => return false,
    }
    true
}

pub(super) fn lift_add_sub(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let Some(to) = whole_destination(insn) else {
        return lift_add_to_memory(insn, ops);
    };
    if let Some(bytes) = added(insn) {
        let Ok(bytes) = i32::try_from(bytes) else {
            return false;
        };
        ops.push(Op::Add {
            to,
            from: to,
            bytes,
        });
        return true;
    }
    let Some(from) = whole_source(insn) else {
        return false;
    };
    ops.push(match insn.mnemonic() {
        Mnemonic::Add => Op::Sum { to, a: to, b: from },
        _ if from == to => Op::Constant { to, value: 0 },
        _ => Op::Difference { to, a: to, b: from },
    });
    true
}

/// The number that an instruction adds.
fn added(insn: &Instruction) -> Option<i64> {
    match insn.mnemonic() {
        Mnemonic::Inc => Some(1),
        Mnemonic::Dec => Some(-1),
        Mnemonic::Add => immediate(insn, 1),
        _ => immediate(insn, 1).and_then(i64::checked_neg),
    }
}

/// Lifts an addition to a memory operand that may be an address.
fn lift_add_to_memory(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.op0_kind() != OpKind::Memory || insn.memory_size().size() != 8 {
        return false;
    }
    let bytes = added(insn).and_then(|bytes| i32::try_from(bytes).ok());
    let (Some(bytes), MemoryOperand::Simple { base, offset }) = (bytes, memory(insn)) else {
        return false;
    };
    let (to, from) = (SCRATCH, SCRATCH);
    ops.extend([
        Op::Load { to, base, offset },
        Op::Add { to, from, bytes },
        Op::Store { base, offset, from },
    ]);
    true
}

pub(super) fn lift_and(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let Some(mask) = immediate(insn, 1) else {
        return false;
    };
    let register = match insn.op0_kind() {
        OpKind::Register => insn.op0_register(),
        _ => return false,
    };
    let Some(to) = number(register) else {
        return false;
    };
    let limit = match register {
        register if register.is_gpr64() && to == RSP => {
            let multiple = 1_u32.checked_shl(mask.trailing_zeros());
            ops.push(Op::Align {
                multiple: multiple.unwrap_or(0),
            });
            return true;
        }
        register if register.is_gpr64() => u32::try_from(mask),
        register if register.is_gpr32() => u32::try_from(mask & 0xffff_ffff),
        _ => return false,
    };
    let Ok(limit) = limit else {
        return false;
    };
    ops.push(Op::Clobber { registers: bit(to) });
    ops.push(Op::Bound {
        to,
        from: to,
        limit,
    });
    true
}

pub(super) fn lift_xor(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let is_same = insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register();
    let register = insn.op0_register();
    let is_whole = register.is_gpr64() || register.is_gpr32();
    match number(register) {
        Some(to) if is_same && is_whole => {
            ops.push(Op::Constant { to, value: 0 });
            true
        }
        _ => false,
    }
}

fn copy(to: u8, from: u8) -> Op {
    Op::Add { to, from, bytes: 0 }
}

pub(super) fn lift_exchange(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    match (whole_destination(insn), whole_source(insn), memory(insn)) {
        (Some(a), Some(b), _) => ops.extend([copy(SCRATCH, a), copy(a, b), copy(b, SCRATCH)]),
        (None, Some(register), MemoryOperand::Simple { base, offset }) => {
            ops.extend([
                Op::Load {
                    to: SCRATCH,
                    base,
                    offset,
                },
                Op::Store {
                    base,
                    offset,
                    from: register,
                },
                copy(register, SCRATCH),
            ]);
        }
        _ => return false,
    }
    true
}

/// The destination gets the sum, and the source the destination's old value. If they are the same
/// register, it has the sum (Intel SDM, XADD).
fn lift_exchange_add(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let sum = |to, b| Op::Sum { to, a: to, b };
    match (whole_destination(insn), whole_source(insn), memory(insn)) {
        (Some(to), Some(from), _) if to == from => ops.push(sum(to, from)),
        (Some(to), Some(from), _) => {
            ops.extend([copy(SCRATCH, to), sum(to, from), copy(from, SCRATCH)]);
        }
        (None, Some(from), MemoryOperand::Simple { base, offset }) if base != from => {
            let to = SCRATCH;
            ops.extend([
                Op::Load { to, base, offset },
                sum(from, SCRATCH),
                Op::Store { base, offset, from },
                copy(from, SCRATCH),
            ]);
        }
        _ => return false,
    }
    true
}

/// Either the destination gets the source, or `rax` the destination's old value. The wide form
/// compares `rdx:rax`, and stores `rcx:rbx`.
fn lift_compare_exchange(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let choose = |to, from| Op::Choose { to, from };
    let source = whole_source(insn);
    if let (Some(to), Some(from)) = (whole_destination(insn), source) {
        ops.extend([copy(SCRATCH, to), choose(to, from), choose(RAX, SCRATCH)]);
        return true;
    }
    let (compared, stored): (&[u8], &[u8]) = match (&source, insn.mnemonic()) {
        (_, Mnemonic::Cmpxchg16b) => (&[RAX, RDX], &[RBX, RCX]),
        (Some(from), _) => (&[RAX], core::slice::from_ref(from)),
        (None, _) => return false,
    };
    let MemoryOperand::Simple { base, offset } = memory(insn) else {
        return false;
    };
    if compared.contains(&base) {
        return false;
    }
    for (to, offset) in compared.iter().zip([offset, offset.wrapping_add(8)]) {
        let loaded = Op::Load {
            to: SCRATCH,
            base,
            offset,
        };
        ops.extend([loaded, choose(*to, SCRATCH)]);
    }
    ops.extend(stored.iter().map(|from| Op::Escape { from: *from }));
    overwrite_perhaps(insn, ops);
    true
}

fn lift_conditional_move(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let Some(to) = whole_destination(insn) else {
        return false;
    };
    let from = whole_source(insn).unwrap_or(SCRATCH);
    if from == SCRATCH {
        load(insn, SCRATCH, ops);
    }
    ops.push(Op::Choose { to, from });
    true
}

pub(super) fn lift_widen(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.mnemonic() == Mnemonic::Cdqe {
        ops.push(Op::Bound {
            to: RAX,
            from: RAX,
            limit: 0x7fff_ffff,
        });
        return true;
    }
    let register = insn.op0_register();
    let Some(to) = number(register) else {
        return false;
    };
    if register.is_gpr16() {
        return false;
    }
    let is_signed = insn.mnemonic() == Mnemonic::Movsxd;
    if insn.op1_kind() == OpKind::Memory && is_signed {
        load_distance(insn, to, ops);
        return true;
    }
    let source = match insn.op1_kind() {
        OpKind::Register => insn.op1_register(),
        _ => Register::None,
    };
    let size = match source {
        Register::None => insn.memory_size().size(),
        source => source.size(),
    };
    let limit = match size {
        1 => 0xff,
        2 => 0xffff,
        _ => 0x7fff_ffff,
    };
    let from = match number(source) {
        Some(from) if is_low(source) => from,
        _ => {
            ops.push(Op::Clobber { registers: bit(to) });
            to
        }
    };
    ops.push(Op::Bound { to, from, limit });
    true
}

pub(super) fn lift_sign_extend(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let (register, source) = (insn.op0_register(), insn.op1_register());
    let is_whole = register.is_gpr32() || register.is_gpr64();
    match (number(register), number(source)) {
        (Some(to), Some(from)) if is_whole && is_low(source) => {
            let bits = u8::try_from(source.size() * 8).unwrap_or(u8::MAX);
            ops.push(Op::SignExtend { to, from, bits });
            true
        }
        _ => false,
    }
}

/// Vector registers and others are not tracked: a value loaded from one may have escaped to it.
pub(super) fn lift_vector_move(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if let Some(to) = whole_destination(insn) {
        ops.push(Op::Unknown { to });
        return true;
    }
    let operands = (1..insn.op_count()).map(|operand| insn.op_register(operand));
    let mut whole = operands.filter(|register| register.is_gpr64());
    let Some(from) = whole.next().and_then(number) else {
        return false;
    };
    ops.push(Op::Escape { from });
    false
}

/// Lifts a string instruction's store, and what it changes beside that.
pub(super) fn lift_string_store(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let size = u8::try_from(insn.memory_size().size()).unwrap_or(u8::MAX);
    let (base, count) = (RDI, repetitions(insn));
    let contents = match insn.mnemonic() {
        Mnemonic::Stosq => FillContents::Register(RAX),
        Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => {
            FillContents::Memory(RSI)
        }
        _ => FillContents::Other,
    };
    let is_flat = !matches!(insn.segment_prefix(), Register::FS | Register::GS);
    let stored = |from| Op::Store {
        base,
        offset: 0,
        from,
    };
    match (insn.op0_kind(), contents) {
        (OpKind::MemoryESRDI, FillContents::Register(from)) if count.is_none() => {
            ops.push(stored(from));
        }
        (OpKind::MemoryESRDI, FillContents::Memory(base))
            if count.is_none() && size == 8 && is_flat =>
        {
            let to = SCRATCH;
            let loaded = Op::Load {
                to,
                base,
                offset: 0,
            };
            ops.extend([loaded, stored(SCRATCH)]);
        }
        (OpKind::MemoryESRDI, _) => ops.push(Op::Fill {
            base,
            count,
            size,
            contents,
        }),
        // The stack may be below 4 GiB.
        (OpKind::MemoryESEDI, _) => ops.push(Op::WeakOverwrite {
            base,
            offset: 0,
            size: if count.is_some() {
                UNBOUNDED
            } else {
                size.into()
            },
        }),
        _ => return false,
    }
    lift_string_registers(insn, false, ops)
}

/// Lifts a string instruction that does not store.
fn lift_string_load(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let compares = match insn.mnemonic() {
        Mnemonic::Lodsq if insn.op1_kind() == OpKind::MemorySegRSI => {
            let to = RAX;
            ops.push(match repetitions(insn) {
                Some(_) => Op::Unknown { to },
                None => Op::Load {
                    to,
                    base: RSI,
                    offset: 0,
                },
            });
            false
        }
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => {
            ops.push(Op::Clobber {
                registers: bit(RAX),
            });
            false
        }
        Mnemonic::Outsb | Mnemonic::Outsw | Mnemonic::Outsd => false,
        _ => true,
    };
    insn.is_string_instruction() && lift_string_registers(insn, compares, ops)
}

/// The register with the number of repetitions of a string instruction.
fn repetitions(insn: &Instruction) -> Option<u8> {
    (insn.has_rep_prefix() || insn.has_repne_prefix()).then_some(RCX)
}

/// Lifts what a string instruction does to the registers with its addresses and its count. Returns
/// whether nothing is left to do.
fn lift_string_registers(insn: &Instruction, compares: bool, ops: &mut Vec<Op>) -> bool {
    let count = repetitions(insn);
    let size = u8::try_from(insn.memory_size().size()).unwrap_or(u8::MAX);
    // A comparison may end it early.
    let mut is_known = !(compares && count.is_some());
    let mut written = count.map_or(0, bit);
    for operand in 0..insn.op_count() {
        let (to, is_whole) = match insn.op_kind(operand) {
            OpKind::MemoryESRDI => (RDI, true),
            OpKind::MemorySegRSI => (RSI, true),
            OpKind::MemoryESEDI => (RDI, false),
            OpKind::MemorySegESI => (RSI, false),
            _ => continue,
        };
        is_known &= is_whole;
        written |= bit(to);
        if is_known {
            ops.push(Op::Advance { to, count, size });
        }
    }
    match count {
        _ if !is_known => ops.push(Op::Clobber { registers: written }),
        Some(to) => ops.push(Op::Constant { to, value: 0 }),
        None => {}
    }
    true
}

/// Lifts the stores of VIA PadLock instructions (Programming Guide), VMSAVE and RDMSRLIST. Other
/// effects are in the write set.
fn lift_implicit_store(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let perhaps = |base, size| Op::WeakOverwrite {
        base,
        offset: 0,
        size,
    };
    let fill = |size| Op::Fill {
        base: RDI,
        count: Some(RCX),
        size,
        contents: FillContents::Other,
    };
    ops.push(match insn.mnemonic() {
        Mnemonic::Vmsave => perhaps(RAX, 4096),
        Mnemonic::Rdmsrlist => perhaps(RDI, 512),
        // Its operand has pointers in it.
        Mnemonic::Montmul => Op::OverwriteUnbounded { base: RSI },
        Mnemonic::Xsha1
        | Mnemonic::Xsha256
        | Mnemonic::Xsha512
        | Mnemonic::Xsha512_alt
        | Mnemonic::Ccs_hash => perhaps(RDI, 128),
        Mnemonic::Xstore | Mnemonic::Xstore_alt if !insn.has_rep_prefix() => perhaps(RDI, 8),
        Mnemonic::Xstore | Mnemonic::Xstore_alt => fill(1),
        _ => fill(16),
    });
    false
}

/// Otherwise it only writes flags.
fn lift_bit_store(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let is_anywhere = insn.op0_kind() == OpKind::Memory && insn.op1_kind() == OpKind::Register;
    if is_anywhere {
        overwrite_bits(insn, ops);
    }
    is_anywhere
}

/// Rows of a given size at most, one index apart (Intel SDM, TILESTORED).
fn lift_tile_store(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    const BYTES: u16 = 64;
    const ROWS: u8 = 16;
    match memory(insn) {
        MemoryOperand::Simple { base, offset } => ops.push(Op::WeakOverwrite {
            base,
            offset,
            size: BYTES,
        }),
        MemoryOperand::Entry {
            base: Some(base),
            index,
            scale,
            offset,
        } => ops.push(Op::OverwriteTileRows {
            base,
            index,
            scale: u8::try_from(scale).unwrap_or(1),
            offset,
            size: BYTES,
            count: ROWS,
        }),
        MemoryOperand::Entry { .. } | MemoryOperand::Scattered { .. } | MemoryOperand::Other => {}
    }
    true
}

/// Stores 64 bytes at the first operand, all or none of a cache line, or 8 or 16 bytes by a mask.
/// Addresses of 32 bits are never on the stack.
pub(super) fn lift_pointer_store(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    const LINE: u16 = 64;
    let size = size(insn);
    let is_flat = !matches!(insn.segment_prefix(), Register::FS | Register::GS);
    ops.extend(match insn.mnemonic() {
        Mnemonic::Movdir64b => whole_destination(insn).map(|base| Op::Overwrite {
            base,
            offset: 0,
            size,
        }),
        // The target is a device and not memory, in correct code.
        Mnemonic::Enqcmd | Mnemonic::Enqcmds => {
            whole_destination(insn).map(|base| Op::WeakOverwrite {
                base,
                offset: 0,
                size: LINE,
            })
        }
        // Weak, since the address is rounded down.
        Mnemonic::Clzero => Some(Op::WeakOverwrite {
            base: RAX,
            offset: 1 - i32::from(LINE),
            size: 2 * LINE - 1,
        }),
        _ => (is_flat && insn.op0_kind() == OpKind::MemorySegRDI).then_some(Op::WeakOverwrite {
            base: RDI,
            offset: 0,
            size,
        }),
    });
    true
}

pub(super) fn lift_leave(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    ops.push(Op::Add {
        to: RSP,
        from: RBP,
        bytes: 0,
    });
    ops.extend(match insn.code() {
        Opcode::Leaveq => [
            Op::Load {
                to: RBP,
                base: RSP,
                offset: 0,
            },
            move_stack_pointer(8),
        ],
        _ => [
            Op::Clobber {
                registers: bit(RBP),
            },
            move_stack_pointer(2),
        ],
    });
    true
}

pub(super) fn lift_enter(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.code() != Opcode::Enterq_imm16_imm8 {
        return false;
    }
    ops.extend([
        move_stack_pointer(-8),
        Op::Store {
            base: RSP,
            offset: 0,
            from: RBP,
        },
    ]);
    // The frame pointers of enclosing functions are pushed, too: from where the old one points, and
    // the new one.
    let level = i32::from(insn.immediate8_2nd() & 31);
    for number in 1..level {
        let offset = -8 * number;
        ops.extend([
            Op::Load {
                to: SCRATCH,
                base: RBP,
                offset,
            },
            Op::Store {
                base: RSP,
                offset,
                from: SCRATCH,
            },
        ]);
    }
    ops.push(Op::Add {
        to: RBP,
        from: RSP,
        bytes: 0,
    });
    let below = -8 * level;
    if level > 0 {
        ops.push(Op::Store {
            base: RBP,
            offset: below,
            from: RBP,
        });
    }
    ops.push(move_stack_pointer(below - i32::from(insn.immediate16())));
    true
}
