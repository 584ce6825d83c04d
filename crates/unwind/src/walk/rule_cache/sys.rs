//! Memory for rules, mapped.
#![expect(unsafe_code, reason = "mappings")]

use core::mem;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::{BLOCK, NumberedRows, RuleCache, RuleCacheSize};

/// A mapping of memory for rules, with a size known at run time. The kernel provides only pages
/// that are used.
#[derive(Debug)]
pub struct MappedRuleCache {
    head: NonNull<MappingHead>,
    length: usize,
}

/// The beginning of the mapping. Entries, owners, and miss counts follow.
#[derive(Debug)]
#[repr(C, align(4096))]
struct MappingHead {
    /// `'static` means as long as it is mapped.
    rules: RuleCache<'static>,
    rows: NumberedRows,
}

// SAFETY: a mapping is not bound to a thread, and rules can be shared.
unsafe impl Send for MappedRuleCache {}
// SAFETY: as above.
unsafe impl Sync for MappedRuleCache {}

/// The kernel has no memory for rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel has no memory for rules")]
pub struct OutOfMemory;

impl MappedRuleCache {
    /// Maps memory without rules.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`]
    pub fn new(size: RuleCacheSize) -> Result<Self, OutOfMemory> {
        let pages = size.pages();
        let block = BLOCK * mem::size_of::<AtomicU32>() + mem::size_of::<AtomicU64>() + 1;
        let length = mem::size_of::<MappingHead>() + pages * block;
        let at = map(length)?;
        let head = at.cast::<MappingHead>();
        // SAFETY: the mapping begins with it.
        let rows = unsafe { &raw const (*head.as_ptr()).rows };
        // SAFETY: zeros are `NumberedRows`, which are numbers.
        let rows = unsafe { &*rows };
        // SAFETY: the mapping is longer.
        let mut rest = unsafe { at.add(mem::size_of::<MappingHead>()) };
        // Each part has a size that is a multiple of the next one's alignment.
        // SAFETY: the length counts them, and zeros are numbers.
        let entries = unsafe { take::<AtomicU32>(&mut rest, pages * BLOCK) };
        // SAFETY: as above.
        let owners = unsafe { take::<AtomicU64>(&mut rest, pages) };
        // SAFETY: as above.
        let wanted = unsafe { take::<AtomicU8>(&mut rest, pages) };
        let rules = RuleCache {
            owners,
            entries,
            wanted,
            rows,
        };
        // SAFETY: the mapping begins with it.
        let place = unsafe { &raw mut (*head.as_ptr()).rules };
        // SAFETY: no one reads it yet.
        unsafe { place.write(rules) };
        Ok(MappedRuleCache { head, length })
    }

    /// The rules in it.
    #[must_use]
    pub fn rules(&self) -> &RuleCache<'_> {
        // SAFETY: made by `new`, and mapped for as long as `self` lives.
        unsafe { &(*self.head.as_ptr()).rules }
    }

    /// The rules, forever: the memory is never unmapped.
    #[must_use]
    pub fn keep(self) -> &'static RuleCache<'static> {
        let kept = mem::ManuallyDrop::new(self);
        // SAFETY: made by `new`, and never unmapped.
        unsafe { &(*kept.head.as_ptr()).rules }
    }
}

impl Drop for MappedRuleCache {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and there are no references left.
        unsafe { libc::munmap(self.head.as_ptr().cast(), self.length) };
    }
}

/// New memory of zeros, in its own pages.
fn map(length: usize) -> Result<NonNull<u8>, OutOfMemory> {
    // SAFETY: a new mapping, at any address.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    match NonNull::new(at.cast()) {
        Some(start) if at != libc::MAP_FAILED => Ok(start),
        _ => Err(OutOfMemory),
    }
}

/// The next part of some memory, which begins where the one before ends.
///
/// # Safety
///
/// `count` elements must be mapped at `rest`, aligned, for as long as the result lives; their bytes
/// must be valid values.
unsafe fn take<'m, T>(rest: &mut NonNull<u8>, count: usize) -> &'m [T] {
    let part = rest.cast::<T>();
    // SAFETY: as the caller promises.
    *rest = unsafe { part.add(count) }.cast();
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(part.as_ptr(), count) }
}
