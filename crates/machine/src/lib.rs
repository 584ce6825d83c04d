//! What this machine lets a user do, and what changes that.
//!
//! [`Limits`] are the kernel's settings, [`Rights`] what this process may beyond other users,
//! [`Surroundings`] whether it sees all of the machine. A [`Remedy`] is what helps against a refusal:
//! whoever reports one names it, and so the same refusal has the same remedy everywhere.
//!
//! Everything is read from `/proc` and `/sys`, when it is asked for. Nothing is changed.

#![forbid(unsafe_code)]

mod limits;
mod remedy;
mod rights;
mod surroundings;

pub use limits::Limits;
pub use remedy::Remedy;
pub use rights::{Amount, Capability, Rights};
pub use surroundings::Surroundings;
