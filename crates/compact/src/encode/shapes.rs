//! What pieces have in common: rows relative to the start, with usual successors by rank.

use alloc::vec;
use alloc::vec::Vec;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::pieces::{PieceRow, Pieces};
use super::{put_u16, width};
use crate::layout::LONG_ROW;

/// The shapes of a table.
pub(super) struct Shapes {
    /// `SHAP`.
    pub(super) bytes: Vec<u8>,
    /// For each piece, where its shape begins in `bytes`.
    pub(super) of_piece: Vec<u32>,
    /// Bytes of a shape reference.
    pub(super) width: u8,
    /// `SUCC`.
    pub(super) successor_bytes: Vec<u8>,
}

/// The three rows that most often follow each row.
type Successors = Vec<[u16; 3]>;

/// Finds the usual successors, then writes every distinct shape once.
pub(super) fn share(pieces: &Pieces, distinct_rows: usize) -> Shapes {
    let successors = count_successors(pieces, distinct_rows);
    let mut bytes: Vec<u8> = Vec::new();
    let mut known: HashTable<(u32, u32)> = HashTable::new();
    let hasher = DefaultHashBuilder::default();
    let mut of_piece = Vec::with_capacity(pieces.list.len());
    for piece in &pieces.list {
        let start = bytes.len();
        put_shape(&mut bytes, pieces.rows(piece), &successors);
        let (before, new) = bytes.split_at(start);
        let shape_of = |place: &(u32, u32)| {
            before
                .get(place.0 as usize..place.1 as usize)
                .unwrap_or_default()
        };
        let hash = hasher.hash_one(new);
        let found = known.find(hash, |place| shape_of(place) == new).copied();
        let (at, _) = found.unwrap_or_else(|| {
            // Shapes are no larger than the rows they are made from: 32 bits suffice.
            let place = (bounded(start), bounded(start + new.len()));
            known.insert_unique(hash, place, |place| hasher.hash_one(shape_of(place)));
            place
        });
        if found.is_some() {
            bytes.truncate(start);
        }
        of_piece.push(at);
    }
    let mut successor_bytes = Vec::with_capacity(successors.len() * 6);
    for row in successors.iter().flatten() {
        put_u16(&mut successor_bytes, u64::from(*row));
    }
    Shapes {
        width: width(bytes.len()),
        bytes,
        of_piece,
        successor_bytes,
    }
}

fn bounded(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn count_successors(pieces: &Pieces, distinct_rows: usize) -> Successors {
    // Most rows have few successors; the commonest are soon at the front.
    let mut counts: Vec<Vec<(u16, u32)>> = vec![Vec::new(); distinct_rows];
    for piece in &pieces.list {
        for pair in pieces.rows(piece).windows(2) {
            if let [row, next] = pair
                && let Some(counts) = counts.get_mut(usize::from(row.row))
            {
                count(counts, next.row);
            }
        }
    }
    let best = |mut counts: Vec<(u16, u32)>| {
        counts.sort_by_key(|(row, count)| (core::cmp::Reverse(*count), *row));
        let nth = |n: usize| counts.get(n).map_or(0, |(row, _)| *row);
        [nth(0), nth(1), nth(2)]
    };
    counts.into_iter().map(best).collect()
}

fn count(counts: &mut Vec<(u16, u32)>, row: u16) {
    match counts.iter().position(|(known, _)| *known == row) {
        Some(at) => {
            if let Some((_, count)) = counts.get_mut(at) {
                *count += 1;
            }
            if at > 0 {
                counts.swap(at, at - 1);
            }
        }
        None => counts.push((row, 1)),
    }
}

fn put_shape(bytes: &mut Vec<u8>, rows: &[PieceRow], successors: &Successors) {
    bytes.push(u8::try_from(rows.len()).unwrap_or(u8::MAX));
    if let Some(first) = rows.first() {
        put_row(bytes, first.row);
    }
    for pair in rows.windows(2) {
        if let [before, row] = pair {
            put_step(bytes, before, row, successors);
        }
    }
}

fn put_step(bytes: &mut Vec<u8>, before: &PieceRow, row: &PieceRow, successors: &Successors) {
    let distance = u64::from(row.start - before.start);
    let usual = successors.get(usize::from(before.row));
    let rank = usual.and_then(|usual| usual.iter().position(|next| *next == row.row));
    let head = u8::try_from(rank.unwrap_or(3)).unwrap_or(3) << 6;
    match u8::try_from(distance) {
        Ok(short @ 1..=62) => bytes.push(head | (short - 1)),
        _ => match u8::try_from(distance.saturating_sub(63)) {
            Ok(extension) => bytes.extend_from_slice(&[head | 62, extension]),
            Err(_) => {
                bytes.push(head | 63);
                put_u16(bytes, distance);
            }
        },
    }
    if rank.is_none() {
        put_row(bytes, row.row);
    }
}

fn put_row(bytes: &mut Vec<u8>, row: u16) {
    match u8::try_from(row) {
        Ok(short) if short != LONG_ROW => bytes.push(short),
        _ => {
            bytes.push(LONG_ROW);
            put_u16(bytes, u64::from(row));
        }
    }
}
