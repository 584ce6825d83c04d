//! The pending rows of a table, and the rows of a block.

use std::marker::PhantomData;

use unspool_rows::leb128;

use super::block::{BlockWriter, MAX_CONTENT_BYTES};
use super::column::{ColumnReader, ColumnWriter};

/// Something that is stored as a row of `N` columns.
pub(crate) trait TableRow<const N: usize>: Sized {
    /// Its name in messages.
    const NAME: &'static str;
    /// The number of its block kind.
    const KIND: u16;

    fn put(&self, columns: &mut [ColumnWriter; N]);

    /// `None` if the columns have no valid row.
    fn take(columns: &mut [ColumnReader<'_>; N]) -> Option<Self>;
}

/// The size of columns in bytes at which a block is full.
pub(crate) const FULL_BLOCK_BYTES: usize = 1 << 16;

/// Rows to write.
#[derive(Debug)]
pub(crate) struct TableWriter<R, const N: usize> {
    columns: [ColumnWriter; N],
    rows: u64,
    /// The contents of full blocks, concatenated, and the end of each.
    full: Vec<u8>,
    ends: Vec<usize>,
    row: PhantomData<R>,
}

impl<R: TableRow<N>, const N: usize> Default for TableWriter<R, N> {
    fn default() -> Self {
        TableWriter {
            columns: std::array::from_fn(|_| ColumnWriter::default()),
            rows: 0,
            full: Vec::new(),
            ends: Vec::new(),
            row: PhantomData,
        }
    }
}

impl<R: TableRow<N>, const N: usize> TableWriter<R, N> {
    pub(crate) fn push(&mut self, row: &R) {
        row.put(&mut self.columns);
        self.rows += 1;
        if self.size() >= FULL_BLOCK_BYTES {
            self.cut();
        }
    }

    /// Whether a block is full.
    pub(crate) fn has_full(&self) -> bool {
        !self.ends.is_empty()
    }

    fn size(&self) -> usize {
        self.columns.iter().map(|column| column.bytes().len()).sum()
    }

    /// Ends a block: rows, columns, the lengths of the columns, the columns.
    fn cut(&mut self) {
        if self.rows == 0 {
            return;
        }
        leb128::put_unsigned(&mut self.full, self.rows);
        leb128::put_unsigned(&mut self.full, N as u64);
        for column in &self.columns {
            leb128::put_unsigned(&mut self.full, column.bytes().len() as u64);
        }
        for column in &mut self.columns {
            self.full.extend_from_slice(column.bytes());
            column.clear();
        }
        self.ends.push(self.full.len());
        self.rows = 0;
    }

    /// Writes all rows as blocks.
    pub(crate) fn write_blocks(&mut self, block_writer: &mut BlockWriter) -> std::io::Result<()> {
        self.cut();
        let mut start = 0;
        for end in self.ends.drain(..) {
            let content = self.full.get(start..end).unwrap_or_default();
            block_writer.write_block(R::KIND, content)?;
            start = end;
        }
        self.full.clear();
        Ok(())
    }
}

/// The rows of a block.
pub(crate) struct TableReader<'a, const N: usize> {
    left: u64,
    columns: [ColumnReader<'a>; N],
}

impl<'a, const N: usize> TableReader<'a, N> {
    /// The rows of a block's content. Additional columns are of a later version, and are skipped.
    pub(crate) fn new(mut content: &'a [u8]) -> Result<TableReader<'a, N>, &'static str> {
        let mut number = || leb128::unsigned(&mut content);
        let left = number().ok_or("it does not say how many rows it has")?;
        let stored = number().ok_or("it does not say how many columns it has")?;
        // A length has at least one byte.
        let lengths: Option<Vec<u64>> = (0..stored.min(MAX_CONTENT_BYTES as u64))
            .map(|_| number())
            .collect();
        let lengths = lengths.ok_or("it does not say how long its columns are")?;
        let mut column = |length: &u64| {
            let length = usize::try_from(*length).ok()?;
            leb128::take(&mut content, length).map(ColumnReader::new)
        };
        let columns: Option<Vec<ColumnReader<'a>>> =
            lengths.iter().take(N).map(&mut column).collect();
        let columns = columns.ok_or("a column runs past its end")?;
        let columns: [ColumnReader<'a>; N] =
            columns.try_into().map_err(|_| "columns are missing")?;
        // A row has at least one byte in each column.
        if columns.iter().any(|column| (column.len() as u64) < left) {
            return Err("it has more rows than bytes");
        }
        Ok(TableReader { left, columns })
    }

    /// The next row; `None` after the last.
    pub(crate) fn next<R: TableRow<N>>(&mut self) -> Option<Result<R, &'static str>> {
        self.left = self.left.checked_sub(1)?;
        Some(R::take(&mut self.columns).ok_or("a row cannot be read"))
    }
}
