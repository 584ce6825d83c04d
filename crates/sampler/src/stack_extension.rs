//! Stacks larger than the kernel's copy, which is 64 KiB at most.
//!
//! The outer part was in an earlier copy of the same thread, if its stack grew step by step. Or it
//! is still in the thread's memory when the sample is processed. The outermost frame in the copy
//! shows whether it is the same stack. Its callee's frame has the return address into it. If the
//! other memory has a return address into the same function there, it has a frame of that function
//! at the same height of the stack. Then the memory above it is taken for the part that was not
//! copied.
//!
//! That is likely and not certain: the function may have been called again, from elsewhere. So
//! frames found there are marked as spliced. If they do not lead to a root, they are discarded.

use unspool_process::read_memory;
use unspool_rows::{CodeAddr, RuntimeAddr};

use crate::address_space::ProcessSpace;
use crate::stack_copy::StackCopy;

/// Stacks with copies this large may soon be too large. Smaller ones are not kept, which would take
/// as long as part of the walk.
const MIN_COPY_BYTES: usize = 56 << 10;

/// The sources in order: if less memory of a thread was not enough, more is read.
const EXTENSION_SOURCES: [ExtensionSource; 5] = [
    ExtensionSource::Earlier,
    ExtensionSource::Now(256 << 10),
    ExtensionSource::Now(1 << 20),
    ExtensionSource::Now(4 << 20),
    ExtensionSource::Now(16 << 20),
];

/// The number of threads with remembered large stacks, by the low bits of their IDs.
const MAX_THREADS: usize = 8;

/// The outer parts of stacks.
#[derive(Debug, Default)]
pub(crate) struct StackExtensions {
    known: [ExtendedStack; MAX_THREADS],
    /// Whether the threads run on this machine, so that their memory can be read.
    pub(crate) is_live: bool,
}

/// A source for the outer part of a stack.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExtensionSource {
    /// Earlier copies.
    Earlier,
    /// This many bytes of the thread's current memory.
    Now(usize),
}

/// The last known stack of a thread.
#[derive(Debug, Default)]
pub(crate) struct ExtendedStack {
    tid: u32,
    /// The address of the first known byte.
    start: u64,
    /// Its index in the bytes; the space before it is free.
    at: usize,
    bytes: Vec<u8>,
    /// Whether the thread's memory was read to its end.
    is_whole: bool,
}

/// The outer end of a stack copy: the outermost frame that was found in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplicePoint<'s> {
    pub(crate) space: &'s ProcessSpace,
    /// The code address of the frame.
    pub(crate) code: CodeAddr,
    /// The address of the return address into the frame.
    pub(crate) slot: u64,
    /// The bits of the return address that may hold a signature.
    pub(crate) pac_mask: u64,
}

impl SplicePoint<'_> {
    /// Whether a word in place of the return address points into the same function.
    fn is_of_same_function(&self, word: u64) -> bool {
        let other = CodeAddr::Return(RuntimeAddr(word & !self.pac_mask));
        other == self.code || {
            let function = |code: CodeAddr| self.space.function(code.lookup());
            function(other).is_some_and(|found| Some(found) == function(self.code))
        }
    }
}

/// Whether there is more memory than a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extension {
    /// There is more.
    Available,
    /// This source has no more.
    SourceExhausted,
    /// No source has more.
    Exhausted,
}

impl StackExtensions {
    /// The known bytes of a thread, and the sources to try.
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
        let sources = if self.is_live {
            &EXTENSION_SOURCES[..]
        } else {
            &EXTENSION_SOURCES[..1]
        };
        (known, sources)
    }
}

