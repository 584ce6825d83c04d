//! What the functions of a walked stack were called with, and what their variables are, as text in C or Rust.
//!
//! [`ValueQuery::frames`] puts together what tables of arguments say ([`ArgTables`]) and what debug information does ([`DebugInfo`]). It is the same of a process, a
//! core file, and the own process. It prints nothing; what is in the way is a [`ValueProblem`].
#![forbid(unsafe_code)]

mod arguments;
mod call_target;
mod frame_values;
mod frames;
mod rust;
mod thread_local;
mod variables;

pub use arguments::{ArgTables, ArgText, FrameArgument, ValueCertainty};
pub use frame_values::{FrameValues, ValueQuery, WithFiles};
pub use frames::StackArguments;
pub use variables::{
    DebugInfo, DebugInfoFiles, EntryText, FunctionValues, KnownText, ValueProblem, VariableText,
};

/// The bytes that are shown of a value at most.
pub const MAX_VALUE_BYTES: usize = 1024;
