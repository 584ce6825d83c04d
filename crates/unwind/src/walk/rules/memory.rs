//! Memory for rules, in the program itself.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use super::super::rare::Rare;
use super::{BLOCK, Rules, RulesSize};

/// Memory for rules, for a static: 1 KiB for each of so many pages of code, 1 MiB if nothing else is
/// said; and 1 % more. Of a [`RulesSize`], or it does not compile.
///
/// ```
/// use unspool_ir::{Abi, Arch, Endian};
/// use unspool_unwind::{Rules, RulesMemory, Walker};
///
/// static MEMORY: RulesMemory = RulesMemory::new();
/// static RULES: Rules<'static> = MEMORY.rules();
/// static SMALL: RulesMemory<64> = RulesMemory::new();
///
/// let abi = Abi { arch: Arch::X86_64, endian: Endian::Little };
/// let walker = Walker::new(abi, &RULES);
/// ```
///
/// ```compile_fail,E0080
/// static ODD: unspool_unwind::RulesMemory<100> = unspool_unwind::RulesMemory::new();
/// ```
#[derive(Debug)]
pub struct RulesMemory<const PAGES: usize = { RulesSize::DEFAULT.pages() }> {
    owners: [AtomicU64; PAGES],
    entries: [[AtomicU32; BLOCK]; PAGES],
    wanted: [AtomicU8; PAGES],
    rare: Rare,
}

impl<const PAGES: usize> RulesMemory<PAGES> {
    /// Knows no rule.
    #[must_use]
    pub const fn new() -> Self {
        const {
            assert!(RulesSize::from_bytes(PAGES << 10).is_ok());
        };
        RulesMemory {
            owners: [const { AtomicU64::new(0) }; PAGES],
            entries: [const { [const { AtomicU32::new(0) }; BLOCK] }; PAGES],
            wanted: [const { AtomicU8::new(0) }; PAGES],
            rare: Rare::new(),
        }
    }

    /// The rules that are in it.
    #[must_use]
    pub const fn rules(&self) -> Rules<'_> {
        Rules {
            owners: &self.owners,
            entries: self.entries.as_flattened(),
            wanted: &self.wanted,
            rare: &self.rare,
        }
    }
}

impl<const PAGES: usize> Default for RulesMemory<PAGES> {
    fn default() -> Self {
        RulesMemory::new()
    }
}
