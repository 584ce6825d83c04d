//! All rows of a module, with each distinct row stored once.

use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::addr::{Pointer, Vaddr};
use crate::arch::Abi;
use crate::encoding;
use crate::row::Row;

/// A distinct row of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u32);

/// A frame description entry of a [`Table`], by its index in [`Table::fdes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdeId(pub u32);

/// The rows of an entry, each by its distance from the entry's start. Entries with equal rows can
/// share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub u32);

/// A frame description entry: a range of code with one description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fde {
    /// First address.
    pub start: Vaddr,
    /// One past the last address. Not before `start`; equal for an empty entry.
    pub end: Vaddr,
    /// The personality routine of the entry's CIE.
    pub personality: Option<Pointer>,
    /// The language-specific data area.
    pub lsda: Option<Vaddr>,
    /// The entry's offset in its section, for messages.
    pub origin: u64,
    run: RunId,
}

impl Fde {
    /// The entry without its rows.
    #[must_use]
    pub fn header(&self) -> FdeHeader {
        FdeHeader {
            start: self.start,
            end: self.end,
            personality: self.personality,
            lsda: self.lsda,
            origin: self.origin,
        }
    }

    /// The entry's rows: equal for entries that share them.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }
}

/// A row of a run. It holds from an offset, in bytes from the entry's start, to the next row's, or
/// to the entry's end.
#[derive(Debug, Clone, Copy)]
struct RunRow {
    offset: u32,
    row: RowId,
}

impl RunRow {
    /// The row in an entry that starts at `start`.
    fn starting_at(self, start: Vaddr) -> RowStart {
        RowStart {
            start: start.offset(self.offset.into()),
            row: self.row,
        }
    }
}

/// A row that holds from an address to the next row's, or to the end of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStart {
    /// First address.
    pub start: Vaddr,
    /// The row.
    pub row: RowId,
}

/// A range of addresses, the row that holds in it, and the row's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub start: Vaddr,
    /// One past the last address; greater than `start`.
    pub end: Vaddr,
    /// The entry.
    pub fde: FdeId,
    /// The row.
    pub row: RowId,
}

/// Two entries that cover the same addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The entry with the greater start, or among equals the first: the one that counts.
    pub winner: FdeId,
    /// The entry that does not count there.
    pub loser: FdeId,
    /// The first address that both claim.
    pub at: Vaddr,
}

/// The unwind table of one module.
///
/// Entries stand in the order in which they were added, as in the source: unsorted, and possibly
/// overlapping. [`Table::spans`] is the table as a function of the address.
#[derive(Clone)]
pub struct Table {
    abi: Abi,
    fdes: Vec<Fde>,
    /// The number of rows of all entries; a shared row counts for each.
    row_count: usize,
    /// The rows of all runs, one run after another.
    rows: Vec<RunRow>,
    /// Where each run ends in `rows`.
    run_ends: Vec<u32>,
    encoded: Vec<u8>,
    ends: Vec<u32>,
    interned: HashTable<RowId>,
    hasher: DefaultHashBuilder,
}

/// Why something could not be added to a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// More entries, rows or distinct rows than 32-bit numbers count, or a row too far from its
    /// entry's start.
    #[error(
        "a table holds at most 2^32 entries, rows, bytes of an entry before its last row, and bytes of distinct rows"
    )]
    TooLarge,
    /// The rows of an entry do not begin at its start, or do not ascend within its bounds.
    #[error("row at {at} is out of order in the entry {start}..{end}")]
    RowOrder {
        /// The row's address.
        at: Vaddr,
        /// The entry's first address.
        start: Vaddr,
        /// The entry's end.
        end: Vaddr,
    },
}

