//! Checks unwind tables against the machine code.
//!
//! [`CheckSubject`] is a file with its table and code. [`CheckSubject::check_unit`] checks the rows
//! of some functions, instruction by instruction. [`CheckReport`] is the result for a file. Its
//! [`Finding`]s say what is wrong, why, and what to write.
//!
//! A [`FileReport`] is what people and programs get. Its findings have their functions and source
//! lines, and a [`Suppressor`] knows which ones do not count. It is serialized as JSON
//! (`docs/json.md`); [`sarif_log`] and [`WorkflowCommands`] are other formats.
//!
//! [`fix_source`] edits assembly source until it has fewer findings. [`rewrite_rows`] repairs the
//! rows of other files.
//!
//! The crate takes files that are open, and text. It prints nothing. A [`ReadSource`] reads the
//! source files of findings, and an [`Assemble`](unspool_assembly::Assemble) makes object files.
//!
//! ```
//! use std::num::NonZeroUsize;
//! use unspool_check::{CheckReport, CheckSubject, CodeOrigin, DeclaredTable};
//! use unspool_elf::ElfFile;
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("add.s", ".globl f\n.cfi_startproc\nf: push %rbx\n pop %rbx\n ret\n.cfi_endproc\n");
//! # folder.tool("gcc", "-c add.s");
//! # let path = folder.path().join("add.o");
//!
//! // f: .cfi_startproc; push %rbx; pop %rbx; ret; .cfi_endproc
//! let file = ElfFile::open(path)?;
//! let declared = DeclaredTable::read(&file)?;
//! let mut subject = CheckSubject::new(&file, &declared, CodeOrigin::from_file(&file))?;
//! let report = CheckReport::from_subject(&mut subject, NonZeroUsize::MIN, |_, _| {});
//! let finding = report.findings.first().ok_or("nothing is wrong")?;
//! assert_eq!((finding.declared.as_str(), finding.computed.as_str()), ("rsp+8", "rsp+16"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod callees;
mod convention;
mod coverage;
mod declared_row;
mod expressions;
mod file_report;
mod finding;
mod fix;
mod foreign_table;
mod format;
mod hint;
mod listing;
mod locate;
mod origin;
mod ownership;
mod path;
mod places;
mod remedy;
mod repair;
mod report;
mod rewrite;
mod row_checker;
mod sframe;
mod signal;
mod subject;
mod suppress;
mod undeclared_functions;
mod unit;
mod unit_checker;
pub mod wording;

pub use convention::CallingConvention;
pub use declared_row::{DeclaredRow, RuleLocation};
pub use file_report::{CheckOptions, FileReport, Strictness, is_kernel_module};
pub use finding::{Finding, FindingCode, Severity};
pub use fix::{FixError, FixOptions, FixRefusal, FixResult, RefusedFix, fix_source};
pub use foreign_table::ForeignTable;
pub use format::{WorkflowCommands, sarif_log};
pub use hint::Hint;
pub use listing::ListingLine;
pub use locate::{FindingLocator, LocatedFinding};
pub use origin::{CodeOrigin, CodeOrigins, START_FILE_FUNCTIONS};
pub use path::JumpEdge;
pub use repair::{RepairRefusal, RepairedEntries};
pub use report::{CheckReport, RowTotals};
pub use rewrite::{RowRewrite, RowRewriteError, rewrite_rows};
pub use row_checker::{Aspect, RowVerdicts, Verdict};
pub use subject::{CheckSubject, DeclaredTable, SubjectError};
pub use suppress::{
    Baseline, BaselineError, CommentRemark, ReadSource, SourceTexts, Suppression, SuppressionError,
    SuppressionKind, Suppressions, Suppressor,
};
pub use unit::{CheckedRow, Discrepancy, HeightConflict, JoiningPath, UnitReport};
pub use unit_checker::UnitChecker;
