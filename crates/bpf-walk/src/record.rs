//! A table in an arena, and the record of its sections.

use unspool_bpf::Arena;
use unspool_compiled_table::{CompiledTable, TableOpenError, layout};

/// Why writing to an arena failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaWriteError {
    /// The bytes are not a table.
    #[error(transparent)]
    Open(#[from] TableOpenError),
    /// The copy in the arena differs from its source.
    #[error("table at offset {offset:#x} of the arena: differs from its source: compile it again")]
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

/// Copies a table to an offset in the arena, a multiple of 8, and checks the copy: a mapped file
/// can change while it is copied. Then writes the record before it.
///
/// Programs must not get the record's address before this returns. Publish it by a store with
/// release order. While `is_right` runs, there is another copy in memory.
///
/// # Errors
///
/// The bytes are not a table, `is_right` refuses it, or it does not fit.
pub fn write_table(
    arena: &Arena,
    offset: usize,
    table: &[u8],
    is_right: impl FnOnce(&CompiledTable<'_>) -> bool,
) -> Result<ArenaRecord, ArenaWriteError> {
    let needed = table.len().saturating_add(RECORD_BYTES);
    let too_small = ArenaWriteError::arena_too_small(arena, offset, needed);
    let start = offset.checked_add(RECORD_BYTES).ok_or(too_small)?;
    arena.write(start, table).ok_or(too_small)?;
    let copy = arena.read(start, table.len()).ok_or(too_small)?;
    let compiled = CompiledTable::open(&copy)?;
    if !is_right(&compiled) {
        return Err(ArenaWriteError::SourceMismatch { offset });
    }
    let record = ArenaRecord::new(arena, offset, needed);
    let fields = record_fields(&compiled, &copy, record.address + RECORD_BYTES as u64);
    let bytes: Vec<u8> = fields.into_iter().flat_map(u32::to_le_bytes).collect();
    arena.write(offset, &bytes).ok_or(too_small)?;
    Ok(record)
}

/// The record of a table whose first byte is at `address`.
fn record_fields(
    compiled: &CompiledTable<'_>,
    table: &[u8],
    address: u64,
) -> [u32; RecordField::COUNT] {
    let widths = compiled.ref_widths();
    let section = |tag| layout::section(table, tag).unwrap_or_default();
    let start = |tag| low_half(address.wrapping_add(section(tag).start as u64));
    let count = |tag, size: usize| low_half((section(tag).len() / size) as u64);
    let base = compiled.base().0;
    let fields = [
        (
            RecordField::PiecePageCount,
            count(*b"PPGS", 4).saturating_sub(1),
        ),
        (RecordField::PiecePages, start(*b"PPGS")),
        (RecordField::PieceBuckets, start(*b"PBKT")),
        (RecordField::Starts, start(*b"STRT")),
        (RecordField::Pieces, start(*b"PIEC")),
        (RecordField::PieceSize, 2 + low_half(widths.shape as u64)),
        (RecordField::Gaps, start(*b"GAPS")),
        (RecordField::GapCount, count(*b"GAPS", 6)),
        (RecordField::Shapes, start(*b"SHAP")),
        (RecordField::ShapeMask, ref_mask(widths.shape)),
        (RecordField::Sequences, start(*b"SEQS")),
        (RecordField::SequenceMask, ref_mask(widths.sequence)),
        (RecordField::SequenceSize, low_half(widths.sequence as u64)),
        (
            RecordField::StepPageCount,
            count(*b"CPGS", 4).saturating_sub(1),
        ),
        (RecordField::StepPages, start(*b"CPGS")),
        (RecordField::StepBuckets, start(*b"CBKT")),
        (RecordField::Steps, start(*b"CSTP")),
    ];
    let mut record = [0; RecordField::COUNT];
    if let Some(words) = record.first_chunk_mut() {
        *words = [low_half(base), low_half(base >> 32)];
    }
    for (field, value) in fields {
        if let Some(word) = record.get_mut(field as usize) {
            *word = value;
        }
    }
    record
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
