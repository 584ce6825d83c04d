//! Look-ups. Async-signal-safe: nothing here allocates, locks or loops without bound.

use unspool_rows::{Abi, Pointer, Row, Vaddr, encoding};

use crate::buckets::Buckets;
#[cfg(feature = "alloc")]
use crate::buckets::NumberRange;
use crate::call_sites::CallSites;
use crate::layout::{
    self, ESCAPE_CLASS, ESCAPED_ENTRY_BYTES, HAS_LSDA, LONG_DISTANCE, LONG_GAP, LSDA_BLOCK,
    MAX_PIECE_ROWS, ModuleKey, NO_PERSONALITY, PAGE_BYTES, TableHeader, TableOpenError,
    TableSections, WIDE_SEQUENCE,
};
#[cfg(feature = "alloc")]
use crate::layout::{BUCKET_BYTES, BUCKETS_PER_PAGE};
use crate::little_endian::{low_u16, narrow, partition, u16_at, u32_at, u64_from};

/// A compiled table, looked up in place.
#[derive(Debug, Clone, Copy)]
pub struct CompiledTable<'t> {
    header: TableHeader,
    sections: TableSections<'t>,
    /// The start of the pieces of each bucket, counted from their page.
    starts: Buckets<'t>,
    key: ModuleKey<'t>,
}

/// A distinct row of a compiled table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowRef(pub u16);

/// The result of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupResult {
    /// The row that holds.
    pub row: RowRef,
    /// The first address for which it is known to hold: the row's start, or later.
    pub start: Vaddr,
    /// One past the last address for which it is known to hold.
    pub end: Vaddr,
}

/// An entry's fields other than rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryInfo {
    /// The entry's first address.
    pub start: Vaddr,
    /// One past the entry's last address.
    pub end: Vaddr,
    /// The personality routine.
    pub personality: Option<Pointer>,
    /// The language-specific data area.
    pub lsda: Option<Vaddr>,
}

/// A look-up found bytes that no table has, in one of these sections or in an index to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the compiled table is corrupt: {}", self.what())]
pub enum TableCorruption {
    /// The positions of pieces: `PPGS`, `PBKT`, `STRT`, `PIEC`, `GAPS`.
    Pieces,
    /// The rows of a piece: `SHAP`, `SEQS`.
    Shapes,
    /// The distinct rows: `ROWX`, `ROWS`.
    Rows,
    /// The entries' other fields: `CLAS`, `PERS`, `LSDX`, `LSDA`, `ODDS`.
    Entries,
    /// The call-site part: `CPGS`, `CBKT`, `CSTP`.
    CallSites,
}

impl TableCorruption {
    fn what(self) -> &'static str {
        match self {
            TableCorruption::Pieces => "its pieces",
            TableCorruption::Shapes => "its shapes",
            TableCorruption::Rows => "its rows",
            TableCorruption::Entries => "its entries",
            TableCorruption::CallSites => "its call sites",
        }
    }
}

/// A piece, with its number and its addresses.
#[derive(Debug, Clone, Copy)]
struct PieceView<'t> {
    number: usize,
    start: Vaddr,
    end: Vaddr,
    class: u8,
    shape: &'t [u8],
}

impl<'t> CompiledTable<'t> {
    /// Opens a table: checks header and section bounds, in constant time.
    ///
    /// # Errors
    ///
    /// [`TableOpenError`].
    pub fn open(bytes: &'t [u8]) -> Result<Self, TableOpenError> {
        let (header, sections, key) = layout::open(bytes)?;
        Ok(CompiledTable {
            header,
            sections,
            starts: Buckets::new(
                sections.piece_pages,
                sections.piece_buckets,
                sections.starts,
            ),
            key,
        })
    }

