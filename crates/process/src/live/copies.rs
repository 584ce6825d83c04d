//! Parts of another process's memory, copied while it was stopped.

use std::collections::BTreeMap;

use crate::sys;

/// Ranges of memory. They may lie in one buffer or in several.
#[derive(Debug, Default)]
pub(super) struct CopiedRanges {
    buffers: Vec<Vec<u8>>,
    /// By their first address.
    ranges: BTreeMap<u64, CopiedRange>,
}

/// The position of a range.
#[derive(Debug, Clone, Copy)]
struct CopiedRange {
    buffer: usize,
    offset: usize,
    size: usize,
}

impl CopiedRanges {
    /// Keeps a buffer with room for each of the ranges, one after another; of each the first
    /// `taken` bytes were read.
    pub(super) fn add(&mut self, bytes: Vec<u8>, ranges: &[sys::RemoteRange], taken: &[usize]) {
        let mut offset = 0_usize;
        for ((start, size), taken) in ranges.iter().zip(taken) {
            let place = CopiedRange {
                buffer: self.buffers.len(),
                offset,
                size: *taken,
            };
            self.ranges.insert(*start as u64, place);
            offset = offset.saturating_add(*size);
        }
        self.buffers.push(bytes);
    }

    /// The bytes from `addr` to the end of its range.
    pub(super) fn from(&self, addr: u64) -> Option<&[u8]> {
        let (start, place) = self.ranges.range(..=addr).next_back()?;
        let range = self.buffers.get(place.buffer)?.get(place.offset..)?;
        let range = range.get(..place.size)?;
        let rest = range.get(usize::try_from(addr - start).ok()?..)?;
        (!rest.is_empty()).then_some(rest)
    }
}

/// The limit for each size that keeps their sum at or below `total`; `u64::MAX` if the sum is
/// within it already.
pub(super) fn fair_share(mut sizes: Vec<u64>, total: u64) -> u64 {
    sizes.sort_unstable();
    let mut left = total;
    for (served, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - served) as u64;
        if *size > share {
            return share;
        }
        left -= size;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_from_an_address_to_the_end_of_what_was_taken() {
        let mut copies = CopiedRanges::default();
        copies.add((0..20).collect(), &[(100, 10), (200, 10)], &[10, 4]);
        copies.add(vec![50, 51], &[(110, 2)], &[2]);
        assert_eq!(copies.from(99), None);
        assert_eq!(copies.from(107), Some(&[7, 8, 9][..]));
        assert_eq!(copies.from(111), Some(&[51][..]));
        assert_eq!(copies.from(112), None);
        assert_eq!(copies.from(202), Some(&[12, 13][..]));
        assert_eq!(copies.from(204), None);
    }

    #[test]
    fn small_ranges_leave_their_share_to_the_others() {
        for (sizes, share) in [
            (&[] as &[u64], u64::MAX),
            (&[5, 90, 5], u64::MAX),
            (&[200], 100),
            (&[10, 60, 60], 45),
            (&[60, 10, 20, 60], 35),
            (&[50, 50, 50, 50], 25),
        ] {
            let found = fair_share(sizes.to_vec(), 100);
            assert_eq!(found, share, "{sizes:?}");
            let all: u64 = sizes.iter().map(|size| *size.min(&share)).sum();
            assert!(all <= 100);
        }
    }
}
