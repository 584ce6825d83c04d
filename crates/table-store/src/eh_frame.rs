//! ELF files with another `.eh_frame`. Each result is read back and compared before it is returned.

use std::cell::RefCell;
use std::collections::BTreeSet;

use unspool_cfi::{CfiSection, EhFrame, SectionKind, WriteError};
use unspool_elf::{
    ElfFile, ElfKind, EmbedError, ModuleError, NewEhFrame, eh_frame_of_object, embed_eh_frame,
    replace_eh_frame,
};
use unspool_rows::diff::{DiffScope, differences};
use unspool_rows::table::{RowStart, TableError};
use unspool_rows::{Fde, Table, Vaddr};

use crate::source::{SourceError, TableSource, read_if_any_from};

/// A file with another `.eh_frame`.
#[derive(Debug)]
pub struct RewrittenFile {
    /// The file.
    pub elf: Vec<u8>,
    /// The size of its `.eh_frame`, and of its `.eh_frame_hdr` if that was written, in bytes.
    pub table_bytes: usize,
}

/// Why a file gets no other `.eh_frame`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EhFrameError {
    /// No instruction can express a row, or the section would be too large.
    #[error("{file}: {error}")]
    Write {
        /// The file.
        file: String,
        /// Why.
        error: WriteError,
    },
    /// The entries of an object file cannot be rewritten.
    #[error("{file}: {error}")]
    Rewrite {
        /// The file.
        file: String,
        /// Why.
        error: unspool_cfi::RewriteError,
    },
    /// The file has no room for the section.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The result cannot be read.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The result has no table that can be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There are too many rows.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The result has other rows than were to be written.
    #[error(
        "{file}: the result differs from what was to be written at {at}: this is a bug in unspool, please report it"
    )]
    Mismatch {
        /// The file.
        file: String,
        /// The first address with another row.
        at: Vaddr,
    },
}

fn name(file: &ElfFile) -> String {
    file.path().display().to_string()
}

/// A linked file with this table as its `.eh_frame` and `.eh_frame_hdr`.
///
/// # Errors
///
/// The table cannot be written, or not into this file.
pub fn embed(file: &ElfFile, all: &Table) -> Result<RewrittenFile, EhFrameError> {
    let failure = |error| EhFrameError::Write {
        file: name(file),
        error,
    };
    let written = EhFrame::from_table(all).map_err(failure)?;
    let failed = RefCell::new(None);
    let content = |[hdr, eh_frame]: [Vaddr; 2]| {
        let sections = written
            .hdr_at(hdr, eh_frame)
            .and_then(|hdr| Ok([hdr, written.bytes_at(eh_frame)?]));
        sections.unwrap_or_else(|error| {
            failed.replace(Some(error));
            [Vec::new(), Vec::new()]
        })
    };
    let lengths = [written.hdr_len() as u64, written.len() as u64];
    let elf = embed_eh_frame(file, lengths, &content)?;
    if let Some(error) = failed.take() {
        return Err(failure(error));
    }
    let back = ElfFile::from_bytes(file.path(), elf.as_slice())?;
    check(all, &back, DiffScope::RowsAndEntries)?;
    Ok(RewrittenFile {
        elf,
        table_bytes: written.hdr_len() + written.len(),
    })
}

/// An object file with the rows of `changed` for its entries, and with the entries `added`.
///
/// # Errors
///
/// An entry cannot be read or written.
pub fn rewrite(
    file: &ElfFile,
    changed: &Table,
    added: &Table,
) -> Result<RewrittenFile, EhFrameError> {
    let data = eh_frame_of_object(file)?;
    if changed.fdes().is_empty() && added.fdes().is_empty() {
        return Ok(RewrittenFile {
            elf: file.bytes().to_vec(),
            table_bytes: data.len(),
        });
    }
    let section = CfiSection {
        kind: SectionKind::EhFrame,
        data,
        address: Vaddr(0),
        text_base: None,
        data_base: None,
        abi: file.abi(),
    };
    let written = unspool_cfi::rewrite(&section, changed, added);
    let written = written.map_err(|error| EhFrameError::Rewrite {
        file: name(file),
        error,
    })?;
    let elf = replace_eh_frame(
        file,
        &NewEhFrame {
            bytes: &written.bytes,
            kept: &written.unchanged,
            pointers: &written.pointers,
        },
    )?;
    let back = ElfFile::from_bytes(file.path(), elf.as_slice())?;
    let own = read_if_any_from(file, TableSource::EhFrame)?;
    let layouts = SectionMoves::new(file, &back);
    let mut all = Table::new(own.abi());
    for table in [&replace_entries(&own, changed)?, added] {
        add(&mut all, table, |_| true, |address| layouts.moved(address))?;
    }
    check(&all, &back, DiffScope::Rows)?;
    Ok(RewrittenFile {
        elf,
        table_bytes: written.bytes.len(),
    })
}

