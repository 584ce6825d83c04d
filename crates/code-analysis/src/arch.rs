//! Architectures: instructions as operations, and ABI parameters.

use core::cmp::Ordering;
use core::ops::Range;

use unspool_rows::{Abi, Arch};

use crate::code::LiftedCode;
use crate::op::{Flow, Op, ReturnTarget, ScanEvent, UNBOUNDED};
use crate::state::AbstractState;
use crate::value::AbstractValue;
use crate::verifier::state::VerifierState;

pub(crate) mod aarch64;
pub(crate) mod x86_64;

/// Lifts bytes to operations; caches facts about opcodes.
#[derive(Debug)]
pub enum Lifter {
    /// x86-64.
    X86_64(Box<x86_64::X86Lifter>),
}

/// ABI parameters that the analysis needs. Registers have DWARF numbers.
#[derive(Debug)]
pub struct AbiInfo {
    /// The stack pointer.
    pub stack_pointer: u8,
    /// Number that stands for the return address among the entry values.
    pub return_address: u8,
    /// The machine's registers have the numbers below.
    pub machine_registers: u8,
    /// The register with the result of calls and system calls.
    pub result: u8,
    /// Size of the longest instruction, in bytes.
    pub max_insn_bytes: u8,
    /// Registers that a call preserves.
    pub preserved: &'static [u8],
    /// Registers that a call may change: bit n stands for register n.
    pub clobbered: u64,
    /// Registers for integer and pointer arguments, in order.
    pub arguments: &'static [u8],
    /// The vector registers that [`SideEffects`](crate::SideEffects) tracks. A call may change all
    /// of them.
    pub vector_registers: Range<u8>,
    /// Registers for floating-point arguments.
    pub vector_arguments: Range<u8>,
    /// The frame pointer register, in code that keeps a frame pointer.
    pub frame_pointer: u8,
    /// Bytes that a call instruction pushes; 0 if it leaves the return address in a register,
    /// [`AbiInfo::return_address`].
    pub call_pushes: i32,
    /// System calls that may return on another stack.
    pub stack_switching_syscalls: &'static [u64],
    /// The one of these that takes flags and the address of the new stack, in the order of
    /// [`AbiInfo::arguments`].
    pub clone_syscall: u64,
    /// Its flag for shared memory.
    pub share_memory_flag: u64,
    /// System calls that return in the child first, on the stack of the waiting parent.
    pub stack_sharing_syscalls: &'static [u64],
    /// System calls that never return.
    pub noreturn_syscalls: &'static [u64],
    /// State components with the same offset on every processor, as a mask, and the end of the last
    /// of them, in bytes.
    pub fixed_xsave_area: (u64, u16),
    /// Bytes below the stack pointer that keep their values.
    pub red_zone: i32,
    /// Prefixes that change nothing that tables depend on: code may jump past them.
    pub idle_prefixes: &'static [u8],
    /// The breakpoint instruction. Debuggers resume after it.
    pub breakpoint: &'static [u8],
    /// Instructions that only stop speculative execution.
    pub speculation_barriers: &'static [&'static [u8]],
    /// Code that signal handlers return to. The kernel owns the stack there.
    pub sigreturn_code: &'static [u8],
}

impl AbiInfo {
    /// The greatest size of the processor's state, in bytes, for the components in the mask
    /// `chosen`: its low and its high half, where known.
    #[must_use]
    pub(crate) fn state_bytes(&self, chosen: [Option<u64>; 2]) -> u16 {
        let [Some(low), Some(high)] = chosen.map(|bits| bits.map(|bits| bits & 0xffff_ffff)) else {
            return UNBOUNDED;
        };
        let (parts, bytes) = self.fixed_xsave_area;
        match high << 32 | low {
            chosen if chosen & !parts == 0 => bytes,
            _ => UNBOUNDED,
        }
    }

    /// Whether a register is the stack pointer or the frame pointer.
    #[must_use]
    #[inline]
    pub fn points_at_frames(&self, register: u8) -> bool {
        register == self.stack_pointer || register == self.frame_pointer
    }

    /// The address that a return from `state` goes to.
    #[must_use]
    pub fn return_target(&self, to: ReturnTarget, state: &AbstractState) -> Option<AbstractValue> {
        match to {
            ReturnTarget::Stack => state.load(state.get(self.stack_pointer)),
            ReturnTarget::Register(register) => Some(state.get(register)),
        }
    }

