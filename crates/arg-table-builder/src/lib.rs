//! Building argument tables ([`unspool_arg_table`]) from a file's machine code and its functions'
//! prototypes.
//!
//! [`analyze_file`] tracks arguments through the code, and [`encode`] writes the result.
//! [`find_or_build`] keeps tables in a store. The crate takes files that were read, and prints
//! nothing.
//!
//! ```
//! use unspool_arg_table::ArgTable;
//! use unspool_arg_table_builder::build_table;
//! use unspool_elf::{DebugFiles, ElfFile};
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("add.c", "int add(int a, long b) { return a + b; }");
//! # folder.tool("gcc", "-g -shared add.c -o add.so");
//! # let path = folder.path().join("add.so");
//!
//! // add.c, compiled with -g: int add(int a, long b) { return a + b; }
//! let file = ElfFile::open(path)?;
//! let built = build_table(&file, &DebugFiles::default())?;
//! let add = file.symbols().named("add").next().ok_or("no such symbol")?;
//! let function = ArgTable::open(&built.bytes)?.function(add.address.0).ok_or("no such code")?;
//! let parameters = function.parameters().ok_or("no prototype")?;
//! let names: Vec<_> = parameters.map(|parameter| parameter.name).collect();
//! assert_eq!(names, ["a", "b"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod build;
mod dataflow;
mod encode;
mod functions;
mod kept_section;
mod prototype;
mod prototype_sources;
mod stored;
mod type_pool;
mod unproven_rules;

pub use build::{BuildError, BuildOutput, build_table};
pub use encode::{CodeTooLarge, encode};
pub use functions::{ArgRow, CallArguments, FileAnalysis, FunctionAnalysis, analyze_file};
pub use prototype::{OwnedParameter, Prototype, Prototypes};
pub use prototype_sources::{MissingPrototypes, prototypes_of_ctf};
pub use stored::{FoundArgumentTable, find_or_build};
pub use type_pool::{DisplayKindNumber, NameNumber, TypePool};
pub use unproven_rules::UnprovenRange;
