//! A table in an arena: the sections that look-ups read, its packed rows, and a record of both.

use unspool_bpf::Arena;
use unspool_compiled_table::{CompiledTable, RowRef, TableOpenError, layout};

use crate::packed_row::packed_row;

/// Why writing to an arena failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaWriteError {
    /// The bytes are not a table.
    #[error(transparent)]
    Open(#[from] TableOpenError),
    /// The copy in the arena differs from its source.
    #[error("table at offset {offset:#x} of the arena: differs from its source")]
    SourceMismatch {
        /// Its offset in the arena, in bytes.
        offset: usize,
    },
    /// Mappings are unsorted, overlapping or empty.
    #[error("mappings for offset {offset:#x} of the arena: unsorted, overlapping or empty")]
    UnsortedMappings {
        /// Their offset in the arena, in bytes.
        offset: usize,
    },
    /// The bytes do not fit.
    #[error("{needed:#x} bytes at offset {offset:#x}: the arena ends at {end:#x}")]
    ArenaTooSmall {
        /// Their offset in the arena, in bytes.
        offset: usize,
        /// The size in bytes, with the record.
        needed: usize,
        /// The arena's size in bytes.
        end: usize,
    },
}

impl ArenaWriteError {
    /// The error if `needed` bytes do not fit at an offset.
    pub(crate) fn arena_too_small(arena: &Arena, offset: usize, needed: usize) -> ArenaWriteError {
        let end = arena.size();
        ArenaWriteError::ArenaTooSmall {
            offset,
            needed,
            end,
        }
    }
}

/// A field of a table's record: the index of a number of 4 bytes. Sections are recorded as the
/// lower halves of their addresses, since an arena never crosses a multiple of 4 GiB.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordField {
    /// The table's `base`, 8 bytes.
    Base = 0,
    /// The number of pages with pieces. Memory that was never written has 0: a table without rows.
    PiecePageCount = 2,
    /// `PPGS`
    PiecePages,
    /// `PBKT`
    PieceBuckets,
    /// `STRT`
    Starts,
    /// `PIEC`
    Pieces,
    /// The size of a piece in `PIEC`, in bytes.
    PieceSize,
    /// `GAPS`
    Gaps,
    /// The number of gaps in `GAPS`.
    GapCount,
    /// `SHAP`
    Shapes,
    /// The mask of a shape ref that is read as 4 bytes.
    ShapeMask,
    /// `SEQS`
    Sequences,
    /// The mask of a sequence ref that is read as 4 bytes.
    SequenceMask,
    /// The size of a sequence ref in bytes.
    SequenceSize,
    /// The number of pages with steps.
    StepPageCount,
    /// `CPGS`
    StepPages,
    /// `CBKT`
    StepBuckets,
    /// `CSTP`
    Steps,
    /// The packed rows by their numbers, 8 bytes each. 0 is not a row: a walk ends there.
    PackedRows,
}

impl RecordField {
    /// The number of fields: whole cache lines.
    const COUNT: usize = 32;

    /// The offset in the record, in bytes.
    pub(crate) fn offset(self) -> i16 {
        self as i16 * 4
    }
}

/// The size of a record in bytes.
const RECORD_BYTES: usize = RecordField::COUNT * 4;

/// A table's record or a list of mappings, in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaRecord {
    address: u64,
    end: usize,
}

impl ArenaRecord {
    /// For `bytes` bytes at an offset inside the arena.
    pub(crate) fn new(arena: &Arena, offset: usize, bytes: usize) -> ArenaRecord {
        ArenaRecord {
            address: arena.address() + offset as u64,
            end: (offset + bytes).next_multiple_of(64),
        }
    }

    /// The address in this process, which the subprograms take.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The offset after the table or list, a multiple of a cache line.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end
    }
}

/// The look-ups that a table in an arena has the sections for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableParts {
    /// [`crate::lookup_row`]
    Rows,
    /// [`crate::lookup_row`] and [`crate::lookup_call_site`]
    RowsAndCallSites,
}

/// The sections with rows, and the fields with their addresses.
const ROW_SECTIONS: [([u8; 4], RecordField); 7] = [
    (*b"PPGS", RecordField::PiecePages),
    (*b"PBKT", RecordField::PieceBuckets),
    (*b"STRT", RecordField::Starts),
    (*b"PIEC", RecordField::Pieces),
    (*b"GAPS", RecordField::Gaps),
    (*b"SHAP", RecordField::Shapes),
    (*b"SEQS", RecordField::Sequences),
];

/// The same for call sites.
const CALL_SITE_SECTIONS: [([u8; 4], RecordField); 3] = [
    (*b"CPGS", RecordField::StepPages),
    (*b"CBKT", RecordField::StepBuckets),
    (*b"CSTP", RecordField::Steps),
];

