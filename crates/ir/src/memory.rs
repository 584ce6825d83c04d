//! The one way in which memory of the thread being unwound is read.

use crate::addr::RuntimeAddr;
use crate::arch::{Endian, Word};

/// Memory of the thread being unwound: its own, a copied stack, another process, a core.
///
/// An implementation never reads outside what it knows to be readable; a read that cannot be
/// answered is an error, so a lie in a table costs a wrong frame and never a crash.
pub trait Memory {
    /// Fills `into` with the bytes at `addr`, all of them or none.
    ///
    /// # Errors
    ///
    /// [`Unreadable`] names the first byte that could not be read, and why.
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable>;

    /// The 8 bytes at `addr`. Most of what a walk reads is words.
    ///
    /// # Errors
    ///
    /// As [`Memory::read`].
    #[inline]
    fn read_eight(&self, addr: RuntimeAddr) -> Result<[u8; 8], Unreadable> {
        let mut bytes = [0; 8];
        self.read(addr, &mut bytes)?;
        Ok(bytes)
    }

    /// The 8 bytes at `addr`, if that takes a comparison or two: in the stack that is walked.
    /// `None` says nothing; ask [`Memory::read_eight`].
    #[inline]
    fn near(&self, addr: RuntimeAddr) -> Option<[u8; 8]> {
        self.read_eight(addr).ok()
    }

    /// Whether at each address there are the 8 bytes of a number in little-endian order, all of
    /// them [near](Memory::near). Allocates nothing; addresses without a number do not count.
    #[inline]
    fn all_near_are(&self, addresses: &[u64], numbers: &[u64]) -> bool {
        let words = addresses.iter().zip(numbers);
        let mut differences = words.map(|(addr, number)| {
            let bytes = self.near(RuntimeAddr(*addr))?;
            Some(u64::from_le_bytes(bytes) ^ number)
        });
        differences.try_fold(0, |all, difference| Some(all | difference?)) == Some(0)
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        (**self).read(addr, into)
    }

    #[inline]
    fn read_eight(&self, addr: RuntimeAddr) -> Result<[u8; 8], Unreadable> {
        (**self).read_eight(addr)
    }

    #[inline]
    fn near(&self, addr: RuntimeAddr) -> Option<[u8; 8]> {
        (**self).near(addr)
    }

    #[inline]
    fn all_near_are(&self, addresses: &[u64], numbers: &[u64]) -> bool {
        (**self).all_near_are(addresses, numbers)
    }
}

/// Why memory could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("memory at {addr} is unreadable: {why}")]
pub struct Unreadable {
    /// The first byte that could not be read.
    pub addr: RuntimeAddr,
    /// The reason.
    pub why: UnreadableReason,
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
            why: UnreadableReason::Unmapped,
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
pub fn read_word<M: Memory + ?Sized>(
    memory: &M,
    addr: RuntimeAddr,
    word: Word,
    endian: Endian,
) -> Result<u64, Unreadable> {
    read_uint(memory, addr, word.bytes(), endian)
}
