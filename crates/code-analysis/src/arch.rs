//! Machines: their instructions as operations, and what their calls preserve.

use core::ops::Range;

use unspool_rows::{Abi, Arch};

use crate::code::LiftedCode;
use crate::op::{Flow, Op, ScanEvent, UNBOUNDED};
use crate::state::AbstractState;
use crate::verifier::state::VerifierState;

pub mod x86_64;

/// What turns bytes into instructions; keeps what it learns about instructions.
#[derive(Debug)]
pub enum Lifter {
    /// x86-64.
    X86_64(Box<x86_64::X86Lifter>),
}

/// What the analysis must know of a machine and its ABI. Registers are by their DWARF numbers.
#[derive(Debug)]
pub struct AbiInfo {
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
    pub vector_registers: Range<u8>,
    /// Those that floating-point numbers are passed in.
    pub vector_arguments: Range<u8>,
    /// The register that points at the frame in code that keeps a frame pointer.
    pub frame_pointer: u8,
    /// The bytes that a call instruction pushes.
    pub call_pushes: i32,
    /// The numbers of system calls that a thread may come back from on another stack.
    pub stack_switching_syscalls: &'static [u64],
    /// The number of the one of these that has flags and the address of that stack for arguments, as [`AbiInfo::arguments`] have them.
    pub clone_syscall: u64,
    /// The flag of such a system call that has the new thread share the memory.
    pub share_memory_flag: u64,
    /// The numbers of system calls that a child comes back from first, on the stack of its parent, which waits.
    pub stack_sharing_syscalls: &'static [u64],
    /// The numbers of system calls that a thread never comes back from.
    pub noreturn_syscalls: &'static [u64],
    /// The parts of the processor's state that have the same place on each processor, as a choice has them, and how many bytes these take, with all
    /// that comes before them.
    pub fixed_xsave_area: (u64, u16),
    /// How far below the stack pointer memory keeps its value, in bytes.
    pub red_zone: i32,
    /// The instruction that debuggers stop at, and behind which they go on.
    pub breakpoint: &'static [u8],
    /// Instructions that do nothing but keep the processor from running ahead.
    pub speculation_barriers: &'static [&'static [u8]],
    /// The code that handlers of signals return to: what is on the stack there is the kernel's.
    pub sigreturn_code: &'static [u8],
}

impl AbiInfo {
    /// How many bytes the state of the processor has, at most, of which numbers choose a part, low and high, as far as they are known.
    #[must_use]
    pub fn state_bytes(&self, chosen: [Option<u64>; 2]) -> u16 {
        let [Some(low), Some(high)] = chosen.map(|bits| bits.map(|bits| bits & 0xffff_ffff)) else {
            return UNBOUNDED;
        };
        let (parts, bytes) = self.fixed_xsave_area;
        match high << 32 | low {
            chosen if chosen & !parts == 0 => bytes,
            _ => UNBOUNDED,
        }
    }

    /// Whether a register is the stack pointer, or points at the frame in code that keeps a frame pointer.
    #[must_use]
    #[inline]
    pub fn points_at_frames(&self, register: u8) -> bool {
        register == self.stack_pointer || register == self.frame_pointer
    }

    /// Whether the return address is on top of the stack, or code has moved it over data behind the call: a return goes to who called.
    #[must_use]
    pub fn is_return(&self, state: &AbstractState) -> bool {
        let top = state.load(state.get(self.stack_pointer));
        top.is_some_and(|top| top.bytes_past_return_address(self.return_address).is_some())
    }
}

/// An instruction, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedInsn {
    /// Its bytes.
    pub length: usize,
    /// Where the processor goes, if it does not just go on; of a branch not what it tells.
    pub flow: Option<Flow>,
    /// Whether it is padding, as [`LiftedCode::is_padding`] has it.
    pub is_padding: bool,
}

impl DecodedInsn {
    /// A byte that begins no instruction: it traps.
    const NONE: DecodedInsn = DecodedInsn {
        length: 1,
        flow: Some(Flow::Trap),
        is_padding: true,
    };
}

