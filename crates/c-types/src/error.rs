//! Faults in CTF.

use thiserror::Error;

/// Why CTF, or an entry of it, could not be read. Offsets are from the start of the section, in
/// bytes. For compressed data they are those of the decompressed form.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CtfError {
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
    /// The first bytes are neither those of a dictionary nor of an archive.
    #[error(
        "offset {offset:#x}: not CTF: it starts with {found:#06x} and not {:#06x}",
        crate::header::MAGIC
    )]
    Magic {
        /// The expected offset of the dictionary.
        offset: u64,
        /// The first two bytes, lowest first; 0 if there are none.
        found: u16,
    },
    /// The CTF of FreeBSD and illumos.
    #[error(
        "offset {offset:#x}: the CTF of FreeBSD and illumos, another format of that name (magic {:#06x}): their ctfdump reads it",
        crate::header::ILLUMOS_MAGIC
    )]
    Illumos {
        /// Its offset.
        offset: u64,
    },
    /// An unknown version.
    #[error(
        "CTF version {version} at {offset:#x} is not supported; 1 to 4 are (4 is called CTFv3)"
    )]
    Version {
        /// Its offset.
        offset: u64,
        /// The version's number.
        version: u8,
    },
    /// A part of a dictionary begins behind the next one, or its size is not a multiple of its
    /// entries' size.
    #[error("header at {offset:#x}: the {part} goes from {start:#x} to {end:#x}, which cannot be")]
    Part {
        /// The offset of the header.
        offset: u64,
        /// The part.
        part: &'static str,
        /// Its start, from the end of the header.
        start: u32,
        /// Its end, from the end of the header.
        end: u32,
    },
    /// The compressed part cannot be decompressed.
    #[error("compressed data at {offset:#x}: {reason}")]
    Compressed {
        /// Its offset.
        offset: u64,
        /// The reason.
        reason: String,
    },
    /// The header announces more bytes than the compressed data can hold.
    #[error(
        "compressed data at {offset:#x}: {compressed} bytes cannot hold the {announced} that the header announces"
    )]
    Bomb {
        /// Its offset.
        offset: u64,
        /// The size of the compressed data, in bytes.
        compressed: u64,
        /// The announced size, in bytes.
        announced: u64,
    },
    /// A type of an unknown kind. The next type cannot be found then.
    #[error(
        "type {id:#x} at {offset:#x} is of kind {kind}, which does not exist; types after it cannot be found"
    )]
    Kind {
        /// The type.
        id: u32,
        /// Its offset.
        offset: u64,
        /// The kind's number.
        kind: u8,
    },
    /// A reference to a type that does not exist.
    #[error("{what} at {offset:#x} refers to type {id:#x}, which is not there")]
    Reference {
        /// The referring entry.
        what: &'static str,
        /// Its offset.
        offset: u64,
        /// The type.
        id: u32,
    },
    /// A name that is in no string table.
    #[error(
        "{what} at {offset:#x} has its name at {name:#x} of the {table} string table, which has {size:#x} bytes"
    )]
    Name {
        /// The entry with the name.
        what: &'static str,
        /// Its offset.
        offset: u64,
        /// The offset in the table.
        name: u32,
        /// `dictionary's` or `ELF file's`.
        table: &'static str,
        /// The size of the table in bytes.
        size: u64,
    },
    /// Names are in `.strtab`, which `strip`, `objcopy` and linkers write anew: nothing says that
    /// the names are still at their places. The first versions of `unspool` wrote such
    /// dictionaries.
    #[error(
        "the dictionary at {offset:#x} has names in .strtab, which may have changed since: write the types anew (`unspool ctf from-dwarf` or `unspool ctf link`, with --into)"
    )]
    StrtabNames {
        /// The offset of the dictionary.
        offset: u64,
    },
    /// The types of functions or data are in the order of the ELF file's symbols at the time of
    /// writing. That is not their order now, or nothing says that it is.
    #[error(
        "the {what} types of the dictionary at {offset:#x} are in the order of {table}, {reason}: write the types anew (`unspool ctf from-dwarf` or `unspool ctf link`, with --into)"
    )]
    SymbolOrder {
        /// `function symbol` or `data symbol`.
        what: &'static str,
        /// The offset of the dictionary.
        offset: u64,
        /// The symbol table.
        table: &'static str,
        /// Why the order cannot be used.
        reason: &'static str,
    },
    /// A child dictionary without its parent.
    #[error("the dictionary at {offset:#x} is a child of {parent:?}, which is not there")]
    NoParent {
        /// The offset of the child.
        offset: u64,
        /// The parent's name.
        parent: String,
    },
    /// Members of an archive overlap each other, or the archive's tables.
    #[error("archive member {index} at {offset:#x} overlaps the data at {other:#x}")]
    Overlap {
        /// The index of the member.
        index: u64,
        /// Its offset.
        offset: u64,
        /// The offset of the other.
        other: u64,
    },
}

impl CtfError {
    /// Whether types depend on tables of the ELF file that have changed, or may have, since they
    /// were written.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(
            self,
            CtfError::StrtabNames { .. } | CtfError::SymbolOrder { .. }
        )
    }
}
