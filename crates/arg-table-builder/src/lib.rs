//! Building argument tables ([`unspool_arg_table`]) from a file's machine code and its functions'
//! prototypes.
//!
//! [`analyze_file`] tracks arguments through the code, and [`encode`] writes the result.
//! [`find_or_build`] keeps tables in a store. The crate takes files that were read, and prints
//! nothing.
#![forbid(unsafe_code)]

mod build;
mod dataflow;
mod encode;
mod functions;
mod kept_section;
mod prototype;
mod prototype_sources;
mod stored;
mod unproven_rules;
mod variable_kinds;

pub use build::{BuildError, BuildOutput, build_table};
pub use encode::{CodeTooLarge, encode};
pub use functions::{
    ArgRow, CallSite, FileAnalysis, FunctionAnalysis, analyze_file, tracked_pieces,
};
pub use prototype::{OwnedDisplayKind, OwnedMember, OwnedParameter, Prototype, Prototypes};
pub use prototype_sources::{prototypes, prototypes_of_ctf};
pub use stored::{FoundArgumentTable, find_or_build};
pub use unproven_rules::UnprovenRange;
pub use variable_kinds::VariableKinds;
