//! The memory to which the kernel writes records, one ring for each CPU.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{Ordering, fence};

use unspool_host::Remedy;

use crate::counter::Counter;
use crate::record::RecordHeader;
use crate::sys::{self, RingMap};

/// Why a ring cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// This user's limit of locked memory is reached.
    #[error(
        "cannot map {kib} KiB of ring buffer: more than `kernel.perf_event_mlock_kb` and `ulimit -l` allow together: \
         {}",
        Remedy::RingMemory
    )]
    Locked {
        /// The requested size in KiB.
        kib: usize,
    },
    /// The kernel refused for another reason.
    #[error("cannot map a ring buffer")]
    Map(#[source] io::Error),
}

impl RingError {
    /// The remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            RingError::Locked { .. } => Some(Remedy::RingMemory),
            RingError::Map(_) => None,
        }
    }
}

/// The size of the largest record of a mapping or a task in bytes, rounded up: a path has up to 4
/// KiB.
const MAX_TASK_RECORD_BYTES: u64 = 8 << 10;

/// The ring of an event, and of those that are redirected to it.
#[derive(Debug)]
pub struct Ring {
    map: RingMap,
    /// The read position, in bytes since its creation.
    read: u64,
    /// The position up to which memory was released to the kernel.
    released: u64,
    /// The write position at the last refresh.
    written: u64,
    /// The position after which records of tasks may be missing.
    gap: Option<u64>,
    /// A contiguous copy of a record that wraps.
    wrapped_record: Vec<u8>,
}

impl Ring {
    /// Maps the ring of an event, of at least this many bytes.
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
            gap: None,
            wrapped_record: Vec::new(),
        })
    }

    /// Updates the write position: [`Ring::first`] returns no later record.
    pub fn refresh(&mut self) {
        self.written = self.map.written();
        self.note_gap(self.released);
    }

    /// Notes that records may be missing from now on if the ring, released up to a position, has no
    /// room for another one.
    fn note_gap(&mut self, released: u64) {
        let written = self.map.written();
        let free = (self.map.capacity() as u64).saturating_sub(written.wrapping_sub(released));
        if free < MAX_TASK_RECORD_BYTES {
            self.gap = Some(written);
        }
    }

    /// Whether records of mappings or tasks may be missing between the last skipped record and the
    /// next one, because the ring was full. Says so once.
    ///
    /// The kernel reports a loss in front of the next record, which may never come.
    pub fn take_gap(&mut self) -> bool {
        self.gap.take_if(|gap| self.read >= *gap).is_some()
    }

    /// Its capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// The offset of a position in the ring.
    fn place(&self, position: u64) -> Option<usize> {
        // The capacity is a power of two.
        Some(usize::try_from(position).ok()? & self.map.capacity().checked_sub(1)?)
    }

    /// The header of the first unread record, if the record is complete.
    fn header(&self) -> Option<RecordHeader> {
        let there = self.written.wrapping_sub(self.read);
        // Records are multiples of 8 bytes, as the ring is: a header never wraps.
        let header =
            RecordHeader::parse(self.map.bytes(self.place(self.read)?, RecordHeader::SIZE)?)?;
        let size = usize::from(header.size);
        let is_there = there >= header.size.into();
        (is_there && size >= RecordHeader::SIZE && size <= self.map.capacity()).then_some(header)
    }

    /// The first unread record: its header, and all its bytes. These are the ring's memory, unless
    /// the record wraps.
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

    /// Prefetches the start of the second record while the first is read: it was written on another
    /// CPU, from which each cache line takes long.
    pub fn prefetch_second(&self) {
        sys::prefetch(self.second().unwrap_or_default());
    }

    /// The start of the second record.
    fn second(&self) -> Option<&[u8]> {
        /// In bytes. Loading more of a large stack later costs less than prefetching memory that
        /// small stacks do not use.
        const PREFETCH_BYTES: usize = 4 << 10;
        let position = self.read.wrapping_add(self.header()?.size.into());
        let there = usize::try_from(self.written.wrapping_sub(position)).ok()?;
        let at = self.place(position)?;
        let until_end = self.map.capacity().checked_sub(at)?;
        self.map.bytes(at, PREFETCH_BYTES.min(until_end).min(there))
    }

    /// Moves on to the next record.
    pub fn skip(&mut self, header: RecordHeader) {
        self.read = self.read.wrapping_add(header.size.into());
    }

    /// Releases the memory of all skipped records to the kernel.
    pub fn release(&mut self) {
        self.map.read_up_to(self.read);
        // A record that had no room before is noticed by what is written now, or has room.
        fence(Ordering::SeqCst);
        self.note_gap(self.released);
        self.released = self.read;
    }

    /// Does so if it is a large part of the ring: an update for each record would cost more.
    pub fn release_if_large(&mut self) {
        let skipped = self.read.wrapping_sub(self.released);
        if skipped > self.map.capacity() as u64 / 8 {
            self.release();
        }
    }
}