/// An entry without its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdeHeader {
    /// First address.
    pub start: Vaddr,
    /// One past the last address.
    pub end: Vaddr,
    /// The personality routine.
    pub personality: Option<Pointer>,
    /// The language-specific data area.
    pub lsda: Option<Vaddr>,
    /// The entry's offset in its section, for messages.
    pub origin: u64,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(abi: Abi) -> Self {
        Table {
            abi,
            fdes: Vec::new(),
            row_count: 0,
            rows: Vec::new(),
            run_ends: Vec::new(),
            encoded: Vec::new(),
            ends: Vec::new(),
            interned: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// The architecture and byte order of the code that the table describes.
    #[must_use]
    pub fn abi(&self) -> Abi {
        self.abi
    }

    /// The entries, in the order in which they were added.
    #[must_use]
    pub fn fdes(&self) -> &[Fde] {
        &self.fdes
    }

    /// One entry.
    #[must_use]
    pub fn fde(&self, id: FdeId) -> Option<&Fde> {
        self.fdes.get(id.0 as usize)
    }

    /// The rows of one entry, ascending; none if the entry is not of this table.
    pub fn rows(
        &self,
        fde: &Fde,
    ) -> impl ExactSizeIterator<Item = RowStart> + DoubleEndedIterator + Clone + use<'_> {
        let start = fde.start;
        self.run(fde.run)
            .iter()
            .map(move |row| row.starting_at(start))
    }

    /// The number of rows of all entries; a shared row counts for each.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The number of runs, at most that of entries; their ids are `0..count`.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.run_ends.len()
    }

    fn run(&self, id: RunId) -> &[RunRow] {
        self.rows
            .get(before_end(&self.run_ends, id.0))
            .unwrap_or_default()
    }

    /// The number of distinct rows; their ids are `0..count`.
    #[must_use]
    pub fn distinct_rows(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of the canonical encodings of all distinct rows.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.encoded.len()
    }

    /// The canonical encoding of a distinct row ([`crate::encoding`]).
    #[must_use]
    pub fn encoded_row(&self, id: RowId) -> &[u8] {
        self.encoded
            .get(before_end(&self.ends, id.0))
            .unwrap_or_default()
    }

    /// A distinct row; `None` if the id is not of this table.
    #[must_use]
    pub fn row(&self, id: RowId) -> Option<Row<'_>> {
        encoding::decode(self.encoded_row(id))
    }

    /// The row that holds at an address, as [`Table::spans`] has it; `None` in a hole. It looks at
    /// all entries: for many addresses, read the spans once, or compile the table.
    #[must_use]
    pub fn row_at(&self, pc: Vaddr) -> Option<Row<'_>> {
        let covering = self
            .fdes
            .iter()
            .filter(|fde| fde.start <= pc && pc < fde.end);
        // `max_by_key` takes the last of several: of equal starts the first entry.
        let fde = covering.rev().max_by_key(|fde| fde.start)?;
        let row = self.rows(fde).rev().find(|row| row.start <= pc)?;
        self.row(row.row)
    }

    /// Stores a row; equal rows are stored once.
    ///
    /// # Errors
    ///
    /// [`TableError::TooLarge`]; the table is then unchanged.
    pub fn intern(&mut self, row: &Row<'_>) -> Result<RowId, TableError> {
        let start = self.encoded.len();
        encoding::encode(row, &mut self.encoded);
        let (before, new) = self.encoded.split_at(start);
        let ends = &self.ends;
        let bytes_of = |id: &RowId| before.get(before_end(ends, id.0)).unwrap_or_default();
        let hash = self.hasher.hash_one(new);
        if let Some(id) = self.interned.find(hash, |id| bytes_of(id) == new) {
            let id = *id;
            self.encoded.truncate(start);
            return Ok(id);
        }
        let next =
            index(self.ends.len()).and_then(|id| Ok((RowId(id), index(self.encoded.len())?)));
        let (id, end) = match next {
            Ok(next) => next,
            Err(error) => {
                self.encoded.truncate(start);
                return Err(error);
            }
        };
        self.interned
            .insert_unique(hash, id, |id| self.hasher.hash_one(bytes_of(id)));
        self.ends.push(end);
        Ok(id)
    }

    /// Frees memory reserved for more entries.
    pub fn shrink_to_fit(&mut self) {
        self.fdes.shrink_to_fit();
        self.rows.shrink_to_fit();
        self.run_ends.shrink_to_fit();
    }

    /// Adds an entry with its rows: the first at the entry's start, the others ascending and before
    /// its end. An empty entry keeps one row or none.
    ///
    /// # Errors
    ///
    /// [`TableError`]; the table is then unchanged.
    pub fn push(&mut self, header: FdeHeader, rows: &[RowStart]) -> Result<FdeId, TableError> {
        let FdeHeader { start, end, .. } = header;
        check_order(start, end, rows)?;
        let offset = |row: &RowStart| u32::try_from(row.start.0 - start.0);
        // The last offset is the greatest.
        if rows.last().is_some_and(|last| offset(last).is_err()) {
            return Err(TableError::TooLarge);
        }
        let run = RunId(index(self.run_ends.len())?);
        let run_end = index(self.rows.len() + rows.len())?;
        let id = self.push_fde(header, run, rows.len())?;
        self.run_ends.push(run_end);
        self.rows.extend(rows.iter().map(|row| RunRow {
            offset: offset(row).unwrap_or(u32::MAX),
            row: row.row,
        }));
        Ok(id)
    }

    /// Adds an entry that shares the rows of another. All of them must begin before its end. Only
    /// an empty entry may have none.
    ///
    /// # Errors
    ///
    /// [`TableError`]; the table is then unchanged.
    #[inline]
    pub fn push_run(&mut self, header: FdeHeader, run: RunId) -> Result<FdeId, TableError> {
        let FdeHeader { start, end, .. } = header;
        let rows = self.run(run);
        match (end.0.checked_sub(start.0), rows.last()) {
            (Some(len), Some(last)) if u64::from(last.offset) < len => {}
            (Some(0), None) => {}
            (_, last) => {
                let at = last.map_or(end, |last| last.starting_at(start).start);
                return Err(TableError::RowOrder { at, start, end });
            }
        }
        let count = rows.len();
        self.push_fde(header, run, count)
    }

    fn push_fde(
        &mut self,
        header: FdeHeader,
        run: RunId,
        rows: usize,
    ) -> Result<FdeId, TableError> {
        let id = FdeId(index(self.fdes.len())?);
        let FdeHeader {
            start,
            end,
            personality,
            lsda,
            origin,
        } = header;
        self.fdes.push(Fde {
            start,
            end,
            personality,
            lsda,
            origin,
            run,
        });
        self.row_count += rows;
        Ok(id)
    }

    /// The table as a function of the address: ascending, disjoint ranges.
    ///
    /// Where entries overlap, the one with the greatest start counts, and among equal starts the
    /// first. Equal neighbouring rows of an entry are joined; holes stay holes.
    #[must_use]
    pub fn spans(&self) -> Spans<'_> {
        Spans {
            extents: self.extents(),
            extent: None,
        }
    }

    /// The addresses for which each entry counts: ascending, disjoint ranges, with the spans in
    /// them. An entry that others overlap can have several, or none.
    #[must_use]
    pub fn extents(&self) -> Extents<'_> {
        Extents {
            scan: OverlapScan::new(self),
        }
    }

    /// Pairs of entries, one of which hides part of the other; at most `limit`.
    #[must_use]
    pub fn overlaps(&self, limit: usize) -> Vec<Overlap> {
        let mut scan = OverlapScan::new(self);
        let mut found = Vec::new();
        while let Some((id, fde)) = scan.pending() {
            scan.open.retain(|other| other.fde.end > fde.start);
            for other in &scan.open {
                if found.len() >= limit {
                    return found;
                }
                found.push(Overlap {
                    winner: id,
                    loser: other.id,
                    at: fde.start,
                });
            }
            scan.open_next(id, fde);
        }
        found
    }
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table")
            .field("abi", &self.abi)
            .field("fdes", &self.fdes.len())
            .field("rows", &self.row_count)
            .field("runs", &self.run_ends.len())
            .field("distinct_rows", &self.ends.len())
            .finish()
    }
}

