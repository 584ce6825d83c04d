//! Faults in an SFrame section.

use unspool_rows::{Register, Vaddr};

use crate::error::CfiError;

/// A fault in an entry or a part, and its location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(".sframe entry at offset {entry:#x}: {error}")]
pub struct SframeProblem {
    /// The offset of the entry, or of the header, in the section, in bytes.
    pub entry: u64,
    /// The fault.
    pub error: SframeError,
}

/// Why a header, an entry or its rows cannot be read. Offsets are in bytes from the start of the
/// section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SframeError {
    /// The bytes end inside a field.
    #[error("field at offset {offset:#x} runs past the end {end:#x}")]
    Truncated {
        /// The offset of the field.
        offset: u64,
        /// The end of the bytes.
        end: u64,
    },
    /// The magic number is missing.
    #[error("{0:#06x} is not the magic number 0xdee2")]
    Magic(u16),
    /// An unknown version.
    #[error("version {0} is not supported; 1, 2 and 3 are")]
    Version(u8),
    /// An unknown machine.
    #[error("machine {0} is unknown (sfh_abi_arch)")]
    Machine(u8),
    /// The section is for another machine, or byte order, than the file.
    #[error("machine {0} is not that of the file (sfh_abi_arch)")]
    OtherMachine(u8),
    /// The part has fewer entries than its header claims.
    #[error("the header counts {counted} entries, there is room for {room}")]
    Entries {
        /// The expected number.
        counted: u32,
        /// The maximum number.
        room: u64,
    },
    /// A header field about rows exceeds the section.
    #[error(
        "the header's {field} at offset {offset:#x} is {value:#x}, there is room for {room:#x}"
    )]
    Header {
        /// The field's name.
        field: &'static str,
        /// The offset of the field.
        offset: u64,
        /// The field's value.
        value: u32,
        /// The maximum value.
        room: u64,
    },
    /// The range wraps around the address space.
    #[error("range of {size:#x} bytes at {start} wraps around the address space")]
    Range {
        /// The first address.
        start: Vaddr,
        /// The number of bytes.
        size: u32,
    },
    /// A reserved encoding of row starts.
    #[error("rows of type {0} are unknown (fre_type)")]
    RowType(u8),
    /// An unknown type of entry.
    #[error("entries of type {0} are unknown (fde_type)")]
    EntryType(u8),
    /// A repeated block of size 0.
    #[error("the repeated block has 0 bytes")]
    NoBlock,
    /// A row does not begin behind the one before it.
    #[error("row {row} at {to:#x} follows one at {from:#x}")]
    RowOrder {
        /// The row's number, from 0.
        row: u32,
        /// The offset of the previous row, from the function's start.
        from: u32,
        /// The offset of this row.
        to: u32,
    },
    /// A row begins behind the end.
    #[error("row {row} at {at:#x} is past the end at {end:#x}")]
    RowOutside {
        /// The row's number, from 0.
        row: u32,
        /// Its offset from the start of the function or block.
        at: u32,
        /// The end of the function or block.
        end: u32,
    },
    /// A reserved size of data words.
    #[error("the data words of row {row} have a reserved size")]
    WordSize {
        /// The row's number, from 0.
        row: u32,
    },
    /// More or fewer data words than its kind of row has.
    #[error("row {row} has {words} data words, which its kind cannot have")]
    Words {
        /// The row's number, from 0.
        row: u32,
        /// The number of data words.
        words: u8,
    },
    /// A CFA that is computed from the CFA.
    #[error("the CFA of row {row} is not relative to a register")]
    NoCfaBase {
        /// The row's number, from 0.
        row: u32,
    },
    /// A register number above 65535.
    #[error("register number {0} is too large")]
    Register(u32),
    /// A flexible row for which the allocation-free look-up has no expression
    /// ([`super::SframeLookup::row`]).
    #[error("no expression is kept ready for register {} plus {offset} bytes", .register.0)]
    NotReady {
        /// The register.
        register: Register,
        /// The addend, in bytes.
        offset: i64,
    },
    /// Entries share or repeat so many rows that the result is no longer linear in the section's
    /// size.
    #[error("the entry's rows are too many for the size of the section")]
    TooLarge,
}

impl From<CfiError> for SframeError {
    /// The only error of a [`crate::byte_reader::ByteReader`] that takes numbers of fixed size.
    fn from(error: CfiError) -> SframeError {
        match error {
            CfiError::Truncated { offset, end } => SframeError::Truncated { offset, end },
            _ => SframeError::TooLarge,
        }
    }
}
