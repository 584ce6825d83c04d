//! The way out of a function that no unwind table speaks of, from where it stands to its end.
//!
//! Assemblers' and compilers' own start code has no table: `.init` and `.fini`, the functions of
//! `crtbegin.o`, the instructions after the system call in the C library's `clone`. They are short, and what
//! they do to the stack can be read off the instructions that are still to come: by the ABI the stack
//! pointer is at the return address, and the caller's frame pointer back in its register, at whichever end
//! of the function is reached. Where a table speaks again, it is followed from there.

use std::collections::HashSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

/// The registers that decide about the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitStart {
    pub(crate) code: u64,
    pub(crate) stack_pointer: u64,
    pub(crate) frame_pointer: u64,
    /// What a system call has returned last: there are two ways on from one that began a thread.
    pub(crate) result: u64,
}

/// Where the way leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitEnd {
    pub(crate) end: ExitKind,
    pub(crate) stack_pointer: u64,
    pub(crate) frame_pointer: CallerFramePointer,
}

/// What a way ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// A return: the stack pointer is at the return address.
    Return,
    /// An instruction that a table speaks of.
    Instruction(u64),
}

/// The caller's frame pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerFramePointer {
    /// It is this.
    Is(u64),
    /// It is saved at this address.
    SavedAt(u64),
}

/// Code that is looked at.
pub(crate) trait CodeBytes {
    /// The longest instruction, or what there is of it.
    fn instruction_at(&self, address: u64) -> &[u8];

    /// Whether a table speaks of an address.
    fn has_row(&self, address: u64) -> bool;
}

/// So many instructions are followed, all ways together.
const MAX_INSTRUCTIONS: usize = 256;

/// The state on a way.
#[derive(Debug, Clone, Copy)]
struct PathState {
    code: u64,
    stack_pointer: u64,
    /// What the frame pointer register holds; `None` if that is not known.
    frame_pointer: Option<u64>,
    /// Where the caller's is.
    caller_frame_pointer: CallerFramePointer,
    /// What the first result register holds, as long as it is known.
    result: Option<u64>,
    /// What was compared with zero last, if that is known.
    tested: Option<u64>,
    /// Whether the last instruction was a branch that was taken.
    has_jumped: bool,
}

/// Follows the instructions from a place in a function on. `None` if they lead to no end, or do
/// something that is not understood.
pub(crate) fn follow(here: ExitStart, text: &impl CodeBytes) -> Option<ExitEnd> {
    let mut info = InstructionInfoFactory::new();
    let mut seen = HashSet::new();
    let mut ways = vec![PathState {
        code: here.code,
        stack_pointer: here.stack_pointer,
        frame_pointer: Some(here.frame_pointer),
        caller_frame_pointer: CallerFramePointer::Is(here.frame_pointer),
        result: Some(here.result),
        tested: None,
        has_jumped: false,
    }];
    while let Some(mut way) = ways.pop() {
        while seen.insert(way.code) && seen.len() <= MAX_INSTRUCTIONS {
            if way.code != here.code && text.has_row(way.code) {
                match way.has_jumped {
                    true => return Some(way.end(ExitKind::Instruction(way.code))),
                    // The call before does not return.
                    false => break,
                }
            }
            way.has_jumped = false;
            let bytes = text.instruction_at(way.code);
            let mut decoder = Decoder::with_ip(64, bytes, way.code, DecoderOptions::NONE);
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::Next => {
                    let stepped = way.step(&instruction, here.stack_pointer, &mut info);
                    if stepped.is_none() {
                        break;
                    }
                    way.code = instruction.next_ip();
                }
                // What is called leaves the stack as it was; so does a system call.
                FlowControl::Call | FlowControl::IndirectCall => {
                    way.result = None;
                    way.code = instruction.next_ip();
                }
                // Or on to another function, which returns in place of this one.
                FlowControl::Return | FlowControl::IndirectBranch => {
                    return Some(way.end(ExitKind::Return));
                }
                FlowControl::UnconditionalBranch => {
                    way.jump(instruction.near_branch_target());
                }
                FlowControl::ConditionalBranch => {
                    let target = instruction.near_branch_target();
                    match way.is_taken(&instruction) {
                        Some(true) => way.jump(target),
                        Some(false) => way.code = instruction.next_ip(),
                        None => {
                            let mut other = way;
                            other.jump(target);
                            ways.push(other);
                            way.code = instruction.next_ip();
                        }
                    }
                }
                _ => break,
            }
        }
    }
    None
}

