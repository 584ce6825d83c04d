//! The C types and the variables of a program, from its debug information: DWARF as type graphs.
//!
//! [`read_types`] makes a graph of each compilation unit; the linker of `unspool-c-types` can combine
//! them. [`DwarfPrototypes`] finds a function's parameters, by its name or its address.
//! [`variables`] evaluates variables in the frames of a stack, and
//! [`GraphType`] displays them. [`elf_context`] returns the inputs
//! that types in other formats need from their ELF file. [`Producers`] finds the known faults of
//! gcc's CTF.
//!
//! ```
//! use unspool_dwarf_types::DwarfPrototypes;
//! use unspool_elf::{DebugFiles, ElfFile};
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("add.c", "int add(int a, long b) { return a + b; }");
//! # folder.tool("gcc", "-g -c add.c");
//! # let path = folder.path().join("add.o");
//!
//! // add.c, compiled with -g: int add(int a, long b) { return a + b; }
//! let file = ElfFile::open(path)?;
//! let prototypes = DwarfPrototypes::read(&file, &DebugFiles::default())?;
//! let add = prototypes.by_name("add").next().ok_or("no such function")?;
//! assert_eq!(add.graph.declare(add.ty, "add"), "int add(int a, long int b)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod abbreviations;
mod attributes;
mod declared_types;
mod elf;
mod error;
mod graph_type;
mod index;
mod producers;
mod program;
mod prototypes;
mod split;
mod type_file;
mod unit;
pub mod variables;

pub use elf::{convention, elf_context, endian};
pub use error::{ElfMachine, TypesError};
pub use graph_type::{GraphEnumerators, GraphMembers, GraphType};
pub use producers::{ArrayOrder, Producers};
pub use program::{ProgramTypes, SkippedUnit, UnitChoice, UnitTypes, read_types};
pub use prototypes::{DwarfPrototype, DwarfPrototypes};
pub use split::SplitFiles;
pub use type_file::{
    ArrayView, BTF_SECTION, CTF_SECTION, HeadersError, LinkInput, LinkUnits, LoadedDicts,
    LoadedTypes, NamedDict, PublicHeaders, PublicInterface, TypeFile, TypeFileError, TypeLoader,
    TypesFaults, TypesNotice, VersionInterface,
};
