//! Cutting the address space into pieces.

use alloc::vec::Vec;

use unspool_ir::{FdeId, RowId, Table, Vaddr};

use super::shapes::Shapes;
use super::{EncodeError, put_u16, put_u32};
use crate::buckets::Index;
use crate::layout::{LONG_GAP, MAX_PIECE_ROWS, PAGE};

/// A row of a piece: where it starts, from the table's base, and which it is.
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
    first_row: usize,
    row_count: usize,
}

/// All pieces of a table.
pub(super) struct Pieces {
    pub(super) list: Vec<Piece>,
    rows: Vec<PieceRow>,
}

/// Cuts the address space: at entries, holes, page boundaries, and after 32 rows.
pub(super) fn cut(table: &Table, base: Vaddr) -> Result<Pieces, EncodeError> {
    let mut pieces = Pieces {
        list: Vec::with_capacity(table.fdes().len()),
        rows: Vec::with_capacity(table.row_count()),
    };
    for span in table.spans() {
        let relative = |addr: Vaddr| {
            u32::try_from(addr.0.wrapping_sub(base.0)).map_err(|_| EncodeError::TooLarge)
        };
        let (mut start, end) = (relative(span.start)?, relative(span.end)?);
        while start < end {
            let page_end = u64::from(start) / PAGE * PAGE + PAGE;
            let until = u32::try_from(page_end).map_or(end, |page_end| page_end.min(end));
            pieces.push(start, until, span.fde, span.row);
            start = until;
        }
    }
    Ok(pieces)
}

impl Pieces {
    fn push(&mut self, start: u32, end: u32, fde: FdeId, row: RowId) {
        let first_row = self.rows.len();
        self.rows.push(PieceRow { start, row });
        match self.list.last_mut() {
            Some(last)
                if last.fde == fde
                    && last.end == start
                    && last.row_count < MAX_PIECE_ROWS
                    && !u64::from(start).is_multiple_of(PAGE) =>
            {
                last.end = end;
                last.row_count += 1;
            }
            _ => self.list.push(Piece {
                start,
                end,
                fde,
                first_row,
                row_count: 1,
            }),
        }
    }

    /// The rows of a piece.
    pub(super) fn rows(&self, piece: &Piece) -> &[PieceRow] {
        self.rows
            .get(piece.first_row..piece.first_row + piece.row_count)
            .unwrap_or_default()
    }

    /// The rows of all pieces.
    pub(super) fn all_rows(&self) -> &[PieceRow] {
        &self.rows
    }

    /// `PPGS` and `PBKT`; `STRT`.
    pub(super) fn index(&self) -> (Index, Vec<u8>) {
        let mut index = Index::default();
        let mut starts = Vec::with_capacity(self.list.len() * 2);
        for piece in &self.list {
            index.push(piece.start.into());
            put_u16(&mut starts, u64::from(piece.start) % PAGE);
        }
        if let Some(last) = self.list.last() {
            index.finish(u64::from(last.start) / PAGE + 1);
        }
        (index, starts)
    }

    /// `PIEC` and `GAPS`.
    pub(super) fn records(&self, classes: &[u8], shapes: &Shapes) -> (Vec<u8>, Vec<u8>) {
        let (mut records, mut gaps) = (Vec::new(), Vec::new());
        let nexts = self
            .list
            .iter()
            .skip(1)
            .map(|next| Some(next.start))
            .chain([None]);
        let facts = classes.iter().zip(&shapes.of_piece);
        for (number, ((piece, next), (class, shape))) in
            self.list.iter().zip(nexts).zip(facts).enumerate()
        {
            let page_end = u64::from(piece.start) / PAGE * PAGE + PAGE;
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
            records.extend(shape.to_le_bytes().iter().take(usize::from(shapes.width)));
        }
        (records, gaps)
    }
}
