//! Unwind tables as machine code ([`unspool_native_table`]): run in walks, and against the rows of their source.
//!
//! That an [`Object`](unspool_native_table::Object) can be parsed says that it is whole; anyone can make one that is. So walks
//! run code that is trusted, and `run_apart` runs any other in a process of its own, behind a fence.

mod code;
#[cfg(feature = "std")]
mod run;
mod sys;
#[cfg(feature = "std")]
mod table;

pub use code::{NativeCode, NativeFrame, NativeMemory};
#[cfg(feature = "std")]
pub use run::{RunError, RunReport, run_apart};
#[cfg(feature = "std")]
pub(crate) use table::NativeTable;
