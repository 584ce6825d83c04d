//! Words that threads share, of the processor or of a model.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// A word that threads share: `core`'s, or that of a model of threads.
pub trait SharedWord {
    /// As [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;

    /// As [`AtomicU64::store`].
    fn store(&self, word: u64, order: Ordering);

    /// As [`AtomicU64::compare_exchange`]; whether it has stored the new word.
    fn replace(&self, before: u64, new: u64, success: Ordering, failure: Ordering) -> bool;

    /// As [`core::sync::atomic::fence`].
    fn fence(order: Ordering);
}

impl SharedWord for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline(always)]
    fn store(&self, word: u64, order: Ordering) {
        AtomicU64::store(self, word, order);
    }

    #[inline(always)]
    fn replace(&self, before: u64, new: u64, success: Ordering, failure: Ordering) -> bool {
        self.compare_exchange(before, new, success, failure).is_ok()
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }
}