/// Copies the sections that look-ups read to an offset in the arena, a multiple of 8, unmodified.
/// Packs the table's rows behind them, and writes the record before them.
///
/// The caller has proven `table`, and nobody changes it: a mapped file must be copied first. The
/// arena is compared with it before the record is written.
///
/// Programs must not get the record's address before this returns. Publish it by a store with
/// release order.
///
/// # Errors
///
/// The bytes are not a table, or do not fit.
pub fn write_table(
    arena: &Arena,
    offset: usize,
    table: &[u8],
    parts: TableParts,
) -> Result<ArenaRecord, ArenaWriteError> {
    let compiled = CompiledTable::open(table)?;
    let image = TableImage::new(&compiled, table, parts);
    let needed = image.bytes.len().saturating_add(RECORD_BYTES);
    let too_small = ArenaWriteError::arena_too_small(arena, offset, needed);
    let start = offset.checked_add(RECORD_BYTES).ok_or(too_small)?;
    arena.write(start, &image.bytes).ok_or(too_small)?;
    if arena.read(start, image.bytes.len()).as_ref() != Some(&image.bytes) {
        return Err(ArenaWriteError::SourceMismatch { offset });
    }
    let record = ArenaRecord::new(arena, offset, needed);
    let fields = image.fields(&compiled, record.address + RECORD_BYTES as u64);
    let bytes: Vec<u8> = fields.into_iter().flat_map(u32::to_le_bytes).collect();
    arena.write(offset, &bytes).ok_or(too_small)?;
    Ok(record)
}

/// A table's bytes for an arena.
struct TableImage {
    bytes: Vec<u8>,
    /// Where sections and packed rows start, in bytes.
    starts: Vec<(RecordField, usize)>,
    /// The sizes of sections that look-ups need, in elements.
    counts: [(RecordField, usize); 3],
}

impl TableImage {
    fn new(compiled: &CompiledTable<'_>, table: &[u8], parts: TableParts) -> TableImage {
        let section = |tag| {
            let range = layout::section(table, tag);
            range.and_then(|range| table.get(range)).unwrap_or_default()
        };
        let pages = |tag| (section(tag).len() / 4).saturating_sub(1);
        let (call_sites, step_pages) = match parts {
            TableParts::Rows => (&[][..], 0),
            TableParts::RowsAndCallSites => (&CALL_SITE_SECTIONS[..], pages(*b"CPGS")),
        };
        let mut image = TableImage {
            bytes: Vec::new(),
            starts: Vec::new(),
            counts: [
                (RecordField::PiecePageCount, pages(*b"PPGS")),
                (RecordField::GapCount, section(*b"GAPS").len() / 6),
                (RecordField::StepPageCount, step_pages),
            ],
        };
        for (tag, field) in ROW_SECTIONS.iter().chain(call_sites) {
            image.append(*field, section(*tag).iter().copied());
        }
        let rows = (0..compiled.distinct_rows()).map(|number| {
            let row = u16::try_from(number).ok().map(RowRef);
            row.map_or(0, |row| packed_row(compiled, row))
        });
        image.append(RecordField::PackedRows, rows.flat_map(u64::to_le_bytes));
        image
    }

    /// Appends bytes at a multiple of 8.
    fn append(&mut self, field: RecordField, bytes: impl Iterator<Item = u8>) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.starts.push((field, self.bytes.len()));
        self.bytes.extend(bytes);
    }

    /// The record, if the first byte is at `address`.
    fn fields(&self, compiled: &CompiledTable<'_>, address: u64) -> [u32; RecordField::COUNT] {
        let widths = compiled.ref_widths();
        let base = compiled.base().0;
        let mut record = [0; RecordField::COUNT];
        if let Some(words) = record.first_chunk_mut() {
            *words = [low_half(base), low_half(base >> 32)];
        }
        let starts = self.starts.iter();
        let starts = starts.map(|(field, at)| (*field, low_half(address + *at as u64)));
        let counts = self.counts.iter();
        let counts = counts.map(|(field, count)| (*field, low_half(*count as u64)));
        let sizes = [
            (RecordField::PieceSize, 2 + low_half(widths.shape as u64)),
            (RecordField::ShapeMask, ref_mask(widths.shape)),
            (RecordField::SequenceMask, ref_mask(widths.sequence)),
            (RecordField::SequenceSize, low_half(widths.sequence as u64)),
        ];
        for (field, value) in starts.chain(counts).chain(sizes) {
            if let Some(word) = record.get_mut(field as usize) {
                *word = value;
            }
        }
        record
    }
}

/// The lower half.
fn low_half(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The mask of a ref of `width` bytes, 2 to 4.
fn ref_mask(width: usize) -> u32 {
    match width {
        2 => 0xffff,
        3 => 0xff_ffff,
        _ => u32::MAX,
    }
}
