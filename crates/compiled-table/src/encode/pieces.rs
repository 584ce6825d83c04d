//! Cutting the address space into pieces.

use alloc::vec;
use alloc::vec::Vec;

use unspool_rows::table::Span;
use unspool_rows::{FdeId, RowId, Table, Vaddr};

use super::shapes::Shapes;
use super::{EncodeError, put_u16, put_u32};
use crate::buckets::BucketIndex;
use crate::layout::{LONG_GAP, MAX_PIECE_ROWS, PAGE_BYTES};

/// A row of a piece: its distance from the piece's start, and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PieceRow {
    pub(super) start: u32,
    pub(super) row: RowId,
}

/// A run of rows of one entry in one page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// From the table's base.
    pub(super) start: u32,
    /// From the table's base.
    pub(super) end: u32,
    pub(super) fde: FdeId,
    /// Its rows, as an index in [`Pieces::patterns`].
    pub(super) pattern: u32,
}

/// The rows of a piece. Pieces that are whole entries with the same run share one pattern.
/// Otherwise patterns need not be distinct.
#[derive(Debug, Clone, Copy)]
pub(super) struct PiecePattern {
    first_row: usize,
    row_count: usize,
    /// The number of pieces with it.
    pub(super) pieces: u32,
}

/// All pieces of a table.
pub(super) struct Pieces {
    pub(super) list: Vec<Piece>,
    /// In the order of first use.
    pub(super) patterns: Vec<PiecePattern>,
    rows: Vec<PieceRow>,
}

/// Cuts the address space: at entries, holes, page boundaries, and after 32 rows.
pub(super) fn cut(table: &Table, base: Vaddr) -> Result<Pieces, EncodeError> {
    let mut pieces = Pieces {
        list: Vec::with_capacity(table.fdes().len()),
        patterns: Vec::with_capacity(table.runs()),
        rows: Vec::new(),
    };
    let relative =
        |addr: Vaddr| u32::try_from(addr.0.wrapping_sub(base.0)).map_err(|_| EncodeError::TooLarge);
    let mut known = vec![None; table.runs()];
    for extent in table.extents() {
        let (start, end) = (relative(extent.start)?, relative(extent.end)?);
        let is_piece = extent.is_whole() && page_of(start) == page_of(end - 1);
        let known = known.get_mut(extent.fde.run().0 as usize);
        let known = known.filter(|_| is_piece);
        if let Some(Some(pattern)) = known {
            pieces.repeat(start, end, extent.id, *pattern);
            continue;
        }
        let first = pieces.list.len();
        for span in extent.spans() {
            pieces.add(relative(span.start)?, relative(span.end)?, &span);
        }
        if let (Some(known), Some([piece])) = (known, pieces.list.get(first..)) {
            *known = Some(piece.pattern);
        }
    }
    Ok(pieces)
}

fn page_of(offset: u32) -> u64 {
    u64::from(offset) / PAGE_BYTES
}

impl Pieces {
    /// Adds a piece with the rows of another.
    fn repeat(&mut self, start: u32, end: u32, fde: FdeId, pattern: u32) {
        if let Some(pattern) = self.patterns.get_mut(pattern as usize) {
            pattern.pieces += 1;
        }
        self.list.push(Piece {
            start,
            end,
            fde,
            pattern,
        });
    }

    /// Adds a span, cut at page boundaries.
    fn add(&mut self, mut start: u32, end: u32, span: &Span) {
        while start < end {
            let page_end = (page_of(start) + 1) * PAGE_BYTES;
            let until = u32::try_from(page_end).map_or(end, |page_end| page_end.min(end));
            self.push(start, until, span.fde, span.row);
            start = until;
        }
    }

    /// Adds a row. A piece that it extends has the last pattern: a repeated pattern is always a
    /// whole entry.
    fn push(&mut self, start: u32, end: u32, fde: FdeId, row: RowId) {
        let row_start = match (self.list.last_mut(), self.patterns.last_mut()) {
            (Some(last), Some(pattern))
                if last.fde == fde
                    && last.end == start
                    && pattern.row_count < MAX_PIECE_ROWS
                    && !u64::from(start).is_multiple_of(PAGE_BYTES) =>
            {
                last.end = end;
                pattern.row_count += 1;
                start - last.start
            }
            _ => {
                // There are at most as many patterns as rows, and a table has fewer than 2^32.
                let pattern = u32::try_from(self.patterns.len()).unwrap_or(u32::MAX);
                self.patterns.push(PiecePattern {
                    first_row: self.rows.len(),
                    row_count: 1,
                    pieces: 1,
                });
                self.list.push(Piece {
                    start,
                    end,
                    fde,
                    pattern,
                });
                0
            }
        };
        self.rows.push(PieceRow {
            start: row_start,
            row,
        });
    }

    /// The rows of a pattern.
    pub(super) fn rows(&self, pattern: &PiecePattern) -> &[PieceRow] {
        self.rows
            .get(pattern.first_row..pattern.first_row + pattern.row_count)
            .unwrap_or_default()
    }

    /// The rows of a piece.
    pub(super) fn rows_of(&self, piece: &Piece) -> &[PieceRow] {
        let pattern = self.patterns.get(piece.pattern as usize);
        pattern.map_or(&[], |pattern| self.rows(pattern))
    }

    /// `PPGS` and `PBKT`; `STRT`.
    pub(super) fn index(&self) -> (BucketIndex, Vec<u8>) {
        let mut index = BucketIndex::default();
        let mut starts = Vec::with_capacity(self.list.len() * 2);
        for piece in &self.list {
            index.push(piece.start.into());
            put_u16(&mut starts, u64::from(piece.start) % PAGE_BYTES);
        }
        if let Some(last) = self.list.last() {
            index.finish(u64::from(last.start) / PAGE_BYTES + 1);
        }
        (index, starts)
    }

    /// `PIEC` and `GAPS`.
    pub(super) fn records(&self, classes: &[u8], shapes: &Shapes) -> (Vec<u8>, Vec<u8>) {
        let width = usize::from(shapes.width);
        let mut records = Vec::with_capacity(self.list.len() * (2 + width));
        let mut gaps = Vec::new();
        let nexts = self
            .list
            .iter()
            .skip(1)
            .map(|next| Some(next.start))
            .chain([None]);
        for (number, ((piece, next), class)) in self.list.iter().zip(nexts).zip(classes).enumerate()
        {
            let page_end = (page_of(piece.start) + 1) * PAGE_BYTES;
            let next = next.map_or(page_end, |next| page_end.min(u64::from(next)));
            let gap = next - u64::from(piece.end);
            match u8::try_from(gap) {
                Ok(short) if short < LONG_GAP => records.push(short),
                _ => {
                    records.push(LONG_GAP);
                    put_u32(&mut gaps, number);
                    put_u16(&mut gaps, gap);
                }
            }
            records.push(*class);
            let shape = shapes.of_pattern.get(piece.pattern as usize).copied();
            records.extend(shape.unwrap_or_default().to_le_bytes().iter().take(width));
        }
        (records, gaps)
    }
}