/// A file with its own entries and others for code that they do not cover. `own` is its table,
/// which may be from another section.
///
/// # Errors
///
/// As for [`embed`] and [`rewrite`].
pub fn add_entries(
    file: &ElfFile,
    own: &Table,
    others: &Table,
) -> Result<RewrittenFile, EhFrameError> {
    let all = || replace_entries_of(own, &BTreeSet::new(), others);
    if file.kind() != ElfKind::Relocatable {
        return embed(file, &all()?);
    }
    // Entries that are only in `.debug_frame` are not in `.eh_frame` yet.
    let nothing = Table::new(own.abi());
    match read_if_any_from(file, TableSource::EhFrame)?.fdes() {
        [] => rewrite(file, &nothing, &all()?),
        _ => rewrite(file, &nothing, others),
    }
}

/// The entries of a table, with replacements for some. An entry replaces the one with its
/// [`Fde::origin`].
///
/// # Errors
///
/// There are too many rows.
pub fn replace_entries(own: &Table, by: &Table) -> Result<Table, TableError> {
    let replaced = by.fdes().iter().map(|fde| fde.origin).collect();
    replace_entries_of(own, &replaced, by)
}

/// The entries of a table except those of some origins, and then others.
fn replace_entries_of(
    own: &Table,
    replaced: &BTreeSet<u64>,
    others: &Table,
) -> Result<Table, TableError> {
    let mut all = Table::new(own.abi());
    let stays = |fde: &Fde| !replaced.contains(&fde.origin);
    add(&mut all, own, stays, |at| at)?;
    add(&mut all, others, |_| true, |at| at)?;
    Ok(all)
}

/// Adds the selected entries of another table, in order of address.
fn add(
    all: &mut Table,
    table: &Table,
    is_wanted: impl Fn(&Fde) -> bool,
    at: impl Fn(Vaddr) -> Vaddr,
) -> Result<(), TableError> {
    for fde in table.fdes().iter().filter(|fde| is_wanted(fde)) {
        let (from, to) = (fde.start, at(fde.start));
        let place = |address: Vaddr| to.offset(address.0.wrapping_sub(from.0));
        let mut rows = Vec::new();
        for start in table.rows(fde) {
            if let Some(row) = table.row(start.row) {
                rows.push(RowStart {
                    start: place(start.start),
                    row: all.intern(&row)?,
                });
            }
        }
        let mut header = fde.header();
        (header.start, header.end) = (to, place(fde.end));
        all.push(header, &rows)?;
    }
    Ok(())
}

/// Addresses of an object file's sections, and in a version of it with other section sizes:
/// ascending.
struct SectionMoves(Vec<(Vaddr, Vaddr)>);

impl SectionMoves {
    fn new(from: &ElfFile, to: &ElfFile) -> SectionMoves {
        let (from, to) = (from.sections(), to.sections());
        let pairs = from.zip(to).filter(|(section, _)| section.size > 0);
        let places = pairs.filter_map(|(from, to)| Some((from.address?, to.address?)));
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        SectionMoves(places)
    }

    fn moved(&self, address: Vaddr) -> Vaddr {
        let behind = self.0.partition_point(|(from, _)| *from <= address);
        let home = behind.checked_sub(1).and_then(|last| self.0.get(last));
        home.map_or(address, |(from, to)| to.offset(address.0 - from.0))
    }
}

/// Reads back a table that was written.
fn check(all: &Table, file: &ElfFile, scope: DiffScope) -> Result<(), EhFrameError> {
    let back = read_if_any_from(file, TableSource::EhFrame)?;
    match differences(all, &back, scope).first() {
        None => Ok(()),
        Some(difference) => Err(EhFrameError::Mismatch {
            file: name(file),
            at: difference.start,
        }),
    }
}
