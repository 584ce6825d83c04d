//! Why a core file, or a part of it, could not be read.

use std::io;
use std::path::PathBuf;

/// Why a file cannot be read as a core file at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The file could not be opened or mapped.
    #[error("cannot read {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The file does not begin with the ELF magic number.
    #[error("not an ELF file: the first four bytes are not 7f 45 4c 46")]
    NotElf,
    /// The file ends before the end of the ELF header and one program header.
    #[error("the file is truncated: it has {length} bytes, and its headers need {needed}")]
    TooShort {
        /// The file's length in bytes.
        length: u64,
        /// The end of the first program header, in bytes.
        needed: u64,
    },
    /// The core of a 32-bit process.
    #[error("ELF class {class}, not 2 (ELF64): cores of 32-bit processes are not supported")]
    Class {
        /// The `EI_CLASS` byte.
        class: u8,
    },
    /// A big-endian core.
    #[error("ELF data encoding {encoding}, not 1 (little-endian): not supported")]
    Encoding {
        /// The `EI_DATA` byte.
        encoding: u8,
    },
    /// An ELF file of another type.
    #[error("ELF type {found}, not 4 (ET_CORE): not a core file")]
    NotCore {
        /// `e_type`.
        found: u16,
    },
    /// A core of another architecture.
    #[error("ELF machine {machine}: cores of x86-64 (62) and AArch64 (183) are supported")]
    Machine {
        /// `e_machine`.
        machine: u16,
    },
    /// Program headers of a size that ELF64 does not have.
    #[error("program headers of {found} bytes, not 56")]
    ProgramHeaderSize {
        /// `e_phentsize`.
        found: u16,
    },
}

/// A defect in a part of a core file; the other parts are still read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreProblem {
    /// Not all program headers are in the file.
    #[error("the file ends before its program headers: {present} of {declared} are there")]
    ProgramHeaders {
        /// The declared number.
        declared: u32,
        /// The number in the file.
        present: u32,
    },
    /// `e_phnum` refers to section header 0 for the number of program headers, which is not in the
    /// file (gABI, `PN_XNUM`).
    #[error(
        "the number of program headers is in a section header at {offset:#x}, past the end of the file"
    )]
    HeaderCount {
        /// `e_shoff`.
        offset: u64,
    },
    /// Memory of the program headers is missing at the end of the file.
    #[error(
        "the file is truncated: {segments} segments need {needed:#x} bytes, the file has {length:#x}"
    )]
    Truncated {
        /// The number of segments that are missing or incomplete.
        segments: usize,
        /// The file's length in bytes if it were complete.
        needed: u64,
        /// The file's length in bytes.
        length: u64,
    },
    /// Memory ranges of two segments overlap; the one with the lower start is used.
    #[error("the segment at address {vaddr:#x} overlaps the one before it")]
    Overlap {
        /// The start of the second range.
        vaddr: u64,
    },
    /// A segment's memory range extends past the end of the address space, or its file range past
    /// the greatest offset.
    #[error("the segment at address {vaddr:#x} has an impossible size")]
    SegmentSize {
        /// The start of the range.
        vaddr: u64,
    },
    /// A note extends past the end of its segment or of the file; those after it are lost.
    #[error("the note at file offset {offset:#x} is truncated: it needs {size:#x} bytes")]
    CutNote {
        /// The note's file offset.
        offset: u64,
        /// The bytes that the note needs.
        size: u64,
    },
    /// A note does not have its type's size or structure.
    #[error(
        "the {kind} note at file offset {offset:#x} has a descriptor of {found} bytes, not {expected}"
    )]
    BadNote {
        /// The note's file offset.
        offset: u64,
        /// The note's type.
        kind: &'static str,
        /// The size of its descriptor in bytes.
        found: usize,
        /// The required size, or minimum size.
        expected: usize,
    },
    /// There is no `NT_PRSTATUS` note, so there are no registers.
    #[error("no NT_PRSTATUS note: no thread's registers are known")]
    NoThreads,
}
