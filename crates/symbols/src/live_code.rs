//! Generated code: finds the current code at an address.

use std::collections::BTreeMap;

/// Ranges of addresses, each with an index. A new range replaces whatever it overlaps, as new code
/// replaces older code.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveCode {
    /// Disjoint; by start address.
    ranges: BTreeMap<u64, NamedRange>,
}

#[derive(Debug, Clone, Copy)]
struct NamedRange {
    end: u64,
    number: usize,
}

impl LiveCode {
    /// Adds `size` bytes of code.
    pub(crate) fn add(&mut self, start: u64, size: u64, number: usize) {
        let end = start.saturating_add(size);
        if start == end {
            return;
        }
        self.remove(start, end);
        self.ranges.insert(start, NamedRange { end, number });
    }

    /// The index of the code at an address.
    pub(crate) fn get(&self, address: u64) -> Option<usize> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some(range.number)
    }

    /// The indexes of ranges that are not replaced, some of them several times.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges.values().map(|range| range.number)
    }

    fn remove(&mut self, start: u64, end: u64) {
        let before = self.ranges.range_mut(..start).next_back();
        if let Some((_, range)) = before.filter(|(_, range)| range.end > start) {
            let old = std::mem::replace(&mut range.end, start);
            let number = range.number;
            if old > end {
                self.ranges.insert(end, NamedRange { end: old, number });
            }
        }
        while let Some((at, range)) = self.ranges.range(start..end).next() {
            let (at, range) = (*at, *range);
            self.ranges.remove(&at);
            if range.end > end {
                self.ranges.insert(end, range);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_range_wins() {
        // Compared with a naive search over all ranges of a small space in some order.
        let mut live = LiveCode::default();
        let mut naive = [None; 32];
        let mut state = 7_usize;
        for number in 0..2000 {
            state = (state * 75 + 74) % 65537;
            let (start, size) = (state % 23, state / 23 % 9);
            live.add(start as u64, size as u64, number);
            naive[start..start + size].fill(Some(number));
            for (address, expected) in naive.iter().enumerate() {
                assert_eq!(live.get(address as u64), *expected, "at {address}");
            }
        }
        assert!(live.ranges.len() <= naive.len());
    }

    #[test]
    fn the_end_of_the_address_space() {
        let mut live = LiveCode::default();
        live.add(u64::MAX - 4, u64::MAX, 1);
        live.add(5, 0, 2);
        assert_eq!(live.get(u64::MAX - 1), Some(1));
        assert_eq!(live.get(5), None);
    }
}