/// What a glance at an instruction's bytes shows: how long it is, and, of most, what it does to a [`VerifierState`].
#[derive(Debug, Clone, Copy)]
pub enum FastInsn<'b> {
    /// Of x86-64.
    X86_64(x86_64::X86FastInsn<'b>),
}

impl FastInsn<'_> {
    /// How many bytes it has.
    #[must_use]
    #[inline(always)]
    pub fn length(&self) -> usize {
        match self {
            FastInsn::X86_64(glance) => glance.length(),
        }
    }

    /// Whether it is padding, as [`LiftedCode::is_padding`] has it.
    #[must_use]
    #[inline(always)]
    pub fn is_padding(&self) -> bool {
        match self {
            FastInsn::X86_64(glance) => glance.is_nop(),
        }
    }

    /// Whether it is known to leave a frame as it is, and control goes on behind it.
    #[must_use]
    #[inline(always)]
    pub fn preserves(&self, frame: &VerifierState) -> bool {
        match self {
            FastInsn::X86_64(glance) => glance.preserves(frame),
        }
    }

    /// Whether it takes an address that it says relative to its own.
    #[must_use]
    #[inline(always)]
    pub fn takes_relative_address(&self) -> bool {
        match self {
            FastInsn::X86_64(glance) => glance.takes_relative_address(),
        }
    }

    /// Tells what it does to frames, which may be by other operations than [`Lifter::lift`] has; whether it did: otherwise it must be decoded
    /// for that.
    #[inline(always)]
    pub fn emit_ops(&self, see: impl FnMut(Op)) -> bool {
        match self {
            FastInsn::X86_64(glance) => glance.emit_ops(see),
        }
    }

    /// Where control goes from it, if it is at `address`, and control does not just go on: of a branch not what it tells, of an
    /// indirect jump not by which register.
    #[must_use]
    #[inline(always)]
    pub fn flow(&self, address: u64) -> Option<Flow> {
        match self {
            FastInsn::X86_64(glance) => glance.flow(address),
        }
    }
}

impl Lifter {
    /// The machine of an architecture; `None` if it is not known here.
    #[must_use]
    pub fn new(abi: Abi) -> Option<Lifter> {
        match abi.arch {
            Arch::X86_64 => Some(Lifter::X86_64(Box::default())),
            _ => None,
        }
    }

    /// What must be known of it.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        match self {
            Lifter::X86_64(_) => &x86_64::SYSV_ABI,
        }
    }

    /// Decodes all of `bytes`, which are at `address`, behind what `code` has.
    pub fn lift(&mut self, bytes: &[u8], address: u64, code: &mut LiftedCode) {
        match self {
            Lifter::X86_64(lifter) => lifter.lift(bytes, address, code),
        }
    }

    /// Glances at the first instruction of `bytes`; `None` if it must be decoded, or there is none.
    #[must_use]
    #[inline(always)]
    pub fn fast_decode<'b>(&self, bytes: &'b [u8]) -> Option<FastInsn<'b>> {
        match self {
            Lifter::X86_64(lifter) => lifter.fast_decode(bytes).map(FastInsn::X86_64),
        }
    }

    /// Decodes the first instruction of `bytes`, which are at `address`, and has `ops` be what it does; `None` if there is none.
    pub fn decode(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<Op>) -> Option<DecodedInsn> {
        match self {
            Lifter::X86_64(lifter) => lifter.decode(bytes, address, ops),
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and tells only where control goes and which
    /// addresses are taken, and by which instructions.
    pub fn scan(&mut self, bytes: &[u8], address: u64, see: impl FnMut(u64, ScanEvent)) {
        match self {
            Lifter::X86_64(lifter) => lifter.scan(bytes, address, see),
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and tells of each instruction where it is, where control goes (of a
    /// branch not what it tells, of an indirect jump not by which register), and whether it is padding, as
    /// [`LiftedCode::is_padding`] has it.
    pub fn outline(
        &mut self,
        bytes: &[u8],
        address: u64,
        see: impl FnMut(Range<u64>, Option<Flow>, bool),
    ) {
        match self {
            Lifter::X86_64(lifter) => lifter.outline(bytes, address, see),
        }
    }
}