    /// Whether a return from `state` goes to the caller: to the return address, or to one that code
    /// has moved past data behind the call.
    #[must_use]
    pub fn is_return(&self, to: ReturnTarget, state: &AbstractState) -> bool {
        let target = self.return_target(to, state);
        target.is_some_and(|to| to.bytes_past_return_address(self.return_address).is_some())
    }

    /// Where a call leaves the return address.
    #[must_use]
    pub fn return_target_of_call(&self) -> ReturnTarget {
        match self.call_pushes {
            0 => ReturnTarget::Register(self.return_address),
            _ => ReturnTarget::Stack,
        }
    }
}

/// Decodes single instructions, for paths that are followed without an analysis. It knows more
/// architectures than [`Lifter`] does.
#[derive(Debug)]
pub enum InsnDecoder {
    /// x86-64.
    X86_64(Box<x86_64::X86Lifter>),
    /// AArch64.
    Aarch64,
}

impl InsnDecoder {
    /// The size of the code that [`InsnDecoder::ends_with_tested_syscall`] takes.
    pub const TEST_BYTES: usize = 12;

    /// The decoder of an architecture; `None` if there is none.
    #[must_use]
    pub fn new(abi: Abi) -> Option<InsnDecoder> {
        match abi.arch {
            Arch::X86_64 => Some(InsnDecoder::X86_64(Box::default())),
            Arch::Aarch64 => Some(InsnDecoder::Aarch64),
            _ => None,
        }
    }

    /// Its ABI parameters.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        match self {
            InsnDecoder::X86_64(_) => &x86_64::SYSV_ABI,
            InsnDecoder::Aarch64 => &aarch64::AAPCS64_ABI,
        }
    }

    /// Decodes the first instruction of `bytes`, which are at `address`, and replaces `ops` by its
    /// operations. `None` if there is no instruction.
    pub fn decode(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<Op>) -> Option<DecodedInsn> {
        match self {
            InsnDecoder::X86_64(lifter) => lifter.decode(bytes, address, ops),
            InsnDecoder::Aarch64 => {
                ops.clear();
                let insn = u32::from_le_bytes(*bytes.first_chunk()?);
                Some(aarch64::decode::decode(insn, address, ops))
            }
        }
    }

    /// Whether an instruction compares the result register with zero.
    #[must_use]
    pub fn tests_result(&self, insn: &[u8]) -> bool {
        match self {
            InsnDecoder::X86_64(_) => x86_64::result_test::tests_result(insn),
            InsnDecoder::Aarch64 => insn
                .first_chunk()
                .is_some_and(|insn| aarch64::result_test::tests_result(u32::from_le_bytes(*insn))),
        }
    }

    /// Whether code ends with a system call, the comparison of its result, and at most one
    /// conditional branch: the flags are of that comparison still.
    #[must_use]
    pub fn ends_with_tested_syscall(&self, code: &[u8; InsnDecoder::TEST_BYTES]) -> bool {
        match self {
            InsnDecoder::X86_64(_) => x86_64::result_test::ends_with_tested_syscall(code),
            InsnDecoder::Aarch64 => {
                let (words, _) = code.as_chunks::<4>();
                let words = <[[u8; 4]; 3]>::try_from(words);
                words.is_ok_and(|words| {
                    aarch64::result_test::ends_with_tested_syscall(words.map(u32::from_le_bytes))
                })
            }
        }
    }

    /// Whether a conditional branch is taken, if known: `tested` is how the value compares that was
    /// last compared with zero, and `result` how the result register does.
    #[must_use]
    pub fn is_taken(
        &self,
        insn: &[u8],
        tested: Option<Ordering>,
        result: Option<Ordering>,
    ) -> Option<bool> {
        match self {
            InsnDecoder::X86_64(_) => x86_64::result_test::is_taken(insn, tested?),
            InsnDecoder::Aarch64 => {
                let insn = u32::from_le_bytes(*insn.first_chunk()?);
                aarch64::result_test::is_taken(insn, tested, result)
            }
        }
    }
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedInsn {
    /// Length in bytes.
    pub length: usize,
    /// Control flow, unless control only falls through. A branch has no condition here.
    pub flow: Option<Flow>,
    /// Whether it is padding; see [`LiftedCode::is_padding`].
    pub is_padding: bool,
}

