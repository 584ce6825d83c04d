//! Rules by return address: a direct map that all walks share.
//!
//! An entry is one word, so that it is read and written whole: no lock, and no reader ever waits.
//!
//! ```text
//! bits 0-16   the rule
//! bits 17-19  bits 0-2 of the return address
//! bits 20-46  bits 20-46 of the return address
//! bits 47-62  the place of the module that the rule is from
//! bit 63      the entry stands beside its own slot
//! ```
//!
//! Bits 3 to 19 of the address choose the slot, the one beside it is the second choice; so an entry
//! says all of its address. It holds for as long as that module is at that place. Whoever
//! reads it has to see to that, once in a walk: a place is never given to another module.
//!
//! Where rule and address have their bits is a matter of how many operations a walk waits for: one
//! from the address to the slot, one from the entry to the offset of the CFA.

use core::sync::atomic::{AtomicU64, Ordering};

use unspool_ir::RuntimeAddr;

use super::rule::Rule;
use crate::modules::Place;

/// Rules in 1 MiB.
#[derive(Debug)]
pub struct Rules {
    slots: [AtomicU64; Rules::SLOTS],
}

/// A rule, and the module that it is from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) rule: Rule,
    pub(super) place: Place,
}

impl Rules {
    /// How many rules there is room for.
    pub const SLOTS: usize = 1 << Rule::BITS;

    /// The bits of an address below those that choose a slot.
    const LOW_BITS: u32 = 3;
    /// The bits of an entry that say which address it is for.
    const ADDRESS: u64 = ((1 << Rules::PLACE_SHIFT) - 1) & !((1 << Rule::BITS) - 1);
    const PLACE_SHIFT: u32 = 47;
    const BESIDE: u64 = 1 << 63;

    /// Knows no rule.
    #[must_use]
    pub const fn new() -> Self {
        Rules {
            slots: [const { AtomicU64::new(0) }; Rules::SLOTS],
        }
    }

    /// The number of an address's slot.
    #[inline]
    fn number(address: RuntimeAddr) -> usize {
        let number = (address.0 >> Rules::LOW_BITS) as usize;
        number % Rules::SLOTS
    }

    /// What an entry says of its address; `None` of one that no program has.
    #[inline]
    fn tag(address: RuntimeAddr) -> Option<u64> {
        let low = address.0 & ((1 << Rules::LOW_BITS) - 1);
        let high = address.0 >> (Rule::BITS + Rules::LOW_BITS) << (Rule::BITS + Rules::LOW_BITS);
        (address.0 >> Rules::PLACE_SHIFT == 0).then_some(high | low << Rule::BITS)
    }

    #[inline]
    fn slot(&self, number: usize) -> &AtomicU64 {
        #[expect(clippy::indexing_slicing, reason = "less than the number of slots")]
        &self.slots[number % Rules::SLOTS]
    }

    /// The rule of the frame that a call returns to at `address`, if it is in its own slot.
    #[inline]
    pub(super) fn get(&self, address: RuntimeAddr) -> Option<Known> {
        let entry = self.slot(Rules::number(address)).load(Ordering::Relaxed);
        let is_same = entry & (Rules::ADDRESS | Rules::BESIDE) == Rules::tag(address)?;
        is_same.then(|| Rules::known(entry))
    }

    /// The same, if it is beside its own slot.
    pub(super) fn get_beside(&self, address: RuntimeAddr) -> Option<Known> {
        let slot = self.slot(Rules::number(address) ^ 1);
        let entry = slot.load(Ordering::Relaxed);
        let tag = Rules::tag(address)? | Rules::BESIDE;
        let is_same = entry & (Rules::ADDRESS | Rules::BESIDE) == tag;
        is_same.then(|| Rules::known(entry))
    }

    #[inline]
    fn known(entry: u64) -> Known {
        let place = (entry >> Rules::PLACE_SHIFT & 0xffff) as u16;
        Known {
            rule: Rule::from_bits(entry),
            place: Place(place),
        }
    }

    /// Keeps a rule, in the place of an older one if need be.
    pub(super) fn put(&self, address: RuntimeAddr, Known { rule, place }: Known) {
        let Some(tag) = Rules::tag(address) else {
            return;
        };
        let entry = tag | rule.bits() | u64::from(place.0) << Rules::PLACE_SHIFT;
        let number = Rules::number(address);
        let (own, beside) = (self.slot(number), self.slot(number ^ 1));
        let before = own.load(Ordering::Relaxed);
        let is_other = before != 0 && (before ^ entry) & Rules::ADDRESS != 0;
        // An entry that is at home here goes next door, unless that is taken by one at home.
        if is_other && before & Rules::BESIDE == 0 {
            let there = beside.load(Ordering::Relaxed);
            if there == 0 || there & Rules::BESIDE != 0 {
                beside.store(before | Rules::BESIDE, Ordering::Relaxed);
            }
        }
        own.store(entry, Ordering::Relaxed);
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::new()
    }
}
