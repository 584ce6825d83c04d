//! Numbers for rows in a word, so that an entry of a cache has room for one.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::shared_word::SharedWord;

/// Up to `N` words, each with a number below `N`, which is a power of two. A word gets its number
/// on first use and keeps it forever. Any number of threads may use them at once, without waiting.
/// All zero, it is empty; zero is not a word, and not a number.
#[derive(Debug)]
pub(crate) struct RowNumbers<const N: usize, W = AtomicU64>([W; N]);

impl<const N: usize> RowNumbers<N> {
    pub(crate) const fn new() -> Self {
        RowNumbers([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize, W: SharedWord> RowNumbers<N, W> {
    /// The limit of a number's distance from its first choice.
    const MAX_PROBES: usize = 16;

    /// None, with words that are made by a function, which makes zero.
    pub(crate) fn from_fn(zero: impl Fn() -> W) -> Self {
        RowNumbers(core::array::from_fn(|_| zero()))
    }

    /// The number of a word, a new one if needed; `None` if there are too many.
    pub(crate) fn number(&self, word: u64) -> Option<usize> {
        let choice = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let choice = usize::try_from(choice).ok()?;
        let mut tries = (choice..choice + Self::MAX_PROBES).map(|number| number % N);
        tries.find(|number| *number != 0 && self.is_at(*number, word))
    }

    /// Whether a number is a word's, or is free and becomes the word's.
    fn is_at(&self, number: usize, word: u64) -> bool {
        let Some(slot) = self.0.get(number) else {
            return false;
        };
        // Most numbers are found: a reader writes nothing.
        match slot.load(Ordering::Relaxed) {
            0 => {
                slot.replace(0, word, Ordering::Relaxed, Ordering::Relaxed)
                    || slot.load(Ordering::Relaxed) == word
            }
            before => before == word,
        }
    }

    /// The word with a number; zero if there is none. `None` from `N` on.
    #[inline(always)]
    pub(crate) fn word(&self, number: usize) -> Option<u64> {
        Some(self.0.get(number)?.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::RowNumbers;

    #[test]
    fn a_word_keeps_its_number() {
        static NUMBERS: RowNumbers<256> = RowNumbers::new();
        let mut given = Vec::new();
        for round in 0..2 {
            for word in (1..100).map(|n: u64| n << 33 | n << 5) {
                let number = NUMBERS.number(word).unwrap();
                assert_eq!(NUMBERS.word(number), Some(word));
                given.push(number);
                assert!(round == 0 || given.contains(&number));
            }
        }
        given.sort_unstable();
        given.dedup();
        assert_eq!((given.len(), given[0] > 0), (99, true));
        assert_eq!((NUMBERS.word(0), NUMBERS.word(256)), (Some(0), None));
    }

    /// Words without a number leave those with one as they are.
    #[test]
    fn there_is_room_for_so_many() {
        static NUMBERS: RowNumbers<64> = RowNumbers::new();
        let kept: Vec<(u64, usize)> = (1..1000)
            .filter_map(|word| Some((word, NUMBERS.number(word)?)))
            .collect();
        assert!((50..64).contains(&kept.len()), "{}", kept.len());
        for (word, number) in kept {
            assert_eq!(NUMBERS.number(word), Some(number));
            assert_eq!(NUMBERS.word(number), Some(word));
        }
    }
}
