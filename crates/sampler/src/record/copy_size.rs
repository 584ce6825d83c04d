//! The size of stack copies.
//!
//! A sample takes the full requested copy size in its ring, used or not. Smaller copies leave room
//! for more samples while the recorder waits for a CPU. Where rings would soon be full, copies stay
//! small while all stacks are small. The first larger stacks are completed from other memory
//! ([`crate::stack_extension`]).

use unspool_perf_events::UserStackDump;

/// The largest copy of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopySize {
    /// Enough for most programs.
    Small,
    /// The largest size that the kernel accepts; in a record of more than 64 KiB it copies less.
    Large,
}

impl CopySize {
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            CopySize::Small => 16 << 10,
            CopySize::Large => 65_528,
        }
    }
}

/// The fewest stacks to observe before copies become smaller.
const MIN_STACKS: u32 = 64;

/// The most flush intervals for which copies stay large after one was too small.
const MAX_PAUSE_FLUSHES: u32 = 256;

/// Rings are soon full if large copies fill them in less than a flush interval divided by this.
const FULL_SOON_DIVISOR: usize = 5;

/// Chooses the copy size.
#[derive(Debug)]
pub(crate) struct CopySizer {
    /// The size of the rings, in bytes.
    room: usize,
    size: CopySize,
    /// Since the last flush: the largest copy, and the number of copies.
    largest: usize,
    count: u32,
    /// For how many more flushes copies stay large.
    pause: u32,
    /// The value of `pause` after the next copy that is too small.
    next_pause: u32,
}

impl CopySizer {
    /// Copies start large, until stack sizes are known.
    pub(crate) fn new(room: usize) -> Self {
        CopySizer {
            room,
            size: CopySize::Large,
            largest: 0,
            count: 0,
            pause: 0,
            next_pause: 1,
        }
    }

    /// Notes the stack of a sample.
    pub(crate) fn note(&mut self, stack: &UserStackDump<'_>) {
        self.largest = self.largest.max(stack.bytes.len());
        self.count = self.count.saturating_add(1);
    }

    /// The new copy size, if it changes, right after a copy was too small.
    pub(crate) fn grow(&mut self) -> Option<CopySize> {
        let is_too_small = self.size == CopySize::Small && self.largest >= bytes(CopySize::Small);
        is_too_small.then(|| {
            self.size = CopySize::Large;
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(MAX_PAUSE_FLUSHES);
            self.size
        })
    }

    /// The new copy size, if it changes, after a flush interval.
    pub(crate) fn shrink(&mut self) -> Option<CopySize> {
        let are_small = self.count >= MIN_STACKS && self.largest < bytes(CopySize::Small) / 4 * 3;
        let filled = bytes(CopySize::Large).saturating_mul(self.count as usize);
        let is_full_soon = filled / FULL_SOON_DIVISOR > self.room;
        let can_shrink =
            self.size == CopySize::Large && self.pause == 0 && are_small && is_full_soon;
        (self.largest, self.count) = (0, 0);
        self.pause = self.pause.saturating_sub(1);
        can_shrink.then(|| {
            self.size = CopySize::Small;
            self.size
        })
    }
}

fn bytes(size: CopySize) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use unspool_perf_events::UserStackDump;

    use super::{CopySize, CopySizer, MIN_STACKS};

    fn note(copy_sizer: &mut CopySizer, length: usize, count: u32) {
        let bytes = vec![0; length];
        for _ in 0..count {
            copy_sizer.note(&UserStackDump {
                bytes: &bytes,
                requested_bytes: bytes.len(),
            });
        }
    }

    #[test]
    fn copies_are_small_while_stacks_are() {
        let mut copies = CopySizer::new(0);
        note(&mut copies, 9_000, MIN_STACKS - 1);
        assert_eq!(copies.shrink(), None);
        note(&mut copies, 9_000, MIN_STACKS);
        assert_eq!(copies.shrink(), Some(CopySize::Small));
        note(&mut copies, 9_000, 1);
        assert_eq!(copies.grow(), None);
        note(&mut copies, 16 << 10, 1);
        assert_eq!(copies.grow(), Some(CopySize::Large));
        assert_eq!(copies.grow(), None);
    }

    #[test]
    fn copies_are_large_while_there_is_room() {
        let mut copies = CopySizer::new(16 << 20);
        note(&mut copies, 1_000, 1_000);
        assert_eq!(copies.shrink(), None);
        note(&mut copies, 1_000, 2_000);
        assert_eq!(copies.shrink(), Some(CopySize::Small));
    }

    #[test]
    fn they_stay_large_longer_each_time() {
        let mut copies = CopySizer::new(0);
        let mut beats = Vec::new();
        for _ in 0..4 {
            let mut waited = 0;
            loop {
                note(&mut copies, 1_000, MIN_STACKS);
                waited += 1;
                if copies.shrink().is_some() {
                    break;
                }
            }
            beats.push(waited);
            note(&mut copies, 16 << 10, 1);
            assert_eq!(copies.grow(), Some(CopySize::Large));
            assert_eq!(copies.shrink(), None);
        }
        assert!(
            beats.is_sorted() && beats.last() > beats.first(),
            "{beats:?}"
        );
    }
}
