//! A target seen through its client's callbacks.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, RuntimeAddr, Unreadable};

use crate::abi::{self, Error, ProcInfo};
use crate::dyn_info_list;
use crate::space::AddressSpace;
use crate::sys::callbacks;

/// An address space, and the client's argument for every call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client<'s> {
    /// The address space.
    pub(crate) space: &'s AddressSpace,
    /// The argument.
    pub(crate) argument: *mut c_void,
}

/// The registers of the innermost frame that every step needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopRegisters {
    /// The code address.
    pub(crate) ip: u64,
    /// The stack pointer.
    pub(crate) stack_pointer: u64,
}

impl<'s> Client<'s> {
    /// The innermost frame.
    ///
    /// # Errors
    ///
    /// The client's own, or [`Error::INVALID`] without a callback.
    pub(crate) fn top(&self) -> Result<TopRegisters, Error> {
        Ok(TopRegisters {
            ip: self.read_register(abi::RIP_NUMBER)?,
            stack_pointer: self.read_register(abi::RSP_NUMBER)?,
        })
    }

    /// The word at an address.
    ///
    /// # Errors
    ///
    /// The client's own, or [`Error::INVALID`] without a callback.
    #[inline(always)]
    pub(crate) fn read_word(&self, addr: u64) -> Result<u64, Error> {
        // Two separate returns instead of a common one: fewer instructions in a step.
        Ok(if addr.is_multiple_of(8) {
            callbacks::read_memory(self, addr)?
        } else {
            self.read_unaligned(addr)?
        })
    }

    /// From the two aligned words that contain the word: the interface only reads aligned words.
    #[cold]
    #[inline(never)]
    fn read_unaligned(&self, addr: u64) -> Result<u64, Error> {
        let (first, shift) = (addr & !7, addr % 8 * 8);
        let low = callbacks::read_memory(self, first)?;
        let high = callbacks::read_memory(self, first.wrapping_add(8))?;
        Ok(low >> shift | high << (64 - shift))
    }

    /// Writes an aligned word.
    ///
    /// # Errors
    ///
    /// The client's own; [`Error::INVALID`] for another address, or without a callback.
    pub(crate) fn write_word(&self, addr: u64, value: u64) -> Result<(), Error> {
        if addr.is_multiple_of(8) {
            callbacks::write_memory(self, addr, value)
        } else {
            Err(Error::INVALID)
        }
    }

    /// A register of the innermost frame.
    ///
    /// # Errors
    ///
    /// The client's own, or [`Error::INVALID`] without a callback.
    pub(crate) fn read_register(&self, register: u16) -> Result<u64, Error> {
        callbacks::read_register(self, register)
    }

    /// Writes a register of the innermost frame.
    ///
    /// # Errors
    ///
    /// The client's own, or [`Error::INVALID`] without a callback.
    pub(crate) fn write_register(&self, register: u16, value: u64) -> Result<(), Error> {
        callbacks::write_register(self, register, value)
    }

    /// The procedure at an address, with the data that [`crate::remote_cfi`] needs to read its
    /// entry.
    ///
    /// # Errors
    ///
    /// The client's own, or [`Error::INVALID`] without a callback.
    pub(crate) fn find_proc_info(&self, ip: u64) -> Result<ProcInfo, Error> {
        self.find(ip, 1)
    }

    /// The procedure at an address, without unwind information.
    ///
    /// # Errors
    ///
    /// As [`Client::find_proc_info`].
    pub(crate) fn find_procedure(&self, ip: u64) -> Result<ProcInfo, Error> {
        self.find(ip, 0)
    }

    /// Asks the client, then searches the target's registered entries.
    fn find(&self, ip: u64, need_unwind_info: c_int) -> Result<ProcInfo, Error> {
        match callbacks::find_proc_info(self, ip, need_unwind_info) {
            Err(Error::NO_INFO) => {
                let list = callbacks::registered(self).map_err(|_| Error::NO_INFO)?;
                dyn_info_list::find(&self.memory(), list, ip).map_err(|_| Error::NO_INFO)
            }
            found => found,
        }
    }

    /// The target's memory.
    #[must_use]
    pub(crate) fn memory(self) -> AlignedMemory<impl Fn(u64) -> Result<u64, Error>> {
        AlignedMemory::new(move |addr| callbacks::read_memory(&self, addr))
    }
}

/// Memory read by a function, in aligned words. The last word is cached, so that a read that
/// continues the last one does not read it again.
#[derive(Debug)]
pub struct AlignedMemory<F> {
    read: F,
    last: Cell<Option<(u64, u64)>>,
}

impl<F: Fn(u64) -> Result<u64, Error>> AlignedMemory<F> {
    /// Memory that `read` reads, by address.
    pub fn new(read: F) -> Self {
        AlignedMemory {
            read,
            last: Cell::new(None),
        }
    }

    fn word(&self, addr: u64) -> Result<u64, Unreadable> {
        if let Some((at, word)) = self.last.get()
            && at == addr
        {
            return Ok(word);
        }
        let word = (self.read)(addr).map_err(|_| Unreadable {
            addr: RuntimeAddr(addr),
            reason: UnreadableReason::Refused,
        })?;
        self.last.set(Some((addr, word)));
        Ok(word)
    }
}

impl<F: Fn(u64) -> Result<u64, Error>> Memory for AlignedMemory<F> {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let mut addr = addr.0;
        let mut rest = into;
        while !rest.is_empty() {
            let aligned = addr & !7;
            let bytes = self.word(aligned)?.to_le_bytes();
            let skipped = usize::try_from(addr - aligned).unwrap_or(0);
            let available = bytes.get(skipped..).unwrap_or_default();
            let len = available.len().min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(available.get(..len).unwrap_or_default());
            rest = later;
            addr = aligned.wrapping_add(8);
        }
        Ok(())
    }
}
