//! The index: how machine code finds the row of an address.
//!
//! Addresses are relative to `base`, a multiple of [`PAGE_BYTES`]. `pages` has, for each page, the
//! number of starts before it. `buckets` has, for each bucket of 256 bytes, the number of starts of
//! its page before it, modulo 65,536; each page has one more bucket behind its last. `starts` has
//! the low byte of each start, ascending within a bucket. `rows` has a byte for each start: 0 for a
//! hole, a row's number plus 1, or [`WIDE`]. For the latter, `wide` has the start's index and the
//! number plus 1.

use crate::outline::Outline;

/// Size of a page in bytes of address space.
pub(crate) const PAGE_BYTES: u64 = 1 << 16;

/// Buckets of a page, and the one behind the last.
pub(crate) const BUCKETS: usize = 257;

/// The byte for a row with its number in `wide`.
pub(crate) const WIDE: u8 = 255;

/// Bytes that the look-up may read behind the last start.
pub(crate) const SLACK: usize = 16;

/// Bytes of an element of `wide`: index, u32, and number, u16.
pub(crate) const WIDE_SIZE: usize = 6;

/// Greatest number of pages: 4 GiB.
pub(crate) const MAX_PAGES: u64 = 1 << 16;

/// The arrays, little-endian.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexArrays {
    pub(crate) base: u64,
    pub(crate) pages: Vec<u8>,
    pub(crate) buckets: Vec<u8>,
    pub(crate) starts: Vec<u8>,
    pub(crate) rows: Vec<u8>,
    pub(crate) wide: Vec<u8>,
}

impl IndexArrays {
    /// The index of an outline; `None` if its addresses span more than 4 GiB, or if it has more
    /// than 65,534 rows.
    pub(crate) fn new(outline: &Outline<'_>) -> Option<IndexArrays> {
        let base = outline.starts().next()?.address & !(PAGE_BYTES - 1);
        let (count, end) = outline.extent();
        let pages = (end - base) / PAGE_BYTES + 1;
        if pages > MAX_PAGES || outline.rows().len() > usize::from(u16::MAX) - 1 {
            return None;
        }
        let mut index = IndexArrays {
            base,
            starts: Vec::with_capacity(count + SLACK),
            rows: Vec::with_capacity(count),
            ..IndexArrays::default()
        };
        let mut starts = outline.starts().zip(0_u32..).peekable();
        let mut count = 0_u32;
        for page in 0..pages {
            index.pages.extend(count.to_le_bytes());
            let before = count;
            for bucket in 0..=256_u64 {
                let in_page = (count - before) & 0xffff;
                index.buckets.extend(in_page.to_le_bytes().iter().take(2));
                let end = base + page * PAGE_BYTES + bucket * 256 + 256;
                if bucket == 256 {
                    break;
                }
                while let Some((start, at)) = starts.next_if(|(start, _)| start.address < end) {
                    let [low, ..] = start.address.to_le_bytes();
                    index.starts.push(low);
                    index.put_row(at, start.row.map_or(0, |row| row.0 + 1));
                    count += 1;
                }
            }
        }
        index.starts.extend([0; SLACK]);
        Some(index)
    }

    fn put_row(&mut self, at: u32, number: u32) {
        match u8::try_from(number).ok().filter(|number| *number != WIDE) {
            Some(number) => self.rows.push(number),
            None => {
                self.rows.push(WIDE);
                self.wide.extend(at.to_le_bytes());
                self.wide.extend(number.to_le_bytes().iter().take(2));
            }
        }
    }

    /// Number of elements of all arrays, with this many bodies.
    pub(crate) fn counts(&self, bodies: usize) -> ArrayCounts {
        ArrayCounts {
            pages: self.pages.len() / 4,
            bodies,
            starts: self.rows.len(),
            wide: self.wide.len() / WIDE_SIZE,
        }
    }
}

/// Numbers of elements. The index begins with `base` and these, 4 bytes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayCounts {
    pub(crate) pages: usize,
    pub(crate) bodies: usize,
    pub(crate) starts: usize,
    pub(crate) wide: usize,
}

impl ArrayCounts {
    /// Size of `base` and these, in bytes.
    pub(crate) const SIZE: usize = 24;

    pub(crate) fn written(&self, base: u64) -> Vec<u8> {
        let mut bytes = Vec::from(base.to_le_bytes());
        for count in [self.pages, self.bodies, self.starts, self.wide] {
            bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        }
        bytes
    }
}
