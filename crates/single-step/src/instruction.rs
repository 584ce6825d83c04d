//! Effects of an instruction on control flow, on the stack pointer, and on its tracer.

use unspool_code_analysis::code::LiftedCode;
use unspool_code_analysis::op::{Flow, Op};
use unspool_code_analysis::{InsnId, Lifter};

/// The tracer's facts about an instruction. Targets are addresses of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SteppedInstruction {
    /// Length in bytes.
    pub(crate) length: u8,
    /// Its control flow.
    pub(crate) flow: Option<Flow>,
    /// The new stack pointer is not relative to the old one: this may be another stack.
    pub(crate) loads_stack_pointer: bool,
    /// It reads or writes the word on top of the stack: if called, it uses the pushed address, as
    /// functions do not.
    pub(crate) takes_top: bool,
    /// What is special about it.
    pub(crate) kind: InstructionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstructionKind {
    Usual,
    /// It pushes the flags, including those of the tracer.
    PushesFlags,
    /// A breakpoint of the program's own.
    Breakpoint,
}

/// Length of the longest x86-64 instruction, in bytes.
pub(crate) const MAX_INSTRUCTION_BYTES: usize = 15;

/// Prefixes before a one-byte opcode: operand size, segment, repetition, REX.
fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x66 | 0x67 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0xf0 | 0xf2 | 0xf3 | 0x40..=0x4f
    )
}

impl SteppedInstruction {
    /// The first instruction of `bytes`.
    pub(crate) fn decode(lifter: &mut Lifter, bytes: &[u8], address: u64) -> SteppedInstruction {
        let bytes = bytes.get(..MAX_INSTRUCTION_BYTES).unwrap_or(bytes);
        let mut code = LiftedCode::default();
        lifter.lift(bytes, address, &mut code);
        let first = InsnId(0);
        let range = code.range(first);
        let stack_pointer = lifter.abi_info().stack_pointer;
        let loads = |op: &Op| match *op {
            Op::Add { to, from, .. } => to == stack_pointer && from != stack_pointer,
            Op::Align { .. } | Op::SystemCall { .. } => false,
            other => other.written(stack_pointer) & (1 << stack_pointer) != 0,
        };
        let takes = |op: &Op| match *op {
            Op::Load { base, offset, .. }
            | Op::Store { base, offset, .. }
            | Op::Overwrite { base, offset, .. } => base == stack_pointer && offset == 0,
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

    /// Its known successors: the next instruction, if it may fall through, and the branch target.
    pub(crate) fn successors(&self, address: u64) -> [Option<u64>; 2] {
        let following = address.wrapping_add(self.length.into());
        let falls_through = self.flow.is_none_or(Flow::falls_through);
        [
            falls_through.then_some(following),
            self.flow.and_then(Flow::jump_target),
        ]
    }
}

impl InstructionKind {
    /// The kind of the first instruction of `bytes`.
    pub(crate) fn from_bytes(bytes: &[u8]) -> InstructionKind {
        let opcode = bytes.iter().find(|byte| !is_prefix(**byte));
        match opcode {
            Some(0x9c) => InstructionKind::PushesFlags,
            Some(0xcc) => InstructionKind::Breakpoint,
            _ => InstructionKind::Usual,
        }
    }
}
