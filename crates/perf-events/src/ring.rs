//! The memory that the kernel writes records to, one ring for each processor.

use std::io;
use std::os::fd::AsFd as _;

use unspool_host::Remedy;

use crate::counter::Counter;
use crate::record::RecordHeader;
use crate::sys::{self, RingMap};

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
    map: RingMap,
    /// How much of it is read, in bytes since it was made.
    read: u64,
    /// How much of that the kernel has back.
    released: u64,
    /// How far it was written when that was last asked.
    written: u64,
    /// A record that wraps, in one piece.
    wrapped_record: Vec<u8>,
}

impl Ring {
    /// Maps the ring of an event, of at least so many bytes.
    pub fn new(counter: &Counter, bytes: usize) -> Result<Ring, RingError> {
        let pages = bytes.div_ceil(sys::page_size()).next_power_of_two();
        let size = pages * sys::page_size();
        let map = RingMap::new(counter.as_fd(), size).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => RingError::Locked { kib: size >> 10 },
            _ => RingError::Map(error),
        })?;
        Ok(Ring {
            map,
            read: 0,
            released: 0,
            written: 0,
            wrapped_record: Vec::new(),
        })
    }

    /// Looks how far the kernel has written: [`Ring::first`] yields no record that came later.
    pub fn refresh(&mut self) {
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

    /// Where in the ring a position is.
    fn place(&self, position: u64) -> Option<usize> {
        // A power of two.
        Some(usize::try_from(position).ok()? & self.map.capacity().checked_sub(1)?)
    }

    /// The header of the first record that is not read, if all of the record is there.
    fn header(&self) -> Option<RecordHeader> {
        let there = self.written.wrapping_sub(self.read);
        // Records are multiples of 8 bytes, as the ring is: a header never wraps.
        let header =
            RecordHeader::parse(self.map.bytes(self.place(self.read)?, RecordHeader::SIZE)?)?;
        let size = usize::from(header.size);
        let is_there = there >= header.size.into();
        (is_there && size >= RecordHeader::SIZE && size <= self.map.capacity()).then_some(header)
    }

    /// The first record that is not read: its header, and all of it. The ring's memory, unless the
    /// record wraps.
    pub fn first(&mut self) -> Option<(RecordHeader, &[u8])> {
        let header = self.header()?;
        let (at, size) = (self.place(self.read)?, usize::from(header.size));
        let until_end = self.map.capacity().checked_sub(at)?;
        if size <= until_end {
            return Some((header, self.map.bytes(at, size)?));
        }
        self.wrapped_record.clear();
        self.wrapped_record.extend(self.map.bytes(at, until_end)?);
        self.wrapped_record
            .extend(self.map.bytes(0, size - until_end)?);
        Some((header, &self.wrapped_record))
    }

    /// Has the processor bring the beginning of the record behind the first one to its cache, while
    /// the first is read: it was written on another processor, from which each line comes slowly.
    pub fn prefetch_second(&self) {
        sys::prefetch(self.second().unwrap_or_default());
    }

    /// The beginning of what is behind the first record.
    fn second(&self) -> Option<&[u8]> {
        /// In bytes. What stacks have beyond that costs less than to bring what they do not have.
        const PREFETCH_BYTES: usize = 4 << 10;
        let position = self.read.wrapping_add(self.header()?.size.into());
        let there = usize::try_from(self.written.wrapping_sub(position)).ok()?;
        let at = self.place(position)?;
        let until_end = self.map.capacity().checked_sub(at)?;
        self.map.bytes(at, PREFETCH_BYTES.min(until_end).min(there))
    }

    /// Goes on to the next record.
    pub fn skip(&mut self, header: RecordHeader) {
        self.read = self.read.wrapping_add(header.size.into());
    }

    /// Gives the memory of all records that were skipped back to the kernel.
    pub fn release(&mut self) {
        self.map.read_up_to(self.read);
        self.released = self.read;
    }

    /// Does so if that is a good part of the ring: to tell the kernel of each record would cost more.
    pub fn release_if_large(&mut self) {
        let skipped = self.read.wrapping_sub(self.released);
        if skipped > self.map.capacity() as u64 / 8 {
            self.release();
        }
    }
}
