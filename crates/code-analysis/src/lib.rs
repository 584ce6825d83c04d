//! From machine code to unwind table rows: control flow, and the contents of registers and stack
//! slots.
//!
//! [`ProgramCode::scan`] reads all code once: it finds functions that never return and ranges that
//! belong together. [`Analyzer::analyze`] computes the contents of registers and stack slots before
//! each instruction of one unit, relative to the function's entry ([`AbstractState`],
//! [`AbstractValue`]). Unknown contents are unknown; nothing is guessed. [`Disassembler`] shows
//! instructions as text.
//!
//! This crate knows no file format, opens nothing, and contains no `unsafe`.
//!
//! ```
//! use unspool_code_analysis::{
//!     Analyzer, CodeExtent, CodeImage, ExtentKind, Lifter, NoAssumptions, ProgramCode,
//! };
//! use unspool_rows::Abi;
//!
//! struct Function; // push %rbx; pop %rbx; ret
//! impl CodeImage for Function {
//!     fn bytes_from(&self, address: u64) -> Option<&[u8]> {
//!         [0x53, 0x5b, 0xc3].get(usize::try_from(address).ok()?..)
//!     }
//! }
//!
//! let mut lifter = Lifter::new(Abi::X86_64).ok_or("not supported")?;
//! let extent = CodeExtent { start: 0, end: 3, kind: ExtentKind::Function };
//! let program = ProgramCode::scan(&mut lifter, &Function, vec![extent], vec![], |_| false);
//! let mut analyzer = Analyzer::new(lifter);
//! let analysis = analyzer.analyze(&program, &Function, 0, &[], &NoAssumptions);
//! let mut rows = Vec::new();
//! analysis.visit_rows(|_, _, rules, _| rows.push(rules));
//! assert!(rows.len() == 3 && rows.iter().all(Result::is_ok));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod arch;
pub mod code;
pub mod dataflow;
mod disassembly;
pub mod op;
pub mod program;
pub mod rows;
mod side_effects;
pub mod state;
mod transfer;
pub mod value;
pub mod verifier;

pub use arch::{InsnDecoder, Lifter};
pub use code::{InsnId, LiftedCode};
pub use dataflow::{
    Analysis, Analyzer, Assumptions, CfgEdge, Landing, NoAssumptions, StackHeightConflict,
};
pub use disassembly::{DisassembledInsn, Disassembler};
pub use program::{
    CodeExtent, CodeImage, ExtentKind, ExtentScan, ProgramCode, PushedWords, ReturnBehavior,
};
pub use rows::{CfaLocation, MissingRow, ProvenRules, SavedLocation};
pub use side_effects::{SideEffect, SideEffects};
pub use state::AbstractState;
pub use value::{AbstractValue, ValueFact};
pub use verifier::Verifier;