fn index(n: usize) -> Result<u32, TableError> {
    u32::try_from(n).map_err(|_| TableError::TooLarge)
}

/// The range that ends at the end with this index, and begins at the one before.
fn before_end(ends: &[u32], index: u32) -> Range<usize> {
    let at = index as usize;
    let start = at.checked_sub(1).and_then(|before| ends.get(before));
    let end = ends.get(at);
    start.map_or(0, |start| *start as usize)..end.map_or(0, |end| *end as usize)
}

fn check_order(start: Vaddr, end: Vaddr, rows: &[RowStart]) -> Result<(), TableError> {
    let out_of_order = |at| TableError::RowOrder { at, start, end };
    if end < start {
        return Err(out_of_order(end));
    }
    match rows.first() {
        Some(first) if first.start == start => {}
        Some(first) => return Err(out_of_order(first.start)),
        None if start == end => return Ok(()),
        None => return Err(out_of_order(end)),
    }
    for pair in rows.windows(2) {
        if let [before, row] = pair
            && (row.start <= before.start || row.start >= end)
        {
            return Err(out_of_order(row.start));
        }
    }
    Ok(())
}

/// The iterator of [`Table::spans`].
#[derive(Debug, Clone)]
pub struct Spans<'t> {
    extents: Extents<'t>,
    extent: Option<Extent<'t>>,
}

impl Iterator for Spans<'_> {
    type Item = Span;

    #[inline]
    fn next(&mut self) -> Option<Span> {
        loop {
            if let Some(span) = self.extent.as_mut().and_then(Extent::next_span) {
                return Some(span);
            }
            self.extent = Some(self.extents.next()?);
        }
    }
}

/// The iterator of [`Table::extents`].
#[derive(Debug, Clone)]
pub struct Extents<'t> {
    scan: OverlapScan<'t>,
}

impl<'t> Iterator for Extents<'t> {
    type Item = Extent<'t>;

