//! Machine code to unwind table rows: control flow, and what registers and stack slots hold.
//!
//! [`Program::survey`] looks at all code once: which functions never return, which ranges belong together.
//! [`Analyzer::analyze`] finds for each instruction of one unit what registers and stack slots hold before
//! it, relative to the function's entry ([`State`], [`Value`]). What is not known is unknown; nothing is
//! guessed.
//!
//! This crate knows no file format, opens nothing, and contains no `unsafe`.
#![forbid(unsafe_code)]

pub mod analysis;
mod apply;
pub mod arch;
pub mod code;
pub mod details;
pub mod op;
pub mod program;
pub mod rows;
pub mod state;
pub mod sweep;
pub mod value;

pub use analysis::{Analysis, Analyzer, CodeAlone, Conflict, Edge, Guide, Landing};
pub use arch::Machine;
pub use code::{Code, InsnId};
pub use details::{Detail, Details};
pub use program::{Extent, Image, Part, Program, Returns, Survey, Words};
pub use rows::{Cfa, NoRow, Rules, Saved};
pub use state::State;
pub use sweep::Sweeper;
pub use value::{Known, Value};