impl DecodedInsn {
    /// A byte that does not begin a known instruction.
    const UNKNOWN: DecodedInsn = DecodedInsn {
        length: 1,
        flow: Some(Flow::Unknown),
        is_padding: true,
    };
}

/// A fast-decoded instruction: its length and, for most, its effect on a [`VerifierState`].
#[derive(Debug, Clone, Copy)]
pub enum FastInsn<'b> {
    /// Of x86-64.
    X86_64(x86_64::X86FastInsn<'b>),
}

impl FastInsn<'_> {
    /// Length in bytes.
    #[must_use]
    #[inline(always)]
    pub fn length(&self) -> usize {
        match self {
            FastInsn::X86_64(insn) => insn.length(),
        }
    }

    /// Whether it is padding; see [`LiftedCode::is_padding`].
    #[must_use]
    #[inline(always)]
    pub(crate) fn is_padding(&self) -> bool {
        match self {
            FastInsn::X86_64(insn) => insn.is_nop(),
        }
    }

    /// Whether it certainly preserves `state` and falls through.
    #[must_use]
    #[inline(always)]
    pub fn preserves(&self, state: &VerifierState) -> bool {
        match self {
            FastInsn::X86_64(insn) => insn.preserves(state),
        }
    }

    /// Whether it takes an address relative to its own.
    #[must_use]
    #[inline(always)]
    pub(crate) fn takes_relative_address(&self) -> bool {
        match self {
            FastInsn::X86_64(insn) => insn.takes_relative_address(),
        }
    }

    /// Emits the operations that act on verifier states. They may differ from those of
    /// [`Lifter::lift`]. Returns `false` if the instruction needs a full decode.
    #[inline(always)]
    pub fn emit_ops(&self, see: impl FnMut(Op)) -> bool {
        match self {
            FastInsn::X86_64(insn) => insn.emit_ops(see),
        }
    }

    /// Control flow of this instruction at `address`, unless it only falls through. Branches have
    /// no condition, indirect jumps and calls no register.
    #[must_use]
    #[inline(always)]
    pub(crate) fn flow(&self, address: u64) -> Option<Flow> {
        match self {
            FastInsn::X86_64(insn) => insn.flow(address),
        }
    }
}

impl Lifter {
    /// The lifter of an architecture; `None` if there is none.
    #[must_use]
    pub fn new(abi: Abi) -> Option<Lifter> {
        match abi.arch {
            Arch::X86_64 => Some(Lifter::X86_64(Box::default())),
            _ => None,
        }
    }

    /// Its ABI parameters.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        match self {
            Lifter::X86_64(_) => &x86_64::SYSV_ABI,
        }
    }

    /// Decodes all of `bytes`, which are at `address`, and appends to `code`.
    pub fn lift(&mut self, bytes: &[u8], address: u64, code: &mut LiftedCode) {
        match self {
            Lifter::X86_64(lifter) => lifter.lift(bytes, address, code),
        }
    }

    /// Decodes the first instruction of `bytes` from its first bytes alone. `None` if that is not
    /// enough, or if `bytes` is empty.
    #[must_use]
    #[inline(always)]
    pub fn fast_decode<'b>(&self, bytes: &'b [u8]) -> Option<FastInsn<'b>> {
        match self {
            Lifter::X86_64(lifter) => lifter.fast_decode(bytes).map(FastInsn::X86_64),
        }
    }

    /// Decodes the first instruction of `bytes`, which are at `address`, and replaces `ops` by its
    /// operations. `None` if there is no instruction.
    pub fn decode(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<Op>) -> Option<DecodedInsn> {
        match self {
            Lifter::X86_64(lifter) => lifter.decode(bytes, address, ops),
        }
    }

    /// Decodes all of `bytes`, which are at `address`. Reports only control flow and taken
    /// addresses, with the address of the instruction.
    pub fn scan(&mut self, bytes: &[u8], address: u64, see: impl FnMut(u64, ScanEvent)) {
        match self {
            Lifter::X86_64(lifter) => lifter.scan(bytes, address, see),
        }
    }

    /// Decodes all of `bytes`, which are at `address`. Reports each instruction's address, its
    /// control flow, and whether it is padding (see [`LiftedCode::is_padding`]). Branches have no
    /// condition, indirect jumps and calls no register.
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
