//! Some words that threads share, read and written as a whole, without waiting: a seqlock.
//!
//! The words have a version. It is odd while they are written, and higher afterwards. A reader that
//! finds the same even version before and after has read the words of one writer. A writer that
//! finds an odd version gives up.
//!
//! A writer may end before it has made the version even: a handler jumps out of it, or it is another
//! thread's, and the process is a child that was forked meanwhile. Then the words are never read or
//! written again.
//!
//! Async-signal-safe.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::shared_word::SharedWord;

/// `N` words with a version. The first one is a key, which says whose words they are. All zero, the
/// key is 0.
#[derive(Debug)]
#[repr(C)]
pub struct VersionedWords<const N: usize, W = AtomicU64> {
    version: W,
    words: [W; N],
}

impl<const N: usize> VersionedWords<N> {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        VersionedWords {
            version: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; N],
        }
    }
}

impl<const N: usize> Default for VersionedWords<N> {
    fn default() -> Self {
        VersionedWords::new()
    }
}

impl<const N: usize, W: SharedWord> VersionedWords<N, W> {
    /// Words that are made by a function, which makes zero.
    pub fn from_fn(zero: impl Fn() -> W) -> Self {
        VersionedWords {
            version: zero(),
            words: core::array::from_fn(|_| zero()),
        }
    }

    /// The first `M` words, the key among them, if they are of this key.
    #[inline(always)]
    #[must_use]
    pub fn read<const M: usize>(&self, key: u64) -> Option<[u64; M]> {
        let version = self.version.load(Ordering::Acquire);
        let words = self.words.first_chunk::<M>()?;
        let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
        // The version is read again after all these loads.
        W::fence(Ordering::Acquire);
        // An odd version is never equal.
        let is_whole = self.version.load(Ordering::Relaxed) == version & !1;
        (words.first() == Some(&key) && is_whole).then_some(words)
    }

    /// The key, which may be being replaced.
    #[inline]
    #[must_use]
    pub fn key(&self) -> u64 {
        self.words
            .first()
            .map_or(0, |key| key.load(Ordering::Relaxed))
    }

    /// Makes the key 0, at any time: it says that the words are nobody's.
    pub fn clear_key(&self) {
        if let Some(key) = self.words.first() {
            key.store(0, Ordering::Relaxed);
        }
    }

    /// Writes words into one of some slots: that with their key, an empty one, or else the first; of
    /// these the first that no other writer has, or has left.
    pub fn put<'s>(slots: impl Iterator<Item = &'s Self> + Clone, words: [u64; N])
    where
        W: 's,
    {
        let own = words.first().copied().unwrap_or(0);
        let with_key = |key| slots.clone().filter(move |slot| slot.key() == key);
        for slot in with_key(own).chain(with_key(0)).chain(slots) {
            if slot.write(words) {
                return;
            }
        }
    }

    /// Replaces the words, unless another writer is at work; returns whether it has.
    pub(crate) fn write(&self, words: [u64; N]) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        let (even, odd) = (version & !1, version | 1);
        let is_taken = self
            .version
            .replace(even, odd, Ordering::Acquire, Ordering::Relaxed);
        if !is_taken {
            return false;
        }
        // The stores below must not be visible before the odd version.
        W::fence(Ordering::Release);
        for (to, word) in self.words.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that replace each other's words read whole ones.
    #[test]
    fn words_that_are_being_replaced_are_whole() {
        const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };
        let words = VersionedWords::<4>::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 1..ROUNDS {
                        words.write([7, round, round, round]);
                        if let Some([_, first, second, third]) = words.read(7) {
                            assert_eq!([second, third], [first; 2]);
                        }
                    }
                });
            }
        });
        assert_eq!(words.read::<4>(6), None);
        words.clear_key();
        assert_eq!((words.read::<1>(7), words.key()), (None, 0));
    }

    /// As after a fork while they were written.
    #[test]
    fn words_whose_writer_is_gone_stay_unread() {
        let words = VersionedWords::<2>::new();
        assert!(words.write([7, 1]));
        words.version.store(3, Ordering::Relaxed);
        assert_eq!((words.read::<2>(7), words.write([7, 2])), (None, false));
    }
}
