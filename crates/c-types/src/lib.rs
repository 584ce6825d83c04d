//! C types: the type graph, CTF read, written and linked, BTF read and written.
//!
//! It handles bytes and values only, and neither opens files nor prints.
#![forbid(unsafe_code)]

mod abi;
mod aliases;
mod archive;
mod btf;
mod bytes;
mod c_text;
mod compare;
mod dict;
mod diff;
mod elf;
mod error;
mod escaped_names;
mod graph;
mod header;
mod layout;
mod link;
mod merge;
mod objdump;
mod parallel;
mod quirks;
mod read;
mod record;
mod section;
mod write;

pub use abi::{Convention, Passing, PassingLocation, PassingPiece, PassingSignature};
pub use aliases::Aliases;
pub use archive::{ARCHIVE_MAGIC, CtfArchiveMember, SHARED, members};
pub use btf::{BTF_MAGIC, BtfError, BtfOmission, BtfReading, BtfWriter};
pub use bytes::Endian;
pub use c_text::Definition;
pub use compare::{Agreement, TypeDifference};
pub use dict::{Dict, DictLabel, UNKNOWN_NAME};
pub use diff::{Compatibility, Interface, InterfaceChange, diff};
pub use elf::{ElfContext, ElfStrings, ElfSymbol, SymbolExtent, SymbolKind};
pub use error::CtfError;
pub use graph::{
    Enumerator, Graph, Member, NameSpace, Number, Parameter, Qualifier, Tag, Type, TypeId,
    TypeKind, TypedSymbol,
};
pub use header::{CtfVersion, DictHeader, Flags, MAGIC};
pub use layout::{Hole, MemberLayout, RecordLayout};
pub use link::{LinkOptions, LinkOutput, LinkUnit, Share, link};
pub use objdump::ObjdumpText;
pub use quirks::{ARRAYS_IN_ORDER, Gcc, Quirk, reverse_arrays};
pub use read::CtfReading;
pub use record::{CtfRecord, Records};
pub use section::{CtfSection, CtfUnit};
pub use write::{Compress, CtfWriter, SymbolForm};
