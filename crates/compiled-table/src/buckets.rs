//! Ascending 16-bit numbers, each for one address, with an index by address.
//!
//! An address selects its page of 64 KiB and its bucket of 1 KiB, and these the bucket's few
//! numbers. The index of pages stays in the innermost cache. A binary search through distant
//! numbers would wait for memory at every step.

use wide::i16x16;

use crate::layout::{BUCKET_BYTES, PAGE_BYTES};

/// The count of numbers before each page; the count of the page's numbers before each bucket; and
/// the numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets<'t> {
    pages: &'t [[u8; 4]],
    buckets: &'t [[u8; 2]],
    numbers: &'t [[u8; 2]],
}

/// A range of the numbers: the count before it, and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberRange {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl NumberRange {
    /// One past the index of the last.
    #[cfg(feature = "alloc")]
    pub(crate) fn end(&self) -> usize {
        self.first.saturating_add(self.count)
    }
}

impl<'t> Buckets<'t> {
    pub(crate) fn new(pages: &'t [u8], buckets: &'t [u8], numbers: &'t [u8]) -> Self {
        let (pages, _) = pages.as_chunks();
        let (buckets, _) = buckets.as_chunks();
        let (numbers, _) = numbers.as_chunks();
        Buckets {
            pages,
            buckets,
            numbers,
        }
    }

    /// The number of pages.
    #[cfg(feature = "alloc")]
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len().saturating_sub(1) as u64
    }

    /// The numbers of a page. `None` past the last page.
    #[inline]
    pub(crate) fn page(&self, page: u64) -> Option<NumberRange> {
        let page = usize::try_from(page).ok()?;
        let end = u32::from_le_bytes(*self.pages.get(page.checked_add(1)?)?);
        let first = u32::from_le_bytes(*self.pages.get(page)?);
        Some(NumberRange {
            first: first as usize,
            count: end.wrapping_sub(first) as usize,
        })
    }

    /// The numbers of the bucket at an offset from the first page. `None` past the last page.
    #[inline]
    pub(crate) fn bucket(&self, offset: u64) -> Option<NumberRange> {
        let page = usize::try_from(offset / PAGE_BYTES).ok()?;
        let bucket = usize::try_from(offset / BUCKET_BYTES).ok()?;
        // Each page also stores the end of its last bucket.
        let at = bucket.checked_add(page)?;
        let end = u16::from_le_bytes(*self.buckets.get(at.checked_add(1)?)?);
        let first = u16::from_le_bytes(*self.buckets.get(at)?);
        let before = u32::from_le_bytes(*self.pages.get(page)?);
        Some(NumberRange {
            first: (before as usize).saturating_add(first.into()),
            count: usize::from(end.wrapping_sub(first)),
        })
    }

    /// Whether there are no numbers.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number at an index.
    #[inline]
    pub(crate) fn number(&self, index: usize) -> Option<u16> {
        self.numbers.get(index).copied().map(u16::from_le_bytes)
    }

    /// How many numbers of a bucket are at most `limit`. `None` if the numbers do not exist, or are
    /// more than a bucket can have.
    ///
    /// Nearly always there are few, and as many again after them. They are compared at once: a
    /// branch on each, which a processor cannot predict, takes longer.
    #[inline]
    pub(crate) fn count_at_most(&self, bucket: NumberRange, limit: u16) -> Option<usize> {
        let rest = self.numbers.get(bucket.first..)?;
        if bucket.count < LANES
            && let Some(few) = rest.first_chunk()
        {
            let above = few_above(few, limit) | 1 << bucket.count;
            return Some(above.trailing_zeros() as usize);
        }
        if bucket.count as u64 > BUCKET_BYTES {
            return None;
        }
        let is_above = |number: &[u8; 2]| u16::from_le_bytes(*number) > limit;
        let numbers = rest.get(..bucket.count)?;
        Some(numbers.iter().position(is_above).unwrap_or(bucket.count))
    }
}

/// How many numbers are compared at once.
const LANES: usize = 16;

/// Which of the numbers are above `limit`, as bits.
#[inline]
fn few_above(few: &[[u8; 2]; LANES], limit: u16) -> u32 {
    // With the highest bit flipped, the signed order equals the unsigned one.
    let signed = |number: u16| (number ^ 1 << 15).cast_signed();
    let numbers = i16x16::new(few.map(|number| signed(u16::from_le_bytes(number))));
    numbers.simd_gt(i16x16::splat(signed(limit))).to_bitmask()
}

#[cfg(feature = "alloc")]
pub(crate) use write::BucketIndex;

#[cfg(feature = "alloc")]
mod write {
    use alloc::vec::Vec;

    use crate::encode::{put_u16, put_u32};
    use crate::layout::{BUCKET_BYTES, BUCKETS_PER_PAGE, PAGE_BYTES};

    /// Writes the index of numbers that are added in the order of their addresses.
    #[derive(Default)]
    pub(crate) struct BucketIndex {
        /// For each page, the count of numbers before it.
        pub(crate) pages: Vec<u8>,
        /// For each bucket and the end of each page, the count of the page's numbers before it.
        pub(crate) buckets: Vec<u8>,
        begun: u64,
        before_page: usize,
        numbers: usize,
    }

    impl BucketIndex {
        /// Adds a number at an offset from the first page.
        pub(crate) fn push(&mut self, offset: u64) {
            self.begin(offset / BUCKET_BYTES + 1);
            self.numbers += 1;
        }

        /// Ends at the page before this one.
        pub(crate) fn finish(&mut self, pages: u64) {
            self.begin(pages * BUCKETS_PER_PAGE);
            self.end_page();
        }

        /// Begins this many buckets.
        fn begin(&mut self, buckets: u64) {
            for bucket in self.begun..buckets {
                if bucket.is_multiple_of(BUCKETS_PER_PAGE) {
                    self.end_page();
                }
                self.put_bucket();
            }
            self.begun = self.begun.max(buckets);
        }

        /// Writes the end of the last page, if any, and the start of the next.
        fn end_page(&mut self) {
            if !self.buckets.is_empty() {
                self.put_bucket();
            }
            put_u32(&mut self.pages, self.numbers);
            self.before_page = self.numbers;
        }

        fn put_bucket(&mut self) {
            // A full page has 65,536 numbers, which wraps to 0; no reader needs that difference.
            put_u16(
                &mut self.buckets,
                (self.numbers - self.before_page) as u64 % PAGE_BYTES,
            );
        }
    }
}