    /// The table's key.
    #[must_use]
    pub fn key(&self) -> ModuleKey<'t> {
        self.key
    }

    /// The version of the synthesis that made the rows from the module's code; `None` if they were
    /// read from its table.
    #[must_use]
    pub fn synthesis_version(&self) -> Option<u8> {
        self.sections.synthesized.first().copied()
    }

    /// The architecture and byte order of the code that the table describes.
    #[must_use]
    pub fn abi(&self) -> Abi {
        self.header.abi
    }

    /// The address from which offsets are counted.
    #[must_use]
    pub fn base(&self) -> Vaddr {
        self.header.base
    }

    /// The sizes of refs.
    #[must_use]
    pub fn ref_widths(&self) -> layout::RefWidths {
        layout::RefWidths {
            shape: self.header.shape_width,
            sequence: self.header.sequence_width,
            row: self.header.row_width,
        }
    }

    /// The number of distinct rows.
    #[must_use]
    pub fn distinct_rows(&self) -> usize {
        self.sections.row_ends.len() / self.header.row_width
    }

    /// The number of pieces.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.sections.starts.len() / 2
    }

    /// The row that holds at `pc`; `None` in a hole.
    ///
    /// Visits the pieces that start in the same 1 KiB, and at most 32 rows.
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    pub fn lookup(&self, pc: Vaddr) -> Result<Option<LookupResult>, TableCorruption> {
        let Some(piece) = self.piece(pc)? else {
            return Ok(None);
        };
        if pc >= piece.end {
            return Ok(None);
        }
        let distance = pc.0.wrapping_sub(piece.start.0);
        let (row, from, to) = self
            .row_in_shape(piece.shape, distance)
            .ok_or(TableCorruption::Shapes)?;
        let end = to.map_or(piece.end, |to| piece.start.offset(to).min(piece.end));
        Ok(Some(LookupResult {
            row,
            start: piece.start.offset(from),
            end,
        }))
    }

    /// The last piece that starts at or before `pc` in its page.
    #[inline]
    fn piece(&self, pc: Vaddr) -> Result<Option<PieceView<'t>>, TableCorruption> {
        let offset = pc.0.wrapping_sub(self.header.base.0);
        let Some(bucket) = self.starts.bucket(offset) else {
            return Ok(None);
        };
        // Loads the memory of the records now, in parallel with that of the starts: a tenth of the
        // time.
        let records = bucket.first.wrapping_mul(2 + self.header.shape_width);
        core::hint::black_box(self.sections.pieces.get(records).copied());
        let within = offset % PAGE_BYTES;
        let count = self.starts.count_at_most(bucket, low_u16(within));
        let after = bucket.first + count.ok_or(TableCorruption::Pieces)?;
        // If the bucket has none it is the one before, if that is on the same page.
        let page = self
            .starts
            .page(offset / PAGE_BYTES)
            .ok_or(TableCorruption::Pieces)?;
        if after <= page.first {
            return Ok(None);
        }
        let number = after - 1;
        let page_start = Vaddr(pc.0 - within);
        let start = self.starts.number(number).ok_or(TableCorruption::Pieces)?;
        let next = if number - page.first + 1 < page.count {
            self.starts.number(after).map(u64::from)
        } else {
            Some(PAGE_BYTES)
        };
        let (gap, class, shape) = self.record(number).ok_or(TableCorruption::Pieces)?;
        // Within the page: the end of the address space's last page does not fit in a number.
        let end = next
            .and_then(|next| next.checked_sub(gap))
            .ok_or(TableCorruption::Pieces)?;
        Ok(Some(PieceView {
            number,
            start: page_start.offset(start.into()),
            end: page_start.offset(end),
            class,
            shape,
        }))
    }

    /// Gap, class and shape of a piece.
    #[inline]
    fn record(&self, number: usize) -> Option<(u64, u8, &'t [u8])> {
        let size = 2 + self.header.shape_width;
        let record = self
            .sections
            .pieces
            .get(number.checked_mul(size)?..)?
            .get(..size)?;
        let (gap, class) = (*record.first()?, *record.get(1)?);
        let gap = if gap == LONG_GAP {
            self.long_gap(number)?
        } else {
            u64::from(gap)
        };
        let shape = narrow(record, 2, self.header.shape_width)?;
        Some((gap, class, self.sections.shapes.get(shape..)?))
    }

    fn long_gap(&self, piece: usize) -> Option<u64> {
        let gaps = self.sections.gaps;
        let piece_at = |n: usize| narrow(gaps, n * 6, 4);
        let at = partition(0, gaps.len() / 6, |n| {
            piece_at(n).is_some_and(|at| at < piece)
        });
        (piece_at(at)? == piece)
            .then(|| narrow(gaps, at * 6 + 4, 2))?
            .map(|gap| gap as u64)
    }

    /// The row of a shape at a distance from its start, with its own start and the next row's.
    #[inline]
    fn row_in_shape(&self, shape: &[u8], distance: u64) -> Option<(RowRef, u64, Option<u64>)> {
        let width = self.header.sequence_width;
        let sequence = self.sections.sequences.get(narrow(shape, 0, width)?..)?;
        let (head, rows) = sequence.split_first()?;
        let count = usize::from(head & !WIDE_SEQUENCE);
        if count > MAX_PIECE_ROWS {
            return None;
        }
        let mut rest = shape.get(width..)?;
        let (mut number, mut at, mut next) = (0, 0, None);
        while number + 1 < count {
            let further = match take(&mut rest)? {
                LONG_DISTANCE => u64::from(take_u16(&mut rest)?),
                short => u64::from(short) + 1,
            };
            if distance < at + further {
                next = Some(at + further);
                break;
            }
            at += further;
            number += 1;
        }
        let row = match head & WIDE_SEQUENCE {
            0 => u16::from(*rows.get(number)?),
            _ => u16_at(rows, number)?,
        };
        Some((RowRef(row), at, next))
    }

    /// The row that holds at `pc`, decoded: [`CompiledTable::lookup`] and [`CompiledTable::row`].
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    pub fn row_at(&self, pc: Vaddr) -> Result<Option<Row<'t>>, TableCorruption> {
        let hit = self.lookup(pc)?;
        hit.map(|hit| self.row(hit.row)).transpose()
    }

    /// A distinct row.
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    pub fn row(&self, row: RowRef) -> Result<Row<'t>, TableCorruption> {
        encoding::decode(self.encoded_row(row)?).ok_or(TableCorruption::Rows)
    }

    /// Reads a distinct row into an existing one. After an error its content means nothing.
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    pub fn read_row(&self, row: RowRef, into: &mut Row<'t>) -> Result<(), TableCorruption> {
        encoding::decode_into(self.encoded_row(row)?, into).ok_or(TableCorruption::Rows)
    }

    /// The encoding of a distinct row.
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    pub fn encoded_row(&self, row: RowRef) -> Result<&'t [u8], TableCorruption> {
        let (ends, width) = (self.sections.row_ends, self.header.row_width);
        let number = usize::from(row.0);
        let end = narrow(ends, number * width, width).ok_or(TableCorruption::Rows)?;
        let start = match number.checked_sub(1) {
            Some(before) => narrow(ends, before * width, width).ok_or(TableCorruption::Rows)?,
            None => 0,
        };
        self.sections
            .rows
            .get(start..end)
            .ok_or(TableCorruption::Rows)
    }

    /// The other fields of the entry that covers `pc`; `None` in a hole.
    ///
    /// Visits at most 64 pieces more than [`CompiledTable::lookup`].
    ///
    /// # Errors
    ///
    /// [`TableCorruption`].
    pub fn entry(&self, pc: Vaddr) -> Result<Option<EntryInfo>, TableCorruption> {
        let Some(piece) = self.piece(pc)?.filter(|piece| pc < piece.end) else {
            return Ok(None);
        };
        let facts = match piece.class {
            ESCAPE_CLASS => self.odd_entry(piece.number),
            class => self.whole_entry(&piece, class),
        };
        facts.map(Some).ok_or(TableCorruption::Entries)
    }

    /// The entry that consists of just this piece.
    fn whole_entry(&self, piece: &PieceView<'_>, class: u8) -> Option<EntryInfo> {
        let classes = self.sections.classes;
        let personality = u16_at(classes, usize::from(class) * 2)?;
        let has_lsda = self.class_has_lsda(class)?;
        Some(EntryInfo {
            start: piece.start,
            end: piece.end,
            personality: self.personality(personality)?,
            lsda: if has_lsda {
                Some(self.lsda(piece.number)?)
            } else {
                None
            },
        })
    }

    fn class_has_lsda(&self, class: u8) -> Option<bool> {
        if class == ESCAPE_CLASS {
            return Some(false);
        }
        u16_at(self.sections.classes, usize::from(class) * 2 + 1).map(|flags| flags & HAS_LSDA != 0)
    }

    /// The outer `None` is corruption, the inner one means that there is no personality.
    #[expect(
        clippy::option_option,
        reason = "corrupt, absent and present are three answers"
    )]
    fn personality(&self, index: u16) -> Option<Option<Pointer>> {
        if index == NO_PERSONALITY {
            return Some(None);
        }
        let at = usize::from(index) * 9;
        let address = Vaddr(u64_from(self.sections.personalities, at + 1)?);
        match self.sections.personalities.get(at)? {
            0 => Some(Some(Pointer::Direct(address))),
            1 => Some(Some(Pointer::Indirect(address))),
            _ => None,
        }
    }

    fn lsda(&self, piece: usize) -> Option<Vaddr> {
        let block = piece / LSDA_BLOCK;
        let mut rank = u32_at(self.sections.lsda_index, block)? as usize;
        let size = 2 + self.header.shape_width;
        for before in block * LSDA_BLOCK..piece {
            let class = *self.sections.pieces.get(before * size + 1)?;
            rank += usize::from(self.class_has_lsda(class)?);
        }
        let base = u64_from(self.sections.lsdas, 0)?;
        Some(Vaddr(base).offset(u32_at(self.sections.lsdas, rank + 2)?.into()))
    }

    fn odd_entry(&self, piece: usize) -> Option<EntryInfo> {
        let odds = self.sections.odds;
        let field = |n: usize, at: usize| u32_at(odds.get(n * ESCAPED_ENTRY_BYTES..)?, at);
        let after = partition(0, odds.len() / ESCAPED_ENTRY_BYTES, |n| {
            field(n, 0).is_some_and(|first| first as usize <= piece)
        });
        let n = after.checked_sub(1)?;
        let (first, count) = (field(n, 0)? as usize, field(n, 1)? as usize);
        if piece - first >= count {
            return None;
        }
        let record = odds.get(n * ESCAPED_ENTRY_BYTES..)?;
        let flags = u16_at(record, 13)?;
        Some(EntryInfo {
            start: self.header.base.offset(field(n, 2)?.into()),
            end: self.header.base.offset(field(n, 3)?.into()),
            personality: self.personality(u16_at(record, 12)?)?,
            lsda: if flags & HAS_LSDA != 0 {
                Some(Vaddr(u64_from(record, 16)?))
            } else {
                None
            },
        })
    }

    /// Whether buckets and pieces ascend, so that every piece is found by its address.
    #[cfg(feature = "alloc")]
    pub(crate) fn is_ordered(&self) -> bool {
        let mut next = 0;
        for page in 0..self.starts.pages() {
            for low in (0..BUCKETS_PER_PAGE).map(|bucket| bucket * BUCKET_BYTES) {
                let Some(bucket) = self.starts.bucket(page * PAGE_BYTES + low) else {
                    return false;
                };
                let start = |n: usize| self.starts.number(n).map(u64::from);
                let is_inside =
                    |n| start(n).is_some_and(|start| (low..low + BUCKET_BYTES).contains(&start));
                let mut numbers = bucket.first..bucket.end();
                let ascends = numbers.clone().is_sorted_by(|a, b| start(*a) < start(*b));
                if bucket.first != next || !ascends || !numbers.all(is_inside) {
                    return false;
                }
                next = bucket.end();
            }
            if self.starts.page(page).map(|all| all.end()) != Some(next) {
                return false;
            }
        }
        next == self.pieces()
    }

    /// The starts of all pieces, in the order of the pages.
    #[cfg(feature = "alloc")]
    pub(crate) fn piece_starts(&self) -> impl Iterator<Item = Vaddr> + use<'t> {
        let (starts, base) = (self.starts, self.header.base);
        (0..starts.pages()).flat_map(move |page| {
            let of_page = starts
                .page(page)
                .unwrap_or(NumberRange { first: 0, count: 0 });
            let page = base.offset(page * PAGE_BYTES);
            let start = move |n| Some(page.offset(starts.number(n)?.into()));
            (of_page.first..of_page.end()).filter_map(start)
        })
    }

    /// The call-site part.
    #[must_use]
    pub fn call_sites(&self) -> CallSites<'t> {
        CallSites::new(&self.header, &self.sections)
    }
}

#[inline]
fn take(rest: &mut &[u8]) -> Option<u8> {
    let (first, tail) = rest.split_first()?;
    *rest = tail;
    Some(*first)
}

#[inline]
fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let low = take(rest)?;
    let high = take(rest)?;
    Some(u16::from_le_bytes([low, high]))
}
