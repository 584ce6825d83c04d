//! Checks unwind tables against the machine code.
//!
//! [`CheckSubject`] is a file with its table and code. [`CheckSubject::check_unit`] checks the rows
//! of some functions, instruction by instruction. [`CheckReport`] is the result for a file. Its
//! [`Finding`]s say what is wrong, why, and what to write.
#![forbid(unsafe_code)]

mod coverage;
mod declared_row;
mod expressions;
mod finding;
mod foreign_table;
mod hint;
mod listing;
mod origin;
mod path;
mod remedy;
mod repair;
mod report;
mod row_checker;
mod sframe;
mod signal;
mod subject;
mod undeclared_functions;
mod unit;
mod unit_checker;
pub mod wording;

pub use declared_row::{DeclaredRow, RuleLocation};
pub use finding::{Finding, FindingCode, Severity};
pub use foreign_table::ForeignTable;
pub use hint::{Hint, i386_register};
pub use listing::ListingLine;
pub use origin::{CodeOrigin, CodeOrigins, START_FILE_FUNCTIONS};
pub use path::JumpEdge;
pub use repair::{RepairRefusal, RepairedEntries};
pub use report::{CheckReport, RowTotals};
pub use row_checker::{Aspect, RowVerdicts, Verdict};
pub use subject::{CheckSubject, DeclaredTable, SubjectError};
pub use unit::{CheckedRow, Discrepancy, UnitReport};
pub use unit_checker::UnitChecker;
