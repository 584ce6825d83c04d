//! Unwind tables as machine code ([`unspool_native_table`]): run in walks, and against the rows of
//! their source.
//!
//! A parsed [`ObjectView`](unspool_native_table::ObjectView) is complete, but anyone can make one.
//! So walks run only trusted code, and `run_apart` runs any other in its own process, behind a
//! fence.

mod code;
#[cfg(feature = "std")]
mod run;
mod sys;
#[cfg(feature = "std")]
mod table;
#[cfg(feature = "std")]
mod verify;

pub use code::{NativeCode, NativeFrame, NativeMemory};
#[cfg(feature = "std")]
pub use run::{RunError, RunReport, run_apart};
#[cfg(feature = "std")]
pub(crate) use table::NativeTable;
#[cfg(feature = "std")]
pub use verify::{NativeVerification, NativeVerifyError, verify_compiled, verify_object};
