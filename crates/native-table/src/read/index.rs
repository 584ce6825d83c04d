//! Reads the index of an object. It must be one that the look-up in [`crate::index`] stays inside
//! of.

use core::ops::Range;

use unspool_rows::{Abi, Vaddr};

use super::{ObjectError, ObjectView};
use crate::index::{self, ArrayCounts, BUCKETS, PAGE_BYTES, WIDE, WIDE_SIZE};
use crate::object::{self, ArrayLayout};
use crate::object_layout::{EH_FRAME, HDR, INDEX, TEXT};
use crate::x86_64::{self, IndexArray};

/// The body that holds from an address up to the next start; body 0 is that of a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyStart {
    /// The address, as linked.
    pub address: u64,
    /// The body's number.
    pub body: u32,
}

impl<'b> ObjectView<'b> {
    /// The starts of bodies, ascending, and the number of bodies.
    ///
    /// # Errors
    ///
    /// The index is not one that the code stays inside of.
    pub fn starts(&self) -> Result<(Vec<BodyStart>, u32), ObjectError> {
        self.index()?.starts()
    }

    fn index(&self) -> Result<DecodedIndex<'b>, ObjectError> {
        DecodedIndex::read(self.content(INDEX))
    }

    /// The code, and its address relative to the object.
    pub(crate) fn code(&self) -> (&'b [u8], u64) {
        (self.content(TEXT), self.entry())
    }

    /// Begins of the bodies, relative to the object.
    pub(crate) fn bodies(&self) -> Result<Vec<u64>, ObjectError> {
        let index = self.index()?;
        let array = self.part(INDEX).address + index.places.start as u64;
        let distances = index.bodies.chunks_exact(4);
        let distances =
            distances.filter_map(|bytes| Some(i32::from_le_bytes(*bytes.first_chunk()?)));
        Ok(distances
            .map(|distance| array.wrapping_add_signed(distance.into()))
            .collect())
    }

    /// Checks the parts that are the same in all objects with such an index: the code that finds a
    /// row, and the unwind table of the code itself.
    pub(crate) fn check_frame(&self, abi: Abi) -> Result<(), ObjectError> {
        let index = self.index()?;
        let look_up = x86_64::look_up(abi, index.base, &index.counts);
        let arrays = ArrayLayout::new(&index.counts);
        let (of_index, text) = (self.part(INDEX), self.part(TEXT));
        let expected = arrays.linked(&look_up.code, of_index, text);
        let code = self.content(TEXT);
        if !code.starts_with(&expected) {
            return Err(ObjectError::Changed("the code that finds a row"));
        }
        let changed = || ObjectError::Changed("the unwind table of the code itself");
        let own = object::own_frames(abi, &look_up.frame, text.address, text.size);
        let own = own.map_err(|_| changed())?;
        let [hdr, frames] = [HDR, EH_FRAME];
        let [hdr_at, frames_at] = [hdr, frames].map(|part| Vaddr(self.part(part).address));
        let is_own = own
            .bytes_at(frames_at)
            .is_ok_and(|own| own == self.content(frames))
            && own
                .hdr_at(hdr_at, frames_at)
                .is_ok_and(|own| own == self.content(hdr));
        is_own.then_some(()).ok_or_else(changed)
    }
}

/// The arrays of an index.
struct DecodedIndex<'b> {
    base: u64,
    counts: ArrayCounts,
    /// Range of `bodies` in the index.
    places: Range<usize>,
    bodies: &'b [u8],
    pages: &'b [u8],
    buckets: &'b [u8],
    starts: &'b [u8],
    rows: &'b [u8],
    wide: &'b [u8],
}

/// An element of this size, in bytes, of an array.
fn element(array: &[u8], size: usize, at: usize) -> Option<u32> {
    let bytes = array.get(at * size..)?.get(..size)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |all, byte| all << 8 | u32::from(*byte)),
    )
}

