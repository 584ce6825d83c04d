//! Caches for repetition in a section.
//!
//! They are caches, not maps: an entry replaces the one in its slot.

use alloc::vec;
use alloc::vec::Vec;

use unspool_rows::{RowId, RunId};

use crate::CfiSection;

/// The inputs of most entries' rows, apart from the start address.
#[derive(Clone, Copy)]
pub(super) struct EntryContent<'a> {
    cie: u64,
    instructions: &'a [u8],
    hash: u64,
}

impl<'a> EntryContent<'a> {
    /// The instructions of an entry of the CIE at an offset.
    pub(super) fn new(cie: u64, instructions: &'a [u8]) -> Self {
        let (words, rest) = instructions.as_chunks::<8>();
        let rest = rest
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let hash = words
            .chain([rest])
            .fold(cie, |hash, word| mix(hash.rotate_left(23) ^ word));
        EntryContent {
            cie,
            instructions,
            hash,
        }
    }
}

/// The rows shared by all entries with the same CIE and instructions.
pub(super) struct RunCache<'a> {
    slots: Vec<(EntryContent<'a>, Option<RunId>)>,
}

impl<'a> RunCache<'a> {
    pub(super) fn new(section: &CfiSection<'_>) -> Self {
        let nothing = EntryContent::new(u64::MAX, &[]);
        RunCache {
            slots: vec![(nothing, None); slots(section, 15)],
        }
    }

    pub(super) fn find(&self, of: &EntryContent<'_>) -> Option<RunId> {
        let (known, run) = self.slots.get(top(of.hash, self.slots.len()))?;
        let is_same =
            known.hash == of.hash && known.cie == of.cie && known.instructions == of.instructions;
        run.filter(|_| is_same)
    }

    pub(super) fn keep(&mut self, of: EntryContent<'a>, run: RunId) {
        let at = top(of.hash, self.slots.len());
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = (of, Some(run));
        }
    }
}

/// Known transitions from row to row: most are used again and again.
pub(super) struct TransitionCache {
    /// Each transition has one of two slots. The later one is first.
    slots: Vec<[(RowTransition, RowId); 2]>,
}

/// A row of a CIE, and instructions: the inputs of the next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RowTransition {
    cie: u64,
    /// The row before; `None` for the CIE's own row.
    row: Option<RowId>,
    /// The instructions' bytes, and their number plus 1 in the highest byte; 0 in an empty slot.
    instructions: u128,
}

impl RowTransition {
    /// `None` for more than 15 bytes of instructions, and at the end of the section.
    #[inline]
    pub(super) fn new(
        section: &CfiSection<'_>,
        cie: u64,
        row: Option<RowId>,
        (offset, len): (u64, usize),
    ) -> Option<Self> {
        let len = u32::try_from(len).ok().filter(|len| *len < 16)?;
        // Reads sixteen bytes at once, and keeps the first `len`.
        let from = usize::try_from(offset).ok()?;
        let bytes = u128::from_le_bytes(*section.data.get(from..)?.first_chunk::<16>()?);
        let kept = bytes & ((1 << (8 * len)) - 1);
        Some(RowTransition {
            cie,
            row,
            instructions: kept | u128::from(len + 1) << 120,
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "a hash takes any bits")]
    fn slot(&self, slots: usize) -> usize {
        let (low, high) = (self.instructions as u64, (self.instructions >> 64) as u64);
        let row = self.row.map_or(u64::MAX, |row| row.0.into());
        let start = mix(row ^ self.cie.rotate_left(32));
        top(mix(low ^ high.rotate_left(29) ^ start), slots)
    }
}

impl TransitionCache {
    pub(super) fn new(section: &CfiSection<'_>) -> Self {
        TransitionCache {
            slots: vec![[(RowTransition::default(), RowId(0)); 2]; slots(section, 13)],
        }
    }

    /// The cached result of a transition.
    #[inline]
    pub(super) fn find(&self, transition: &RowTransition) -> Option<RowId> {
        let slots = self.slots.get(transition.slot(self.slots.len()))?;
        let (_, row) = slots.iter().find(|(known, _)| known == transition)?;
        Some(*row)
    }

    pub(super) fn keep(&mut self, transition: RowTransition, row: RowId) {
        let at = transition.slot(self.slots.len());
        if let Some(slots) = self.slots.get_mut(at) {
            *slots = [(transition, row), slots[0]];
        }
    }
}

/// The number of slots of a cache: a power of two, about one for each entry of the section, from 16
/// up to 2 to the power of `most`.
fn slots(section: &CfiSection<'_>, most: u32) -> usize {
    1 << (section.data.len() / 64).max(1).ilog2().clamp(4, most)
}

/// Spreads a number over the high bits. The multiplier is odd, otherwise arbitrary.
fn mix(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The highest bits of a mixed number: a slot index.
fn top(mixed: u64, slots: usize) -> usize {
    usize::try_from(mixed >> (64 - slots.ilog2())).unwrap_or(0)
}
