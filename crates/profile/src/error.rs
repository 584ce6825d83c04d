//! Why a profile cannot be read.

use std::io;

/// Why a profile cannot be read. A missing end is not an error ([`crate::FileEnding`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system could not read it.
    #[error("cannot read the profile")]
    Io(#[from] io::Error),
    /// It does not start with the magic of a profile.
    #[error("not a profile: it starts with \"{}\"", start.escape_ascii())]
    NotAProfile {
        /// Its first bytes, at most 8.
        start: Vec<u8>,
    },
    /// It has another version of the format.
    #[error(
        "version {found} of profiles is not supported; {} is",
        crate::file::VERSION
    )]
    Version {
        /// Its version.
        found: u16,
    },
    /// A block with a valid checksum has invalid content.
    #[error("the block at offset {offset:#x} of the profile is bad: {what}")]
    Block {
        /// The start of the block, in bytes from the start of the file.
        offset: u64,
        /// The problem.
        what: &'static str,
    },
    /// A row of a table is invalid.
    #[error(
        "row {row} of {table} in the block at offset {offset:#x} of the profile is bad: {what}"
    )]
    Row {
        /// The start of the block, in bytes from the start of the file.
        offset: u64,
        /// The table in the block.
        table: &'static str,
        /// The number of the row in the block, from 0.
        row: u64,
        /// The problem.
        what: &'static str,
    },
}
