//! Steps from frame to frame with all registers, fast.
//!
//! Nearly every function's frame has a row that fits into a word ([`CachedPackedRow`]), and few of these
//! rows are different. A step looks up its address in a [`StepCache`], reads the return address,
//! and notes the frame ([`RegisterLocations`]). The locations of the caller's registers are
//! computed on demand. For rows of other forms the interpreter takes the step, and its result is
//! put into the same [`RegisterLocations`].
//!
//! For x86-64 only. Async-signal-safe: nothing here allocates, locks or waits.

mod cache;
mod cached_row;
mod locations;
mod numbered_rules;

pub use cache::{
    Arrival, CachedRule, EncodedRowBuffer, Generation, StepAddress, StepCache, StepRule,
};
pub use cached_row::CachedPackedRow;
pub use locations::{REGISTERS, RegisterLocations, ResolvedLocation};
pub use numbered_rules::NumberedRules;
