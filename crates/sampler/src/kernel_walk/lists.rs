//! Which lists of mappings are in the arena.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use unspool_bpf_walk::ModuleMapping;

use super::free_space::FreeSpace;

/// The lists in a part of the arena. Equal ones are shared.
#[derive(Debug)]
pub(super) struct Lists {
    free: FreeSpace,
    /// The places of lists, by their mappings.
    places: HashMap<Vec<ModuleMapping>, Range<usize>>,
    /// The bytes that were reserved since the last [`Lists::retain`].
    reserved: usize,
}

impl Lists {
    /// Without lists, in a part of the arena.
    pub(super) fn new(part: Range<usize>) -> Lists {
        Lists {
            places: HashMap::new(),
            free: FreeSpace::new(part),
            reserved: 0,
        }
    }

    /// The offset of a list.
    pub(super) fn offset(&self, mappings: &[ModuleMapping]) -> Option<usize> {
        Some(self.places.get(mappings)?.start)
    }

    /// Reserves room for a list, and returns its offset. `None` if there is none.
    pub(super) fn reserve(&mut self, mappings: Vec<ModuleMapping>) -> Option<usize> {
        let bytes = (mappings.len() + 1) * size_of::<ModuleMapping>();
        let place = self.free.reserve(bytes)?;
        self.reserved += bytes;
        let offset = place.start;
        self.places.insert(mappings, place);
        Some(offset)
    }

    /// Removes a list that could not be written. Its place is free after the next
    /// [`Lists::retain`].
    pub(super) fn remove(&mut self, mappings: &[ModuleMapping]) {
        self.places.remove(mappings);
    }

    /// Whether [`Lists::retain`] can make much room.
    pub(super) fn is_worn(&self) -> bool {
        self.reserved >= self.free.part_bytes() / 4
    }

    /// Removes all lists except those at the given offsets.
    pub(super) fn retain(&mut self, used: &HashSet<usize>) {
        self.places.retain(|_, place| used.contains(&place.start));
        self.free.retain(self.places.values().cloned());
        self.reserved = 0;
    }

    /// The records of tables in the lists at the given offsets.
    pub(super) fn records(&self, used: &HashSet<usize>) -> HashSet<u64> {
        let places = self.places.iter();
        let lists = places.filter(|(_, place)| used.contains(&place.start));
        let mappings = lists.flat_map(|(mappings, _)| mappings);
        mappings.map(|mapping| mapping.record).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use unspool_rows::{LoadBias, RuntimeAddr};

    use super::*;

    /// Processes come and go, with lists of their own. There is always room, and the lists of those
    /// that run do not overlap.
    #[test]
    fn room_is_reused() {
        const PART: Range<usize> = 1 << 21..(1 << 21) + (1 << 20);
        let mut lists = Lists::new(PART);
        let mut running: VecDeque<(usize, Vec<ModuleMapping>)> = VecDeque::new();
        let mut rounds = 0;
        for process in 0..20_000_u64 {
            let count = 1 + process * 7919 % 97;
            let mapping = |number| ModuleMapping {
                start: RuntimeAddr(process << 20 | number),
                end: RuntimeAddr(process << 20 | (number + 1)),
                bias: LoadBias(0),
                record: 64,
            };
            let mappings: Vec<_> = (0..count).map(mapping).collect();
            assert_eq!(lists.offset(&mappings), None);
            let offset = lists.reserve(mappings.clone()).or_else(|| {
                assert!(lists.is_worn());
                rounds += 1;
                lists.retain(&running.iter().map(|(offset, _)| *offset).collect());
                lists.reserve(mappings.clone())
            });
            let offset = offset.unwrap();
            running.push_back((offset, mappings));
            if running.len() > 100 {
                running.pop_front();
            }
            if process % 100 == 0 {
                let places = running.iter().map(|(offset, mappings)| {
                    assert_eq!(lists.offset(mappings), Some(*offset));
                    *offset..offset + 32 * (mappings.len() + 1)
                });
                let mut places: Vec<_> = places.collect();
                places.sort_by_key(|place| place.start);
                assert!(places.is_sorted_by(|one, next| one.end <= next.start));
                assert!(PART.start <= places[0].start && places.last().unwrap().end <= PART.end);
            }
        }
        assert!(rounds > 10);
        // Nobody's room is taken if all is in use.
        let all: HashSet<usize> = lists.places.values().map(|place| place.start).collect();
        lists.retain(&all);
        assert!(!lists.is_worn());
    }
}
