//! Faults in call frame information.

use unspool_rows::Vaddr;
use unspool_rows::row::TooManyRules;

use crate::SectionKind;

/// A fault in an entry, and its location. The entry is dropped, unless the documentation of `error`
/// says that it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{section} entry at offset {entry:#x}: {error}")]
pub struct CfiProblem {
    /// The section.
    pub section: SectionKind,
    /// The offset of the entry in the section, in bytes.
    pub entry: u64,
    /// The fault.
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
        /// The offset of the field.
        offset: u64,
        /// The end of the entry or section.
        end: u64,
    },
    /// The length field exceeds the section.
    #[error("length {length:#x} runs past the section end {end:#x}")]
    Length {
        /// The length.
        length: u64,
        /// The end of the section.
        end: u64,
    },
    /// The length field has a reserved value (DWARF 5 §7.2.2).
    #[error("length {0:#x} is reserved")]
    ReservedLength(u32),
    /// A LEB128 number that does not fit its field.
    #[error("number at offset {offset:#x} is truncated or too large")]
    Number {
        /// The offset of the number.
        offset: u64,
    },
    /// A string without its terminator within the maximum.
    #[error("string at offset {offset:#x} has more than {most} bytes")]
    TooLong {
        /// The offset of the string.
        offset: u64,
        /// The maximum length in bytes.
        most: usize,
    },
    /// No CIE is at the target of the CIE pointer.
    #[error("the CIE pointer leads to offset {0:#x}, where there is no CIE")]
    NoCie(u64),
    /// The CIE pointer points that many bytes before the section.
    #[error("the CIE pointer leads to offset -{0:#x}, before the section")]
    CieInFront(u64),
    /// No FDE is at the target of the search table.
    #[error("the search table leads to offset {0:#x}, where there is no FDE")]
    NoFde(u64),
    /// The entry's CIE is bad, and has its own report.
    #[error("its CIE at offset {0:#x} is bad")]
    BadCie(u64),
    /// A CIE version other than 1, 3 and 4.
    #[error("CIE version {0} is not supported")]
    Version(u8),
    /// An unknown augmentation letter that hides other data: without `z` the instructions, with it
    /// the data of a known letter.
    #[error("the data after that of augmentation `{0}` cannot be found")]
    Augmentation(char),
    /// An unknown augmentation letter that could be skipped. The CIE's entries are read: this is
    /// only a note.
    #[error("augmentation `{0}` is unknown; entries are read without it")]
    AugmentationIgnored(char),
    /// No supported machine has this address size.
    #[error("address size of {0} bytes is not supported")]
    AddressSize(u8),
    /// An undefined pointer encoding (LSB, "DWARF Exception Header Encoding").
    #[error("pointer encoding {0:#04x} is unknown")]
    Encoding(u8),
    /// The base of a relative pointer is not known for this section.
    #[error("pointer encoding {0:#04x} needs a base address that the file does not give")]
    NoBase(u8),
    /// The range exceeds the address space. It may end where the address space ends, but in 64 bits
    /// that end cannot be represented.
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
        /// The offset of the instruction.
        offset: u64,
    },
    /// `DW_CFA_AARCH64_set_ra_state` with a state that AADWARF64 reserves.
    #[error("return address state {state} of the instruction at offset {offset:#x} is unknown")]
    RaState {
        /// The state.
        state: u64,
        /// The offset of the instruction.
        offset: u64,
    },
    /// A register number above 65535.
    #[error("register number {0} is too large")]
    Register(u64),
    /// The product of a factored offset or an advance exceeds 64 bits.
    #[error(
        "operand of the instruction at offset {offset:#x} overflows when multiplied by its alignment factor"
    )]
    Scale {
        /// The offset of the instruction.
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
    /// `DW_CFA_def_cfa_offset`, but the CFA is not a register plus offset and, in this entry, never
    /// was (DWARF 5 §6.4.2.2).
    #[error("instruction at offset {offset:#x} gives an offset to a CFA without a register")]
    CfaNotRegister {
        /// The offset of the instruction.
        offset: u64,
    },
    /// `DW_CFA_restore_state` without a matching `DW_CFA_remember_state`.
    #[error("restore_state at offset {offset:#x} has no matching remember_state")]
    NothingRemembered {
        /// The offset of the instruction.
        offset: u64,
    },
    /// More saved states, or more changes of them, than fixed storage holds.
    #[error("remember_state at offset {offset:#x} nests too deeply")]
    RememberedTooMuch {
        /// The offset of the instruction.
        offset: u64,
    },
    /// The total length of one row's expressions exceeds [`crate::evaluate::MAX_EXPRESSION_BYTES`].
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
    /// The table would have more entries or rows than 32-bit numbers count. Or the entry repeats so
    /// much that the result is no longer linear in the section's size ([`crate::read_table`]).
    #[error("the table is too large")]
    TooLarge,
}