impl<'b> DecodedIndex<'b> {
    fn read(bytes: &'b [u8]) -> Result<DecodedIndex<'b>, ObjectError> {
        let short = ObjectError::Index("it is truncated");
        let (base, rest) = bytes.split_first_chunk().ok_or(short)?;
        let count = |at| {
            let count = element(rest, 4, at).ok_or(short)?;
            usize::try_from(count).map_err(|_| short)
        };
        let counts = ArrayCounts {
            pages: count(0)?,
            bodies: count(1)?,
            starts: count(2)?,
            wide: count(3)?,
        };
        // So that no product below overflows.
        if counts.pages > usize::try_from(index::MAX_PAGES).unwrap_or(usize::MAX) {
            return Err(ObjectError::Index("it has too many pages"));
        }
        let arrays = ArrayLayout::new(&counts);
        let array = |array| bytes.get(arrays.place(array)).ok_or(short);
        Ok(DecodedIndex {
            base: u64::from_le_bytes(*base),
            counts,
            places: arrays.place(IndexArray::Bodies),
            bodies: array(IndexArray::Bodies)?,
            pages: array(IndexArray::Pages)?,
            buckets: array(IndexArray::Buckets)?,
            starts: array(IndexArray::Starts)?,
            rows: array(IndexArray::Rows)?,
            wide: array(IndexArray::Wide)?,
        })
    }

    fn starts(&self) -> Result<(Vec<BodyStart>, u32), ObjectError> {
        let damaged = ObjectError::Index;
        let bodies = u32::try_from(self.counts.bodies).unwrap_or(u32::MAX);
        let mut found = Vec::with_capacity(self.rows.len());
        let mut wide = 0;
        for page in 0..self.counts.pages {
            let before = element(self.pages, 4, page).ok_or(damaged("pages"))?;
            if before as usize != found.len() {
                return Err(damaged("a page does not begin where the one before ends"));
            }
            for bucket in 0..256 {
                let at = |bucket| {
                    let at = element(self.buckets, 2, page * BUCKETS + bucket);
                    at.ok_or(damaged("buckets"))
                };
                let (first, end) = (at(bucket)?, at(bucket + 1)?);
                let expected = before.wrapping_add(first) as usize;
                if found.len() & 0xffff != expected & 0xffff {
                    return Err(damaged("a bucket does not begin where the one before ends"));
                }
                for _ in 0..end.wrapping_sub(first) & 0xffff {
                    let offset = page as u64 * PAGE_BYTES + bucket as u64 * 256;
                    let body = self.body(found.len(), &mut wide)?;
                    if body >= bodies {
                        return Err(damaged("there is no such body"));
                    }
                    let low = self.starts.get(found.len()).copied();
                    let low = low.filter(|_| found.len() < self.rows.len());
                    let low = low.ok_or(damaged("there are too few starts"))?;
                    let address = self.base.wrapping_add(offset + u64::from(low));
                    let last: Option<&BodyStart> = found.last();
                    if last.is_some_and(|last| last.address >= address) {
                        return Err(damaged("starts do not ascend"));
                    }
                    found.push(BodyStart { address, body });
                }
            }
        }
        if found.len() == self.rows.len() && wide == self.counts.wide {
            Ok((found, bodies))
        } else {
            Err(damaged("not all of it is used"))
        }
    }

    fn body(&self, start: usize, wide: &mut usize) -> Result<u32, ObjectError> {
        let damaged = ObjectError::Index;
        let number = self.rows.get(start).ok_or(damaged("rows"))?;
        if *number != WIDE {
            return Ok(u32::from(*number));
        }
        let of = self
            .wide
            .get(*wide * WIDE_SIZE..)
            .and_then(|rest| element(rest, 4, 0));
        let body = self
            .wide
            .get(*wide * WIDE_SIZE + 4..)
            .and_then(|rest| element(rest, 2, 0));
        *wide += 1;
        match (of, body) {
            (Some(of), Some(body)) if of as usize == start => Ok(body),
            _ => Err(damaged("a great number is not where it belongs")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outline::Outline;

    /// The index of a table with holes, full buckets, and more rows than a byte can number.
    fn index() -> Vec<u8> {
        let mut source = String::from("arch x86-64 little\n");
        for n in 0..2_000_u64 {
            let (start, offset) = (0x1_0000 + n * 3 + n / 700 * 0x1_2345, 8 + n * 8 % 4_800);
            source += &format!(
                "fn {start:#x}..{:#x}\n  {start:#x}  cfa=rsp+{offset}  ra=[cfa-8]\n",
                start + 2
            );
        }
        let table =
            unspool_rows::text::parse(&source).unwrap_or_else(|error| unreachable!("{error}"));
        let outline = Outline::from_table(&table).unwrap_or_else(|error| unreachable!("{error}"));
        let bytes = object::object(
            &outline,
            crate::ModuleKey {
                build_id: &[1],
                content: &[0; 20],
            },
        )
        .unwrap_or_default();
        let object = ObjectView::parse(&bytes).unwrap_or_else(|error| unreachable!("{error}"));
        assert!(outline.rows().len() > 255);
        bytes
            .get(object.part(INDEX).range())
            .unwrap_or_default()
            .to_vec()
    }

    #[test]
    #[cfg_attr(miri, ignore = "an index of 4,000 entries takes hours")]
    fn damaged_indices_end_in_an_error_or_ascend() {
        let whole = index();
        let read = |bytes: &[u8]| DecodedIndex::read(bytes).and_then(|decoded| decoded.starts());
        let (starts, bodies) = read(&whole).unwrap_or_default();
        assert_eq!((starts.len(), bodies), (4_000, 601));
        let mut state = 1_u64;
        let mut errors = 0;
        for _ in 0..4_000 {
            let mut bytes = whole.clone();
            for _ in 0..=state >> 62 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let at = usize::try_from(state >> 33).unwrap_or(0) % bytes.len();
                // The counts more often than by chance.
                let at = if state & 7 == 0 { at % 24 } else { at };
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = byte.wrapping_add(u8::try_from(state >> 20 & 0xff).unwrap_or(0));
                }
            }
            match read(&bytes) {
                Ok((starts, bodies)) => {
                    assert!(starts.is_sorted_by_key(|start| start.address));
                    assert!(starts.iter().all(|start| start.body < bodies));
                }
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 1_000, "{errors}");
        for length in 0..200 {
            assert!(read(whole.get(..length).unwrap_or_default()).is_err());
        }
    }
}
