//! Records from programs, in the order of their reservation.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use crate::error::MapError;
use crate::map::MapType;
use crate::sys::{self, MapMemory};

/// The header of a record: its length with the flags below, and its page.
const HEADER_BYTES: usize = 8;
/// `BPF_RINGBUF_BUSY_BIT`: the record is reserved, and not submitted yet.
const BUSY_BIT: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`: the record was discarded.
const DISCARD_BIT: u32 = 1 << 30;

/// A ring buffer that all processors share (`BPF_MAP_TYPE_RINGBUF`), and its reader.
///
/// `poll` reports its descriptor as readable while there are unread records.
#[derive(Debug)]
pub struct RingBuf {
    fd: OwnedFd,
    /// The reader's position in bytes. Writable.
    consumer: MapMemory,
    /// The programs' position in bytes, and the records. These are mapped twice in a row, so that
    /// a record that wraps is contiguous.
    producer: MapMemory,
    capacity: usize,
    /// The end of the record that was returned last.
    position: usize,
}

impl RingBuf {
    /// Creates a ring of at least `bytes` bytes: a power of two, and at least a page.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new(bytes: usize) -> Result<RingBuf, MapError> {
        let to_map_error = MapType::RingBuf.to_map_error();
        let page = sys::page_size();
        let capacity = bytes.max(page).next_power_of_two();
        let entries = u32::try_from(capacity).unwrap_or(u32::MAX);
        let fd = sys::map_create(MapType::RingBuf.def(0, 0, entries)).map_err(&to_map_error)?;
        let consumer = libc::PROT_READ | libc::PROT_WRITE;
        let consumer = MapMemory::new(fd.as_fd(), 0, page, consumer).map_err(&to_map_error)?;
        let size = capacity.saturating_mul(2).saturating_add(page);
        let producer =
            MapMemory::new(fd.as_fd(), page, size, libc::PROT_READ).map_err(&to_map_error)?;
        Ok(RingBuf {
            fd,
            consumer,
            producer,
            capacity,
            position: 0,
        })
    }

    /// The next record. `None` if there is none, or if its program has not submitted it yet.
    ///
    /// Returns the memory of the previous record to the kernel.
    pub fn next_record(&mut self) -> Option<&[u8]> {
        loop {
            let consumed = self.consumer.atomic_u64(0)?;
            consumed.store(self.position as u64, Ordering::Release);
            let produced = self.producer.atomic_u64(0)?.load(Ordering::Acquire);
            if produced == self.position as u64 {
                return None;
            }
            let start = (self.position & (self.capacity - 1)) + sys::page_size();
            let header = self.producer.atomic_u32(start)?.load(Ordering::Acquire);
            if header & BUSY_BIT != 0 {
                return None;
            }
            let length = usize::try_from(header & !DISCARD_BIT).ok()?;
            let size = length.checked_add(HEADER_BYTES)?.next_multiple_of(8);
            self.position = self.position.wrapping_add(size);
            if header & DISCARD_BIT == 0 {
                // Programs do not overwrite the record until the next call, which borrows the
                // ring mutably, stores a later position.
                return self.producer.stable_bytes(start + HEADER_BYTES, length);
            }
        }
    }
}

impl AsFd for RingBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
