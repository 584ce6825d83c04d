//! Where a part of the arena is free.

use std::ops::Range;

/// The free places in a part of the arena.
#[derive(Debug)]
pub(super) struct FreeSpace {
    part: Range<usize>,
    gaps: Vec<Range<usize>>,
}

impl FreeSpace {
    /// All of a part.
    pub(super) fn new(part: Range<usize>) -> FreeSpace {
        FreeSpace {
            gaps: vec![part.clone()],
            part,
        }
    }

    /// The size of the part, free or not, in bytes.
    pub(super) fn part_bytes(&self) -> usize {
        self.part.len()
    }

    /// Reserves a place. `None` if there is none of this size.
    pub(super) fn reserve(&mut self, bytes: usize) -> Option<Range<usize>> {
        let is_large = |gap: &Range<usize>| gap.len() >= bytes;
        let number = self.gaps.iter().rposition(is_large)?;
        let gap = self.gaps.get_mut(number)?;
        let place = gap.start..gap.start + bytes;
        gap.start = place.end;
        if gap.start == gap.end {
            self.gaps.swap_remove(number);
        }
        Some(place)
    }

    /// Frees all of the part except for the given places.
    pub(super) fn retain(&mut self, places: impl Iterator<Item = Range<usize>>) {
        let mut places: Vec<_> = places.collect();
        places.sort_unstable_by_key(|place| place.start);
        let ends = places.iter().map(|place| place.end);
        let starts = places.iter().map(|place| place.start);
        let gaps = std::iter::once(self.part.start)
            .chain(ends)
            .zip(starts.chain([self.part.end]));
        let gaps = gaps.map(|(start, end)| start..end);
        self.gaps = gaps.filter(|gap| !gap.is_empty()).collect();
    }
}
