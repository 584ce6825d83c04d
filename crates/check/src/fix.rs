//! Fixes of assembly source: the directives that its findings call for.
//!
//! An edit is tried on a copy, which is assembled and checked. It stays if the finding is gone and
//! there is no new one. If no edit helps, the rows of the whole function are rewritten.

use core::cell::Cell;
use core::fmt;
use std::collections::BTreeMap;
use std::path::Path;

use unspool_assembly::{Assemble, AssembleError, AssemblySource, EditStep, RegisterSyntax};
use unspool_elf::{ElfFile, ModuleError};
use unspool_table_store::SourceError;

use crate::finding::{FindingCode, Severity};
use crate::locate::LocatedFinding;
use crate::subject::SubjectError;

mod candidates;
mod draft;
mod fixer;

use draft::{DraftFinding, FindingKey};
use fixer::{FixScope, Fixer};

/// What to fix, and how long to try.
#[derive(Debug, Clone, Copy)]
pub struct FixOptions {
    /// The lowest severity of findings that are fixed.
    pub minimum_severity: Severity,
    /// The most drafts that are assembled and checked.
    pub max_drafts: usize,
}

/// The result for a text.
#[derive(Debug, Clone)]
pub struct FixResult {
    /// The text with the edits.
    pub source: AssemblySource,
    /// The number of fixed findings.
    pub fixed: usize,
    /// The remaining findings.
    pub refused: Vec<RefusedFix>,
    /// The actions on findings of the original text, if known.
    actions: BTreeMap<FindingKey, Vec<EditStep>>,
}

impl FixResult {
    /// Adds to the findings of the original text, assembled to this file, what was done about them.
    pub fn advise(&self, file: &ElfFile, findings: &mut [LocatedFinding]) {
        for located in findings {
            let key = FindingKey::new(file, &located.finding);
            located.advice = key.and_then(|key| self.actions.get(&key).cloned());
        }
    }
}

/// A finding that remains: its [`Display`](fmt::Display) says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedFix {
    /// Its line in the text with the edits, counted from 1, if there is one.
    pub line: Option<u32>,
    /// Its kind.
    pub code: FindingCode,
    /// Why it remains.
    pub reason: FixRefusal,
}

impl fmt::Display for RefusedFix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stays: {}", self.code, self.reason)
    }
}

/// Why a finding gets no fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FixRefusal {
    /// No line of the text makes the instruction.
    #[error(
        "no line of the file makes this instruction: it is from an included file, or a compiler marked it as a line of another (# 12 \"file.c\"); --fix also takes the object file"
    )]
    NoLine,
    /// The line makes several instructions.
    #[error(
        "the line makes several instructions, or data after it (.byte) makes this one: write the directive between them by hand"
    )]
    OneLine,
    /// The line is assembled more than once.
    #[error("the line is in a macro, or is repeated: write the directive by hand")]
    Repeated,
    /// The code is not entered by a call.
    #[error(
        "the function returns without the return address on top of the stack: it is not entered by a call"
    )]
    NoFunction,
    /// The code loses the register.
    #[error(
        "the code does not preserve the register: fix the code, or declare the register undefined after the instruction that overwrites it"
    )]
    Agreement,
    /// The row depends on the condition in this line, counted from 1.
    #[error(
        "no directive is right both with and without the condition in line {0}: write it by hand"
    )]
    Conditional(u32),
    /// The row's CFA is wrong, too.
    #[error("the CFA is wrong here, too: fix that first, by hand")]
    Cfa,
    /// No edit helps.
    #[error("no directive fixes it without making another row wrong")]
    NothingFound,
}

/// Why a text cannot be fixed at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FixError {
    /// It does not assemble.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The assembler's output is not an object file.
    #[error(transparent)]
    Object(#[from] ModuleError),
    /// The object file cannot be checked.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// No more drafts may be examined.
    #[error("there were too many trials")]
    TooManyDrafts,
}

impl From<SourceError> for FixError {
    fn from(error: SourceError) -> FixError {
        FixError::Subject(error.into())
    }
}

/// Fixes the findings of the text of a source file.
///
/// # Errors
///
/// The text itself cannot be assembled or checked. An edit after which it cannot be is dropped.
pub fn fix_source(
    path: &Path,
    text: &str,
    options: FixOptions,
    assembler: &dyn Assemble,
) -> Result<FixResult, FixError> {
    let fixer = Fixer {
        path,
        assembler,
        syntax: RegisterSyntax::detect(text),
        minimum_severity: options.minimum_severity,
        drafts_left: Cell::new(options.max_drafts),
    };
    let mut draft = fixer.examine(fixer.read(text)?)?;
    let found = draft.findings.len();
    for scope in [FixScope::Whole, FixScope::Part] {
        draft = fixer.all(draft, scope);
    }
    let refusal = |finding: &DraftFinding| {
        let reason = fixer.edits(&draft.source, finding, FixScope::Part).err();
        let condition = || {
            let line = draft.source.condition_around(finding.line?)?;
            draft.source.original(line).map(FixRefusal::Conditional)
        };
        let cfa = || draft.is_cfa_wrong_at(finding).then_some(FixRefusal::Cfa);
        let reason = reason.or_else(condition).or_else(cfa);
        RefusedFix {
            line: finding.line,
            code: finding.key.code,
            reason: reason.unwrap_or(FixRefusal::NothingFound),
        }
    };
    Ok(FixResult {
        fixed: found - draft.findings.len(),
        refused: draft.findings.iter().map(refusal).collect(),
        actions: draft.applied.into_iter().rev().collect(),
        source: draft.source,
    })
}
