//! Memory whose end is not readable.
#![expect(unsafe_code, reason = "mmap")]

use std::ptr;

/// A range of memory, and more than a packed row's largest frame behind it that is not readable. It
/// is never freed.
pub(crate) struct StackMemory {
    start: u64,
    size: usize,
}

impl StackMemory {
    pub(crate) fn new(size: usize) -> StackMemory {
        const GUARD: usize = 1 << 20;
        let (any, flags) = (ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let start = unsafe { libc::mmap(any, size + GUARD, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the first part of the new mapping, which nobody knows.
        let result = unsafe { libc::mprotect(start, size, protection) };
        assert_eq!(result, 0);
        StackMemory {
            start: start.expose_provenance() as u64,
            size,
        }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.size as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let start = ptr::with_exposed_provenance(self.start as usize);
        // SAFETY: mapped and initialized; writes need a mutable borrow.
        unsafe { std::slice::from_raw_parts(start, self.size) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let start = ptr::with_exposed_provenance_mut(self.start as usize);
        // SAFETY: mapped and initialized; borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start, self.size) }
    }
}
