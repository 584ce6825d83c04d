//! The C types and the variables of a program, from its debug information: DWARF as type graphs.
//!
//! [`read`] makes a graph of each compilation unit, which the linker of `unspool-ctf` can make one of. [`Prototypes`] tells what
//! a function is called with, by its name or its address. [`variables`] says what variables are in the frames of a stack. [`elf_context`] is what types in other forms need of the file that they are in,
//! and [`Producers`] what is wrong with CTF of some gccs.
#![forbid(unsafe_code)]

mod abbreviations;
mod elf;
mod entry;
mod error;
mod index;
mod producers;
mod program;
mod prototypes;
mod split;
mod unit;
pub mod variables;

pub use elf::{convention, elf_context, endian};
pub use error::{Machine, TypesError};
pub use producers::{Order, Producers};
pub use program::{LeftOut, Program, UnitTypes, read};
pub use prototypes::{Prototype, Prototypes};
pub use split::SplitFiles;
