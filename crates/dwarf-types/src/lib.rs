//! The C types and the variables of a program, from its debug information: DWARF as type graphs.
//!
//! [`read`] makes a graph of each compilation unit, which the linker of `unspool-c-types` can make one of. [`DwarfPrototypes`] tells what
//! a function is called with, by its name or its address. [`variables`] says what variables are in the frames of a stack. [`elf_context`] is what types in other forms need of the file that they are in,
//! and [`Producers`] what is wrong with CTF of some gccs.
#![forbid(unsafe_code)]

mod abbreviations;
mod attributes;
mod elf;
mod error;
mod index;
mod producers;
mod program;
mod prototypes;
mod split;
mod unit;
pub mod variables;

pub use elf::{convention, elf_context, endian};
pub use error::{ElfMachine, TypesError};
pub use producers::{ArrayOrder, Producers};
pub use program::{ProgramTypes, SkippedUnit, UnitTypes, read_types};
pub use prototypes::{DwarfPrototype, DwarfPrototypes};
pub use split::SplitFiles;
