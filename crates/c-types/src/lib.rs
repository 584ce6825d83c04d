//! C types: the type graph, CTF read, written and linked, BTF read and written.
//!
//! It handles bytes and values only, and neither opens files nor prints.
//!
//! ```
//! use unspool_c_types::{BtfReading, BtfWriter, Endian, Graph, Number, Type, TypeKind};
//!
//! const POINTER_BYTES: u64 = 8;
//! let mut graph = Graph::new(POINTER_BYTES);
//! let long = Number::with_size(8, Number::SIGNED);
//! let long = graph.add(Type::named("long", TypeKind::Integer(long)));
//! graph.add(Type::named("offset_t", TypeKind::Typedef(long)));
//!
//! let (bytes, _omissions) = BtfWriter { endian: Endian::Little }.write(&graph);
//! let read = BtfReading::parse(&bytes, POINTER_BYTES)?.graph;
//! let (id, _) = read.named("offset_t").next().ok_or("no such type")?;
//! assert_eq!(read.declare(id, "position"), "offset_t position");
//! assert_eq!(read.size(id), Some(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod abi;
mod aliases;
mod archive;
mod btf;
mod bytes;
mod c_text;
mod compare;
mod definition_order;
mod dict;
mod diff;
mod elf;
mod error;
mod escaped_names;
mod excuses;
mod graph;
mod header;
mod header_names;
mod layout;
mod link;
mod merge;
mod objdump;
mod path;
mod quirks;
mod read;
mod record;
mod section;
mod write;

pub use abi::{Convention, Passing, PassingLocation, PassingPiece, PassingSignature};
pub use aliases::Aliases;
pub use archive::{ARCHIVE_MAGIC, CtfArchiveMember, SHARED, members};
pub use btf::{BTF_MAGIC, BtfBase, BtfError, BtfOmission, BtfReading, BtfWriter};
pub use bytes::Endian;
pub use c_text::{Declarations, Definition};
pub use compare::{Agreement, TypeDifference};
pub use dict::{Dict, UNKNOWN_NAME};
pub use diff::{
    ChangeKind, Compatibility, Export, ExportName, ExportSet, Exports, Interface, InterfaceChange,
    InterfaceDiff, PrivateTypes, UntypedExport, diff,
};
pub use elf::{ElfContext, ElfStrings, ElfSymbol, SymbolExtent, SymbolKind};
pub use error::CtfError;
pub use excuses::{ExcuseError, Excuses};
pub use graph::{
    DataSection, Declaration, DeclarationTag, Enumerator, Graph, Linkage, Member, NameSpace,
    Number, Parameter, Qualifier, Tag, Type, TypeId, TypeKind, TypedSymbol, UNKNOWN_TYPE,
};
pub use header::{ILLUMOS_MAGIC, MAGIC};
pub use header_names::HeaderNames;
pub use layout::{Hole, MemberLayout, RecordLayout};
pub use link::{LinkOptions, LinkOutput, LinkUnit, Share, link};
pub use objdump::ObjdumpText;
pub use path::{MemberPlace, PathError, PathPart};
pub use quirks::{ARRAYS_IN_ORDER, Gcc, Quirk, reverse_arrays};
pub use read::CtfReading;
pub use section::{CtfSection, CtfUnit};
pub use write::{Compress, CtfWriter, SymbolForm};
