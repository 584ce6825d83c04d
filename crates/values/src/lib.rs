//! What the functions of a walked stack were called with, and what their variables are, as text in C or Rust.
//!
//! [`Asked::frames`] puts together what tables of arguments say ([`Tables`]) and what debug information does ([`Described`]). It is the same of a process, a
//! core file, and the own process. It prints nothing; what is in the way is a [`Problem`].
#![forbid(unsafe_code)]

mod arguments;
mod call;
mod frames;
mod rust;
mod thread_local;
mod values;
mod variables;

pub use arguments::{Argument, Found, Label, Tables};
pub use frames::Arguments;
pub use values::{Asked, Values, WithFiles};
pub use variables::{AtEntry, Described, Files, Known, Level, Problem, Variable};

/// The bytes that are shown of a value at most.
pub const MOST_BYTES: usize = 1024;
