//! Writes the CFI directives of assembly that has none.
//!
//! [`Plan::of`] takes the object file that the assembly makes, finds its functions without entry, and what their rows
//! must be. [`Plan::write_into`] has the directives that make these rows inserted into the text, which is otherwise
//! left as it is; [`Plan::holds`] looks whether the object file that the new text makes has these rows.
//!
//! It takes files that were read and text: it opens nothing, assembles nothing, prints nothing.
#![forbid(unsafe_code)]

mod directives;
mod follow;
mod layout;
mod placing;
mod plan;
mod refusal;
mod source;

pub use directives::Syntax;
pub use plan::Plan;
pub use refusal::{Refusal, Why};
pub use source::{Gap, Source};
