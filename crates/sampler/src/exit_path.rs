//! The path from the program counter to the end of a function that no unwind table covers.
//!
//! Startup code of assemblers and compilers has no table: `.init` and `.fini`, the functions of
//! `crtbegin.o`, and the instructions after the system call in the C library's `clone`. They are
//! short, and the remaining instructions show their effect on the stack. By the ABI, at every end
//! of the function the stack pointer is at the return address and the caller's frame pointer is
//! back in its register. If the path reaches code with a table, that table takes over.

use std::collections::HashSet;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};

/// The registers that determine the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitStart {
    pub(crate) code: u64,
    pub(crate) stack_pointer: u64,
    pub(crate) frame_pointer: u64,
    /// The last result of a system call: one that starts a thread has two possible paths after it.
    pub(crate) result: u64,
}

/// The end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitEnd {
    pub(crate) exit_kind: ExitKind,
    pub(crate) stack_pointer: u64,
    pub(crate) frame_pointer: CallerFramePointer,
}

/// The kind of a path's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// A return: the stack pointer is at the return address.
    Return,
    /// An instruction that a table covers.
    Instruction(u64),
}

/// The caller's frame pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerFramePointer {
    /// It has this value.
    Value(u64),
    /// It is saved at this address.
    SavedAt(u64),
}

/// Code to decode.
pub(crate) trait CodeBytes {
    /// Up to the longest instruction's length in bytes, fewer at the end of the code.
    fn instruction_at(&self, address: u64) -> &[u8];

    /// Whether a table covers an address.
    fn has_row(&self, address: u64) -> bool;
}

/// The most instructions to follow on all paths together.
const MAX_INSTRUCTIONS: usize = 256;

/// The state on a path.
#[derive(Debug, Clone, Copy)]
struct PathState {
    code: u64,
    stack_pointer: u64,
    /// The value of the frame pointer register, if known.
    frame_pointer: Option<u64>,
    /// The location of the caller's frame pointer.
    caller_frame_pointer: CallerFramePointer,
    /// The value of the first result register, while it is known.
    result: Option<u64>,
    /// The value last compared with zero, if known.
    tested: Option<u64>,
    /// Whether the last instruction was a taken branch.
    has_jumped: bool,
}

/// Follows the instructions from a point in a function on. `None` if they reach no end, or have an
/// unknown effect.
pub(crate) fn follow(start: ExitStart, text: &impl CodeBytes) -> Option<ExitEnd> {
    let mut info = InstructionInfoFactory::new();
    let mut seen = HashSet::new();
    let mut paths = vec![PathState {
        code: start.code,
        stack_pointer: start.stack_pointer,
        frame_pointer: Some(start.frame_pointer),
        caller_frame_pointer: CallerFramePointer::Value(start.frame_pointer),
        result: Some(start.result),
        tested: None,
        has_jumped: false,
    }];
    while let Some(mut path) = paths.pop() {
        while seen.insert(path.code) && seen.len() <= MAX_INSTRUCTIONS {
            if path.code != start.code && text.has_row(path.code) {
                match path.has_jumped {
                    true => return Some(path.exit(ExitKind::Instruction(path.code))),
                    // The preceding call does not return.
                    false => break,
                }
            }
            path.has_jumped = false;
            let bytes = text.instruction_at(path.code);
            let mut decoder = Decoder::with_ip(64, bytes, path.code, DecoderOptions::NONE);
            let instruction = decoder.decode();
            match instruction.flow_control() {
                FlowControl::Next => {
                    let stepped = path.step(&instruction, start.stack_pointer, &mut info);
                    if stepped.is_none() {
                        break;
                    }
                    path.code = instruction.next_ip();
                }
                // A callee leaves the stack as it was; so does a system call.
                FlowControl::Call | FlowControl::IndirectCall => {
                    path.result = None;
                    path.code = instruction.next_ip();
                }
                // Or a tail call to a function that returns in place of this one.
                FlowControl::Return | FlowControl::IndirectBranch => {
                    return Some(path.exit(ExitKind::Return));
                }
                FlowControl::UnconditionalBranch => {
                    path.jump(instruction.near_branch_target());
                }
                FlowControl::ConditionalBranch => {
                    let target = instruction.near_branch_target();
                    match path.is_taken(&instruction) {
                        Some(true) => path.jump(target),
                        Some(false) => path.code = instruction.next_ip(),
                        None => {
                            let mut other = path;
                            other.jump(target);
                            paths.push(other);
                            path.code = instruction.next_ip();
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

    fn exit(self, exit_kind: ExitKind) -> ExitEnd {
        ExitEnd {
            exit_kind,
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

    /// Applies an instruction's effect on the stack; `None` if unknown. Above `origin`, the stack
    /// is unchanged.
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
        // A value pushed on this path is what it was.
        if self.stack_pointer >= origin {
            self.caller_frame_pointer = CallerFramePointer::SavedAt(self.stack_pointer);
        }
        self.frame_pointer = None;
        self.stack_pointer = self.stack_pointer.wrapping_add(8);
    }
}
