//! Machines: their instructions as operations, and what their calls preserve.

use core::ops::Range;

use unspool_ir::{Abi, Arch};

use crate::code::Code;
use crate::op::{Flow, Seen};
use crate::state::State;

pub mod x86_64;

/// What turns bytes into instructions; keeps what it learns about instructions.
#[derive(Debug)]
pub enum Machine {
    /// x86-64.
    X86_64(Box<x86_64::Lifter>),
}

/// What the analysis must know of a machine and its ABI. Registers are by their DWARF numbers.
#[derive(Debug)]
pub struct Facts {
    /// The stack pointer.
    pub stack_pointer: u8,
    /// Stands for the return address among the values at entry.
    pub return_address: u8,
    /// Registers that a call leaves as they were.
    pub preserved: &'static [u8],
    /// Registers that a call may change: bit n stands for register n.
    pub clobbered: u64,
    /// Registers that integers and pointers are passed in, in their order.
    pub arguments: &'static [u8],
    /// The vector registers that are followed ([`crate::details`]). A call may change all of them.
    pub vectors: Range<u8>,
    /// Those that floating-point numbers are passed in.
    pub vector_arguments: Range<u8>,
    /// The register that points at the frame in code that keeps a frame pointer.
    pub frame_pointer: u8,
    /// The bytes that a call instruction pushes.
    pub call_pushes: i32,
    /// The numbers of system calls that a thread may come back from on another stack.
    pub new_stack: &'static [u64],
    /// The numbers of system calls that a thread never comes back from.
    pub no_return: &'static [u64],
    /// How far below the stack pointer memory keeps its value, in bytes.
    pub red_zone: i32,
    /// The instruction that debuggers stop at, and behind which they go on.
    pub breakpoint: &'static [u8],
    /// Instructions that do nothing but keep the processor from running ahead.
    pub waits: &'static [&'static [u8]],
    /// The code that handlers of signals return to: what is on the stack there is the kernel's.
    pub signal_return: &'static [u8],
}

impl Facts {
    /// Whether the return address is on top of the stack, or code has moved it over data behind the call: a return goes to who called.
    #[must_use]
    pub fn is_return(&self, state: &State) -> bool {
        let top = state.load(state.get(self.stack_pointer));
        top.is_some_and(|top| top.behind_return(self.return_address).is_some())
    }
}

impl Machine {
    /// The machine of an architecture; `None` if it is not known here.
    #[must_use]
    pub fn of(abi: Abi) -> Option<Machine> {
        match abi.arch {
            Arch::X86_64 => Some(Machine::X86_64(Box::default())),
            _ => None,
        }
    }

    /// What must be known of it.
    #[must_use]
    pub fn facts(&self) -> &'static Facts {
        match self {
            Machine::X86_64(_) => &x86_64::FACTS,
        }
    }

    /// Decodes all of `bytes`, which are at `address`, behind what `code` has.
    pub fn lift(&mut self, bytes: &[u8], address: u64, code: &mut Code) {
        match self {
            Machine::X86_64(lifter) => lifter.lift(bytes, address, code),
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and tells only where control goes and which
    /// addresses are taken.
    pub fn scan(&mut self, bytes: &[u8], address: u64, see: impl FnMut(Seen)) {
        match self {
            Machine::X86_64(lifter) => lifter.scan(bytes, address, see),
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and tells of each instruction where it is, where control goes (of a
    /// branch not what it tells, of an indirect jump not by which register), and whether it is padding, as
    /// [`Code::is_padding`] has it.
    pub fn outline(
        &mut self,
        bytes: &[u8],
        address: u64,
        see: impl FnMut(Range<u64>, Option<Flow>, bool),
    ) {
        match self {
            Machine::X86_64(lifter) => lifter.outline(bytes, address, see),
        }
    }
}
