//! Encodes rows as a table.
//!
//! [`pieces`] cuts the address space, [`shapes`] shares equal parts of pieces, [`calls`] projects
//! the rows on return addresses. This module numbers the rows and lays out the file.

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use unspool_rows::arch::Endian;
use unspool_rows::{Arch, Fde, RowId, Table, Vaddr};

use crate::call_test::CallTest;
use crate::encode::calls::CallSiteProjection;
use crate::encode::pieces::Pieces;
use crate::layout::{
    self, CallForm, DIRECTORY_ENTRY, HEADER, LOOKUP_IN_TABLE, ModuleKey, PAGE_BYTES, TableSections,
};

mod calls;
mod entries;
mod pieces;
mod shapes;

/// The executable ranges of a module and their bytes: the input of the call-site part.
#[derive(Debug, Clone, Default)]
pub struct ExecutableCode<'a> {
    /// Ranges, ascending and disjoint, with their bytes as in the file.
    pub ranges: Vec<(Vaddr, &'a [u8])>,
}

impl ExecutableCode<'_> {
    /// The bounds of the code: its first address, and one past its last.
    pub(crate) fn bounds(&self) -> (Vaddr, Vaddr) {
        let end = |(start, bytes): &(Vaddr, &[u8])| start.offset(bytes.len() as u64);
        let start = self.ranges.first().map_or(Vaddr(0), |(start, _)| *start);
        (start, self.ranges.last().map_or(Vaddr(0), end))
    }

    /// Every address of the code that passes the call test, ascending.
    ///
    /// Independent of the rows, so it can run while they are read. About 2 GB/s on x86-64.
    #[must_use]
    pub fn call_addresses(&self, arch: Arch) -> Vec<Vaddr> {
        let (start, end) = self.bounds();
        let test = CallTest::new(CallForm::from_arch(arch), start, end);
        let mut addresses = Vec::new();
        for (start, bytes) in &self.ranges {
            test.for_each(*start, bytes, |address| addresses.push(address));
        }
        addresses
    }
}

/// A finished table.
#[derive(Debug, Clone)]
pub struct EncodedTable {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// The size of each part in bytes, for statistics.
    pub parts: Vec<(TablePart, usize)>,
}

/// The parts of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TablePart {
    /// Header, directory and key.
    Header,
    /// Rows over addresses: pieces, shapes, distinct rows.
    Rows,
    /// The entries' other fields: personality, LSDA, bounds of odd entries.
    Entries,
    /// The call-site part.
    Calls,
}

impl EncodedTable {
    /// The bytes of one part.
    #[must_use]
    pub fn part(&self, part: TablePart) -> usize {
        self.parts
            .iter()
            .filter(|(of, _)| *of == part)
            .map(|(_, len)| len)
            .sum()
    }
}

/// Why rows cannot be written as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The module's code covers more than 4 GiB.
    #[error("code from {start} to {end} spans more than the 4 GiB that a table can describe")]
    TooWide {
        /// The first address.
        start: Vaddr,
        /// One past the last address.
        end: Vaddr,
    },
    /// More distinct rows than 16 bits count.
    #[error("{0} distinct rows are more than the 65,536 that a table can hold")]
    TooManyRows(usize),
    /// More than 65,535 personality routines, or a file of 4 GiB.
    #[error("the table would be too large")]
    TooLarge,
}

/// Rows by their number in the file, the most frequent first.
pub(crate) struct RowNumbering {
    numbers: Vec<u16>,
    rows: Vec<RowId>,
}

impl RowNumbering {
    /// Numbers the rows in use. Steps can name only rows below [`LOOKUP_IN_TABLE`], so these are the
    /// rows with the most call sites. Within both groups the most frequent come first, because
    /// sequences take a byte for a number below 256.
    fn new(table: &Table, pieces: &Pieces, sites_of: &[u32]) -> Result<Self, EncodeError> {
        let mut counts = vec![0_u32; table.distinct_rows()];
        for pattern in &pieces.patterns {
            for row in pieces.rows(pattern) {
                if let Some(count) = counts.get_mut(row.row.0 as usize) {
                    *count += pattern.pieces;
                }
            }
        }
        let used = (0_u32..).zip(&counts).filter(|(_, count)| **count > 0);
        let mut rows: Vec<(u32, u32)> = used.map(|(row, count)| (row, *count)).collect();
        let sites = |row: u32| sites_of.get(row as usize).copied().unwrap_or_default();
        rows.sort_by_key(|(row, count)| (Reverse(sites(*row)), Reverse(*count), *row));
        let in_steps = rows.len().min(LOOKUP_IN_TABLE.into());
        let (in_steps, others) = rows.split_at_mut(in_steps);
        for part in [in_steps, others] {
            part.sort_by_key(|(row, count)| (Reverse(*count), *row));
        }
        let mut numbers = vec![0; counts.len()];
        for (number, (row, _)) in rows.iter().enumerate() {
            let number = u16::try_from(number).map_err(|_| EncodeError::TooManyRows(rows.len()))?;
            if let Some(slot) = numbers.get_mut(*row as usize) {
                *slot = number;
            }
        }
        Ok(RowNumbering {
            numbers,
            rows: rows.into_iter().map(|(row, _)| RowId(row)).collect(),
        })
    }

