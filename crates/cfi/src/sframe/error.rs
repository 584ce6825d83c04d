//! What can be wrong with an SFrame section.

use unspool_rows::{Register, Vaddr};

use crate::error::CfiError;

/// What is wrong with an entry or a part, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(".sframe entry at offset {entry:#x}: {error}")]
pub struct SframeProblem {
    /// The offset of the entry, or of the header, in the section, in bytes.
    pub entry: u64,
    /// What is wrong.
    pub error: SframeError,
}

/// Why a header, an entry or its rows cannot be read. Offsets are in bytes from the start of the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SframeError {
    /// The bytes end inside a field.
    #[error("field at offset {offset:#x} runs past the end {end:#x}")]
    Truncated {
        /// Where the field begins.
        offset: u64,
        /// Where the bytes end.
        end: u64,
    },
    /// The magic number is missing.
    #[error("{0:#06x} is not the magic number 0xdee2")]
    Magic(u16),
    /// A version that is not known.
    #[error("version {0} is not supported; 1, 2 and 3 are")]
    Version(u8),
    /// A machine that is not known.
    #[error("machine {0} is unknown (sfh_abi_arch)")]
    Machine(u8),
    /// The section is for another machine, or byte order, than the file.
    #[error("machine {0} is not that of the file (sfh_abi_arch)")]
    OtherMachine(u8),
    /// The part has fewer entries than its header says.
    #[error("the header counts {counted} entries, there is room for {room}")]
    Entries {
        /// How many there should be.
        counted: u32,
        /// How many there can be.
        room: u64,
    },
    /// The header says more of rows than there is room for.
    #[error(
        "the header's {field} at offset {offset:#x} is {value:#x}, there is room for {room:#x}"
    )]
    Header {
        /// The field's name.
        field: &'static str,
        /// Where the field is.
        offset: u64,
        /// What it says.
        value: u32,
        /// The most that it can be.
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
    /// A reserved way to write where rows start.
    #[error("rows of type {0} are unknown (fre_type)")]
    RowType(u8),
    /// An unknown type of entry.
    #[error("entries of type {0} are unknown (fde_type)")]
    EntryType(u8),
    /// A repeated block without size.
    #[error("the repeated block has 0 bytes")]
    NoBlock,
    /// A row does not begin behind the one before it.
    #[error("row {row} at {to:#x} follows one at {from:#x}")]
    RowOrder {
        /// The row's number, from 0.
        row: u32,
        /// The offset of the row before, from the function's start.
        from: u32,
        /// Its own.
        to: u32,
    },
    /// A row begins behind the end.
    #[error("row {row} at {at:#x} is past the end at {end:#x}")]
    RowOutside {
        /// The row's number, from 0.
        row: u32,
        /// Its offset from the function's start, or from the block's.
        at: u32,
        /// The function's end, or the block's.
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
        /// How many it has.
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
    /// A flexible row for which a look-up that allocates nothing has no expression ([`super::SframeLookup::row`]).
    #[error("no expression is kept ready for register {} plus {offset} bytes", .register.0)]
    NotReady {
        /// The register.
        register: Register,
        /// What is added to it, in bytes.
        offset: i64,
    },
    /// Entries share so many rows, or repeat so many, that what is made of the section is no longer linear in its size.
    #[error("the entry's rows are too many for the size of the section")]
    TooLarge,
}

impl From<CfiError> for SframeError {
    /// The only error of a [`crate::cursor::ByteReader`] that takes numbers of fixed size.
    fn from(error: CfiError) -> SframeError {
        match error {
            CfiError::Truncated { offset, end } => SframeError::Truncated { offset, end },
            _ => SframeError::TooLarge,
        }
    }
}
