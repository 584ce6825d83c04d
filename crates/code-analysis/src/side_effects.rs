//! What instructions do beside the operations of [`crate::op`]: to the low eight bytes of vector registers, and to memory whose address is no operand.
//!
//! Unwind tables of the usual ABIs tell nothing of vector registers, and compilers keep no saved register where a string instruction
//! writes. So the analysis does not follow these. Who wants to know where an argument is asks for them, instruction by instruction.

use unspool_rows::{Abi, Arch};

use crate::arch::x86_64;

/// Something that an instruction does. Registers are by their DWARF numbers, those of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffect {
    /// The low 32 bits of `to` are those of `from`, and what is above them is not told.
    Insert {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
    },
    /// The low `bits` of `to` are those of `from`, and what is above them of the low 64 is zero; one of them at least is a vector
    /// register.
    Copy {
        /// The register written.
        to: u8,
        /// The register read.
        from: u8,
        /// How many bits: 32 or 64.
        bits: u8,
    },
    /// `to` is zero.
    Zero {
        /// The register written.
        to: u8,
    },
    /// The low bytes of `to` are what memory holds at `base` plus `offset`; what is above the first `bytes` of the low eight is zero.
    Load {
        /// The register written.
        to: u8,
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// How many bytes: 4 or 8.
        bytes: u8,
    },
    /// The same of an address that the instruction says relative to its own.
    LoadConstant {
        /// The register written.
        to: u8,
        /// The address.
        address: u64,
        /// How many bytes: 4 or 8.
        bytes: u8,
    },
    /// Memory at `base` plus `offset` is the low bytes of `from`. What is written behind them is another operation's.
    Store {
        /// The register that has the address.
        base: u8,
        /// What is added to it.
        offset: i32,
        /// The register read.
        from: u8,
        /// How many bytes: 4 or 8.
        bytes: u8,
    },
    /// The vector registers of this set are something else: bit n stands for register n.
    Clobber {
        /// The registers.
        registers: u64,
    },
    /// Memory is something else from `base` on, as a string instruction writes it: `bytes`, so many times as the register `count` says, once if
    /// there is none. The direction flag is clear, as the psABI has it at calls (§3.2.1).
    StoreString {
        /// The register that has the address.
        base: u8,
        /// How many bytes at a time.
        bytes: u8,
        /// The register that has the number of times.
        count: Option<u8>,
    },
    /// Memory is something else anywhere around `base`.
    StoreUnbounded {
        /// The register that has the address.
        base: u8,
    },
    /// Memory is something else where no register has the address: in a segment, or at an address that the instruction has.
    StoreElsewhere,
    /// The values of these registers go where no operation tells: bit n stands for register n.
    Escape {
        /// The registers.
        registers: u64,
    },
    /// The instruction may be stopped when it has done a part of all that.
    Interruptible,
}

/// Tells what instructions do.
#[derive(Debug)]
pub struct SideEffects(x86_64::side_effects::SideEffectLifter);

impl SideEffects {
    /// Those of a machine; `None` if nobody looked at its instructions so closely.
    #[must_use]
    pub fn new(abi: Abi) -> Option<SideEffects> {
        match abi.arch {
            Arch::X86_64 => Some(SideEffects(
                x86_64::side_effects::SideEffectLifter::default(),
            )),
            _ => None,
        }
    }

    /// Notes what the instruction does that is at the beginning of `bytes`, which are at `address`.
    pub fn lift(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<SideEffect>) {
        self.0.lift(bytes, address, ops);
    }
}