    pub(crate) fn number(&self, row: RowId) -> u16 {
        self.numbers
            .get(row.0 as usize)
            .copied()
            .unwrap_or_default()
    }
}

/// Writes the table of a module. `calls` are the [`ExecutableCode::call_addresses`] of `code`.
///
/// Allocates at most about 60 bytes per row temporarily; less where entries share their rows.
///
/// # Errors
///
/// [`EncodeError`].
pub fn encode(
    table: &Table,
    key: ModuleKey<'_>,
    code: &ExecutableCode<'_>,
    calls: &[Vaddr],
) -> Result<EncodedTable, EncodeError> {
    encode_all(table, key, code, calls, &[])
}

/// The same for rows synthesized from the module's code, by this version of the synthesis
/// ([`crate::CompiledTable::synthesis_version`]). The table has no call-site part.
///
/// # Errors
///
/// [`EncodeError`].
pub fn encode_synthesized(
    table: &Table,
    key: ModuleKey<'_>,
    version: u8,
) -> Result<EncodedTable, EncodeError> {
    encode_all(table, key, &ExecutableCode::default(), &[], &[version])
}

fn encode_all(
    table: &Table,
    key: ModuleKey<'_>,
    code: &ExecutableCode<'_>,
    calls: &[Vaddr],
    synthesized: &[u8],
) -> Result<EncodedTable, EncodeError> {
    let base = base(table, code)?;
    let pieces = pieces::cut(table, base)?;
    let projection = CallSiteProjection::new(calls, &pieces, base, table.distinct_rows());
    let numbering = RowNumbering::new(table, &pieces, &projection.sites_of)?;
    let shapes = shapes::share(&pieces, &numbering);
    let facts = entries::describe(table, &pieces, base)?;
    let calls = projection.lay_out(code, base, &numbering);

    let key = key_bytes(key);
    let (pieces_index, starts) = pieces.index();
    let (records, gaps) = pieces.records(&facts.classes, &shapes);
    let (rows, row_ends, row_width) = dictionary(table, &numbering);
    let sections = TableSections {
        key: &key,
        piece_pages: &pieces_index.pages,
        piece_buckets: &pieces_index.buckets,
        starts: &starts,
        pieces: &records,
        gaps: &gaps,
        shapes: &shapes.bytes,
        sequences: &shapes.sequences,
        row_ends: &row_ends,
        rows: &rows,
        classes: &facts.class_table,
        personalities: &facts.personalities,
        lsda_index: &facts.lsda_index,
        lsdas: &facts.lsdas,
        odds: &facts.odds,
        executable: &calls.executable,
        step_pages: &calls.index.pages,
        step_buckets: &calls.index.buckets,
        steps: &calls.steps,
        synthesized,
    };
    let form = if calls.steps.is_empty() {
        CallForm::None
    } else {
        CallForm::from_arch(table.abi().arch)
    };
    let widths = ReferenceWidths {
        shape: shapes.width,
        sequence: shapes.sequence_width,
        row: row_width,
    };
    file(table, base, form, widths, &sections)
}

/// Sizes of references in bytes.
#[derive(Clone, Copy)]
struct ReferenceWidths {
    shape: u8,
    sequence: u8,
    row: u8,
}

