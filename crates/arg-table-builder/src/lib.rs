//! Tables of arguments ([`unspool_arg_table`]), made of a file's machine code and of what its functions take.
//!
//! [`follow`] follows arguments through the code, [`encode`] writes what it found. It takes files that were read: it opens
//! nothing, prints nothing.
#![forbid(unsafe_code)]

mod build;
mod dataflow;
mod encode;
mod functions;
mod kept_section;
mod prototype;
mod prototype_sources;
mod unproven_rules;
mod variable_kinds;

pub use build::{BuildError, BuildOutput, build_table};
pub use encode::{CodeTooLarge, encode};
pub use functions::{
    ArgRow, CallSite, FileAnalysis, FunctionAnalysis, analyze_file, tracked_pieces,
};
pub use prototype::{OwnedDisplayKind, OwnedMember, OwnedParameter, Prototype, Prototypes};
pub use prototype_sources::{prototypes, prototypes_of_ctf};
pub use unproven_rules::UnprovenRange;
pub use variable_kinds::VariableKinds;
