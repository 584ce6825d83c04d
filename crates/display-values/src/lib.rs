//! Arguments and variables of the functions of a walked stack, as text in C or Rust.
//!
//! [`ValueQuery::frames`] combines argument tables ([`ArgTables`]) and debug information
//! ([`DebugInfo`]). It works the same for a process, a core file, and the own process. It does not
//! print; faults are [`ValueProblem`]s.
#![forbid(unsafe_code)]

mod arguments;
mod call_target;
mod frame_values;
mod frames;
mod rust;
mod thread_local;
mod variables;

pub use arguments::{ArgTables, ArgText, FrameArgument, ValueOrigin};
pub use frame_values::{FrameValues, ValueQuery, WithFiles};
pub use frames::StackArguments;
pub use variables::{
    DebugInfo, DebugInfoFiles, EntryText, FunctionValues, ValueProblem, ValueText, VariableText,
};

/// The maximum number of bytes of a value to show.
pub const MAX_VALUE_BYTES: usize = 1024;
