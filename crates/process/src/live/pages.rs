//! A bounded cache of another process's memory, in pieces of 4 KiB.

use std::collections::HashMap;

pub(super) type Page = [u8; 4096];

/// The size of a page in bytes. Mappings begin and end at multiples of it on every supported page
/// size.
pub(super) const PAGE_BYTES: u64 = size_of::<Page>() as u64;

/// At most `capacity` pages; a full cache drops its oldest page.
#[derive(Debug)]
pub(super) struct PageCache {
    slots: Vec<(u64, Box<Page>)>,
    by_number: HashMap<u64, usize>,
    capacity: usize,
    oldest: usize,
    /// The last page found and its slot: most reads hit the same page again.
    last: Option<(u64, usize)>,
}

impl PageCache {
    pub(super) fn new(capacity: usize) -> PageCache {
        PageCache {
            slots: Vec::new(),
            by_number: HashMap::new(),
            capacity: capacity.max(1),
            oldest: 0,
            last: None,
        }
    }

    /// The page with this number (address divided by [`PAGE_BYTES`]).
    pub(super) fn get(&mut self, number: u64) -> Option<&Page> {
        let slot = match self.last {
            Some((last, slot)) if last == number => slot,
            _ => *self.by_number.get(&number)?,
        };
        self.last = Some((number, slot));
        self.slots.get(slot).map(|(_, page)| &**page)
    }

    /// Adds consecutive pages from `number` on; a truncated last page is left out.
    pub(super) fn insert_run(&mut self, number: u64, bytes: &[u8]) {
        let (pages, _) = bytes.as_chunks::<{ size_of::<Page>() }>();
        for (number, page) in (number..).zip(pages) {
            self.insert(number, page);
        }
    }

    fn insert(&mut self, number: u64, page: &Page) {
        self.last = None;
        if let Some(known) = self
            .by_number
            .get(&number)
            .and_then(|slot| self.slots.get_mut(*slot))
        {
            *known.1 = *page;
        } else if self.slots.len() < self.capacity {
            self.by_number.insert(number, self.slots.len());
            self.slots.push((number, Box::new(*page)));
        } else {
            self.replace_oldest(number, page);
        }
    }

    fn replace_oldest(&mut self, number: u64, page: &Page) {
        let slot = self.oldest;
        self.oldest = (slot + 1) % self.capacity;
        if let Some(entry) = self.slots.get_mut(slot) {
            self.by_number.remove(&entry.0);
            entry.0 = number;
            *entry.1 = *page;
            self.by_number.insert(number, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fill: u8) -> Vec<u8> {
        vec![fill; size_of::<Page>()]
    }

    #[test]
    fn the_oldest_page_makes_room() {
        let mut pages = PageCache::new(2);
        pages.insert_run(1, &page(1));
        pages.insert_run(2, &page(2));
        pages.insert_run(3, &page(3));
        assert!(pages.get(1).is_none());
        assert_eq!(pages.get(2).unwrap()[0], 2);
        assert_eq!(pages.get(3).unwrap()[0], 3);
        pages.insert_run(4, &page(4));
        assert!(pages.get(2).is_none());
        assert_eq!(pages.get(3).unwrap()[0], 3);
    }

    #[test]
    fn a_run_leaves_out_its_cut_last_page_and_renews_known_ones() {
        let mut pages = PageCache::new(8);
        pages.insert_run(5, &[page(5), page(6), vec![7; 100]].concat());
        assert!(pages.get(6).is_some() && pages.get(7).is_none());
        pages.insert_run(6, &page(60));
        assert_eq!(pages.get(6).unwrap()[9], 60);
        assert_eq!(pages.get(5).unwrap()[9], 5);
    }
}
