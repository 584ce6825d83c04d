//! Steps from frame to frame with all registers, fast.
//!
//! A frame of nearly every function has a row that fits into a word ([`Simple`]), and there are few
//! different ones. A step looks its address up in a [`Cache`], reads the return address, and notes
//! which frame was left ([`Places`]): where the caller's registers are is worked out when somebody asks.
//! Rows of any other form are stepped over by the interpreter, whose answer is put into the same
//! [`Places`].
//!
//! Of x86-64 only. Async-signal-safe: nothing here allocates, locks or waits.

mod cache;
mod places;
mod simple;

pub use cache::{Arrival, At, Cache, Hit, Now, Rule, Short};
pub use places::{
    IN_CONTEXT, PRESERVED, Place, Places, REGISTERS, RIP_IN_CONTEXT, RSP_IN_CONTEXT, Saved,
    TRAMPOLINE,
};
pub use simple::{Base, Simple};
