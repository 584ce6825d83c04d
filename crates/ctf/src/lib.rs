//! C types: the type graph, CTF read, written and linked, BTF read and written.
//!
//! Bytes and values only: no file is opened and nothing is printed.
#![forbid(unsafe_code)]

mod abi;
mod aliases;
mod archive;
mod btf;
mod bytes;
mod c;
mod compare;
mod dict;
mod diff;
mod dump;
mod elf;
mod error;
mod graph;
mod header;
mod layout;
mod link;
mod merge;
mod parallel;
mod plain;
mod quirks;
mod read;
mod record;
mod section;
mod write;

pub use abi::{Convention, Location, Passing, Piece, Signature};
pub use aliases::Aliases;
pub use archive::{ARCHIVE_MAGIC, Member as ArchiveMember, SHARED, members};
pub use btf::{BTF_MAGIC, BtfError, BtfReading, BtfWriter, Unsaid};
pub use bytes::Endian;
pub use c::Definition;
pub use compare::{Agreement, Difference};
pub use dict::{Dict, Label, NO_NAME};
pub use diff::{Change, Effect, Interface, diff};
pub use dump::Dump;
pub use elf::{ElfContext, ElfStrings, ElfSymbol, Extent, SymbolKind};
pub use error::CtfError;
pub use graph::{
    Enumerator, Graph, Kind, Member, NameSpace, Number, Parameter, Qualifier, Symbol, Tag, Type,
    TypeId,
};
pub use header::{Flags, Header, MAGIC, Version};
pub use layout::{Hole, Placed, RecordLayout};
pub use link::{LinkOptions, LinkUnit, Linked, Share, link};
pub use quirks::{ARRAYS_IN_ORDER, Gcc, Quirk, turn_arrays};
pub use read::Reading;
pub use record::{Record, Records};
pub use section::{Section, Unit};
pub use write::{Compress, SymbolForm, Writer};
