//! The functions of ELF files, found in their code, and unwind tables of those that have none.
//!
//! It takes files that were read: it opens nothing, prints nothing.
#![forbid(unsafe_code)]

mod areas;
mod cuts;
mod described;
mod functions;
mod noreturn;
mod pads;
mod partition;
mod returning_twice;
mod stubs;
mod synthesis;
mod text;
mod unchanged;
mod ways_out;

pub use areas::landings;
pub use functions::{Function, entry, functions, whole_of};
pub use noreturn::{never_returning, never_returns};
pub use returning_twice::returning_twice;
pub use stubs::stubs;
pub use synthesis::{Missing, Recovered, Synthesis, SynthesisError, synthesize};
pub use text::Text;
pub use unchanged::unchanged;
