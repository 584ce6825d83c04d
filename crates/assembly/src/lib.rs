//! Writes CFI directives into assembly without any.
//!
//! [`DirectivePlan::new`] takes the object file from the assembly, finds its functions without an
//! entry, and computes their rows. [`DirectivePlan::write_into`] inserts the directives for these
//! rows into the text, and changes nothing else. [`DirectivePlan::verify`] checks that the object
//! file from the new text has these rows.
//!
//! It takes files that are already read, and text: it opens nothing, assembles nothing, prints
//! nothing.
#![forbid(unsafe_code)]

mod conditions;
mod directives;
mod function_rows;
mod placement;
mod plan;
mod refusal;
mod source;

pub use directives::RegisterSyntax;
pub use plan::DirectivePlan;
pub use refusal::{AnnotateRefusal, RefusalReason};
pub use source::{AssemblySource, InsnGap};
