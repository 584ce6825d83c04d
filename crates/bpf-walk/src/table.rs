//! A table in an arena: the sections that look-ups read, its packed rows, and a record of both.

use unspool_bpf::Arena;
use unspool_compiled_table::{CompiledTable, RowRef, TableOpenError, layout};

use crate::packed_row::packed_row;

/// Why writing to an arena failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaWriteError {
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
    /// The bytes do not fit, or the system has no memory for them.
    #[error(
        "{needed:#x} bytes at offset {offset:#x}: no room in an arena of {end:#x} bytes, or no memory"
    )]
    NoRoom {
        /// Their offset in the arena, in bytes.
        offset: usize,
        /// The size in bytes, with the record.
        needed: usize,
        /// The arena's size in bytes.
        end: usize,
    },
}

impl ArenaWriteError {
    /// The error if there is no room for `needed` bytes at an offset.
    pub(crate) fn no_room(arena: &Arena, offset: usize, needed: usize) -> ArenaWriteError {
        let end = arena.size();
        ArenaWriteError::NoRoom {
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
    /// The packed rows by their numbers, 8 bytes each. 0 is not a row: a walk ends there.
    PackedRows,
}

impl RecordField {
    /// The number of fields: a cache line.
    const COUNT: usize = 16;

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

    /// The address in the arena as [`crate::ModuleMapping::record`]. `version` tells the table from
    /// all that were or will be at this place.
    #[must_use]
    pub fn with_version(&self, version: u32) -> u64 {
        u64::from(version) << 32 | u64::from(low_half(self.address))
    }

    /// The offset after the table or list, a multiple of a cache line.
    #[must_use]
    pub fn end(&self) -> usize {
        self.end
    }
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

/// A table's bytes for an arena: the sections that look-ups read, unmodified, and behind them the
/// packed rows.
#[derive(Debug)]
pub struct TableImage {
    bytes: Vec<u8>,
    /// Where sections and packed rows start, in bytes.
    starts: Vec<(RecordField, usize)>,
    /// The other fields of the record.
    fields: [(RecordField, u32); 6],
    base: u64,
}

impl TableImage {
    /// Takes what look-ups read from a table.
    ///
    /// The caller has proven `table`, and nobody changes it: a mapped file must be copied first.
    ///
    /// # Errors
    ///
    /// The bytes are not a table.
    pub fn new(table: &[u8]) -> Result<TableImage, TableOpenError> {
        let compiled = CompiledTable::open(table)?;
        let section = |tag| {
            let range = layout::section(table, tag);
            range.and_then(|range| table.get(range)).unwrap_or_default()
        };
        let widths = compiled.ref_widths();
        let pages = (section(*b"PPGS").len() / 4).saturating_sub(1);
        let gaps = section(*b"GAPS").len() / 6;
        let mut image = TableImage {
            bytes: Vec::new(),
            starts: Vec::new(),
            fields: [
                (RecordField::PiecePageCount, low_half(pages as u64)),
                (RecordField::GapCount, low_half(gaps as u64)),
                (RecordField::PieceSize, 2 + low_half(widths.shape as u64)),
                (RecordField::ShapeMask, ref_mask(widths.shape)),
                (RecordField::SequenceMask, ref_mask(widths.sequence)),
                (RecordField::SequenceSize, low_half(widths.sequence as u64)),
            ],
            base: compiled.base().0,
        };
        for (tag, field) in ROW_SECTIONS {
            image.append(field, section(tag).iter().copied());
        }
        let rows = (0..compiled.distinct_rows()).map(|number| {
            let row = u16::try_from(number).ok().map(RowRef);
            row.map_or(0, |row| packed_row(&compiled, row))
        });
        image.append(RecordField::PackedRows, rows.flat_map(u64::to_le_bytes));
        Ok(image)
    }

    /// The bytes that it takes in an arena, with the record: whole cache lines.
    #[must_use]
    pub fn size(&self) -> usize {
        (RECORD_BYTES + self.bytes.len()).next_multiple_of(64)
    }

    /// Copies it to an offset in the arena, a multiple of 8, and writes the record before it when
    /// the arena has the same bytes.
    ///
    /// Programs must not get the record's address before this returns. Publish it by a store with
    /// release order.
    ///
    /// # Errors
    ///
    /// It does not fit.
    pub fn write(&self, arena: &Arena, offset: usize) -> Result<ArenaRecord, ArenaWriteError> {
        let no_room = ArenaWriteError::no_room(arena, offset, self.size());
        let start = offset.checked_add(RECORD_BYTES).ok_or(no_room)?;
        arena.write(start, &self.bytes).ok_or(no_room)?;
        if arena.read(start, self.bytes.len()).as_ref() != Some(&self.bytes) {
            return Err(ArenaWriteError::SourceMismatch { offset });
        }
        let record = ArenaRecord::new(arena, offset, self.size());
        let fields = self.record(record.address + RECORD_BYTES as u64);
        let bytes: Vec<u8> = fields.into_iter().flat_map(u32::to_le_bytes).collect();
        arena.write(offset, &bytes).ok_or(no_room)?;
        Ok(record)
    }

    /// Appends bytes at a multiple of 8.
    fn append(&mut self, field: RecordField, bytes: impl Iterator<Item = u8>) {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.starts.push((field, self.bytes.len()));
        self.bytes.extend(bytes);
    }

    /// The record, if the first byte is at `address`.
    fn record(&self, address: u64) -> [u32; RecordField::COUNT] {
        let mut record = [0; RecordField::COUNT];
        if let Some(words) = record.first_chunk_mut() {
            *words = [low_half(self.base), low_half(self.base >> 32)];
        }
        let starts = self.starts.iter();
        let starts = starts.map(|(field, at)| (*field, low_half(address + *at as u64)));
        for (field, value) in starts.chain(self.fields) {
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
