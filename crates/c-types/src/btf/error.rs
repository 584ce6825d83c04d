//! Faults in BTF.

use thiserror::Error;

/// Why BTF, or an entry of it, could not be read. Offsets are from its first byte.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The first bytes are not those of BTF.
    #[error(
        "not BTF: it starts with {found:#06x} and not {:#06x}",
        super::BTF_MAGIC
    )]
    Magic {
        /// The first two bytes, lowest first; 0 if there are none.
        found: u16,
    },
    /// An unknown version.
    #[error("BTF version {version} at offset 0x2 is not supported; 1 is")]
    Version {
        /// The version's number.
        version: u8,
    },
    /// Split BTF without its base.
    #[error(
        "split BTF: it has the types that a module adds to those of its base, and cannot be read without that (--base)"
    )]
    Split,
    /// A base has no, or no single, counterpart of a type.
    #[error(
        "the base is another one: {count} of its types is {ty}, of the size that the module expects"
    )]
    BaseType {
        /// The type.
        ty: String,
        /// `none` or `several`.
        count: &'static str,
    },
    /// A name or a reference does not fit the base.
    #[error("type {id} does not fit the base: the base is another one, or the types are damaged")]
    WrongBase {
        /// The type.
        id: u32,
    },
    /// Bytes behind the types are not BTF.
    #[error("{size} bytes at {offset:#x} are no further BTF, and are not read")]
    Trailing {
        /// Their offset.
        offset: u64,
        /// Their number.
        size: u64,
    },
    /// A structure runs past the end of its container.
    #[error("{what} at {offset:#x}: {needed} bytes run past the end at {end:#x}")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Its offset.
        offset: u64,
        /// Its size in bytes.
        needed: u64,
        /// The end of the bytes.
        end: u64,
    },
    /// A type of an unknown kind. The next type cannot be found then.
    #[error(
        "type {id} at {offset:#x} is of kind {kind}, which does not exist; types after it cannot be found"
    )]
    Kind {
        /// The type.
        id: u32,
        /// Its offset.
        offset: u64,
        /// The kind's number.
        kind: u8,
    },
    /// A reference to a type that does not exist, or of an unsuitable kind.
    #[error("type {from} at {offset:#x} refers to type {id}, which is {what}")]
    Reference {
        /// The referring type.
        from: u32,
        /// Its offset.
        offset: u64,
        /// The type.
        id: u32,
        /// The fault.
        what: &'static str,
    },
    /// A name outside the strings.
    #[error(
        "type {id} at {offset:#x} has a name at {name:#x} of the strings, which have {size:#x} bytes"
    )]
    Name {
        /// The type.
        id: u32,
        /// Its offset.
        offset: u64,
        /// The offset in the strings.
        name: u32,
        /// The size of the strings.
        size: u64,
    },
}
