//! What an instruction does to control flow, to the stack pointer, and to its tracer.

use unspool_code_analysis::code::LiftedCode;
use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::{InsnId, Lifter};

/// What a tracer must know of an instruction. Targets are addresses of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteppedInstruction {
    /// Its bytes.
    pub(crate) length: u8,
    /// Where the processor goes.
    pub(crate) flow: Option<Flow>,
    /// The stack pointer becomes something that is not counted from what it was: this may be another stack.
    pub(crate) loads_stack_pointer: bool,
    /// It reads or writes the word on top of the stack: called, it makes use of what the call pushed, as no function does.
    pub(crate) takes_top: bool,
    /// What is peculiar to it.
    pub(crate) kind: InstructionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstructionKind {
    Usual,
    /// It pushes the flags, with those of the tracer.
    PushesFlags,
    /// A breakpoint of the program's own.
    Breakpoint,
}

/// The longest instruction of x86-64, in bytes.
pub(crate) const MAX_INSTRUCTION_BYTES: usize = 15;

/// Prefixes that may stand before an opcode of one byte: operand size, segments, repetition, REX.
fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x66 | 0x67 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f
    )
}

impl SteppedInstruction {
    /// The instruction that `bytes` begin with.
    pub(crate) fn decode(machine: &mut Lifter, bytes: &[u8], address: u64) -> SteppedInstruction {
        let bytes = bytes.get(..MAX_INSTRUCTION_BYTES).unwrap_or(bytes);
        let mut code = LiftedCode::default();
        machine.lift(bytes, address, &mut code);
        let first = InsnId(0);
        let range = code.range(first);
        let stack_pointer = machine.abi_info().stack_pointer;
        let loads = |op: &Op| match *op {
            Op::Add { to, from, .. } => to == stack_pointer && from != stack_pointer,
            Op::Align { .. } | Op::SystemCall { .. } => false,
            other => other.written(stack_pointer) & (1 << stack_pointer) != 0,
        };
        let takes = |op: &Op| match *op {
            Op::Load { base, offset, .. }
            | Op::Store { base, offset, .. }
            | Op::Overwrite { base, offset, .. }
            | Op::InvertMemory { base, offset } => base == stack_pointer && offset == 0,
            _ => false,
        };
        SteppedInstruction {
            length: u8::try_from(range.end - range.start).unwrap_or(0).max(1),
            flow: code.flow(first),
            loads_stack_pointer: code.ops_of(first).iter().any(loads),
            takes_top: code.ops_of(first).first().is_some_and(takes),
            kind: InstructionKind::from_bytes(bytes),
        }
    }

    /// Where it leads that can be told: the next, if it may go on there, and where it branches to.
    pub(crate) fn successors(&self, address: u64) -> [Option<u64>; 2] {
        let following = Some(address.wrapping_add(self.length.into()));
        match self.flow {
            None | Some(Flow::Call(_) | Flow::IndirectCall) => [following, None],
            Some(Flow::Branch { to, .. }) => [following, Some(to)],
            Some(Flow::Jump(to)) => [None, Some(to)],
            Some(Flow::IndirectJump(_) | Flow::Return { .. } | Flow::Trap) => [None, None],
        }
    }
}

impl InstructionKind {
    /// That of the instruction that `bytes` begin with.
    pub(crate) fn from_bytes(bytes: &[u8]) -> InstructionKind {
        let opcode = bytes.iter().find(|byte| !is_prefix(**byte));
        match opcode {
            Some(0x9c) => InstructionKind::PushesFlags,
            Some(0xcc) => InstructionKind::Breakpoint,
            _ => InstructionKind::Usual,
        }
    }
}
