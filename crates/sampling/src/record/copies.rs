//! How much is copied of stacks.
//!
//! A sample takes as much of its ring as may be copied, used or not: the smaller that is, the more
//! samples there is room for while the recorder waits for the processor. Where rings would soon be full, it
//! is small as long as all stacks are. The first ones that are larger are completed by what is known beyond
//! them ([`crate::beyond`]).

use unspool_perf::Stack;

/// How much may be copied of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// Enough for most programs.
    Small,
    /// The most that the kernel can be asked for; of a record with more than 64 KiB, it copies less.
    Large,
}

impl Size {
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Size::Small => 16 << 10,
            Size::Large => 65_528,
        }
    }
}

/// So many stacks are looked at before copies are made smaller.
const ENOUGH: u32 = 64;

/// For how many beats copies stay large after one was too small, at most.
const LONGEST: u32 = 256;

/// Rings that large copies fill in less than a beat divided by this are soon full.
const SOON: usize = 5;

/// Decides how much is copied.
#[derive(Debug)]
pub(crate) struct Copies {
    /// How many bytes the rings have.
    room: usize,
    size: Size,
    /// Since the last beat: the largest copy, and how many there are.
    largest: usize,
    count: u32,
    /// For how many beats copies stay large.
    pause: u32,
    /// For how many they do the next time.
    next_pause: u32,
}

impl Copies {
    /// Copies are large until stacks are known.
    pub(crate) fn new(room: usize) -> Self {
        Copies {
            room,
            size: Size::Large,
            largest: 0,
            count: 0,
            pause: 0,
            next_pause: 1,
        }
    }

    /// Looks at the stack of a sample.
    pub(crate) fn note(&mut self, stack: &Stack<'_>) {
        self.largest = self.largest.max(stack.bytes.len());
        self.count = self.count.saturating_add(1);
    }

    /// The size for what comes, if it is another one, soon after a copy was too small.
    pub(crate) fn grow(&mut self) -> Option<Size> {
        let is_too_small = self.size == Size::Small && self.largest >= bytes(Size::Small);
        is_too_small.then(|| {
            self.size = Size::Large;
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(LONGEST);
            self.size
        })
    }

    /// The size for what comes, if it is another one, after some time.
    pub(crate) fn shrink(&mut self) -> Option<Size> {
        let are_small = self.count >= ENOUGH && self.largest < bytes(Size::Small) / 4 * 3;
        let filled = bytes(Size::Large).saturating_mul(self.count as usize);
        let is_full_soon = filled / SOON > self.room;
        let can_shrink = self.size == Size::Large && self.pause == 0 && are_small && is_full_soon;
        (self.largest, self.count) = (0, 0);
        self.pause = self.pause.saturating_sub(1);
        can_shrink.then(|| {
            self.size = Size::Small;
            self.size
        })
    }
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use unspool_perf::Stack;

    use super::{Copies, ENOUGH, Size};

    fn note(copies: &mut Copies, length: usize, count: u32) {
        let bytes = vec![0; length];
        for _ in 0..count {
            copies.note(&Stack {
                bytes: &bytes,
                asked: bytes.len(),
            });
        }
    }

    #[test]
    fn copies_are_small_while_stacks_are() {
        let mut copies = Copies::new(0);
        note(&mut copies, 9_000, ENOUGH - 1);
        assert_eq!(copies.shrink(), None);
        note(&mut copies, 9_000, ENOUGH);
        assert_eq!(copies.shrink(), Some(Size::Small));
        note(&mut copies, 9_000, 1);
        assert_eq!(copies.grow(), None);
        note(&mut copies, 16 << 10, 1);
        assert_eq!(copies.grow(), Some(Size::Large));
        assert_eq!(copies.grow(), None);
    }

    #[test]
    fn copies_are_large_while_there_is_room() {
        let mut copies = Copies::new(16 << 20);
        note(&mut copies, 1_000, 1_000);
        assert_eq!(copies.shrink(), None);
        note(&mut copies, 1_000, 2_000);
        assert_eq!(copies.shrink(), Some(Size::Small));
    }

    #[test]
    fn they_stay_large_longer_each_time() {
        let mut copies = Copies::new(0);
        let mut beats = Vec::new();
        for _ in 0..4 {
            let mut waited = 0;
            loop {
                note(&mut copies, 1_000, ENOUGH);
                waited += 1;
                if copies.shrink().is_some() {
                    break;
                }
            }
            beats.push(waited);
            note(&mut copies, 16 << 10, 1);
            assert_eq!(copies.grow(), Some(Size::Large));
            assert_eq!(copies.shrink(), None);
        }
        assert!(
            beats.is_sorted() && beats.last() > beats.first(),
            "{beats:?}"
        );
    }
}
