//! Unwind tables held against the machine code.
//!
//! [`Subject`] is a file with its table and its code. [`Subject::judge_unit`] holds the rows of some
//! functions against what the code does, instruction by instruction. What was found of a file is a
//! [`Report`], whose [`Finding`]s say what is wrong, why, and what to write.
#![forbid(unsafe_code)]

mod authors;
mod called;
mod coverage;
mod declared;
mod finding;
mod hint;
mod judge;
mod listing;
mod mend;
mod others;
mod path;
mod prover;
mod remedy;
mod report;
mod sframe;
mod signal;
mod subject;
mod unit;
mod witness;
pub mod words;

pub use authors::{Authors, Maker, START_FILES};
pub use declared::{Declared, Place};
pub use finding::{Code, Finding, Severity};
pub use hint::{Hint, of_i386};
pub use judge::{Aspect, Judgement, Verdict};
pub use listing::Line;
pub use mend::{Mended, Unmended};
pub use others::Others;
pub use path::Jump;
pub use prover::Prover;
pub use report::{Report, Totals};
pub use subject::{Declarations, Subject, SubjectError};
pub use unit::{Doubt, RowVerdict, UnitReport};
