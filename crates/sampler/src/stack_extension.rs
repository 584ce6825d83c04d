//! Stacks beyond what the kernel copied of them, which is 64 KiB at most.
//!
//! What lies further out was in an earlier copy of the same thread, if it came there step by step; or it is
//! still in the thread's memory when the sample is looked at. Whether it is the same stack shows where
//! the copy ends, at the outermost frame that was found in it. Below that frame is the return address of what
//! it calls. If the other memory has, at the same place, a return address into the same function, then it has
//! a frame of that function at the same height of the stack, and what lies above is taken for what was not
//! copied.
//!
//! That is likely right and not certain: the function may have been called again, from elsewhere. So
//! frames that are found there are spliced, and said to be; and where they do not lead to a root, they are
//! not taken at all.

use unspool_process::read_memory;
use unspool_rows::{CodeAddr, RuntimeAddr};

use crate::address_space::ProcessSpace;
use crate::stack_copy::StackCopy;

/// Copies that are as large may soon be too large. What is smaller is not remembered, which takes as long as
/// some of the walk.
const MIN_COPY_BYTES: usize = 56 << 10;

/// Where to look, one after the other: more is read of a thread's memory where less was not enough.
const EXTENSION_SOURCES: [ExtensionSource; 5] = [
    ExtensionSource::Earlier,
    ExtensionSource::Now(256 << 10),
    ExtensionSource::Now(1 << 20),
    ExtensionSource::Now(4 << 20),
    ExtensionSource::Now(16 << 20),
];

/// How many threads with large stacks are remembered, by the low bits of their numbers.
const MAX_THREADS: usize = 8;

/// What is known of the outer parts of stacks.
#[derive(Debug, Default)]
pub(crate) struct StackExtensions {
    known: [ExtendedStack; MAX_THREADS],
    /// Whether the threads run on this machine, so that their memory can be read.
    pub(crate) is_live: bool,
}

/// Where the outer part of a stack may be had from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExtensionSource {
    /// Earlier copies.
    Earlier,
    /// So many bytes of the thread's memory as it is now.
    Now(usize),
}

/// The stack of a thread, as it was last seen.
#[derive(Debug, Default)]
pub(crate) struct ExtendedStack {
    tid: u32,
    /// The address of the first byte that is known.
    start: u64,
    /// Where it is in the bytes; what comes before is room for more.
    at: usize,
    bytes: Vec<u8>,
    /// Whether the thread's memory was read as far as there is any.
    is_whole: bool,
}

/// Where a copy of a stack ends: the outermost frame that was found in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplicePoint<'s> {
    pub(crate) space: &'s ProcessSpace,
    /// The code address of the frame.
    pub(crate) code: CodeAddr,
    /// Where the return address into the frame is, or would be.
    pub(crate) slot: u64,
}

impl SplicePoint<'_> {
    /// Whether a word in place of the return address is one of the same function.
    fn is_of_same_function(&self, word: u64) -> bool {
        let other = CodeAddr::Return(RuntimeAddr(word));
        other == self.code || {
            let function = |code: CodeAddr| self.space.function(code.lookup());
            function(other).is_some_and(|found| Some(found) == function(self.code))
        }
    }
}

/// Whether there is more than a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    /// There is.
    Available,
    /// Not there.
    NotHere,
    /// Nor will there be, wherever else is looked.
    Nowhere,
}

impl StackExtensions {
    /// What is known of a thread, and where to look for more.
    pub(crate) fn of_thread(
        &mut self,
        tid: u32,
    ) -> (&mut ExtendedStack, &'static [ExtensionSource]) {
        let [first, others @ ..] = &mut self.known;
        let slot = tid as usize % MAX_THREADS;
        let known = match slot.checked_sub(1).and_then(|slot| others.get_mut(slot)) {
            Some(known) => known,
            None => first,
        };
        if known.tid != tid {
            *known = ExtendedStack {
                tid,
                ..ExtendedStack::default()
            };
        }
        let sources = match self.is_live {
            true => &EXTENSION_SOURCES[..],
            false => &EXTENSION_SOURCES[..1],
        };
        (known, sources)
    }
}

