//! x86-64.
//!
//! `call` pushes the return address, so at entry the stack pointer is 8 below the CFA. Some twenty mnemonics
//! move addresses of the stack, saved registers or addresses of jump tables about, and are told apart here;
//! of all others only which registers and memory they write counts (`effects.rs`). Writing the low 32 bits
//! of a register clears the high ones, and writing 8 or 16 leaves them: neither leaves an entry value.

use core::ops::Range;

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
};
use iced_x86::{ConditionCode, Register};

use super::Facts;
use crate::code::Code;
use crate::op::{Flow, Op, Seen, Test, Way};
use crate::state::SCRATCH;

pub(crate) mod details;
mod effects;
mod lengths;

use effects::Effects;
use lengths::Lengths;

const RAX: u8 = 0;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// System V psABI, "Registers" and "The Stack Frame".
pub static FACTS: Facts = Facts {
    stack_pointer: RSP,
    return_address: 16,
    preserved: &[3, RBP, 12, 13, 14, 15],
    // rax rdx rcx rsi rdi r8 r9 r10 r11
    clobbered: 0b1111_0011_0111,
    // rdi rsi rdx rcx r8 r9
    arguments: &[5, 4, 1, 2, 8, 9],
    // xmm0 to xmm15, none of which a call preserves; the first eight have arguments.
    vectors: 17..33,
    vector_arguments: 17..25,
    frame_pointer: RBP,
    call_pushes: 8,
    // clone, clone3
    new_stack: &[56, 435],
    red_zone: 128,
    // mov $15, %rax; syscall: rt_sigreturn.
    signal_return: &[0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05],
};

