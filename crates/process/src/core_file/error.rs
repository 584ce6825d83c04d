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
    /// The file ends before the ELF header and one program header do.
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

/// What is wrong with a part of a core file; the other parts are read all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreProblem {
    /// Not all program headers are in the file.
    #[error("the file ends before its program headers: {present} of {declared} are there")]
    ProgramHeaders {
        /// How many the header declares.
        declared: u32,
        /// How many there are.
        present: u32,
    },
    /// `e_phnum` says that the number of program headers is in section header 0, which is not
    /// in the file (gABI, `PN_XNUM`).
    #[error(
        "the number of program headers is in a section header at {offset:#x}, past the end of the file"
    )]
    HeaderCount {
        /// `e_shoff`.
        offset: u64,
    },
    /// Memory that the program headers promise is missing at the end of the file.
    #[error(
        "the file is truncated: {segments} segments need {needed:#x} bytes, the file has {length:#x}"
    )]
    Truncated {
        /// How many segments are not or not completely there.
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
    /// A segment's memory range runs past the end of the address space, or its file range past
    /// the greatest offset.
    #[error("the segment at address {vaddr:#x} has an impossible size")]
    SegmentSize {
        /// The start of the range.
        vaddr: u64,
    },
    /// A note runs past the end of its segment or of the file; those after it are lost.
    #[error("the note at file offset {offset:#x} is truncated: it needs {size:#x} bytes")]
    CutNote {
        /// Where the note begins in the file.
        offset: u64,
        /// The bytes that the note needs.
        size: u64,
    },
    /// A note does not have the size, or the structure, that its type has.
    #[error(
        "the {kind} note at file offset {offset:#x} has a descriptor of {found} bytes, not {expected}"
    )]
    BadNote {
        /// Where the note begins in the file.
        offset: u64,
        /// The note's type.
        kind: &'static str,
        /// The size of its descriptor in bytes.
        found: usize,
        /// The size that it should have, or at least have.
        expected: usize,
    },
    /// There is no `NT_PRSTATUS` note, and so there are no registers.
    #[error("no NT_PRSTATUS note: no thread's registers are known")]
    NoThreads,
}
