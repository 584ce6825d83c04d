//! Rules by return address: a direct map that all walks share.
//!
//! An entry is one word, so that it is read and written whole: no lock, and no reader ever waits.
//!
//! ```text
//! bits 0-2    of the return address
//! bits 3-19   the rule
//! bits 20-46  of the return address
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
    pub const SLOTS: usize = 1 << (Rule::BITS.end - Rule::BITS.start);

    const PLACE_SHIFT: u32 = 47;
    /// The bits of an entry that are bits of its address.
    const ADDRESS: u64 =
        ((1 << Rules::PLACE_SHIFT) - (1 << Rule::BITS.end)) | ((1 << Rule::BITS.start) - 1);
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
        (address.0 >> Rule::BITS.start) as usize % Rules::SLOTS
    }

    #[inline]
    fn slot(&self, number: usize) -> &AtomicU64 {
        #[expect(clippy::indexing_slicing, reason = "less than the number of slots")]
        &self.slots[number % Rules::SLOTS]
    }

    /// Whether an address is none that a program has: there are no rules for those.
    #[inline]
    pub(super) fn is_out_of_reach(address: u64) -> bool {
        address >> Rules::PLACE_SHIFT != 0
    }

    /// The rule of the frame that a call returns to at `address`, if it is in its own slot. Wrong for
    /// an address that is out of reach.
    #[inline]
    pub(super) fn near(&self, address: RuntimeAddr) -> Option<Known> {
        let entry = self.slot(Rules::number(address)).load(Ordering::Relaxed);
        let difference = (entry ^ address.0) & Rules::ADDRESS;
        (difference == 0 && entry & Rules::BESIDE == 0).then(|| Rules::known(entry))
    }

    /// The rule of the frame that a call returns to at `address`.
    pub(super) fn get(&self, address: RuntimeAddr) -> Option<Known> {
        if Rules::is_out_of_reach(address.0) {
            return None;
        }
        self.near(address).or_else(|| {
            let slot = self.slot(Rules::number(address) ^ 1);
            let entry = slot.load(Ordering::Relaxed);
            let difference = (entry ^ address.0) & Rules::ADDRESS;
            (difference == 0 && entry & Rules::BESIDE != 0).then(|| Rules::known(entry))
        })
    }

    #[inline]
    fn known(entry: u64) -> Known {
        Known {
            rule: Rule::in_entry(entry),
            place: Place((entry >> Rules::PLACE_SHIFT & 0xffff) as u16),
        }
    }

    /// Keeps a rule, in the place of an older one if need be.
    pub(super) fn put(&self, address: RuntimeAddr, Known { rule, place }: Known) {
        if Rules::is_out_of_reach(address.0) {
            return;
        }
        let place = u64::from(place.0) << Rules::PLACE_SHIFT;
        let entry = address.0 & Rules::ADDRESS | rule.bits() | place;
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