/// DWARF's numbers of the registers, in the order of the machine's encoding (psABI, "DWARF Register Number
/// Mapping").
const DWARF: [u8; 16] = [RAX, 2, 1, 3, RSP, RBP, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The DWARF number of a general-purpose register, or of the one that it is part of.
fn number(register: Register) -> Option<u8> {
    if !register.is_gpr() {
        return None;
    }
    let encoded = register.full_register() as usize - Register::RAX as usize;
    DWARF.get(encoded).copied()
}

/// A comparison whose flags are still there.
#[derive(Debug, Clone, Copy)]
enum Compared {
    /// Two registers.
    Registers(u8, u8),
    /// A register with a number.
    Number(u8, u16),
}

/// Decodes, and keeps what instructions do that are not told apart.
#[derive(Debug, Default)]
pub struct Lifter {
    effects: Effects,
    lengths: Lengths,
}

impl Lifter {
    /// Decodes all of `bytes`, which are at `address`. A byte that begins no instruction is one that traps.
    pub fn lift(&mut self, bytes: &[u8], address: u64, code: &mut Code) {
        let mut insns = Insns::new(bytes, address);
        let mut compared = None;
        loop {
            let at = insns.ip();
            match insns.next() {
                None => return,
                Some(None) => code.push(at, 1, Some(Flow::Trap), true),
                Some(Some(insn)) => {
                    let ops = code.ops();
                    let before = ops.len();
                    let flow = self.lift_one(insn, compared, ops);
                    if let Some(now) = comparison(insn) {
                        compared = Some(now);
                    } else if let Some(known) = compared {
                        let written = ops.get(before..).unwrap_or_default();
                        compared = keeps(insn, written, known).then_some(known);
                    }
                    let length = u8::try_from(insn.len()).unwrap_or(u8::MAX);
                    let is_padding = insn.mnemonic() == Mnemonic::Nop || flow == Some(Flow::Trap);
                    code.push(at, length, flow, is_padding);
                }
            }
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and tells only where control goes and which
    /// addresses are taken.
    pub fn scan(&mut self, bytes: &[u8], address: u64, mut see: impl FnMut(Seen)) {
        let mut insns = Insns::new(bytes, address);
        let mut goes_on = false;
        loop {
            // Never the last one, which decides whether control goes on behind.
            while let Some((length, seen)) = self.lengths.of(insns.rest(), insns.ip()) {
                insns.skip(length);
                if let Some(seen) = seen {
                    see(seen);
                }
            }
            let Some(insn) = insns.next() else { break };
            let Some(insn) = insn else {
                goes_on = false;
                continue;
            };
            goes_on = matches!(
                insn.flow_control(),
                FlowControl::Next | FlowControl::ConditionalBranch
            ) && !matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Hlt);
            match insn.flow_control() {
                FlowControl::Next => taken(insn, &mut see),
                FlowControl::IndirectBranch => {
                    taken(insn, &mut see);
                    see(Seen::Flow(Flow::IndirectJump(SCRATCH)));
                }
                control => {
                    if let Some(flow) = flow(insn, control, None) {
                        see(Seen::Flow(flow));
                    }
                }
            }
        }
        if goes_on {
            see(Seen::End);
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and tells of each instruction where it is, where control goes (of a
    /// branch not what it tells, of an indirect jump not by which register), and whether it is padding, as
    /// [`Code::is_padding`] has it.
    pub fn outline(
        &mut self,
        bytes: &[u8],
        address: u64,
        mut see: impl FnMut(Range<u64>, Option<Flow>, bool),
    ) {
        let mut insns = Insns::new(bytes, address);
        loop {
            let at = insns.ip();
            if let Some((length, seen)) = self.lengths.of(insns.rest(), at) {
                let is_padding = is_nop(insns.rest());
                insns.skip(length);
                let flow = match seen {
                    Some(Seen::Flow(flow)) => Some(flow),
                    _ => None,
                };
                see(at..insns.ip(), flow, is_padding);
                continue;
            }
            match insns.next() {
                None => return,
                Some(None) => see(at..at.wrapping_add(1), Some(Flow::Trap), true),
                Some(Some(insn)) => {
                    let flow = match insn.flow_control() {
                        FlowControl::IndirectBranch => Some(Flow::IndirectJump(SCRATCH)),
                        control => flow(insn, control, None),
                    };
                    let is_padding = insn.mnemonic() == Mnemonic::Nop || flow == Some(Flow::Trap);
                    see(at..insn.next_ip(), flow, is_padding);
                }
            }
        }
    }

    fn lift_one(
        &mut self,
        insn: &Instruction,
        compared: Option<Compared>,
        ops: &mut Vec<Op>,
    ) -> Option<Flow> {
        match insn.flow_control() {
            FlowControl::Next => {
                if !told_apart(insn, ops) {
                    let before = ops.len();
                    self.effects.note(insn, ops);
                    if insn.is_stack_instruction() {
                        pushes_something(insn, before, ops);
                    }
                }
                None
            }
            FlowControl::IndirectBranch => Some(Flow::IndirectJump(target(insn, ops))),
            control => {
                let flow = flow(insn, control, compared);
                let writes = !matches!(
                    flow,
                    Some(Flow::Jump(_) | Flow::Call(_) | Flow::IndirectCall | Flow::Return { .. })
                );
                if insn.mnemonic() == Mnemonic::Syscall {
                    // What the kernel returns is in the register that had the number.
                    let registers = bit(RAX);
                    ops.extend([Op::SystemCall { number: RAX }, Op::Clobber { registers }]);
                }
                if writes {
                    self.effects.note(insn, ops);
                }
                flow
            }
        }
    }
}

/// Instructions one after another; a byte that begins none is skipped.
struct Insns<'b> {
    bytes: &'b [u8],
    address: u64,
    /// Where the next one is in `bytes`.
    at: usize,
    decoder: Decoder<'b>,
    insn: Instruction,
}

impl<'b> Insns<'b> {
    fn new(bytes: &'b [u8], address: u64) -> Insns<'b> {
        Insns {
            bytes,
            address,
            at: 0,
            decoder: Decoder::with_ip(64, bytes, address, DecoderOptions::NONE),
            insn: Instruction::default(),
        }
    }

    /// The bytes that are still to be read.
    fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The address of the next instruction.
    fn ip(&self) -> u64 {
        self.address.wrapping_add(self.at as u64)
    }

    /// Leaves out so many bytes.
    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// The next instruction; within, `None` if there is none at that byte.
    #[inline]
    fn next(&mut self) -> Option<Option<&Instruction>> {
        if self.decoder.position() != self.at {
            self.decoder.set_position(self.at).ok()?;
            self.decoder.set_ip(self.ip());
        }
        if !self.decoder.can_decode() {
            return None;
        }
        self.decoder.decode_out(&mut self.insn);
        let is_valid = !self.insn.is_invalid();
        // The next may begin at any byte behind one that begins none.
        self.at += if is_valid { self.insn.len() } else { 1 };
        Some(is_valid.then_some(&self.insn))
    }
}

/// The number of 4 or 8 bytes that an instruction puts into a register or into memory.
fn value(insn: &Instruction) -> Option<u64> {
    let last = insn.op_count().checked_sub(1)?;
    let is_wide = matches!(
        insn.op_kind(last),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
    );
    let is_moved = matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Push);
    insn.try_immediate(last)
        .ok()
        .filter(|_| is_wide && is_moved)
}

/// Whether bytes that begin an instruction of [`Lengths`] begin one that does nothing.
fn is_nop(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(&[0x66]).unwrap_or(bytes);
    match bytes {
        [0x90, ..] | [0x0f, 0x1f, ..] | [0x40..=0x4f, 0x0f, 0x1f, ..] => true,
        // The lowest bit of REX makes it an exchange of registers.
        [rex @ 0x40..=0x4f, 0x90, ..] => rex & 1 == 0,
        _ => false,
    }
}

/// Tells which address an instruction takes, if it does.
fn taken(insn: &Instruction, see: &mut impl FnMut(Seen)) {
    if let Some(value) = value(insn) {
        see(Seen::Value(value));
        return;
    }
    if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
        see(Seen::Taken(insn.ip_rel_memory_address()));
        return;
    }
    let is_table = insn.memory_base() == Register::None && insn.memory_index_scale() >= 4;
    if is_table && insn.memory_index() != Register::None {
        see(Seen::Taken(insn.memory_displacement64()));
    }
}

/// Where the processor goes after an instruction that is no indirect jump.
fn flow(insn: &Instruction, control: FlowControl, compared: Option<Compared>) -> Option<Flow> {
    match control {
        FlowControl::Next | FlowControl::IndirectBranch => None,
        FlowControl::UnconditionalBranch => match insn.op0_kind() {
            OpKind::NearBranch64 => Some(Flow::Jump(insn.near_branch_target())),
            _ => Some(Flow::Trap),
        },
        FlowControl::ConditionalBranch => Some(Flow::Branch {
            to: insn.near_branch_target(),
            test: test(insn, compared),
        }),
        FlowControl::Call => match insn.op0_kind() {
            OpKind::NearBranch64 => Some(Flow::Call(insn.near_branch_target())),
            // `syscall` and `vmcall`: the kernel returns here.
            _ => None,
        },
        FlowControl::IndirectCall => Some(Flow::IndirectCall),
        FlowControl::Return => Some(returns(insn)),
        FlowControl::Interrupt => (insn.code() == Opcode::Int3).then_some(Flow::Trap),
        FlowControl::XbeginXabortXend => {
            (insn.mnemonic() == Mnemonic::Xbegin).then(|| Flow::Branch {
                to: insn.near_branch_target(),
                test: Test::None,
            })
        }
        FlowControl::Exception => Some(Flow::Trap),
    }
}

fn returns(insn: &Instruction) -> Flow {
    match insn.mnemonic() {
        Mnemonic::Ret => Flow::Return {
            pops: match insn.op_count() {
                0 => 0,
                _ => insn.immediate16(),
            },
        },
        // From an interrupt, or to another privilege.
        _ => Flow::Return { pops: 0 },
    }
}

/// The register that an indirect jump's target is in.
fn target(insn: &Instruction, ops: &mut Vec<Op>) -> u8 {
    if insn.op0_kind() == OpKind::Register {
        return number(insn.op0_register()).unwrap_or(SCRATCH);
    }
    load(insn, SCRATCH, ops);
    SCRATCH
}

/// The bit of a register in [`Op::Clobber`].
fn bit(register: u8) -> u64 {
    1_u64.checked_shl(register.into()).unwrap_or(0)
}

/// What a memory operand addresses.
enum Memory {
    /// A register plus a number.
    Simple { base: u8, offset: i32 },
    /// A table, with an index.
    Entry {
        base: Option<u8>,
        index: u8,
        scale: u32,
        offset: i32,
    },
    /// Something else.
    Other,
}

fn memory(insn: &Instruction) -> Memory {
    let displacement = insn.memory_displacement64().cast_signed();
    let (base, index) = (insn.memory_base(), insn.memory_index());
    if insn.segment_prefix() == Register::FS || insn.segment_prefix() == Register::GS {
        return Memory::Other;
    }
    let Ok(offset) = i32::try_from(displacement) else {
        return Memory::Other;
    };
    let is_64 = |register: Register| register.is_gpr64();
    match (base, index) {
        (base, Register::None) if is_64(base) => {
            number(base).map_or(Memory::Other, |base| Memory::Simple { base, offset })
        }
        (base, index) if is_64(index) && (is_64(base) || base == Register::None) => {
            let Some(index) = number(index) else {
                return Memory::Other;
            };
            Memory::Entry {
                base: number(base),
                index,
                scale: insn.memory_index_scale(),
                offset,
            }
        }
        _ => Memory::Other,
    }
}

/// `to` is what the 8 bytes of the memory operand hold.
fn load(insn: &Instruction, to: u8, ops: &mut Vec<Op>) {
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
    ops.push(match memory(insn) {
        Memory::Simple { base, offset } => Op::Load { to, base, offset },
        Memory::Entry {
            base,
            index,
            scale: 8,
            offset,
        } => Op::LoadEntry {
            to,
            base,
            index,
            size: 8,
            offset,
        },
        _ => Op::Clobber { registers: bit(to) },
    });
}

/// `to` is what the 4 bytes of the memory operand hold, with their sign.
fn load_distance(insn: &Instruction, to: u8, ops: &mut Vec<Op>) {
    ops.push(match memory(insn) {
        Memory::Entry {
            base,
            index,
            scale: 4,
            offset,
        } => Op::LoadEntry {
            to,
            base,
            index,
            size: 4,
            offset,
        },
        Memory::Simple { base, offset } => Op::LoadLow {
            to,
            base,
            offset,
            size: 4,
        },
        _ => Op::Clobber { registers: bit(to) },
    });
}

/// The memory operand's bytes are something else.
fn overwrite(insn: &Instruction, ops: &mut Vec<Op>) {
    let size = u16::try_from(insn.memory_size().size()).unwrap_or(u16::MAX);
    match memory(insn) {
        Memory::Simple { base, offset } => ops.push(Op::Overwrite { base, offset, size }),
        Memory::Entry {
            base: Some(base), ..
        } => ops.push(Op::OverwriteNear { base }),
        Memory::Entry { .. } | Memory::Other => {}
    }
}

/// The memory operand's bytes are those of a register, or its low ones.
fn store(insn: &Instruction, ops: &mut Vec<Op>) {
    let register = insn.op1_register();
    match (number(register), memory(insn)) {
        (Some(from), Memory::Simple { base, offset }) if register.is_gpr64() => {
            ops.push(Op::Store { base, offset, from });
        }
        (Some(from), Memory::Simple { base, offset }) if is_low(register) => {
            let size = u8::try_from(register.size()).unwrap_or(u8::MAX);
            ops.push(Op::StoreLow {
                base,
                offset,
                from,
                size,
            });
        }
        _ => overwrite(insn, ops),
    }
}

/// Whether a register is the low end of one of 64 bits. The second byte is not.
fn is_low(register: Register) -> bool {
    let is_second = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    number(register).is_some() && !is_second
}

/// Whether the first operand is a register of 64 bits: its number.
fn whole_destination(insn: &Instruction) -> Option<u8> {
    let is_whole = insn.op0_kind() == OpKind::Register && insn.op0_register().is_gpr64();
    is_whole.then(|| number(insn.op0_register())).flatten()
}

/// The 64-bit register that operand 1 is.
fn whole_source(insn: &Instruction) -> Option<u8> {
    let is_whole = insn.op1_kind() == OpKind::Register && insn.op1_register().is_gpr64();
    is_whole.then(|| number(insn.op1_register())).flatten()
}

/// The number that an operand is, with its sign.
fn immediate(insn: &Instruction, operand: u32) -> Option<i64> {
    insn.try_immediate(operand).ok().map(u64::cast_signed)
}

/// Notes what an instruction does, if its mnemonic is one of those that matter; whether it is.
fn told_apart(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    match insn.mnemonic() {
        Mnemonic::Mov => moves(insn, ops),
        Mnemonic::Push => pushes(insn, ops),
        Mnemonic::Pop => pops(insn, ops),
        Mnemonic::Lea => addresses(insn, ops),
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec => adds(insn, ops),
        Mnemonic::And => cuts(insn, ops),
        Mnemonic::Xor => clears(insn, ops),
        Mnemonic::Xchg => exchanges(insn, ops),
        Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Cdqe => widens(insn, ops),
        Mnemonic::Movsx => extends(insn, ops),
        Mnemonic::Movq
        | Mnemonic::Vmovq
        | Mnemonic::Pextrq
        | Mnemonic::Vpextrq
        | Mnemonic::Kmovq => from_vector(insn, ops),
        Mnemonic::Leave => leaves(insn, ops),
        Mnemonic::Enter => enters(insn, ops),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Nop | Mnemonic::Endbr64 => true,
        _ => false,
    }
}

fn moves(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    use OpKind::{Memory as Mem, Register as Reg};
    match (insn.op0_kind(), insn.op1_kind()) {
        (Reg, Reg) => {
            let (Some(to), Some(from)) = (number(insn.op0_register()), number(insn.op1_register()))
            else {
                return false;
            };
            match insn.op0_register() {
                register if register.is_gpr64() => ops.push(Op::Add { to, from, bytes: 0 }),
                register if register.is_gpr32() => ops.push(Op::Narrow {
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

/// Moves the stack pointer.
fn step(bytes: i32) -> Op {
    Op::Add {
        to: RSP,
        from: RSP,
        bytes,
    }
}

/// Pushes or pops what is not told apart: the flags, a segment register, two bytes.
fn pushes_something(insn: &Instruction, before: usize, ops: &mut Vec<Op>) {
    // The stack pointer was noted as written.
    for op in ops.iter_mut().skip(before) {
        if let Op::Clobber { registers } = op {
            *registers &= !bit(RSP);
        }
    }
    let size = insn.stack_pointer_increment();
    ops.push(step(size));
    if let Ok(size @ 1..) = u16::try_from(-size) {
        ops.push(Op::Overwrite {
            base: RSP,
            offset: 0,
            size,
        });
    }
}

fn pushes(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.stack_pointer_increment() != -8 {
        return false;
    }
    let is_register = insn.op_count() > 0 && insn.op0_kind() == OpKind::Register;
    let is_memory = insn.op_count() > 0 && insn.op0_kind() == OpKind::Memory;
    let register = is_register.then(|| number(insn.op0_register())).flatten();
    let from = match register {
        // The value from before the push.
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
    ops.push(step(-8));
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

fn pops(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
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
                ops.push(step(8));
            }
        }
        None => {
            ops.push(step(8));
            if insn.op0_kind() == OpKind::Memory {
                overwrite(insn, ops);
            }
        }
    }
    true
}

fn addresses(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
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
    // Segments do not count here.
    match memory(insn) {
        Memory::Simple { base, offset } => ops.push(Op::Add {
            to,
            from: base,
            bytes: offset,
        }),
        Memory::Entry {
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
        Memory::Entry {
            base: Some(base), ..
        } => ops.push(Op::Near { to, base }),
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

fn adds(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let Some(to) = whole_destination(insn) else {
        return false;
    };
    let bytes = match insn.mnemonic() {
        Mnemonic::Inc => Some(1),
        Mnemonic::Dec => Some(-1),
        Mnemonic::Add => immediate(insn, 1),
        _ => immediate(insn, 1).and_then(i64::checked_neg),
    };
    if let Some(bytes) = bytes {
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

fn cuts(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
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
            ops.push(Op::Align);
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
    ops.push(Op::Narrow {
        to,
        from: to,
        limit,
    });
    true
}

fn clears(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
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

fn exchanges(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let copy = |to, from| Op::Add { to, from, bytes: 0 };
    match (whole_destination(insn), whole_source(insn), memory(insn)) {
        (Some(a), Some(b), _) => ops.extend([copy(SCRATCH, a), copy(a, b), copy(b, SCRATCH)]),
        (None, Some(register), Memory::Simple { base, offset }) if base != register => {
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

fn widens(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.mnemonic() == Mnemonic::Cdqe {
        ops.push(Op::Narrow {
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
    ops.push(Op::Narrow { to, from, limit });
    true
}

fn extends(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let (register, source) = (insn.op0_register(), insn.op1_register());
    let is_whole = register.is_gpr32() || register.is_gpr64();
    match (number(register), number(source)) {
        (Some(to), Some(from)) if is_whole && is_low(source) => {
            let bits = u8::try_from(source.size() * 8).unwrap_or(u8::MAX);
            ops.push(Op::Extend { to, from, bits });
            true
        }
        _ => false,
    }
}

/// Vector registers are not followed: what comes back from them may have been kept there.
fn from_vector(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    let Some(to) = whole_destination(insn) else {
        return false;
    };
    ops.push(Op::Unknown { to });
    true
}

fn leaves(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.code() != Opcode::Leaveq {
        return false;
    }
    ops.extend([
        Op::Add {
            to: RSP,
            from: RBP,
            bytes: 0,
        },
        Op::Load {
            to: RBP,
            base: RSP,
            offset: 0,
        },
        step(8),
    ]);
    true
}

fn enters(insn: &Instruction, ops: &mut Vec<Op>) -> bool {
    if insn.code() != Opcode::Enterq_imm16_imm8 {
        return false;
    }
    // The frame pointers of so many functions around this one are pushed, too.
    let level = i32::from(insn.immediate8_2nd() & 31);
    ops.extend([
        step(-8),
        Op::Store {
            base: RSP,
            offset: 0,
            from: RBP,
        },
        Op::Add {
            to: RBP,
            from: RSP,
            bytes: 0,
        },
        step(-8 * level - i32::from(insn.immediate16())),
    ]);
    true
}

/// What an instruction compares.
fn comparison(insn: &Instruction) -> Option<Compared> {
    if insn.mnemonic() != Mnemonic::Cmp || insn.op0_kind() != OpKind::Register {
        return None;
    }
    let register = insn.op0_register();
    let a = number(register)?;
    if let Some(b) = whole_source(insn) {
        return Some(Compared::Registers(a, b));
    }
    let limit = immediate(insn, 1)?;
    Some(Compared::Number(a, u16::try_from(limit).ok()?))
}

/// Whether flags and operands of a comparison are still what they were, behind an instruction that did
/// this.
fn keeps(insn: &Instruction, written: &[Op], compared: Compared) -> bool {
    let leaves_flags = matches!(
        insn.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Lea
            | Mnemonic::Movzx
            | Mnemonic::Movsxd
            | Mnemonic::Push
            | Mnemonic::Pop
            | Mnemonic::Nop
    ) || insn.flow_control() == FlowControl::ConditionalBranch;
    let written = written.iter().fold(0, |all, op| all | op.written(RSP));
    let writes = |register: u8| written & bit(register) != 0;
    leaves_flags
        && match compared {
            Compared::Registers(a, b) => !writes(a) && !writes(b),
            Compared::Number(a, _) => !writes(a),
        }
}

/// What a conditional branch behind a comparison tells.
fn test(insn: &Instruction, compared: Option<Compared>) -> Test {
    let at_most = |register, limit, when| Test::AtMost {
        register,
        limit,
        when,
    };
    match (insn.condition_code(), compared) {
        (ConditionCode::e, Some(Compared::Registers(a, b))) => Test::Equal {
            a,
            b,
            when: Way::Taken,
        },
        (ConditionCode::ne, Some(Compared::Registers(a, b))) => Test::Equal {
            a,
            b,
            when: Way::On,
        },
        (ConditionCode::a, Some(Compared::Number(a, limit))) => at_most(a, limit, Way::On),
        (ConditionCode::be, Some(Compared::Number(a, limit))) => at_most(a, limit, Way::Taken),
        (ConditionCode::ae, Some(Compared::Number(a, limit @ 1..))) => {
            at_most(a, limit - 1, Way::On)
        }
        (ConditionCode::b, Some(Compared::Number(a, limit @ 1..))) => {
            at_most(a, limit - 1, Way::Taken)
        }
        _ => Test::None,
    }
}
