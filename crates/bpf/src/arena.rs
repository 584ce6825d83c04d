//! Memory of up to 4 GiB that programs and this process share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::MapError;
use crate::map::MapType;
use crate::sys::{self, MapDef, MapMemory};

/// `BPF_F_MMAPABLE`
const MMAPABLE: u32 = 1 << 10;

/// Memory that programs and this process share (`BPF_MAP_TYPE_ARENA`, since Linux 6.9).
///
/// A page takes no memory until this process touches it. Before that, a program reads 0 from it,
/// and its writes are lost without an error. Each such access is a page fault, hundreds of times
/// slower than a normal access.
///
/// Programs index an arena without proving bounds to the verifier. An address outside behaves as an
/// untouched page.
///
/// Offsets are in bytes from the arena's start.
#[derive(Debug)]
pub struct Arena {
    fd: OwnedFd,
    memory: MapMemory,
}

impl Arena {
    /// Creates an arena of at least `bytes` bytes, rounded up to pages.
    ///
    /// # Errors
    ///
    /// The kernel refuses the map. The message has the remedy.
    pub fn new(bytes: usize) -> Result<Arena, MapError> {
        let pages = bytes.div_ceil(sys::page_size());
        let entries = u32::try_from(pages).unwrap_or(u32::MAX);
        let def = MapType::Arena.def(0, 0, entries);
        let flags = MMAPABLE;
        let fd = sys::map_create(MapDef { flags, ..def }).map_err(MapType::Arena.to_map_error())?;
        let size = pages.saturating_mul(sys::page_size());
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let memory = MapMemory::new(fd.as_fd(), 0, size, protection);
        let memory = memory.map_err(MapType::Arena.to_map_error())?;
        Ok(Arena { fd, memory })
    }

    /// The size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// The address in this process. [`crate::Assembler::ld_map_value`] loads it in programs.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The 8-byte number at an offset. `None` if the offset is outside, or not a multiple of 8.
    ///
    /// To publish earlier writes, store with [`Ordering::Release`].
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        self.memory.atomic_u64(offset)
    }

    /// Copies bytes to an offset that is a multiple of 8, and pads the last word with 0. Returns
    /// `None`, and writes nothing, if the bytes do not fit, or the kernel has no memory for them.
    ///
    /// A concurrent reader sees each word either before or after its write.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        let words = bytes.chunks(8);
        let end = words.len().checked_mul(8)?.checked_add(offset)?;
        if end > self.size() || !offset.is_multiple_of(8) {
            return None;
        }
        // A fault for which there is no memory would end this process.
        self.memory.populate(offset, end).ok()?;
        for (offset, bytes) in (offset..).step_by(8).zip(words) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(bytes) {
                *to = *from;
            }
            self.word(offset)?
                .store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        Some(())
    }

    /// Copies `size` bytes from an offset that is a multiple of 8. `None` if any are outside.
    #[must_use]
    pub fn read(&self, offset: usize, size: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(size)?;
        let words = (offset..end).step_by(8);
        let bytes =
            words.map(|offset| Some(self.word(offset)?.load(Ordering::Relaxed).to_le_bytes()));
        let mut bytes: Vec<u8> = bytes.collect::<Option<Vec<_>>>()?.into_flattened();
        bytes.truncate(size);
        Some(bytes)
    }
}

impl AsFd for Arena {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