impl ExtendedStack {
    /// What is known, and where it begins.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes().len() as u64)
    }

    /// A copy is all that is known, if it is of use.
    pub(crate) fn set(&mut self, copy: &StackCopy<'_>) {
        self.replace(copy.start(), copy.bytes());
    }

    fn replace(&mut self, start: u64, copy: &[u8]) {
        self.is_whole = false;
        self.bytes.clear();
        self.at = 0;
        self.start = start;
        if copy.len() >= MIN_COPY_BYTES {
            self.bytes.extend_from_slice(copy);
        }
    }

    /// Whether the frame at a joint is the same.
    fn agrees(&self, joint: &SplicePoint<'_>) -> bool {
        let at = joint.slot.checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let word = at.and_then(|at| self.bytes().get(at..)?.first_chunk());
        word.is_some_and(|word| joint.is_of_same_function(u64::from_le_bytes(*word)))
    }

    /// Adds what is beyond a copy, and the copy.
    pub(crate) fn extend(
        &mut self,
        source: ExtensionSource,
        copy: &StackCopy<'_>,
        joint: &SplicePoint<'_>,
    ) -> Extension {
        let (start, bytes) = (copy.start(), copy.bytes());
        let ExtensionSource::Now(size) = source else {
            self.is_whole = false;
            return match self.renew(start, bytes, joint) {
                true => Extension::Available,
                false => Extension::NotHere,
            };
        };
        // The last one has ended where the stack does.
        if std::mem::take(&mut self.is_whole) {
            return Extension::Nowhere;
        }
        self.bytes.resize(size, 0);
        let read = read_memory(self.tid, RuntimeAddr(joint.slot), &mut self.bytes);
        let read = read.unwrap_or(0);
        self.bytes.truncate(read);
        (self.start, self.at) = (joint.slot, 0);
        match self.renew(start, bytes, joint) {
            true => {
                self.is_whole = read < size;
                Extension::Available
            }
            // The thread has gone elsewhere, or has ended.
            false => Extension::Nowhere,
        }
    }

    /// Puts a copy in place of what is known there and below, if that agrees at the joint and leads on.
    fn renew(&mut self, start: u64, copy: &[u8], joint: &SplicePoint<'_>) -> bool {
        let end = start.saturating_add(copy.len() as u64);
        if !self.agrees(joint) || self.end() <= end {
            return false;
        }
        self.reach_down_to(start);
        let into = usize::try_from(start - self.start).unwrap_or(usize::MAX);
        self.at = self.at.saturating_add(into);
        self.start = start;
        let bytes = self.bytes.get_mut(self.at..).unwrap_or_default();
        if let Some(bytes) = bytes.get_mut(..copy.len()) {
            bytes.copy_from_slice(copy);
        }
        true
    }

    /// Makes room, so that what is known begins at an address, or below.
    fn reach_down_to(&mut self, start: u64) {
        let missing = usize::try_from(self.start.saturating_sub(start)).unwrap_or(0);
        if missing > self.at {
            // As much again, so that this is not done often.
            let more = missing + self.bytes.len();
            self.bytes.splice(..0, std::iter::repeat_n(0, more));
            self.at += more;
        }
        self.at -= missing;
        self.start = self.start.min(start);
    }
}

#[cfg(test)]
mod tests {
    use unspool_rows::{CodeAddr, RuntimeAddr};

    use super::{ExtensionSource, MIN_COPY_BYTES, SplicePoint, StackExtensions};
    use crate::address_space::ProcessSpace;

    const TOP: u64 = 0x7fff_0000_0000;

    /// Half of a copy.
    const UNIT: usize = MIN_COPY_BYTES / 2;

    /// A stack in which each word says where it is; copied from `depth` bytes below the top on.
    fn copy(depth: usize, length: usize) -> (u64, Vec<u8>) {
        let start = TOP - depth as u64;
        let words = (start..).step_by(8).take(length / 8);
        (start, words.flat_map(u64::to_le_bytes).collect())
    }

    fn joint(space: &ProcessSpace, slot: u64, word: u64) -> SplicePoint<'_> {
        SplicePoint {
            space,
            code: CodeAddr::Return(RuntimeAddr(word)),
            slot,
        }
    }

    #[test]
    fn what_earlier_copies_had_follows_where_they_agree() {
        let space = ProcessSpace::default();
        let mut beyond = StackExtensions::default();
        let (known, sources) = beyond.of_thread(7);
        assert!(matches!(sources, [ExtensionSource::Earlier]));
        let (start, bytes) = copy(2 * UNIT, 2 * UNIT);
        known.replace(start, &bytes);
        // Deeper, back, a leap, and deeper: how much of the stack is known then, if more than the copy.
        let steps = [
            (3, Some(3)),
            (4, Some(4)),
            (5, Some(5)),
            (6, Some(6)),
            (4, Some(4)),
            (3, Some(3)),
            (40, None),
            (41, Some(3)),
            (42, Some(4)),
            (30, None),
        ];
        for (depth, expected) in steps {
            let (start, bytes) = copy(depth * UNIT, 2 * UNIT);
            let slot = start + bytes.len() as u64 - 128;
            let taken = known.renew(start, &bytes, &joint(&space, slot, slot));
            assert_eq!(taken, expected.is_some(), "{depth}");
            match expected {
                Some(length) => assert_eq!(known.bytes(), copy(depth * UNIT, length * UNIT).1),
                None => known.replace(start, &bytes),
            }
        }
    }

    #[test]
    fn another_call_at_the_joint_is_of_another_stack() {
        let space = ProcessSpace::default();
        let mut beyond = StackExtensions::default();
        let (known, _) = beyond.of_thread(7);
        let (start, bytes) = copy(2 * UNIT, 2 * UNIT);
        known.replace(start, &bytes);
        let (start, bytes) = copy(3 * UNIT, 2 * UNIT);
        let slot = start + bytes.len() as u64 - 128;
        let other = joint(&space, slot, slot + 1);
        assert!(!known.renew(start, &bytes, &other));
        let same = joint(&space, slot, slot);
        assert!(known.renew(start, &bytes, &same));
        // What another thread has is not this one's.
        let (other, _) = beyond.of_thread(8);
        assert!(!other.renew(start, &bytes, &same));
    }
}
