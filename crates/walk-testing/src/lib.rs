//! The one harness for everything that steps from a frame or walks a stack: frames, stacks and
//! tables for it, and the plain interpreter's opinion on them. Walks in the kernel read real memory,
//! so the tests of `unspool-bpf-walk` make their own stacks.
//!
//! - [`step`]: a [`Stepper`](step::Stepper) against [`unspool_rows::interpret`], in frames with any
//!   registers and rows with rules of all kinds ([`rows_of`]).
//! - [`stack`]: modules with random rows, and stacks with random words that mostly make sense.
//! - [`mod@reference`]: a walk by the rows alone.
//!
//! A new walker implements [`Stepper`](step::Stepper), or walks the stacks of [`stack`] and is
//! compared with [`reference::ReferenceWalk`]. Its own conditions (when it gives up, what it guesses)
//! are its test's. Functions panic on a difference.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a difference fails the test"
)]

pub mod memory;
pub mod random;
pub mod reference;
pub mod rows_of;
pub mod stack;
pub mod step;
