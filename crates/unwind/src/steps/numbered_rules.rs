//! Rules of addresses by their numbers: the slots of [`super::cache`], which explains the bits.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::row_numbers::RowNumbers;
use crate::shared_word::SharedWord;

const IN_NEIGHBOUR_SLOT: u64 = 1 << 51;
/// The distance of generations in a tag.
pub(super) const GENERATION: u64 = 1 << 52;

/// Up to `SLOTS` addresses with `NUMBERS` different rules, which are words. Two tags with one slot
/// differ in multiples of `NUMBERS`. All zero, it is empty.
#[derive(Debug)]
pub struct NumberedRules<const SLOTS: usize, const NUMBERS: usize, W = AtomicU64> {
    slots: [W; SLOTS],
    rows: RowNumbers<NUMBERS, W>,
}

impl<const SLOTS: usize, const NUMBERS: usize> NumberedRules<SLOTS, NUMBERS> {
    pub(super) const fn new() -> Self {
        NumberedRules {
            slots: [const { AtomicU64::new(0) }; SLOTS],
            rows: RowNumbers::new(),
        }
    }
}

impl<const SLOTS: usize, const NUMBERS: usize, W: SharedWord> NumberedRules<SLOTS, NUMBERS, W> {
    /// Empty, with words that are made by a function, which makes zero.
    pub fn from_fn(zero: impl Fn() -> W) -> Self {
        NumberedRules {
            slots: core::array::from_fn(|_| zero()),
            rows: RowNumbers::from_fn(zero),
        }
    }

    /// Forgets all addresses.
    pub(super) fn clear(&self) {
        for word in &self.slots {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The rule with a tag, in a slot.
    #[inline(always)]
    pub(super) fn own(&self, slot: usize, tag: u64) -> Option<u64> {
        // Acquire: the rule was stored before its number.
        let word = self.slots.get(slot)?.load(Ordering::Acquire);
        let number = usize::try_from(word ^ tag).ok()?;
        // If it is not a number, the word has another tag.
        self.rows.word(number)
    }

    /// The rule with a tag, in a slot or its neighbour.
    #[must_use]
    pub fn get(&self, slot: usize, tag: u64) -> Option<u64> {
        let own = self.own(slot, tag);
        own.or_else(|| self.own(slot ^ 1, tag ^ IN_NEIGHBOUR_SLOT))
    }

    /// Keeps a rule under a tag of the present generation; `false` if there are too many rules.
    pub fn put(&self, slot: usize, tag: u64, rule: u64, generation: u64) -> bool {
        let Some(number) = self.rows.number(rule) else {
            return false;
        };
        let (Some(first), Some(second)) = (self.slots.get(slot), self.slots.get(slot ^ 1)) else {
            return true;
        };
        // It takes its own slot, where it is found soonest; the previous one moves to the other.
        let before = first.load(Ordering::Acquire);
        let is_others = before ^ tag >= NUMBERS as u64 && before != 0;
        if is_others && (before ^ generation) < GENERATION && before & IN_NEIGHBOUR_SLOT == 0 {
            second.store(before | IN_NEIGHBOUR_SLOT, Ordering::Release);
        }
        first.store(tag ^ number as u64, Ordering::Release);
        true
    }
}
