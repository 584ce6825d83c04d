//! What pieces share: sequences of rows, and their distances.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::pieces::{PieceRow, Pieces};
use super::{RowNumbering, put_u16, width};
use crate::layout::{LONG_DISTANCE, WIDE_SEQUENCE};

/// The shapes of a table.
pub(super) struct Shapes {
    /// `SHAP`.
    pub(super) bytes: Vec<u8>,
    /// For each pattern, the offset of its shape in `bytes`.
    pub(super) of_pattern: Vec<u32>,
    /// Bytes of a shape reference.
    pub(super) width: u8,
    /// `SEQS`.
    pub(super) sequences: Vec<u8>,
    /// Bytes of a sequence reference.
    pub(super) sequence_width: u8,
}

/// Writes every distinct sequence, and then every distinct shape, once.
pub(super) fn share(pieces: &Pieces, numbering: &RowNumbering) -> Shapes {
    let mut sequences = StringPool::with_room(pieces.patterns.len());
    let sequence_of: Vec<u32> = pieces
        .patterns
        .iter()
        .map(|pattern| sequences.add(|bytes| put_sequence(bytes, pieces.rows(pattern), numbering)))
        .collect();
    let sequence_width = width(sequences.bytes.len());
    let mut shapes = StringPool::with_room(pieces.patterns.len());
    let shape_of = |(pattern, sequence): (_, &u32)| {
        shapes.add(|bytes| {
            bytes.extend(
                sequence
                    .to_le_bytes()
                    .iter()
                    .take(usize::from(sequence_width)),
            );
            put_distances(bytes, pieces.rows(pattern));
        })
    };
    let patterns = pieces.patterns.iter();
    let of_pattern = patterns.zip(&sequence_of).map(shape_of).collect();
    Shapes {
        width: width(shapes.bytes.len()),
        bytes: shapes.bytes,
        of_pattern,
        sequences: sequences.bytes,
        sequence_width,
    }
}

/// Byte strings, each stored once.
struct StringPool {
    bytes: Vec<u8>,
    places: HashTable<(u32, u32)>,
    hasher: DefaultHashBuilder,
}

impl StringPool {
    /// An empty pool, with room for this many distinct strings.
    fn with_room(most: usize) -> Self {
        StringPool {
            bytes: Vec::new(),
            places: HashTable::with_capacity(most),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds the bytes that `write` appends, if they are new; yields their offset.
    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> u32 {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let (before, new) = self.bytes.split_at(start);
        let known = |place: &(u32, u32)| {
            before
                .get(place.0 as usize..place.1 as usize)
                .unwrap_or_default()
        };
        let hash = self.hasher.hash_one(new);
        if let Some((at, _)) = self.places.find(hash, |place| known(place) == new) {
            let at = *at;
            self.bytes.truncate(start);
            return at;
        }
        // There are at most as many bytes as rows, and a table has fewer than 2^32.
        let bounded = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let place = (bounded(start), bounded(start + new.len()));
        self.places
            .insert_unique(hash, place, |place| self.hasher.hash_one(known(place)));
        place.0
    }
}

fn put_sequence(bytes: &mut Vec<u8>, rows: &[PieceRow], numbering: &RowNumbering) {
    let count = u8::try_from(rows.len()).unwrap_or(0);
    let number = |row: &PieceRow| numbering.number(row.row);
    let short = |row: &PieceRow| u8::try_from(number(row));
    if rows.iter().all(|row| number(row) < 0x100) {
        bytes.push(count);
        bytes.extend(rows.iter().map(|row| short(row).unwrap_or(0)));
    } else {
        bytes.push(count | WIDE_SEQUENCE);
        rows.iter()
            .for_each(|row| put_u16(bytes, u64::from(number(row))));
    }
}

fn put_distances(bytes: &mut Vec<u8>, rows: &[PieceRow]) {
    for pair in rows.windows(2) {
        let [before, row] = pair else { continue };
        let distance = row.start - before.start;
        match u8::try_from(distance - 1) {
            Ok(short) if short != LONG_DISTANCE => bytes.push(short),
            _ => {
                bytes.push(LONG_DISTANCE);
                put_u16(bytes, u64::from(distance));
            }
        }
    }
}
