//! Rules by return address: a direct map that all walks of a process share.
//!
//! An entry is one word, so that it is read and written whole: no lock, and no reader ever waits.
//! It says of which module and which address it speaks, all but the bits that lead to it:
//!
//! ```text
//! key   = module number << 32 | address - start of the module
//! entry = key, with the rule in the place of bits 4 to 20
//! ```
//!
//! Bits 4 to 20 of the address choose the entry. Of the key they need not be kept: start and
//! entry give them back. So an entry that matches was written for this address of this module;
//! a module number is never given twice, and what is mapped where another module was has
//! another number.

use core::sync::atomic::{AtomicU64, Ordering};

use unspool_ir::RuntimeAddr;

use super::rule::Rule;

/// The number of rules that are kept, each in 8 bytes: one for 16 bytes of code, as far as there
/// is room.
#[derive(Debug)]
pub struct Rules {
    slots: [AtomicU64; Rules::SLOTS],
}

impl Rules {
    /// Entries: 1 MiB.
    pub const SLOTS: usize = 1 << Rule::BITS;

    /// The bits of an address below those that choose an entry.
    const GRANULE_BITS: u32 = 4;

    const RULE: u64 = ((1 << Rule::BITS) - 1) << Rules::GRANULE_BITS;

    /// Knows no rule.
    #[must_use]
    pub const fn new() -> Self {
        Rules {
            slots: [const { AtomicU64::new(0) }; Rules::SLOTS],
        }
    }

    #[inline]
    fn slot(&self, address: RuntimeAddr) -> &AtomicU64 {
        let number = address.0 >> Rules::GRANULE_BITS & (Rules::SLOTS as u64 - 1);
        #[expect(
            clippy::indexing_slicing,
            reason = "masked: less than the number of slots"
        )]
        &self.slots[number as usize]
    }

    /// The rule of the frame that a call returns to at `address`, whose key this is.
    #[inline]
    pub(super) fn get(&self, address: RuntimeAddr, key: u64) -> Option<Rule> {
        let entry = self.slot(address).load(Ordering::Relaxed);
        let is_same = (entry ^ key) & !Rules::RULE == 0;
        is_same.then(|| Rule::from_bits(entry >> Rules::GRANULE_BITS))
    }

    pub(super) fn put(&self, address: RuntimeAddr, key: u64, rule: Rule) {
        let entry = key & !Rules::RULE | rule.bits() << Rules::GRANULE_BITS;
        self.slot(address).store(entry, Ordering::Relaxed);
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::new()
    }
}
