//! A registry of mapped files' memory, for a signal handler.
//!
//! [`find`] is async-signal-safe: it loads atomic words only. A slot is claimed before its memory
//! is borrowed and released after the last borrow has ended. So a thread that faults in a map finds
//! a stable slot.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The unit of ranges in bytes. The page size is a multiple of it.
const PAGE_UNIT_BYTES: u64 = 4096;
/// The bits of a range's length; the others are those of its start. Programs have memory above 2^48
/// only on request.
const LENGTH_BITS: u32 = 28;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

/// A range in use, or a free slot.
#[derive(Debug)]
pub(crate) struct MapSlot {
    /// Start and length in units; 0 if free. It is one word, so that changes are atomic.
    range: AtomicU64,
    is_lost: AtomicBool,
}

/// Slots are never deallocated: a handler may be reading them.
const SLOTS_PER_CHUNK: usize = 256;

struct Chunk {
    slots: [MapSlot; SLOTS_PER_CHUNK],
    next: OnceLock<Box<Chunk>>,
}

impl Chunk {
    const fn new() -> Chunk {
        Chunk {
            slots: [const {
                MapSlot {
                    range: AtomicU64::new(0),
                    is_lost: AtomicBool::new(false),
                }
            }; SLOTS_PER_CHUNK],
            next: OnceLock::new(),
        }
    }
}

static FIRST: Chunk = Chunk::new();

impl MapSlot {
    /// Claims a slot for memory of `bytes` from `start` on, at a page boundary. `None` if it is
    /// more than a terabyte, or above 2^48.
    pub(crate) fn acquire(start: usize, bytes: usize) -> Option<&'static MapSlot> {
        let range = pack(start as u64, bytes as u64)?;
        let mut chunk = &FIRST;
        loop {
            let free = chunk.slots.iter().find(|slot| {
                let claimed =
                    (slot.range).compare_exchange(0, range, Ordering::Release, Ordering::Relaxed);
                claimed.is_ok()
            });
            if free.is_some() {
                return free;
            }
            chunk = chunk.next.get_or_init(|| Box::new(Chunk::new()));
        }
    }

    /// Releases the slot. The memory must not be borrowed.
    pub(crate) fn release(&self) {
        self.is_lost.store(false, Ordering::Relaxed);
        self.range.store(0, Ordering::Release);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub(crate) fn mark_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
    }
}

/// The slot of the memory at an address, and that memory, up to the end of its last page.
pub(crate) fn find(address: usize) -> Option<(&'static MapSlot, Range<usize>)> {
    let mut chunk = Some(&FIRST);
    while let Some(here) = chunk {
        for slot in &here.slots {
            let range = unpack(slot.range.load(Ordering::Acquire));
            if range.contains(&(address as u64)) {
                let end = usize::try_from(range.end).ok()?;
                return Some((slot, usize::try_from(range.start).ok()?..end));
            }
        }
        chunk = here.next.get().map(|next| &**next);
    }
    None
}

fn pack(start: u64, bytes: u64) -> Option<u64> {
    let (first, length) = (start / PAGE_UNIT_BYTES, bytes.div_ceil(PAGE_UNIT_BYTES));
    let fits = first < 1 << (u64::BITS - LENGTH_BITS) && (1..=LENGTH_MASK).contains(&length);
    fits.then_some(first << LENGTH_BITS | length)
}

fn unpack(range: u64) -> Range<u64> {
    let start = (range >> LENGTH_BITS) * PAGE_UNIT_BYTES;
    start..start + (range & LENGTH_MASK) * PAGE_UNIT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_fit_into_a_word() {
        for (start, bytes) in [
            (0x1000, 1),
            (0x7fff_ffff_f000, 4096),
            (0x5555_0000_0000, 1 << 39),
        ] {
            let range = unpack(pack(start, bytes).unwrap());
            assert_eq!(
                range,
                start..start + bytes.next_multiple_of(PAGE_UNIT_BYTES)
            );
        }
        assert_eq!(pack(1 << 48, 1), None);
        assert_eq!(pack(0x1000, 1 << 41), None);
        assert_eq!(pack(0x1000, 0), None);
        assert!(unpack(0).is_empty());
    }

    /// More than a chunk has room for; at addresses that no map of this process has.
    #[test]
    fn a_slot_is_found_until_it_is_released() {
        let base = 0x10_0000_0000_usize;
        let at = |number: usize| base + number * 0x10_0000;
        let claimed: Vec<_> = (0..SLOTS_PER_CHUNK * 2 + 7)
            .map(|number| MapSlot::acquire(at(number), 5000).unwrap())
            .collect();
        for (number, slot) in claimed.iter().enumerate() {
            let (found, range) = find(at(number) + 8191).unwrap();
            assert!(std::ptr::eq(found, *slot));
            assert_eq!(range, at(number)..at(number) + 8192);
            assert!(find(at(number) + 8192).is_none());
        }
        let slot = claimed[SLOTS_PER_CHUNK + 1];
        slot.mark_lost();
        assert!(slot.is_lost());
        slot.release();
        assert!(find(at(SLOTS_PER_CHUNK + 1)).is_none());
        assert!(!slot.is_lost());
        claimed.iter().for_each(|slot| slot.release());
    }
}
