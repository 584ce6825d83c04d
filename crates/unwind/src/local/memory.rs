//! The own memory.

use core::ops::Range;

use unspool_rows::{AscendingAddresses, Memory, RuntimeAddr, Unreadable};

use super::sys::{CapturedRegisters, ReadablePages, StackWindow};

/// The own memory during one walk. The known stack is checked by a comparison; for all other memory
/// the kernel is asked once for each page.
#[derive(Debug)]
pub struct OwnMemory {
    window: StackWindow,
    pages: ReadablePages,
}

impl OwnMemory {
    #[inline]
    pub(super) fn new(captured: &CapturedRegisters, stack: &Range<u64>) -> Self {
        OwnMemory {
            window: StackWindow::new(captured, stack),
            pages: ReadablePages::new(),
        }
    }

    /// No memory is known: the kernel is asked for each page, in modules too.
    #[must_use]
    pub const fn without_stack() -> Self {
        OwnMemory {
            window: StackWindow::EMPTY,
            pages: ReadablePages::without_program_headers(),
        }
    }

    /// The same, except that modules are readable by their program headers.
    #[must_use]
    pub const fn with_modules() -> Self {
        OwnMemory {
            window: StackWindow::EMPTY,
            pages: ReadablePages::new(),
        }
    }

    /// The calling thread's view, without preparation. The kernel is asked page by page for the
    /// extent of its stack, once in the life of the thread, or when it has grown.
    ///
    /// Valid until the function that calls this returns.
    #[inline(always)]
    #[must_use]
    pub fn with_own_stack() -> Self {
        OwnMemory {
            window: StackWindow::here(),
            pages: ReadablePages::new(),
        }
    }
}

impl Memory for OwnMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        if let Ok(eight) = <&mut [u8; 8]>::try_from(&mut *into)
            && let Some(bytes) = self.near(RuntimeAddr(addr.0.wrapping_add(8)))
        {
            *eight = bytes;
            return Ok(());
        }
        let read = self.pages.read(addr.0, into);
        read.map_err(|addr| Unreadable::unmapped(RuntimeAddr(addr)))
    }

    #[inline]
    fn near(&self, end: RuntimeAddr) -> Option<[u8; 8]> {
        self.window.word_below(end.0)
    }

    #[inline]
    fn near_pair(&self, end: RuntimeAddr, below: u64) -> Option<[[u8; 8]; 2]> {
        self.window.pair_below(end.0, below)
    }

    #[inline]
    fn all_near_are(&self, ends: AscendingAddresses<'_>, words: &[u64]) -> bool {
        self.window.all_below_are(ends, words)
    }
}