    #[inline]
    fn next(&mut self) -> Option<Extent<'t>> {
        self.scan.next_extent()
    }
}

/// A range of addresses for which one entry counts.
#[derive(Debug, Clone, Copy)]
pub struct Extent<'t> {
    /// First address.
    pub start: Vaddr,
    /// One past the last address; greater than `start`.
    pub end: Vaddr,
    /// The entry.
    pub id: FdeId,
    /// That entry.
    pub fde: &'t Fde,
    /// The rows, beginning with the one that holds at `start`.
    rows: &'t [RunRow],
}

impl<'t> Extent<'t> {
    /// Whether it is the whole entry.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        (self.start, self.end) == (self.fde.start, self.fde.end)
    }

    /// Its spans, without gaps.
    pub fn spans(mut self) -> impl Iterator<Item = Span> + use<'t> {
        core::iter::from_fn(move || self.next_span())
    }

    /// Takes the first span.
    #[inline]
    fn next_span(&mut self) -> Option<Span> {
        if self.start >= self.end {
            return None;
        }
        let (row, mut rest) = self.rows.split_first()?;
        while let [next, tail @ ..] = rest
            && next.row == row.row
        {
            rest = tail;
        }
        let next = rest
            .first()
            .map(|next| next.starting_at(self.fde.start).start);
        let end = next.map_or(self.end, |next| next.min(self.end));
        let span = Span {
            start: self.start,
            end,
            fde: self.id,
            row: row.row,
        };
        self.rows = rest;
        self.start = end;
        Some(span)
    }
}

/// A scan over the entries by ascending start, which resolves overlaps.
#[derive(Debug, Clone)]
struct OverlapScan<'t> {
    table: &'t Table,
    /// Entries that are not empty, by ascending start. Among equal starts the first is last, so the
    /// entry that counts is always opened later.
    order: Vec<(Vaddr, FdeId)>,
    next: usize,
    /// Open entries; the one that counts is last.
    open: Vec<OpenEntry<'t>>,
    at: Vaddr,
}

/// An entry and its remaining rows.
#[derive(Debug, Clone, Copy)]
struct OpenEntry<'t> {
    id: FdeId,
    fde: &'t Fde,
    rows: &'t [RunRow],
}

impl<'t> OverlapScan<'t> {
    fn new(table: &'t Table) -> Self {
        let mut order: Vec<(Vaddr, FdeId)> = (0_u32..)
            .zip(&table.fdes)
            .filter(|(_, fde)| fde.start < fde.end)
            .map(|(n, fde)| (fde.start, FdeId(n)))
            .collect();
        order.reverse();
        // Stable; linear for ascending input, and fast for a few ascending runs.
        order.sort_by_key(|(start, _)| *start);
        OverlapScan {
            table,
            order,
            next: 0,
            open: Vec::new(),
            at: Vaddr(0),
        }
    }

    fn pending(&self) -> Option<(FdeId, &'t Fde)> {
        let (_, id) = *self.order.get(self.next)?;
        Some((id, self.table.fde(id)?))
    }

    /// Opens the next entry, on top of the others.
    fn open_next(&mut self, id: FdeId, fde: &'t Fde) {
        self.next += 1;
        self.open.push(OpenEntry {
            id,
            fde,
            rows: self.table.run(fde.run),
        });
    }

    /// Updates `open` to `at`; `None` at the end of the table.
    fn settle(&mut self) -> Option<()> {
        loop {
            while self.open.last().is_some_and(|top| top.fde.end <= self.at) {
                self.open.pop();
            }
            match self.pending() {
                Some((id, fde)) if fde.start <= self.at => self.open_next(id, fde),
                Some((_, fde)) if self.open.is_empty() => self.at = fde.start,
                _ => return self.open.last().map(|_| ()),
            }
        }
    }

    /// The addresses from `at` on for which one entry counts.
    fn next_extent(&mut self) -> Option<Extent<'t>> {
        self.settle()?;
        let newcomer = self.pending().map(|(_, fde)| fde.start);
        let start = self.at;
        let top = self.open.last_mut()?;
        let passed = start.0 - top.fde.start.0;
        while let [_, rest @ ..] = top.rows
            && rest
                .first()
                .is_some_and(|row| u64::from(row.offset) <= passed)
        {
            top.rows = rest;
        }
        let end = newcomer.map_or(top.fde.end, |start| top.fde.end.min(start));
        self.at = end;
        Some(Extent {
            start,
            end,
            id: top.id,
            fde: top.fde,
            rows: top.rows,
        })
    }
}

#[cfg(test)]
mod tests;
