//! The own memory.

use core::ops::Range;

use unspool_rows::{AscendingAddresses, Memory, RuntimeAddr, Unreadable};

use super::sys::{CapturedRegisters, ReadablePages, StackWindow};

/// The own memory during one walk: the known stack, where a comparison decides, and all else,
/// where the kernel is asked once for each page.
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

    /// All memory is unknown: for each page the kernel is asked, in modules, too.
    #[must_use]
    pub const fn without_stack() -> Self {
        OwnMemory {
            window: StackWindow::EMPTY,
            pages: ReadablePages::without_program_headers(),
        }
    }

    /// The same but for modules, of which program headers say what can be read.
    #[must_use]
    pub const fn with_modules() -> Self {
        OwnMemory {
            window: StackWindow::EMPTY,
            pages: ReadablePages::new(),
        }
    }

    /// As the calling thread may read it, with nothing prepared: how far its stack reaches the kernel
    /// is asked page by page once in the life of the thread, or when it has grown.
    ///
    /// While the function that it is made in has not returned.
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