impl PathState {
    fn jump(&mut self, target: u64) {
        self.code = target;
        self.has_jumped = true;
    }

    fn end(self, end: ExitKind) -> ExitEnd {
        ExitEnd {
            end,
            stack_pointer: self.stack_pointer,
            frame_pointer: self.caller_frame_pointer,
        }
    }

    /// Whether a branch is taken, if that is known.
    fn is_taken(&self, branch: &Instruction) -> Option<bool> {
        let tested = self.tested?;
        match branch.mnemonic() {
            Mnemonic::Je => Some(tested == 0),
            Mnemonic::Jne => Some(tested != 0),
            Mnemonic::Js | Mnemonic::Jl => Some(tested >> 63 != 0),
            Mnemonic::Jns | Mnemonic::Jge => Some(tested >> 63 == 0),
            _ => None,
        }
    }

    /// What an instruction does to the stack; `None` if that is not known. Above `origin`, the stack is
    /// as it was.
    fn step(
        &mut self,
        instruction: &Instruction,
        origin: u64,
        info: &mut InstructionInfoFactory,
    ) -> Option<()> {
        self.tested = match instruction.code() {
            Code::Test_rm64_r64
                if instruction.op0_register() == Register::RAX
                    && instruction.op1_register() == Register::RAX =>
            {
                self.result
            }
            _ => None,
        };
        let is = |kind: Mnemonic| instruction.mnemonic() == kind;
        let on = |register| {
            instruction.op0_kind() == OpKind::Register && instruction.op0_register() == register
        };
        if is(Mnemonic::Push) {
            self.stack_pointer = self.stack_pointer.wrapping_sub(8);
            return Some(());
        }
        if is(Mnemonic::Leave) {
            self.stack_pointer = self.frame_pointer?;
            self.pop_frame_pointer(origin);
            return Some(());
        }
        if is(Mnemonic::Pop) && on(Register::RBP) {
            self.pop_frame_pointer(origin);
            return Some(());
        }
        if is(Mnemonic::Pop) {
            (!on(Register::RSP)).then_some(())?;
            self.stack_pointer = self.stack_pointer.wrapping_add(8);
        } else if is(Mnemonic::Mov)
            && on(Register::RBP)
            && instruction.op1_register() == Register::RSP
        {
            self.frame_pointer = Some(self.stack_pointer);
            return Some(());
        } else if (is(Mnemonic::Add) || is(Mnemonic::Sub)) && on(Register::RSP) {
            let bytes = match instruction.op1_kind() {
                OpKind::Immediate8to64 | OpKind::Immediate32to64 => instruction.immediate(1),
                _ => return None,
            };
            self.stack_pointer = match is(Mnemonic::Add) {
                true => self.stack_pointer.wrapping_add(bytes),
                false => self.stack_pointer.wrapping_sub(bytes),
            };
            return Some(());
        }
        if is(Mnemonic::Lea) && on(Register::RSP) {
            (instruction.memory_index() == Register::None).then_some(())?;
            let base = match instruction.memory_base() {
                Register::RSP => self.stack_pointer,
                Register::RBP => self.frame_pointer?,
                _ => return None,
            };
            self.stack_pointer = base.wrapping_add(instruction.memory_displacement64());
            return Some(());
        }
        for used in info.info(instruction).used_registers() {
            let is_written = !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            );
            match used.register().full_register() {
                Register::RSP if is_written && !is(Mnemonic::Pop) => return None,
                Register::RBP if is_written => self.frame_pointer = None,
                Register::RAX if is_written => self.result = None,
                _ => {}
            }
        }
        Some(())
    }

    fn pop_frame_pointer(&mut self, origin: u64) {
        // What was pushed on the way is what it was.
        if self.stack_pointer >= origin {
            self.caller_frame_pointer = CallerFramePointer::SavedAt(self.stack_pointer);
        }
        self.frame_pointer = None;
        self.stack_pointer = self.stack_pointer.wrapping_add(8);
    }
}
