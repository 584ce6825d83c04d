//! What can be wrong with call frame information.

use unspool_rows::Vaddr;
use unspool_rows::row::TooManyRules;

use crate::SectionKind;

/// What is wrong with an entry, and where it is. The entry is left out, unless `error` says that it
/// is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{section} entry at offset {entry:#x}: {error}")]
pub struct CfiProblem {
    /// The section.
    pub section: SectionKind,
    /// The offset of the entry in the section, in bytes.
    pub entry: u64,
    /// What is wrong.
    pub error: CfiError,
}

/// Why an entry, or a part of one, cannot be read. Offsets are in bytes from the start of the
/// section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CfiError {
    /// The entry, or the section, ends inside a field.
    #[error("field at offset {offset:#x} runs past the end {end:#x}")]
    Truncated {
        /// Where the field begins.
        offset: u64,
        /// Where the entry or section ends.
        end: u64,
    },
    /// The length field leads past the end of the section.
    #[error("length {length:#x} runs past the section end {end:#x}")]
    Length {
        /// The length.
        length: u64,
        /// Where the section ends.
        end: u64,
    },
    /// The length field has a reserved value (DWARF 5 §7.2.2).
    #[error("length {0:#x} is reserved")]
    ReservedLength(u32),
    /// A LEB128 number that does not fit its field.
    #[error("number at offset {offset:#x} is truncated or too large")]
    Number {
        /// Where the number begins.
        offset: u64,
    },
    /// A string that does not end where it must.
    #[error("string at offset {offset:#x} has more than {most} bytes")]
    TooLong {
        /// Where the string begins.
        offset: u64,
        /// The most bytes that it may have.
        most: usize,
    },
    /// The CIE pointer leads to a place where no CIE stands.
    #[error("the CIE pointer leads to offset {0:#x}, where there is no CIE")]
    NoCie(u64),
    /// The CIE pointer leads so many bytes back from the start of the section.
    #[error("the CIE pointer leads to offset -{0:#x}, before the section")]
    CieInFront(u64),
    /// The search table leads to a place where no FDE stands.
    #[error("the search table leads to offset {0:#x}, where there is no FDE")]
    NoFde(u64),
    /// The entry's CIE is bad itself, and reported by itself.
    #[error("its CIE at offset {0:#x} is bad")]
    BadCie(u64),
    /// A CIE version other than 1, 3 and 4.
    #[error("CIE version {0} is not supported")]
    Version(u8),
    /// An unknown augmentation letter, behind which something cannot be found: without `z` the
    /// instructions, with it the data of a known letter.
    #[error("the data after that of augmentation `{0}` cannot be found")]
    Augmentation(char),
    /// An unknown augmentation letter that could be passed over. The CIE's entries are read: this
    /// is a note beside them.
    #[error("augmentation `{0}` is unknown; entries are read without it")]
    AugmentationIgnored(char),
    /// An address size that no supported machine has.
    #[error("address size of {0} bytes is not supported")]
    AddressSize(u8),
    /// A pointer encoding that is not one (LSB, "DWARF Exception Header Encoding").
    #[error("pointer encoding {0:#04x} is unknown")]
    Encoding(u8),
    /// A pointer is relative to something that the section does not come with.
    #[error("pointer encoding {0:#04x} needs a base address that the file does not give")]
    NoBase(u8),
    /// The range does not end in the address space. It may end where that does, but in 64 bits
    /// there is no number for the end.
    #[error("range of {length:#x} bytes at {start} wraps around the address space")]
    Range {
        /// The first address.
        start: Vaddr,
        /// The length, in bytes.
        length: u64,
    },
    /// An unknown call frame instruction.
    #[error("instruction {opcode:#04x} at offset {offset:#x} is unknown")]
    Instruction {
        /// The opcode.
        opcode: u8,
        /// Where it is.
        offset: u64,
    },
    /// `DW_CFA_AARCH64_set_ra_state` with a state that AADWARF64 reserves.
    #[error("return address state {state} of the instruction at offset {offset:#x} is unknown")]
    RaState {
        /// The state.
        state: u64,
        /// Where the instruction is.
        offset: u64,
    },
    /// A register number above 65535.
    #[error("register number {0} is too large")]
    Register(u64),
    /// A factored offset or an advance whose product exceeds 64 bits.
    #[error(
        "operand of the instruction at offset {offset:#x} overflows when multiplied by its alignment factor"
    )]
    Scale {
        /// Where the instruction is.
        offset: u64,
    },
    /// A new row would begin before the current one.
    #[error("row at {to} follows one at {from}")]
    Backwards {
        /// The current row's address.
        from: Vaddr,
        /// The new row's address.
        to: Vaddr,
    },
    /// A row would begin 4 GiB or more behind its entry's start.
    #[error("row at {to} begins 4 GiB or more after its entry's start {start}")]
    Distant {
        /// The entry's start.
        start: Vaddr,
        /// The row's address.
        to: Vaddr,
    },
    /// `DW_CFA_def_cfa_offset` where the CFA is no register plus offset and, in this entry,
    /// never was (DWARF 5 §6.4.2.2).
    #[error("instruction at offset {offset:#x} gives an offset to a CFA without a register")]
    CfaNotRegister {
        /// Where the instruction is.
        offset: u64,
    },
    /// `DW_CFA_restore_state` without a matching `DW_CFA_remember_state`.
    #[error("restore_state at offset {offset:#x} has no matching remember_state")]
    NothingRemembered {
        /// Where the instruction is.
        offset: u64,
    },
    /// More states, or more changes of them, are remembered than fixed storage holds.
    #[error("remember_state at offset {offset:#x} nests too deeply")]
    RememberedTooMuch {
        /// Where the instruction is.
        offset: u64,
    },
    /// The expressions of one row, taken together, are longer than
    /// [`crate::evaluate::MAX_EXPRESSION_BYTES`].
    #[error(
        "the row at {start} has {bytes} bytes of expressions, more than {max}",
        max = crate::evaluate::MAX_EXPRESSION_BYTES
    )]
    Expressions {
        /// The row's first address.
        start: Vaddr,
        /// The length of all expressions of the row, in bytes.
        bytes: usize,
    },
    /// A row would need too many rules.
    #[error(transparent)]
    Rules(#[from] TooManyRules),
    /// The table would have more entries or rows than 32-bit numbers count, or the entry repeats
    /// so much that what is made from the section is no longer linear in its size
    /// ([`crate::read_table`]).
    #[error("the table is too large")]
    TooLarge,
}
