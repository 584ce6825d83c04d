//! Why a section could not be put into a file.

use std::path::PathBuf;

use crate::error::ModuleError;

/// Why a section could not be put into a file. Offsets and lengths are in bytes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A header table of the file cannot be read, or runs or points past the end of the file.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The name is empty or has a NUL in it.
    #[error("{name:?} cannot be the name of a section")]
    Name {
        /// The name.
        name: String,
    },
    /// The alignment is not a power of two, or larger than a page.
    #[error("a section cannot be aligned to {align} bytes: a power of two up to {limit} is needed")]
    Align {
        /// The alignment asked for.
        align: u64,
        /// The maximum.
        limit: u64,
    },
    /// The content does not begin with 8 magic bytes.
    #[error("content of {length} bytes does not begin with 8 magic bytes, not all zero")]
    Content {
        /// The size of the content.
        length: u64,
    },
    /// The file is of a kind that no loader maps.
    #[error("{} is {what}", file.display())]
    NotLinked {
        /// The file.
        file: PathBuf,
        /// The kind of file.
        what: &'static str,
    },
    /// The file is a separate debug file: it describes a program without having its bytes.
    #[error("{} is a separate debug file: it has no bytes for the code section {section}", file.display())]
    DebugFile {
        /// The file.
        file: PathBuf,
        /// The section that should hold code.
        section: String,
    },
    /// Another section has that name.
    #[error(
        "{}: the section {section} at offset {offset:#x} is not alone at the start of a read-only segment, \
         so it is none that could be replaced",
        file.display()
    )]
    NameTaken {
        /// The file.
        file: PathBuf,
        /// The name.
        section: String,
        /// Where that section starts.
        offset: u64,
    },
    /// There are bytes behind the last section. A program may look for them at the end of the file,
    /// as self-extracting ones do.
    #[error(
        "{}: {length:#x} bytes at offset {offset:#x} belong to no section; \
         their reader may look for them at the end of the file",
        file.display()
    )]
    Trailing {
        /// The file.
        file: PathBuf,
        /// The offset of the first one that is not zero.
        offset: u64,
        /// The number of bytes from there to the end of the file.
        length: u64,
    },
    /// No program header can be added.
    #[error(
        "{}: no room for another program header ({needed} bytes at offset {offset:#x}): {reason}",
        file.display()
    )]
    NoRoom {
        /// The file.
        file: PathBuf,
        /// Where the program header table ends.
        offset: u64,
        /// The size of a program header.
        needed: u64,
        /// The obstacle.
        reason: String,
    },
    /// The unwind table of an object file cannot be rewritten.
    #[error("{}: its unwind table cannot be written: {reason}{}", file.display(), .offset.map_or_else(String::new, |offset| format!(" (at offset {offset:#x})")))]
    Object {
        /// The file.
        file: PathBuf,
        /// The file offset of the obstacle, if it is in one place.
        offset: Option<u64>,
        /// The obstacle, and what helps.
        reason: &'static str,
    },
    /// The result would not fit into the address space or the file format.
    #[error("{}: {what} would be {value:#x}, the limit is {limit:#x}", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The value that would be too large.
        what: &'static str,
        /// The value; on overflow, the greatest number.
        value: u64,
        /// The maximum.
        limit: u64,
    },
}