/// The address of page 0. Every address of the table must lie within 4 GiB of it.
fn base(table: &Table, code: &ExecutableCode<'_>) -> Result<Vaddr, EncodeError> {
    let covers = |fde: &&Fde| fde.start < fde.end;
    let entries = table.fdes().iter().filter(covers);
    let bounds = entries.map(|fde| (fde.start, fde.end));
    let both = |(start, end): (Vaddr, Vaddr), (s, e): (Vaddr, Vaddr)| (start.min(s), end.max(e));
    let Some(rows) = bounds.reduce(both) else {
        return Ok(Vaddr(0));
    };
    let (start, end) = if code.ranges.is_empty() {
        rows
    } else {
        both(rows, code.bounds())
    };
    let base = start.0 - start.0 % PAGE_BYTES;
    match end.0.checked_sub(base) {
        Some(length) if length <= u64::from(u32::MAX) => Ok(Vaddr(base)),
        _ => Err(EncodeError::TooWide { start, end }),
    }
}

fn key_bytes(key: ModuleKey<'_>) -> Vec<u8> {
    // A build ID has at most 64 bytes.
    let length = key.build_id.len().min(usize::from(u8::MAX));
    let mut bytes = vec![u8::try_from(length).unwrap_or(u8::MAX)];
    bytes.extend_from_slice(key.build_id.get(..length).unwrap_or_default());
    bytes.extend_from_slice(key.content);
    bytes
}

/// The distinct rows, the end of each, and the width of those ends.
fn dictionary(table: &Table, numbering: &RowNumbering) -> (Vec<u8>, Vec<u8>, u8) {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for row in &numbering.rows {
        bytes.extend_from_slice(table.encoded_row(*row));
        ends.push(bytes.len());
    }
    let width = width(bytes.len());
    let packed = ends
        .iter()
        .flat_map(|end| end.to_le_bytes().into_iter().take(usize::from(width)));
    (bytes, packed.collect(), width)
}

/// The bytes that numbers up to `greatest` need: 2 to 4.
pub(crate) fn width(greatest: usize) -> u8 {
    match greatest {
        0..=0xffff => 2,
        0x1_0000..=0xff_ffff => 3,
        _ => 4,
    }
}

fn file(
    table: &Table,
    base: Vaddr,
    form: CallForm,
    widths: ReferenceWidths,
    sections: &TableSections<'_>,
) -> Result<EncodedTable, EncodeError> {
    let all: Vec<([u8; 4], &[u8])> = sections
        .all()
        .filter(|(_, content)| !content.is_empty())
        .collect();
    let body: usize = all.iter().map(|(_, content)| content.len()).sum();
    let mut at = HEADER + all.len() * DIRECTORY_ENTRY;
    let total = u32::try_from(at + body).map_err(|_| EncodeError::TooLarge)?;

    let abi = table.abi();
    let mut bytes = Vec::with_capacity(at + body);
    bytes.extend_from_slice(&layout::MAGIC);
    bytes.extend_from_slice(&layout::VERSION.to_le_bytes());
    bytes.extend_from_slice(&abi.arch.elf_machine().to_le_bytes());
    bytes.push(abi.arch.spec().address_size.bytes());
    bytes.push(match abi.endian {
        Endian::Little => 1,
        Endian::Big => 2,
    });
    bytes.push(form.code());
    bytes.push(widths.shape);
    bytes.extend_from_slice(&base.0.to_le_bytes());
    bytes.extend_from_slice(&total.to_le_bytes());
    put_u16(&mut bytes, all.len() as u64);
    bytes.push(widths.sequence);
    bytes.push(widths.row);
    bytes.resize(HEADER, 0);
    let mut parts = vec![(TablePart::Header, at)];
    for (tag, content) in &all {
        bytes.extend_from_slice(tag);
        bytes.extend_from_slice(&layout::REQUIRED.to_le_bytes());
        put_u32(&mut bytes, at);
        put_u32(&mut bytes, content.len());
        at += content.len();
        parts.push((part_of(*tag), content.len()));
    }
    for (_, content) in &all {
        bytes.extend_from_slice(content);
    }
    let digest = layout::digest(&bytes);
    if let Some(place) = bytes.get_mut(layout::DIGEST) {
        place.copy_from_slice(&digest);
    }
    Ok(EncodedTable { bytes, parts })
}

fn part_of(tag: [u8; 4]) -> TablePart {
    match &tag {
        b"KEY " | b"SYNT" => TablePart::Header,
        b"CLAS" | b"PERS" | b"LSDX" | b"LSDA" | b"ODDS" => TablePart::Entries,
        b"EXEC" | b"CPGS" | b"CBKT" | b"CSTP" => TablePart::Calls,
        _ => TablePart::Rows,
    }
}

/// Appends a number that the caller has bounded by the 4 GiB of a table.
pub(crate) fn put_u32(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

/// Appends a number that the caller has bounded by 65,535.
pub(crate) fn put_u16(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes());
}
