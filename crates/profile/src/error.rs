//! Why a profile cannot be read.

use std::io;

/// Why a profile cannot be read. That its end is missing is no error ([`crate::FileEnding`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system could not read it.
    #[error("cannot read the profile")]
    Io(#[from] io::Error),
    /// It does not start as a profile does.
    #[error("not a profile: it starts with \"{}\"", start.escape_ascii())]
    NotAProfile {
        /// Its first bytes, at most 8.
        start: Vec<u8>,
    },
    /// It is of another version of the format.
    #[error(
        "version {found} of profiles is not supported; {} is",
        crate::file::VERSION
    )]
    Version {
        /// Its version.
        found: u16,
    },
    /// A block whose checksum is right has content that no writer writes.
    #[error("the block at offset {offset:#x} of the profile is bad: {what}")]
    Block {
        /// Where the block starts, in bytes from the start of the file.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A row of a table cannot be.
    #[error(
        "row {row} of {table} in the block at offset {offset:#x} of the profile is bad: {what}"
    )]
    Row {
        /// Where the block starts, in bytes from the start of the file.
        offset: u64,
        /// What is in the block.
        table: &'static str,
        /// The number of the row in the block, from 0.
        row: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}
