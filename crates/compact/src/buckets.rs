//! Arrays in ascending order of address, found through buckets.

use crate::little::u32_at;

/// For each bucket, how many elements begin before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets<'t>(pub(crate) &'t [u8]);

impl Buckets<'_> {
    /// The number of buckets.
    #[cfg(feature = "alloc")]
    pub(crate) fn len(&self) -> usize {
        (self.0.len() / 4).saturating_sub(1)
    }

    /// The elements of a bucket: the first, and one past the last. `None` past the last bucket.
    #[inline]
    pub(crate) fn elements(&self, bucket: usize) -> Option<(usize, usize)> {
        let first = u32_at(self.0, bucket)?;
        let end = u32_at(self.0, bucket + 1)?;
        Some((first as usize, end as usize))
    }
}

#[cfg(feature = "alloc")]
pub(crate) use write::Builder;

#[cfg(feature = "alloc")]
mod write {
    use alloc::vec::Vec;

    use crate::encode::put_u32;

    /// Writes the buckets of an array whose elements come in ascending order.
    pub(crate) struct Builder {
        bytes: Vec<u8>,
        bucket_size: u64,
        begun: u64,
        elements: usize,
    }

    impl Builder {
        pub(crate) fn new(bucket_size: u64) -> Self {
            Builder {
                bytes: Vec::new(),
                bucket_size,
                begun: 0,
                elements: 0,
            }
        }

        /// Adds an element at a distance from the table's base.
        pub(crate) fn push(&mut self, offset: u64) {
            self.begin(offset / self.bucket_size + 1);
            self.elements += 1;
        }

        fn begin(&mut self, buckets: u64) {
            for _ in self.begun..buckets {
                put_u32(&mut self.bytes, self.elements);
            }
            self.begun = self.begun.max(buckets);
        }

        /// Ends the array with the last page of the table, so that buckets fill whole pages.
        pub(crate) fn finish(mut self, pages: u64, page_size: u64) -> Vec<u8> {
            self.begin(pages * (page_size / self.bucket_size));
            put_u32(&mut self.bytes, self.elements);
            self.bytes
        }
    }
}
