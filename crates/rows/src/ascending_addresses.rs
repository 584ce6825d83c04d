//! Addresses in ascending order.

/// Addresses, each higher than the one before.
///
/// Code that reads memory relies on the order: a check of the first and the last covers all
/// between.
#[derive(Debug, Clone, Copy)]
pub struct AscendingAddresses<'a>(&'a [u64]);

impl<'a> AscendingAddresses<'a> {
    /// The addresses, if they ascend.
    #[must_use]
    pub fn new(addresses: &'a [u64]) -> Option<Self> {
        let ascends = addresses.is_sorted_by(|low, high| low < high);
        ascends.then_some(AscendingAddresses(addresses))
    }

    /// The addresses.
    #[inline]
    #[must_use]
    pub fn get(self) -> &'a [u64] {
        self.0
    }

    /// The lowest and the highest; `None` if there are no addresses.
    #[inline]
    #[must_use]
    pub fn bounds(self) -> Option<(u64, u64)> {
        Some((*self.0.first()?, *self.0.last()?))
    }
}

/// At most `MAX_ADDRESSES` ascending addresses; only a lower one can be added. It holds stack
/// addresses, noted from the outermost frame inwards. The highest is always the last.
#[derive(Debug, Clone)]
pub struct AddressStack<const MAX_ADDRESSES: usize> {
    /// Ascending from `first` on.
    addresses: [u64; MAX_ADDRESSES],
    first: usize,
}

impl<const MAX_ADDRESSES: usize> AddressStack<MAX_ADDRESSES> {
    /// No addresses.
    #[must_use]
    pub const fn new() -> Self {
        AddressStack {
            addresses: [0; MAX_ADDRESSES],
            first: MAX_ADDRESSES,
        }
    }

    /// The index of the lowest; `MAX_ADDRESSES` if empty.
    #[inline]
    #[must_use]
    pub fn first(&self) -> usize {
        self.first
    }

    /// The address at an index, or `None`.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u64> {
        let address = self.addresses.get(index).copied();
        address.filter(|_| index >= self.first)
    }

    /// All from an index on; an index below the first counts as the first.
    #[inline]
    #[must_use]
    pub fn from(&self, index: usize) -> AscendingAddresses<'_> {
        let from = index.max(self.first);
        AscendingAddresses(self.addresses.get(from..).unwrap_or_default())
    }

    /// Adds an address. `None`, and nothing is added, if it is not the lowest or there is no room.
    #[inline]
    pub fn push(&mut self, address: u64) -> Option<()> {
        if self.get(self.first).is_some_and(|lowest| lowest <= address) {
            return None;
        }
        let first = self.first.checked_sub(1)?;
        *self.addresses.get_mut(first)? = address;
        self.first = first;
        Some(())
    }

    /// Removes all before an index.
    #[inline]
    pub fn keep_from(&mut self, index: usize) {
        self.first = index.clamp(self.first, MAX_ADDRESSES);
    }
}

impl<const MAX_ADDRESSES: usize> Default for AddressStack<MAX_ADDRESSES> {
    fn default() -> Self {
        AddressStack::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressStack, AscendingAddresses};

    #[test]
    fn only_lower_addresses_are_added() {
        let mut descent = AddressStack::<3>::new();
        assert_eq!(descent.from(0).bounds(), None);
        assert_eq!(descent.push(20), Some(()));
        assert_eq!(descent.push(20), None);
        assert_eq!(descent.push(21), None);
        assert_eq!(descent.push(10), Some(()));
        assert_eq!(descent.from(0).get(), [10, 20]);
        assert_eq!(descent.push(0), Some(()));
        assert_eq!(descent.from(0).get(), [0, 10, 20]);
        assert_eq!(descent.from(1).bounds(), Some((10, 20)));
        assert_eq!(descent.from(3).bounds(), None);
        assert_eq!(descent.from(4).bounds(), None);
    }

    #[test]
    fn removed_addresses_are_forgotten() {
        let mut descent = AddressStack::<3>::new();
        for address in [30, 20, 10] {
            descent.push(address).unwrap();
        }
        assert_eq!(descent.push(0), None, "there is no room");
        descent.keep_from(1);
        assert_eq!(
            [0, 1, 2, 3].map(|at| descent.get(at)),
            [None, Some(20), Some(30), None]
        );
        // Indices before the first hold nothing, and asking from one of them is the same as from
        // the first.
        descent.keep_from(0);
        assert_eq!(descent.from(0).get(), [20, 30]);
        assert_eq!(descent.push(25), None);
        assert_eq!(descent.push(15), Some(()));
        assert_eq!(descent.from(0).get(), [15, 20, 30]);
        descent.keep_from(usize::MAX);
        assert_eq!(descent.first(), 3);
        assert_eq!(descent.push(99), Some(()));
    }

    #[test]
    fn slices_have_to_ascend() {
        assert!(AscendingAddresses::new(&[1, 2, 9]).is_some());
        assert!(AscendingAddresses::new(&[]).is_some());
        assert!(AscendingAddresses::new(&[1, 1]).is_none());
        assert!(AscendingAddresses::new(&[2, 1]).is_none());
    }
}
