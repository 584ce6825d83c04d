//! The one way to read memory of the thread being unwound.

use crate::addr::RuntimeAddr;
use crate::arch::{AddressSize, Endian};
use crate::ascending_addresses::AscendingAddresses;

/// Memory of the thread being unwound: its own, a copied stack, another process, a core.
///
/// An implementation never reads outside the memory that it knows to be readable. A read that it
/// cannot serve is an error, so a wrong table can cost a wrong frame but never a crash.
pub trait Memory {
    /// Fills `into` with the bytes at `addr`, all of them or none.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] names the first byte that could not be read, and why.
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable>;

    /// The 8 bytes that end at `end`, if a comparison or two find them: in the stack being walked.
    /// `None` has no meaning: use [`Memory::read`].
    ///
    /// A return address ends at the CFA, and most other reads of a walk end slightly below.
    #[inline]
    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        let mut bytes = [0; 8];
        self.read(RuntimeAddr(end.0.wrapping_sub(8)), &mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// Two words that are [near](Memory::near): one ends at `end`, the other `below` bytes lower,
    /// fewer than 128.
    #[inline]
    fn near_pair(&self, end: RuntimeAddr, below: u64) -> Option<[[u8; 8]; 2]> {
        let lower = RuntimeAddr(end.0.wrapping_sub(below));
        Some([self.near(end)?, self.near(lower)?])
    }

    /// Whether the words that end at these addresses equal `words`, in little-endian order, and are
    /// [near](Memory::near). An address without a word in `words` does not count.
    #[inline]
    fn all_near_are(&self, ends: AscendingAddresses<'_>, words: &[u64]) -> bool {
        let mut pairs = ends.get().iter().zip(words);
        pairs.all(|(end, word)| self.near(RuntimeAddr(*end)) == Some(word.to_le_bytes()))
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(addr, into)
    }

    #[inline]
    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        (**self).near(end)
    }

    #[inline]
    fn near_pair(&self, end: RuntimeAddr, below: u64) -> Option<[[u8; 8]; 2]> {
        (**self).near_pair(end, below)
    }

    #[inline]
    fn all_near_are(&self, ends: AscendingAddresses<'_>, words: &[u64]) -> bool {
        (**self).all_near_are(ends, words)
    }
}

/// Why memory could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory at {addr} is unreadable: {reason}")]
pub struct Unreadable {
    /// The first byte that could not be read.
    pub addr: RuntimeAddr,
    /// The reason.
    pub reason: UnreadableReason,
}

/// The reasons for which a [`Memory`] refuses a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnreadableReason {
    /// Nothing is mapped there.
    #[error("not mapped")]
    Unmapped,
    /// The range runs past the end of the address space.
    #[error("runs past the end of the address space")]
    Wraps,
    /// The address is mapped, but its bytes were not recorded: a core file that leaves the
    /// mapping out, or a stack copy that is too short.
    #[error("mapped, but not copied")]
    NotRecorded,
    /// The recording ends before these bytes.
    #[error("the file is truncated")]
    Truncated,
    /// The operating system refused.
    #[error("refused by the system")]
    Refused,
}

impl Unreadable {
    /// Nothing is mapped at `addr`.
    #[must_use]
    pub fn unmapped(addr: RuntimeAddr) -> Self {
        Unreadable {
            addr,
            reason: UnreadableReason::Unmapped,
        }
    }
}

/// Reads an unsigned integer of `size` bytes (1 to 8), zero-extended.
///
/// # Errors
///
/// The memory's own [`Unreadable`]; a `size` above 8 reads 8.
pub fn read_uint<M: Memory + ?Sized>(
    memory: &M,
    addr: RuntimeAddr,
    size: u8,
    endian: Endian,
) -> Result<u64, Unreadable> {
    let mut bytes = [0_u8; 8];
    let size = usize::from(size).min(bytes.len());
    let (used, _) = bytes.split_at_mut(size);
    memory.read(addr, used)?;
    Ok(match endian {
        Endian::Little => u64::from_le_bytes(bytes),
        Endian::Big => u64::from_be_bytes(bytes) >> (64 - 8 * size.max(1)),
    })
}

/// Reads one address-sized word, zero-extended.
///
/// # Errors
///
/// The memory's own [`Unreadable`].
pub(crate) fn read_word<M: Memory + ?Sized>(
    memory: &M,
    addr: RuntimeAddr,
    address_size: AddressSize,
    endian: Endian,
) -> Result<u64, Unreadable> {
    read_uint(memory, addr, address_size.bytes(), endian)
}
