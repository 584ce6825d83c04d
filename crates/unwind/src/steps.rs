//! Steps from frame to frame with all registers, fast.
//!
//! Nearly every function's frame has a row that fits into a word ([`PackedRow`]), and few of these
//! rows are different. A step looks up its address in a [`StepCache`], reads the return address,
//! and notes the frame ([`RegisterLocations`]). The locations of the caller's registers are
//! computed on demand. For rows of other forms the interpreter takes the step, and its result is
//! put into the same [`RegisterLocations`].
//!
//! For x86-64 only. Async-signal-safe: nothing here allocates, locks or waits.

mod cache;
mod locations;
mod packed_row;

pub use cache::{
    Arrival, CachedRule, EncodedRowBuffer, Generation, StepAddress, StepCache, StepRule,
};
pub use locations::{PRESERVED, REGISTERS, RegisterLocations, ResolvedLocation, SavedRegisters};
pub use packed_row::{CfaBase, PackedRow};
