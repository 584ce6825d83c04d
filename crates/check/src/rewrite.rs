//! Files with repaired rows in place of refuted ones.
//!
//! This helps inline assembly: compilers do not analyze it, and no directive in it can know the
//! compiler's rows. It does not matter who wrote the code: all refuted rows are repaired, and only
//! those.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use unspool_elf::{DebugFiles, ElfFile, ElfKind, Lines, ModuleError, demangle};
use unspool_rows::table::TableError;
use unspool_rows::{Table, Vaddr};
use unspool_table_store::eh_frame::{EhFrameError, embed, replace_entries, rewrite};
use unspool_table_store::{self as tables, SourceError, TableSource};

use crate::finding::{Finding, FindingCode, Severity};
use crate::origin::CodeOrigins;
use crate::repair::RepairRefusal;
use crate::report::CheckReport;
use crate::subject::{CheckSubject, DeclaredTable, SubjectError};
use crate::suppress::SourceTexts;

/// The most rounds of checking a file. Right rows may prove a path that was not assumed before. Two
/// rounds are usual, and the second only confirms the result.
const MAX_ROUNDS: usize = 5;

/// The result of repairing a file's refuted rows.
#[derive(Debug)]
pub struct RowRewrite {
    /// The file with the new rows; `None` if nothing changes.
    pub elf: Option<Vec<u8>>,
    /// The functions with repaired rows.
    pub repaired: BTreeSet<String>,
    /// The functions with refuted rows that stay: the first such row, and why.
    pub unchanged: Vec<(String, Vaddr, RepairRefusal)>,
}

/// Why a file's rows are not repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowRewriteError {
    /// It cannot be checked.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// There are too many rows.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Its table is not in `.eh_frame`.
    #[error(
        "{file}: its unwind table is .debug_frame, which is not written: build it with -fasynchronous-unwind-tables"
    )]
    NotEhFrame {
        /// The file.
        file: String,
    },
    /// The table cannot be written into it.
    #[error(transparent)]
    Write(#[from] EhFrameError),
    /// The result cannot be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The result has other refuted rows.
    #[error(
        "{file}: nothing is written, because other rows would be refuted: this is a bug in unspool, please report it"
    )]
    OtherRows {
        /// The file.
        file: String,
    },
}

impl RowRewriteError {
    /// Whether the file has no table, or is for an unsupported architecture.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            RowRewriteError::Subject(
                SubjectError::Source(SourceError::Missing { .. }) | SubjectError::Arch { .. }
            )
        )
    }
}

/// Repairs the refuted rows of a file. Findings that a comment in their source allows stay: the
/// file's debug files have the lines.
///
/// # Errors
///
/// The file cannot be checked or written. No error loses rows: nothing is changed in place.
pub fn rewrite_rows(
    file: &Arc<ElfFile>,
    debug: &DebugFiles,
    sources: &mut SourceTexts,
) -> Result<RowRewrite, RowRewriteError> {
    let mut rewriter = RowRewriter {
        first: file,
        debug,
        sources,
    };
    let first = rewriter.check(file)?;
    let (before, mut last) = (first.refuted.clone(), first);
    let mut repaired = BTreeSet::new();
    let mut written = None;
    for _ in 0..MAX_ROUNDS {
        let Some(elf) = last.elf.take() else { break };
        repaired.append(&mut last.repaired);
        let now = Arc::new(ElfFile::from_bytes(file.path(), elf.as_slice())?);
        last = rewriter.check(&now)?;
        written = Some(elf);
    }
    if written.is_some() && (!last.refuted.is_subset(&before) || last.refuted == before) {
        return Err(RowRewriteError::OtherRows { file: name(file) });
    }
    Ok(RowRewrite {
        elf: written,
        repaired,
        unchanged: last.unchanged,
    })
}

fn name(file: &ElfFile) -> String {
    file.path().display().to_string()
}

/// Refuted rows and their locations, by section: in an object file, addresses depend on the sizes
/// of other sections.
type Refuted = BTreeSet<(String, u64, FindingCode, String)>;

/// The findings of a file, and the repairs.
struct RepairRound {
    refuted: Refuted,
    /// The functions with repaired rows.
    repaired: BTreeSet<String>,
    /// The functions with unchanged rows, and why.
    unchanged: Vec<(String, Vaddr, RepairRefusal)>,
    /// The file with the new rows, if there are any.
    elf: Option<Vec<u8>>,
}

/// What all rounds share.
struct RowRewriter<'r> {
    /// The file as it was.
    first: &'r ElfFile,
    debug: &'r DebugFiles,
    sources: &'r mut SourceTexts,
}

impl RowRewriter<'_> {
    /// Checks a file, which is the first one or was made from it.
    fn check(&mut self, file: &Arc<ElfFile>) -> Result<RepairRound, RowRewriteError> {
        let declared = DeclaredTable::read(file)?;
        let mut subject = CheckSubject::new(file, &declared, CodeOrigins::from_file(file))?;
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let report = CheckReport::from_subject(&mut subject, threads, |_, _| {});
        let places: Vec<Vaddr> = report.findings.iter().map(|found| found.address).collect();
        let lines = Lines::new(Arc::clone(file), self.debug, &places);
        // A check suppresses these.
        let is_allowed = |finding: &Finding| {
            lines.line(finding.address).is_some_and(|(path, line)| {
                let reason = self.sources.reason(Path::new(&path), line, finding.code);
                reason.is_some()
            })
        };
        let repaired = subject.repair(&report, is_allowed)?;
        let entries = repaired.table.fdes();
        let function = |at: Vaddr| match file.symbols().lookup(at) {
            Some(symbol) => demangle(&symbol.name).into_owned(),
            None => format!("the code at {at}"),
        };
        let unchanged = repaired.refused.iter();
        Ok(RepairRound {
            refuted: refuted(file, &report),
            repaired: entries.iter().map(|fde| function(fde.start)).collect(),
            unchanged: unchanged
                .map(|(at, why)| (function(*at), *at, *why))
                .collect(),
            elf: if entries.is_empty() {
                None
            } else {
                Some(self.written(file, &declared.table, &repaired.table)?)
            },
        })
    }

    /// A file with repaired entries in place of its own. A linked file is made from the first one,
    /// so that it gets one more segment, not several.
    fn written(
        &self,
        file: &ElfFile,
        own: &Table,
        repaired: &Table,
    ) -> Result<Vec<u8>, RowRewriteError> {
        let existing = tables::read_if_any_from(file, TableSource::EhFrame);
        if existing.map_err(SubjectError::from)?.fdes().is_empty() {
            return Err(RowRewriteError::NotEhFrame { file: name(file) });
        }
        let made = match file.kind() {
            ElfKind::Relocatable => rewrite(file, repaired, &Table::new(file.abi()))?,
            _ => embed(self.first, &replace_entries(own, repaired)?)?,
        };
        Ok(made.elf)
    }
}

fn refuted(file: &ElfFile, report: &CheckReport) -> Refuted {
    let findings = report.findings.iter();
    let refuted = findings.filter(|finding| finding.severity == Severity::Refuted);
    let keys = refuted.map(|finding| {
        let (section, start) = file.section_of(finding.address).unwrap_or_default();
        let offset = finding.address.0 - start.0;
        let subject = finding.subject.clone();
        (section.into_owned(), offset, finding.code, subject)
    });
    keys.collect()
}
