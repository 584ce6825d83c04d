//! Memory for rules, mapped.
#![expect(unsafe_code, reason = "mappings")]

use core::mem;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::super::numbered_rules::NumberedRules;
use super::{BLOCK, RuleCache, RuleCacheSize};

/// Memory for rules, of its own, and of a size that is known at run time. The kernel provides what is used
/// of it.
#[derive(Debug)]
pub struct MappedRuleCache {
    head: NonNull<MappingHead>,
    length: usize,
}

/// What the mapping begins with. Entries, owners, and how often they are wanted, follow.
#[derive(Debug)]
#[repr(C, align(4096))]
struct MappingHead {
    /// `'static` stands for as long as it is mapped.
    rules: RuleCache<'static>,
    numbered: NumberedRules,
}

// SAFETY: a mapping is no thread's own, and rules can be shared.
unsafe impl Send for MappedRuleCache {}
// SAFETY: as above.
unsafe impl Sync for MappedRuleCache {}

/// The kernel has no memory for rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel has no memory for rules")]
pub struct OutOfMemory;

impl MappedRuleCache {
    /// Maps memory, which knows no rule.
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
        let rare = unsafe { &raw const (*head.as_ptr()).numbered };
        // SAFETY: zeros are a `NumberedRules`, which is numbers.
        let rare = unsafe { &*rare };
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
            numbered: rare,
        };
        // SAFETY: the mapping begins with it.
        let place = unsafe { &raw mut (*head.as_ptr()).rules };
        // SAFETY: nobody reads it yet.
        unsafe { place.write(rules) };
        Ok(MappedRuleCache { head, length })
    }

    /// The rules that are in it.
    #[must_use]
    pub fn rules(&self) -> &RuleCache<'_> {
        // SAFETY: made by `new`, and mapped for as long as `self` lives.
        unsafe { &(*self.head.as_ptr()).rules }
    }

    /// The rules, for good: the memory is never given back.
    #[must_use]
    pub fn keep(self) -> &'static RuleCache<'static> {
        let kept = mem::ManuallyDrop::new(self);
        // SAFETY: made by `new`, and never unmapped.
        unsafe { &(*kept.head.as_ptr()).rules }
    }
}

impl Drop for MappedRuleCache {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and nobody has a reference any more.
        unsafe { libc::munmap(self.head.as_ptr().cast(), self.length) };
    }
}

/// New memory of zeros, in pages of its own.
fn map(length: usize) -> Result<NonNull<u8>, OutOfMemory> {
    // SAFETY: a new mapping, at no particular place.
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
/// So many must be there, aligned, for as long as the result; their bytes must be values.
unsafe fn take<'m, T>(rest: &mut NonNull<u8>, count: usize) -> &'m [T] {
    let part = rest.cast::<T>();
    // SAFETY: as the caller promises.
    *rest = unsafe { part.add(count) }.cast();
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(part.as_ptr(), count) }
}
