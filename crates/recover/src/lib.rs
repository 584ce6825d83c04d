//! The functions of ELF files, found in their code, and unwind tables of those that have none.
//!
//! It takes files that were read: it opens nothing, prints nothing.
#![forbid(unsafe_code)]

mod cuts;
mod functions;
mod landings;
mod noreturn;
mod partition;
mod stubs;
mod synthesis;
mod text;
mod ways_out;

pub use functions::{Function, functions};
pub use landings::landings;
pub use noreturn::{never_returning, never_returns};
pub use stubs::stubs;
pub use synthesis::{Missing, Recovered, Synthesis, SynthesisError, synthesize};
pub use text::Text;
