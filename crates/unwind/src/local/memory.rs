//! The own memory.

use unspool_ir::{Memory, RuntimeAddr, Unreadable};

use super::sys::{Captured, Pages, Window};

/// The own memory during one walk: the known stack, where a comparison decides, and all else,
/// where the kernel is asked once for each page.
#[derive(Debug)]
pub struct OwnMemory {
    window: Window,
    pages: Pages,
}

impl OwnMemory {
    #[inline]
    pub(super) fn new(captured: &Captured, stack_end: u64) -> Self {
        OwnMemory {
            window: Window::new(captured, stack_end),
            pages: Pages::new(),
        }
    }

    #[cold]
    fn elsewhere(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let read = self.pages.read(addr.0, into);
        read.map_err(|addr| Unreadable::unmapped(RuntimeAddr(addr)))
    }
}

impl Memory for OwnMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        match <&mut [u8; 8]>::try_from(&mut *into) {
            Ok(eight) => {
                *eight = self.read_eight(addr)?;
                Ok(())
            }
            Err(_) => self.elsewhere(addr, into),
        }
    }

    #[inline]
    fn read_eight(&self, addr: RuntimeAddr) -> Result<[u8; 8], Unreadable> {
        if let Some(bytes) = self.window.read_eight(addr.0) {
            return Ok(bytes);
        }
        let mut bytes = [0; 8];
        self.elsewhere(addr, &mut bytes)?;
        Ok(bytes)
    }

    #[inline]
    fn near(&self, addr: RuntimeAddr) -> Option<[u8; 8]> {
        self.window.read_eight(addr.0)
    }

    #[inline]
    fn all_near_are(&self, addresses: &[u64], numbers: &[u64]) -> bool {
        self.window.all_are(addresses, numbers)
    }
}
