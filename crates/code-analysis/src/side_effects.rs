//! Side effects of instructions that [`crate::op`] does not have: on the low eight bytes of vector
//! registers, and on memory without an address operand.
//!
//! Unwind tables of the usual ABIs say nothing about vector registers, and compilers save no
//! register where a string instruction writes. So the dataflow analysis ignores these effects.
//! Argument tables need them, instruction by instruction.

use unspool_rows::{Abi, Arch};

use crate::arch::x86_64;

/// One side effect of an instruction. Registers, general or vector, have DWARF numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffect {
    /// The low 32 bits of `to` are those of `from`; the bits above are unspecified.
    Insert {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
    },
    /// The low `bits` of `to` are those of `from`, and the rest of the low 64 is zero. At least one
    /// of them is a vector register.
    Copy {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// Number of bits: 32 or 64.
        bits: u8,
    },
    /// `to` is zero.
    Zero {
        /// The register written.
        to: u8,
    },
    /// The low `bytes` of `to` are loaded from `base` plus `offset`; the rest of the low eight is
    /// zero.
    Load {
        /// The register written.
        to: u8,
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// Number of bytes: 4 or 8.
        bytes: u8,
    },
    /// The same for an address that the instruction encodes relative to its own.
    LoadConstant {
        /// The register written.
        to: u8,
        /// The address.
        address: u64,
        /// Number of bytes: 4 or 8.
        bytes: u8,
    },
    /// Memory at `base` plus `offset` is the low bytes of `from`. Bytes written behind them are
    /// another operation.
    Store {
        /// The register with the address.
        base: u8,
        /// Added to the address.
        offset: i32,
        /// The register read.
        from: u8,
        /// Number of bytes: 4 or 8.
        bytes: u8,
    },
    /// The vector registers in this set are something else: bit n stands for register n.
    Clobber {
        /// The registers.
        registers: u64,
    },
    /// Strong update from `base` on by a string instruction: `bytes`, as many times as register
    /// `count` says (once without a register). The direction flag is clear, as at calls (psABI,
    /// §3.2.1).
    StoreString {
        /// The register with the address.
        base: u8,
        /// Bytes in one repetition.
        bytes: u8,
        /// The register with the number of repetitions.
        count: Option<u8>,
    },
    /// Memory anywhere around `base` is something else.
    StoreUnbounded {
        /// The register with the address.
        base: u8,
    },
    /// Memory that no register addresses is something else: relative to a segment register, or at
    /// an absolute address.
    StoreElsewhere,
    /// The values of these registers escape: bit n stands for register n.
    Escape {
        /// The registers.
        registers: u64,
    },
    /// The instruction may be interrupted after a part of its effects.
    Interruptible,
}

/// Lifts side effects of instructions.
#[derive(Debug)]
pub struct SideEffects(x86_64::lift_side_effects::SideEffectLifter);

impl SideEffects {
    /// For an architecture; `None` if side effects are not implemented for it.
    #[must_use]
    pub fn new(abi: Abi) -> Option<SideEffects> {
        match abi.arch {
            Arch::X86_64 => Some(SideEffects(
                x86_64::lift_side_effects::SideEffectLifter::default(),
            )),
            _ => None,
        }
    }

    /// Lifts the side effects of the first instruction of `bytes`, which are at `address`.
    pub fn lift(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<SideEffect>) {
        self.0.lift(bytes, address, ops);
    }
}
