//! Memory for rules, in the program itself.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::{BLOCK, NumberedRows, RuleCache, RuleCacheSize};

/// Memory for rules, for a static: 1 KiB for each of `PAGES` pages of code, by default 1 MiB. The
/// owner words take 1 % more, and rows 32 KiB. Its size must be a [`RuleCacheSize`], or it does not compile.
///
/// ```
/// use unspool_rows::Abi;
/// use unspool_unwind::{RuleCache, RuleCacheMemory, Walker};
///
/// static MEMORY: RuleCacheMemory = RuleCacheMemory::new();
/// static RULES: RuleCache<'static> = MEMORY.rules();
/// static SMALL: RuleCacheMemory<64> = RuleCacheMemory::new();
///
/// let abi = Abi::X86_64;
/// let walker = Walker::new(abi, &RULES);
/// ```
///
/// ```compile_fail,E0080
/// static ODD: unspool_unwind::RuleCacheMemory<100> = unspool_unwind::RuleCacheMemory::new();
/// ```
#[derive(Debug)]
pub struct RuleCacheMemory<const PAGES: usize = { RuleCacheSize::DEFAULT.pages() }> {
    owners: [AtomicU64; PAGES],
    entries: [[AtomicU32; BLOCK]; PAGES],
    wanted: [AtomicU8; PAGES],
    rows: NumberedRows,
}

impl<const PAGES: usize> RuleCacheMemory<PAGES> {
    /// Memory without rules.
    #[must_use]
    pub const fn new() -> Self {
        const {
            assert!(RuleCacheSize::from_bytes(PAGES << 10).is_ok());
        };
        RuleCacheMemory {
            owners: [const { AtomicU64::new(0) }; PAGES],
            entries: [const { [const { AtomicU32::new(0) }; BLOCK] }; PAGES],
            wanted: [const { AtomicU8::new(0) }; PAGES],
            rows: NumberedRows::new(),
        }
    }

    /// The rules in it.
    #[must_use]
    pub const fn rules(&self) -> RuleCache<'_> {
        RuleCache {
            owners: &self.owners,
            entries: self.entries.as_flattened(),
            wanted: &self.wanted,
            rows: &self.rows,
        }
    }
}

impl<const PAGES: usize> Default for RuleCacheMemory<PAGES> {
    fn default() -> Self {
        RuleCacheMemory::new()
    }
}
