//! Steps from frame to frame with all registers, fast.
//!
//! A frame of nearly every function has a row that fits into a word ([`PackedRow`]), and there are few
//! different ones. A step looks its address up in a [`StepCache`], reads the return address, and notes
//! which frame was left ([`RegisterLocations`]): where the caller's registers are is worked out when somebody asks.
//! Rows of any other form are stepped over by the interpreter, whose answer is put into the same
//! [`RegisterLocations`].
//!
//! Of x86-64 only. Async-signal-safe: nothing here allocates, locks or waits.

mod cache;
mod locations;
mod packed_row;

pub use cache::{
    Arrival, CachedRule, EncodedRowBuffer, Generation, StepAddress, StepCache, StepRule,
};
pub use locations::{
    IN_CONTEXT, PRESERVED, REGISTERS, RIP_IN_CONTEXT, RSP_IN_CONTEXT, RegisterLocation,
    RegisterLocations, SavedRegisters, TRAMPOLINE,
};
pub use packed_row::{CfaBase, PackedRow};
