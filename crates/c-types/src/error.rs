//! What can be wrong with CTF.

use thiserror::Error;

/// Why CTF, or an entry of it, could not be read. Offsets count from the start of the section, in bytes; those of what is
/// compressed are as if it were not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CtfError {
    /// Something runs past the end of what it is in.
    #[error("{what} at {offset:#x}: {needed} bytes run past the end at {end:#x}")]
    Truncated {
        /// What it is.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its size in bytes.
        needed: u64,
        /// Where the bytes end.
        end: u64,
    },
    /// The first bytes are neither those of a dictionary nor of an archive.
    #[error(
        "offset {offset:#x}: not CTF: it starts with {found:#06x} and not {:#06x}",
        crate::header::MAGIC
    )]
    Magic {
        /// Where the dictionary should begin.
        offset: u64,
        /// The first two bytes, as the machine that wrote them would.
        found: u16,
    },
    /// A version that is not known.
    #[error(
        "CTF version {version} at {offset:#x} is not supported; 1 to 4 are (4 is called CTFv3)"
    )]
    Version {
        /// Where it stands.
        offset: u64,
        /// The version's number.
        version: u8,
    },
    /// A part of a dictionary begins behind the next one, or has a size that is no multiple of its entries'.
    #[error("header at {offset:#x}: the {part} goes from {start:#x} to {end:#x}, which cannot be")]
    Part {
        /// Where the header is.
        offset: u64,
        /// Which part.
        part: &'static str,
        /// Where it begins, behind the header.
        start: u32,
        /// Where it ends, behind the header.
        end: u32,
    },
    /// The compressed part cannot be decompressed.
    #[error("compressed data at {offset:#x}: {reason}")]
    Compressed {
        /// Where it begins.
        offset: u64,
        /// Why not.
        reason: String,
    },
    /// The header announces more than so few compressed bytes can hold.
    #[error(
        "compressed data at {offset:#x}: {compressed} bytes cannot hold the {announced} that the header announces"
    )]
    Bomb {
        /// Where it begins.
        offset: u64,
        /// Bytes that there are.
        compressed: u64,
        /// Bytes that the header announces.
        announced: u64,
    },
    /// A type of a kind that does not exist. Where the next type begins is not known then.
    #[error(
        "type {id:#x} at {offset:#x} is of kind {kind}, which does not exist; types after it cannot be found"
    )]
    Kind {
        /// The type.
        id: u32,
        /// Where it is.
        offset: u64,
        /// The kind's number.
        kind: u8,
    },
    /// A reference to a type that is not there.
    #[error("{what} at {offset:#x} refers to type {id:#x}, which is not there")]
    Reference {
        /// What refers to it.
        what: &'static str,
        /// Where that is.
        offset: u64,
        /// The type.
        id: u32,
    },
    /// A name that is in no string table.
    #[error(
        "{what} at {offset:#x} has its name at {name:#x} of the {table} string table, which has {size:#x} bytes"
    )]
    Name {
        /// What has the name.
        what: &'static str,
        /// Where that is.
        offset: u64,
        /// The offset in the table.
        name: u32,
        /// `dictionary's` or `ELF file's`.
        table: &'static str,
        /// The table's size.
        size: u64,
    },
    /// A child dictionary without its parent.
    #[error("the dictionary at {offset:#x} is a child of {parent:?}, which is not there")]
    NoParent {
        /// Where the child is.
        offset: u64,
        /// The parent's name.
        parent: String,
    },
    /// Members of an archive lie over each other, or over its tables.
    #[error("archive member {index} at {offset:#x} overlaps the data at {other:#x}")]
    Overlap {
        /// Which member.
        index: u64,
        /// Where it begins.
        offset: u64,
        /// Where the other begins.
        other: u64,
    },
}
