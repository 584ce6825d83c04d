//! `unspool check --fix` on files other than source: rewrites refuted rows in `.eh_frame`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use unspool_check::{RowRewrite, RowRewriteError, SourceTexts, rewrite_rows};
use unspool_elf::{Archive, DebugFiles, ElfFile, SearchRoots};

use crate::commands::{self, MAX_PROBLEMS_PRINTED};
use crate::output::{self, EscapedText};

/// Repairs the refuted rows of a file, or of an archive's members, in place, and reports the
/// result.
pub(crate) fn repair(path: &Path) -> anyhow::Result<()> {
    let written = match Archive::open(path)? {
        Some(archive) => repair_archive(path, &archive)?,
        None => repair_file(commands::open(path)?)?,
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
        match file.and_then(repair_file) {
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
    if others.is_empty() {
        Ok(None)
    } else {
        Ok(Some(archive.with(&others)?))
    }
}

/// A file with repaired rows, if any changed.
fn repair_file(file: ElfFile) -> anyhow::Result<Option<Vec<u8>>> {
    let file = Arc::new(file);
    let debug = DebugFiles::locate(&file, &SearchRoots::from_environment());
    let mut sources = SourceTexts::new(super::read_source);
    let rewritten = rewrite_rows(&file, &debug, &mut sources)?;
    file.check_unchanged()?;
    report(file.path(), &rewritten);
    Ok(rewritten.elf)
}

/// Reports the repaired functions, and why others were not.
fn report(path: &Path, rewritten: &RowRewrite) {
    /// The most functions to name.
    const MAX_NAMES: usize = 5;
    let path = path.display();
    for (function, at, why) in rewritten.unchanged.iter().take(MAX_PROBLEMS_PRINTED) {
        output::notice(&format_args!(
            "{path}: the rows of {} stay as they are: {at}: {why}",
            EscapedText(function)
        ));
    }
    if let more @ 1.. = rewritten
        .unchanged
        .len()
        .saturating_sub(MAX_PROBLEMS_PRINTED)
    {
        output::notice(&format_args!("{path}: those of {more} others stay, too"));
    }
    let names = rewritten.repaired.iter().map(String::as_str);
    let mut named = names.take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    if let more @ 1.. = rewritten.repaired.len().saturating_sub(MAX_NAMES) {
        named += &format!(" and {more} more");
    }
    if !named.is_empty() {
        output::notice(&format_args!(
            "{path}: rows mended of {}",
            EscapedText(&named)
        ));
    }
}

/// Whether a file has no table, or is for an unsupported architecture.
pub(crate) fn is_unsupported(error: &anyhow::Error) -> bool {
    let error: Option<&RowRewriteError> = error.downcast_ref();
    error.is_some_and(RowRewriteError::is_unsupported)
}
