//! The memory that the kernel writes records to, one ring for each processor.

use std::io;
use std::os::fd::AsFd as _;

use unspool_machine::Remedy;

use crate::counter::Counter;
use crate::record::Header;
use crate::sys::{self, Map};

/// Why a ring could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// All that this user may lock in memory is taken.
    #[error(
        "cannot map {kib} KiB of ring buffer: more than `kernel.perf_event_mlock_kb` and `ulimit -l` allow together: \
         {}",
        Remedy::RingMemory
    )]
    Locked {
        /// How many KiB were asked for.
        kib: usize,
    },
    /// The kernel refused for another reason.
    #[error("cannot map a ring buffer")]
    Map(#[source] io::Error),
}

impl RingError {
    /// What helps against it, if something does.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            RingError::Locked { .. } => Some(Remedy::RingMemory),
            RingError::Map(_) => None,
        }
    }
}

/// The ring of an event, and of those that are redirected to it.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    /// How much of it is read, in bytes since it was made.
    read: u64,
    /// How much of that the kernel has back.
    given_back: u64,
    /// How far it was written when that was last asked.
    written: u64,
    /// A record that wraps, in one piece.
    joined: Vec<u8>,
}

impl Ring {
    /// Maps the ring of an event, of at least so many bytes.
    pub fn new(counter: &Counter, bytes: usize) -> Result<Ring, RingError> {
        let pages = bytes.div_ceil(sys::page_size()).next_power_of_two();
        let size = pages * sys::page_size();
        let map = Map::new(counter.as_fd(), size).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => RingError::Locked { kib: size >> 10 },
            _ => RingError::Map(error),
        })?;
        Ok(Ring {
            map,
            read: 0,
            given_back: 0,
            written: 0,
            joined: Vec::new(),
        })
    }

    /// Looks how far the kernel has written: [`Ring::first`] yields no record that came later.
    pub fn look(&mut self) {
        self.written = self.map.written();
    }

    /// How many bytes of records it has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// How full it is, as a share of all.
    #[must_use]
    pub fn fullness(&self) -> f64 {
        let bytes = u32::try_from(self.written.wrapping_sub(self.read)).unwrap_or(u32::MAX);
        let all = u32::try_from(self.map.capacity()).unwrap_or(u32::MAX);
        f64::from(bytes) / f64::from(all.max(1))
    }

    /// The first record that is not read: its header, and all of it. The ring's memory, unless the
    /// record wraps.
    pub fn first(&mut self) -> Option<(Header, &[u8])> {
        let there = self.written.wrapping_sub(self.read);
        let capacity = self.map.capacity();
        // A power of two.
        let at = usize::try_from(self.read).ok()? & capacity.checked_sub(1)?;
        // Records are multiples of 8 bytes, as the ring is: a header never wraps.
        let header = Header::parse(self.map.bytes(at, Header::SIZE)?)?;
        let size = usize::from(header.size);
        if there < header.size.into() || size < Header::SIZE || size > capacity {
            return None;
        }
        let until_end = capacity.checked_sub(at)?;
        if size <= until_end {
            return Some((header, self.map.bytes(at, size)?));
        }
        self.joined.clear();
        self.joined.extend(self.map.bytes(at, until_end)?);
        self.joined.extend(self.map.bytes(0, size - until_end)?);
        Some((header, &self.joined))
    }

    /// Has the processor bring the beginning of the record behind the first one to its cache, while
    /// the first is read: it was written on another processor, from which each line comes slowly.
    pub fn prefetch_second(&mut self) {
        /// In bytes. What stacks have beyond that costs less than to bring what they do not have.
        const MOST: usize = 4 << 10;
        let Some((first, _)) = self.first() else {
            return;
        };
        let second = self.read.wrapping_add(first.size.into());
        let there = self.written.wrapping_sub(second);
        // A power of two.
        let mask = self.map.capacity() as u64 - 1;
        if let (Ok(at), Ok(there)) = (usize::try_from(second & mask), usize::try_from(there)) {
            let until_end = self.map.capacity() - at;
            let length = MOST.min(until_end).min(there);
            sys::prefetch(self.map.bytes(at, length).unwrap_or_default());
        }
    }

    /// Goes on to the next record.
    pub fn skip(&mut self, header: Header) {
        self.read = self.read.wrapping_add(header.size.into());
    }

    /// Gives the memory of all records that were skipped back to the kernel.
    pub fn give_back(&mut self) {
        self.map.read_up_to(self.read);
        self.given_back = self.read;
    }

    /// Does so if that is a good part of the ring: to tell the kernel of each record would cost more.
    pub fn give_back_in_time(&mut self) {
        let skipped = self.read.wrapping_sub(self.given_back);
        if skipped > self.map.capacity() as u64 / 8 {
            self.give_back();
        }
    }
}
