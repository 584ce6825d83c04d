//! `unspool check --fix` on files other than source: rewrites refuted rows in `.eh_frame`.
//!
//! This helps inline assembly: compilers do not analyze it, and no directive in it can know the
//! compiler's rows. It does not matter who wrote the code: all refuted rows are repaired, and only
//! those.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use unspool_check::{
    CheckReport, CheckSubject, CodeOrigins, DeclaredTable, Finding, FindingCode, FindingLocator,
    Severity, SourceTexts, SubjectError,
};
use unspool_elf::{Archive, DebugFiles, ElfFile, ElfKind, SearchRoots, demangle};
use unspool_rows::{Table, Vaddr};
use unspool_table_store::{self as tables, SourceError, TableSource, eh_frame};

use crate::commands::{self, MAX_PROBLEMS_PRINTED};
use crate::output::{self, EscapedText};

/// The most rounds of checking a file. Right rows may prove a path that was not assumed before. Two
/// rounds are usual, and the second only confirms the result.
const MAX_ROUNDS: usize = 5;

/// Repairs the refuted rows of a file, or of an archive's members, in place, and reports the
/// result.
pub(crate) fn repair(path: &Path) -> anyhow::Result<()> {
    let written = match Archive::open(path)? {
        Some(archive) => repair_archive(path, &archive)?,
        None => repair_file(&Arc::new(commands::open(path)?))?,
    };
    match written {
        Some(bytes) => {
            let permissions = fs::metadata(path)?.permissions();
            commands::write(path, &bytes, Some(permissions))
        }
        None => Ok(()),
    }
}

/// An archive with repaired members, if any changed. If one cannot be repaired, nothing is written.
fn repair_archive(path: &Path, archive: &Archive) -> anyhow::Result<Option<Vec<u8>>> {
    let mut others = BTreeMap::new();
    let mut failed = 0;
    for member in archive.members()? {
        let file = member.file.map_err(anyhow::Error::from);
        match file.and_then(|file| repair_file(&Arc::new(file))) {
            Ok(Some(elf)) => drop(others.insert(member.start, elf)),
            Ok(None) => {}
            Err(error) if is_unsupported(&error) => {}
            Err(error) => {
                output::error(&format_args!("{error:#}"));
                failed += 1;
            }
        }
    }
    if failed > 0 {
        bail!(
            "{}: nothing is written, since {failed} of its members could not be mended",
            path.display()
        );
    }
    match others.is_empty() {
        true => Ok(None),
        false => Ok(Some(archive.with(&others)?)),
    }
}

/// A file with repaired rows, if any changed.
fn repair_file(file: &Arc<ElfFile>) -> anyhow::Result<Option<Vec<u8>>> {
    let path = file.path();
    let first = RepairRound::check(file, file)?;
    let (before, mut last) = (first.refuted.clone(), first);
    let mut mended = BTreeSet::new();
    let mut written = None;
    for _ in 0..MAX_ROUNDS {
        let Some(elf) = last.elf.take() else { break };
        mended.append(&mut last.repaired);
        let now = Arc::new(ElfFile::from_bytes(path, elf.as_slice())?);
        last = RepairRound::check(file, &now)?;
        written = Some(elf);
    }
    if written.is_some() && (!last.refuted.is_subset(&before) || last.refuted == before) {
        bail!(
            "{}: nothing is written, because other rows would be refuted: this is a bug in unspool, please report it",
            path.display()
        );
    }
    file.check_unchanged()?;
    report(path, &mended, &last.unchanged);
    Ok(written)
}

/// Reports the repaired functions, and why others were not.
fn report(path: &Path, mended: &BTreeSet<String>, unmended: &[(String, String)]) {
    /// The most functions to name.
    const MAX_NAMES: usize = 5;
    let path = path.display();
    for (function, why) in unmended.iter().take(MAX_PROBLEMS_PRINTED) {
        output::notice(&format_args!(
            "{path}: the rows of {} stay as they are: {why}",
            EscapedText(function)
        ));
    }
    if let more @ 1.. = unmended.len().saturating_sub(MAX_PROBLEMS_PRINTED) {
        output::notice(&format_args!("{path}: those of {more} others stay, too"));
    }
    if mended.is_empty() {
        return;
    }
    let named: Vec<&str> = mended.iter().take(MAX_NAMES).map(String::as_str).collect();
    let mut named = named.join(", ");
    if let more @ 1.. = mended.len().saturating_sub(MAX_NAMES) {
        named += &format!(" and {more} more");
    }
    output::notice(&format_args!(
        "{path}: rows mended of {}",
        EscapedText(&named)
    ));
}

/// Whether a file has no table, or is for an unsupported architecture.
pub(crate) fn is_unsupported(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(SubjectError::Source(SourceError::Missing { .. }) | SubjectError::Arch { .. })
    )
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
    unchanged: Vec<(String, String)>,
    /// The file with the new rows, if there are any.
    elf: Option<Vec<u8>>,
}

impl RepairRound {
    /// Checks a file, which is the first one or was made from it.
    fn check(first: &ElfFile, file: &Arc<ElfFile>) -> anyhow::Result<RepairRound> {
        let declarations = DeclaredTable::read(file)?;
        let mut subject = CheckSubject::new(file, &declarations, CodeOrigins::from_file(file))?;
        let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let report = CheckReport::from_subject(&mut subject, threads, |_, _| {});
        let debug = DebugFiles::locate(file, &SearchRoots::from_environment());
        let surroundings = FindingLocator::new(file, &debug, &subject, &report.findings);
        let sources = RefCell::new(SourceTexts::new(super::read_source));
        // `check` itself suppresses these.
        let is_allowed = |finding: &Finding| {
            let source = surroundings
                .as_ref()
                .and_then(|it| it.source(finding.address));
            source.is_some_and(|(path, line)| {
                let reason = sources
                    .borrow_mut()
                    .reason(Path::new(&path), line, finding.code);
                reason.is_some()
            })
        };
        let mended = subject.repair(&report, is_allowed)?;
        let entries = mended.table.fdes();
        let function = |at: Vaddr| match file.symbols().lookup(at) {
            Some(symbol) => demangle(&symbol.name).into_owned(),
            None => format!("the code at {at}"),
        };
        let unmended = mended.refused.iter();
        Ok(RepairRound {
            refuted: refuted(file, &report),
            repaired: entries.iter().map(|fde| function(fde.start)).collect(),
            unchanged: unmended
                .map(|(at, why)| (function(*at), format!("{at}: {why}")))
                .collect(),
            elf: match entries.is_empty() {
                true => None,
                false => Some(written(first, file, &declarations.table, &mended.table)?),
            },
        })
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

/// A file with repaired entries in place of its own. A linked file is made from the first one, so
/// that it gets one more segment, not several.
fn written(
    first: &ElfFile,
    file: &ElfFile,
    own: &Table,
    mended: &Table,
) -> anyhow::Result<Vec<u8>> {
    let there = tables::read_if_any_from(file, TableSource::EhFrame)?;
    if there.fdes().is_empty() {
        bail!(
            "{}: its unwind table is .debug_frame, which is not written: build it with -fasynchronous-unwind-tables",
            file.path().display()
        );
    }
    let made = match file.kind() {
        ElfKind::Relocatable => eh_frame::rewrite(file, mended, &Table::new(file.abi()))?,
        _ => eh_frame::embed(first, &eh_frame::replace_entries(own, mended)?)?,
    };
    Ok(made.elf)
}
