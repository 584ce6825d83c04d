//! Writes the CFI directives of assembly that has none.
//!
//! [`DirectivePlan::of`] takes the object file that the assembly makes, finds its functions without entry, and what their rows
//! must be. [`DirectivePlan::write_into`] has the directives that make these rows inserted into the text, which is otherwise
//! left as it is; [`DirectivePlan::verify`] looks whether the object file that the new text makes has these rows.
//!
//! It takes files that were read and text: it opens nothing, assembles nothing, prints nothing.
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