impl ExtendedStack {
    /// The known bytes, and the address of the first.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes().len() as u64)
    }

    /// Replaces the known bytes by a copy, if it is of use.
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

    /// Whether the frame at a splice point is the same.
    fn agrees(&self, splice_point: &SplicePoint<'_>) -> bool {
        let at = splice_point.slot.checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let word = at.and_then(|at| self.bytes().get(at..)?.first_chunk());
        word.is_some_and(|word| splice_point.is_of_same_function(u64::from_le_bytes(*word)))
    }

    /// Adds the memory beyond a copy, and the copy.
    pub(crate) fn extend(
        &mut self,
        source: ExtensionSource,
        copy: &StackCopy<'_>,
        splice_point: &SplicePoint<'_>,
    ) -> Extension {
        let (start, bytes) = (copy.start(), copy.bytes());
        let ExtensionSource::Now(size) = source else {
            self.is_whole = false;
            return if self.renew(start, bytes, splice_point) {
                Extension::Available
            } else {
                Extension::SourceExhausted
            };
        };
        // The last extension reached the end of the stack.
        if std::mem::take(&mut self.is_whole) {
            return Extension::Exhausted;
        }
        self.bytes.resize(size, 0);
        let read = read_memory(self.tid, RuntimeAddr(splice_point.slot), &mut self.bytes);
        let read = read.unwrap_or(0);
        self.bytes.truncate(read);
        (self.start, self.at) = (splice_point.slot, 0);
        if self.renew(start, bytes, splice_point) {
            self.is_whole = read < size;
            Extension::Available
        } else {
            // The thread's stack has changed, or it has exited.
            Extension::Exhausted
        }
    }

    /// Replaces the known bytes at and below a copy, if they agree at the splice point and
    /// continue.
    fn renew(&mut self, start: u64, copy: &[u8], splice_point: &SplicePoint<'_>) -> bool {
        let end = start.saturating_add(copy.len() as u64);
        if !self.agrees(splice_point) || self.end() <= end {
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

    /// Makes room, so that the known bytes begin at or below an address.
    fn reach_down_to(&mut self, start: u64) {
        let missing = usize::try_from(self.start.saturating_sub(start)).unwrap_or(0);
        if missing > self.at {
            // As much again, so that this happens rarely.
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

    /// A stack in which each word holds its own address; copied from `depth` bytes below the top
    /// on.
    fn copy(depth: usize, length: usize) -> (u64, Vec<u8>) {
        let start = TOP - depth as u64;
        let words = (start..).step_by(8).take(length / 8);
        (start, words.flat_map(u64::to_le_bytes).collect())
    }

    fn splice_point(space: &ProcessSpace, slot: u64, word: u64) -> SplicePoint<'_> {
        SplicePoint {
            space,
            code: CodeAddr::Return(RuntimeAddr(word)),
            slot,
            pac_mask: 0,
        }
    }

    #[test]
    fn agreeing_earlier_copies_extend_the_stack() {
        let space = ProcessSpace::default();
        let mut extensions = StackExtensions::default();
        let (known, sources) = extensions.of_thread(7);
        assert!(matches!(sources, [ExtensionSource::Earlier]));
        let (start, bytes) = copy(2 * UNIT, 2 * UNIT);
        known.replace(start, &bytes);
        // Deeper, back, far deeper, deeper: the known length of the stack then, if more than the
        // copy.
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
            let taken = known.renew(start, &bytes, &splice_point(&space, slot, slot));
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
        let mut extensions = StackExtensions::default();
        let (known, _) = extensions.of_thread(7);
        let (start, bytes) = copy(2 * UNIT, 2 * UNIT);
        known.replace(start, &bytes);
        let (start, bytes) = copy(3 * UNIT, 2 * UNIT);
        let slot = start + bytes.len() as u64 - 128;
        let other = splice_point(&space, slot, slot + 1);
        assert!(!known.renew(start, &bytes, &other));
        let same = splice_point(&space, slot, slot);
        assert!(known.renew(start, &bytes, &same));
        // Another thread's memory is not used for this one.
        let (other, _) = extensions.of_thread(8);
        assert!(!other.renew(start, &bytes, &same));
    }
}
