//! Finds the functions of ELF files in their code, and makes unwind tables for those without one.
//!
//! It takes files that are already read: it opens nothing and prints nothing.
//!
//! ```
//! use unspool_elf::ElfFile;
//! use unspool_synthesis::synthesize;
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("f.s", ".globl f\nf: push %rbx\n pop %rbx\n ret\n");
//! # folder.tool("gcc", "-c f.s");
//! # let path = folder.path().join("f.o");
//!
//! // f: push %rbx; pop %rbx; ret
//! let file = ElfFile::open(path)?;
//! let made = synthesize(&file, file.symbols(), &[])?;
//! let rows = made.table.to_string();
//! assert!(rows.contains("0x1  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]"), "{rows}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod elf_code_image;
mod exit_rows;
mod exits;
mod extents;
mod functions;
mod go_rows;
mod go_stack_switch;
mod landing_pads;
mod lsda;
mod noreturn;
mod partition;
mod plt;
mod returns_twice;
mod synthesis;
mod unchanged_registers;
mod unit_rows;

/// The version of the rows that [`synthesize`] makes of a file: kept rows of another one are made
/// again.
pub const VERSION: u8 = 3;

pub use elf_code_image::ElfCodeImage;
pub use exit_rows::{ExitRows, RemainingCode};
pub use functions::{FunctionExtent, entry_point, functions, parent_of_cold_part};
pub use go_rows::go_functions;
pub use lsda::landings;
pub use noreturn::noreturn_addresses;
pub use plt::plt_stubs;
pub use returns_twice::returns_twice_addresses;
pub use synthesis::{FunctionCoverage, MissingReason, Synthesis, SynthesisError, synthesize};
pub use unchanged_registers::unchanged_registers;
