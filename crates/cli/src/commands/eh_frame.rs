//! Files with a new `.eh_frame`. The output is read back and compared.

use std::cell::RefCell;
use std::collections::BTreeSet;

use anyhow::{Context as _, bail};
use unspool_cfi::{CfiSection, EhFrame, SectionKind};
use unspool_elf::{ElfFile, NewEhFrame, eh_frame_of_object, embed_eh_frame, replace_eh_frame};
use unspool_rows::diff::{DiffScope, differences};
use unspool_rows::table::RowStart;
use unspool_rows::{Fde, Table, Vaddr};
use unspool_table_store::{self as tables, TableSource};

/// A linked file with a table as its `.eh_frame` and `.eh_frame_hdr`, and the bytes of both.
pub(super) fn embed(file: &ElfFile, all: &Table) -> anyhow::Result<(Vec<u8>, usize)> {
    let name = || file.path().display().to_string();
    let written = EhFrame::from_table(all).with_context(name)?;
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
        return Err(error).with_context(name);
    }
    let back = ElfFile::from_bytes(file.path(), elf.as_slice())?;
    check(all, &back, DiffScope::RowsAndEntries)?;
    Ok((elf, written.hdr_len() + written.len()))
}

/// An object file with the rows of `changed` for its entries, and with the entries `added`; and the
/// bytes of its `.eh_frame`.
pub(super) fn rewrite(
    file: &ElfFile,
    changed: &Table,
    added: &Table,
) -> anyhow::Result<(Vec<u8>, usize)> {
    let data = eh_frame_of_object(file)?;
    if changed.fdes().is_empty() && added.fdes().is_empty() {
        return Ok((file.bytes().to_vec(), data.len()));
    }
    let section = CfiSection {
        kind: SectionKind::EhFrame,
        data,
        address: Vaddr(0),
        text_base: None,
        data_base: None,
        abi: file.abi(),
    };
    let written = unspool_cfi::rewrite(&section, changed, added)
        .with_context(|| file.path().display().to_string())?;
    let elf = replace_eh_frame(
        file,
        &NewEhFrame {
            bytes: &written.bytes,
            kept: &written.unchanged,
            pointers: &written.pointers,
        },
    )?;
    let back = ElfFile::from_bytes(file.path(), elf.as_slice())?;
    let own = tables::read_if_any_from(file, TableSource::EhFrame)?;
    let layouts = SectionMoves::new(file, &back);
    let mut all = Table::new(own.abi());
    for table in [&replace_entries(&own, changed)?, added] {
        add(&mut all, table, |_| true, |address| layouts.moved(address))?;
    }
    check(&all, &back, DiffScope::Rows)?;
    Ok((elf, written.bytes.len()))
}

/// The entries of all tables in one.
pub(super) fn concatenate(tables: &[&Table]) -> anyhow::Result<Table> {
    let Some(first) = tables.first() else {
        bail!("no tables");
    };
    let mut all = Table::new(first.abi());
    for table in tables {
        add(&mut all, table, |_| true, |address| address)?;
    }
    Ok(all)
}

/// The entries of a table, with replacements for some.
pub(super) fn replace_entries(own: &Table, by: &Table) -> anyhow::Result<Table> {
    let new: BTreeSet<u64> = by.fdes().iter().map(|fde| fde.origin).collect();
    let mut all = Table::new(own.abi());
    add(&mut all, own, |fde| !new.contains(&fde.origin), |at| at)?;
    add(&mut all, by, |_| true, |at| at)?;
    Ok(all)
}

/// Adds the selected entries of another table, in order of address.
fn add(
    all: &mut Table,
    table: &Table,
    is_wanted: impl Fn(&Fde) -> bool,
    at: impl Fn(Vaddr) -> Vaddr,
) -> anyhow::Result<()> {
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
fn check(all: &Table, file: &ElfFile, scope: DiffScope) -> anyhow::Result<()> {
    let back = tables::read_if_any_from(file, TableSource::EhFrame)?;
    match differences(all, &back, scope).first() {
        None => Ok(()),
        Some(difference) => bail!(
            "{}: the result differs from what was to be written at {}: this is a bug in unspool, please report it",
            file.path().display(),
            difference.start
        ),
    }
}
