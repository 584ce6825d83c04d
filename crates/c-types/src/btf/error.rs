//! What can be wrong with BTF.

use thiserror::Error;

/// Why BTF, or an entry of it, could not be read. Offsets count from its first byte.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The first bytes are not those of BTF.
    #[error(
        "not BTF: it starts with {found:#06x} and not {:#06x}",
        super::BTF_MAGIC
    )]
    Magic {
        /// The first two bytes, lowest first.
        found: u16,
    },
    /// A version that is not known.
    #[error("BTF version {version} at offset 0x2 is not supported; 1 is")]
    Version {
        /// The version's number.
        version: u8,
    },
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
    /// A type of a kind that does not exist. Where the next type begins is not known then.
    #[error(
        "type {id} at {offset:#x} is of kind {kind}, which does not exist; types after it cannot be found"
    )]
    Kind {
        /// The type.
        id: u32,
        /// Where it is.
        offset: u64,
        /// The kind's number.
        kind: u8,
    },
    /// A reference to a type that is not there, or that cannot be meant.
    #[error("type {from} at {offset:#x} refers to type {id}, which is {what}")]
    Reference {
        /// What refers to it.
        from: u32,
        /// Where that is.
        offset: u64,
        /// The type.
        id: u32,
        /// What it is.
        what: &'static str,
    },
    /// A name that is not in the strings.
    #[error(
        "type {id} at {offset:#x} has a name at {name:#x} of the strings, which have {size:#x} bytes"
    )]
    Name {
        /// The type.
        id: u32,
        /// Where it is.
        offset: u64,
        /// The offset in the strings.
        name: u32,
        /// The size of the strings.
        size: u64,
    },
}
