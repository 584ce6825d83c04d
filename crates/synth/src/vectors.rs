//! What instructions do to the low eight bytes of vector registers.
//!
//! Unwind tables of the usual ABIs tell nothing of vector registers, so the analysis does not follow them. Who wants to know where a
//! floating-point argument is asks for these operations beside those of [`crate::op`], instruction by instruction.

use unspool_ir::{Abi, Arch};

use crate::arch::x86_64;

/// What an instruction does to vector registers. Registers are by their DWARF numbers, those of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorOp {
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
    /// The registers of this set are something else: bit n stands for register n.
    Clobber {
        /// The registers.
        registers: u64,
    },
}

/// Tells what instructions do to vector registers.
#[derive(Debug)]
pub struct Vectors(x86_64::vectors::Lifter);

impl Vectors {
    /// Those of a machine; `None` if its vector registers are not followed.
    #[must_use]
    pub fn of(abi: Abi) -> Option<Vectors> {
        match abi.arch {
            Arch::X86_64 => Some(Vectors(x86_64::vectors::Lifter::default())),
            _ => None,
        }
    }

    /// Notes what the instruction does that is at the beginning of `bytes`, which are at `address`. An instruction that is no
    /// vector instruction does nothing.
    pub fn note(&mut self, bytes: &[u8], address: u64, ops: &mut Vec<VectorOp>) {
        self.0.note(bytes, address, ops);
    }
}
