//! Writes CFI directives into assembly without any, and edits those that are there.
//!
//! [`DirectivePlan::new`] takes the object file from the assembly, finds its functions without an
//! entry, and computes their rows. [`DirectivePlan::write_into`] inserts the directives for these
//! rows into the text, and changes nothing else. [`DirectivePlan::verify`] checks that the object
//! file from the new text has these rows.
//!
//! An [`Edit`] changes directives of an [`AssemblySource`], and its steps tell a person how to.
//!
//! [`annotate`](fn@annotate) annotates a whole text. The crate takes and returns text: it opens
//! nothing and prints nothing, and has an [`Assemble`] make the object files.
//!
//! ```
//! use unspool_assembly::{AssemblySource, DirectivePlan, RegisterSyntax};
//! use unspool_elf::ElfFile;
//! use unspool_rows::{Table, Vaddr};
//!
//! let text = ".globl f\nf:\tpush %rbx\n\tpop %rbx\n\tret\n";
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("f.s", text);
//! # folder.tool("gcc", "-c f.s -o f.o");
//! # let path = folder.path().join("f.o");
//! let file = ElfFile::open(path)?; // the assembled text
//! let line_of = |address: Vaddr| Some(2 + address.0 as u32); // each instruction has one byte
//! let mut source = AssemblySource::new(text);
//! let none = Table::new(file.abi());
//! let plan = DirectivePlan::new(&file, &none, &source, RegisterSyntax::Prefixed, line_of);
//! plan.write_into(&mut source);
//! assert!(source.to_string().contains("push %rbx\n\t.cfi_adjust_cfa_offset 8\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod annotate;
mod assemble;
mod conditions;
mod directives;
mod edit;
mod function_rows;
mod placement;
mod plan;
mod refusal;
mod source;

pub use annotate::{AnnotateError, Annotated, annotate, line_of};
pub use assemble::{Assemble, AssembleError};
pub use directives::RegisterSyntax;
pub use edit::{Edit, EditStep, LineEdit, correct_directive, name_registers};
pub use plan::DirectivePlan;
pub use refusal::{AnnotateRefusal, RefusalReason};
pub use source::{AssemblySource, InsnGap};
