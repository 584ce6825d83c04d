//! From machine code to unwind table rows: control flow, and the contents of registers and stack
//! slots.
//!
//! [`ProgramCode::scan`] reads all code once: it finds functions that never return and ranges that
//! belong together. [`Analyzer::analyze`] computes the contents of registers and stack slots before
//! each instruction of one unit, relative to the function's entry ([`AbstractState`],
//! [`AbstractValue`]). Unknown contents are unknown; nothing is guessed.
//!
//! This crate knows no file format, opens nothing, and contains no `unsafe`.
#![forbid(unsafe_code)]

pub mod arch;
pub mod code;
pub mod dataflow;
pub mod op;
pub mod program;
pub mod rows;
pub mod side_effects;
pub mod state;
mod transfer;
pub mod value;
pub mod verifier;

pub use arch::Lifter;
pub use code::{InsnId, LiftedCode};
pub use dataflow::{
    Analysis, Analyzer, Assumptions, CfgEdge, Landing, NoAssumptions, StackHeightConflict,
};
pub use program::{
    CodeExtent, CodeImage, ExtentKind, ExtentScan, ProgramCode, PushedWords, ReturnBehavior,
};
pub use rows::{CfaLocation, MissingRow, ProvenRules, SavedLocation};
pub use side_effects::{SideEffect, SideEffects};
pub use state::AbstractState;
pub use value::{AbstractValue, ValueFact};
pub use verifier::Verifier;
