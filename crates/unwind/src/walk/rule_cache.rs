//! Rules by code address: a direct map that all walks share.
//!
//! Small and dense, because a walk over many call sites waits for the memory that it is in: four
//! bytes for 16 bytes of code, in blocks for pages of 4 KiB. A page has one block that it can be in,
//! by its address; the block's owner says which page it is, of which module.
//!
//! ```text
//! entry  bits 0-3    of the address
//!        bits 4-21   the rule
//!        bit 22      there is one
//!        bit 23      it stands beside its own slot
//!        bit 24      the address is of an instruction that was interrupted, not one returned to
//!
//! owner  bits 0-30   bits 16-46 of the page's address
//!        bit 31      the module's place is above 63, or the block is nobody's
//!        bits 32-47  the place of the module
//!        bit 48      somebody writes to the block
//!        bits 49-63  how often it has been given away
//! ```
//!
//! How many blocks there are is a power of two from 16 on. Bits of an address from 12 on choose the
//! block, 4 to 11 the slot in it, and the slot beside that is the second choice; so owner and entry say
//! all of an address, and which row it means: that of the byte before a return address, or the
//! instruction's own. What they say holds for as long as that module is at that place. Whoever reads it
//! has to see to that, once in a walk.
//!
//! Return addresses come first: an interrupted instruction takes only slots where none of them is at
//! home. There are more instructions than calls, and whoever takes samples meets most of them once.
//!
//! Nobody waits. Who finds a block being written to goes without: what is not kept is looked up
//! again. A reader looks at the owner before and after the entry: if it is the same, the entry was
//! the owner's. To deceive it, a block would have to change hands a multiple of 32,768 times in
//! between, for which half a million rules are looked up in vain, and be the same page's again. A child
//! that is forked while another thread writes has a block that keeps what it has and takes nothing more.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use unspool_rows::{CodeAddr, RuntimeAddr};

use super::numbered_rules::NumberedRules;
use crate::modules::ModuleSlot;
use crate::rule::{PackedRule, UsualRule};

mod memory;
mod size;
#[cfg(feature = "local")]
mod sys;

pub use memory::RuleCacheMemory;
pub use size::{RuleCacheSize, RuleCacheSizeError};
#[cfg(feature = "local")]
pub use sys::{MappedRuleCache, OutOfMemory};

/// Slots of a block: one for 16 bytes of a page.
const BLOCK: usize = 1 << 8;

/// Rules that walks share, in the memory of a [`RuleCacheMemory`] or, where the size is known at run time
/// only, of `MappedRuleCache` (feature `local`). Any number of threads may walk by them at once.
#[derive(Debug, Clone, Copy)]
pub struct RuleCache<'m> {
    /// As many as a power of two.
    owners: &'m [AtomicU64],
    /// [`BLOCK`] for each owner.
    entries: &'m [AtomicU32],
    /// How often other pages wanted the block.
    wanted: &'m [AtomicU8],
    /// What rules name by number.
    pub(super) numbered: &'m NumberedRules,
}

/// A rule, and the module that it is from.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModuleRule {
    pub(super) rule: PackedRule,
    pub(super) slot: ModuleSlot,
}

/// The word that says whose a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockOwner(u64);

impl BlockOwner {
    const PAGE_SHIFT: u32 = 16;
    const PAGE: u64 = (1 << 31) - 1;
    const NOT_NEAR: u64 = 1 << 31;
    const PLACE_SHIFT: u32 = 32;
    const WRITING: u64 = 1 << 48;
    const TURN: u64 = 1 << 49;

    /// Nobody's, while its next owner moves in.
    fn next(self) -> BlockOwner {
        let turn = (self.0 & !(BlockOwner::TURN - 1)).wrapping_add(BlockOwner::TURN);
        BlockOwner(turn | BlockOwner::WRITING | BlockOwner::NOT_NEAR)
    }

    /// A page of the module at a place; the turn is kept.
    fn with_page(self, address: RuntimeAddr, place: ModuleSlot) -> BlockOwner {
        let turn = self.0 & !(BlockOwner::TURN - 1);
        let high = if place.0 < 64 {
            0
        } else {
            BlockOwner::NOT_NEAR
        };
        let page = address.0 >> BlockOwner::PAGE_SHIFT & BlockOwner::PAGE;
        BlockOwner(turn | u64::from(place.0) << BlockOwner::PLACE_SHIFT | high | page)
    }

    #[inline]
    fn place(self) -> ModuleSlot {
        ModuleSlot((self.0 >> BlockOwner::PLACE_SHIFT & 0xffff) as u16)
    }

    /// Whether it is the page of an address; also whether the module's place is below 64.
    #[inline]
    fn is_near(self, address: RuntimeAddr) -> bool {
        // With the sign, which goes where no address has a bit: one instruction.
        let page = (self.0 << 32).cast_signed() >> 32;
        page.cast_unsigned() == address.0 >> BlockOwner::PAGE_SHIFT
    }

    /// Whether it is the page of an address.
    fn is(self, address: RuntimeAddr) -> bool {
        self.place().0 != 0 && self.0 & BlockOwner::PAGE == address.0 >> BlockOwner::PAGE_SHIFT
    }

    fn is_writing(self) -> bool {
        self.0 & BlockOwner::WRITING != 0
    }
}

impl RuleCache<'_> {
    /// How often a block is wanted before its page has to go.
    const MISSES_TO_EVICT: u8 = 16;

    const ADDRESS: u32 = 0xf;
    const IS_SET: u32 = 1 << 22;
    const BESIDE: u32 = 1 << 23;
    const INTERRUPTED: u32 = 1 << 24;

    /// How much memory they may take.
    #[must_use]
    pub fn size(&self) -> RuleCacheSize {
        RuleCacheSize::with_pages(self.owners.len())
    }

    /// Where the memory is, for who has advice for the kernel.
    #[must_use]
    pub fn memory(&self) -> [Range<*const u8>; 3] {
        [
            addresses(self.entries),
            addresses(self.owners),
            addresses(self.wanted),
        ]
    }

    /// What an entry says but for its address and rule.
    const STANDING: u32 = RuleCache::IS_SET | RuleCache::BESIDE | RuleCache::INTERRUPTED;

    /// The bits of an address that an entry has.
    #[inline]
    fn low(address: RuntimeAddr) -> u32 {
        (address.0 & 0xf) as u32
    }

    /// An entry without a rule.
    fn key(code: CodeAddr) -> u32 {
        let is_interrupted = match code {
            CodeAddr::Return(_) => 0,
            CodeAddr::Instruction(_) => RuleCache::INTERRUPTED,
        };
        RuleCache::low(code.address()) | is_interrupted | RuleCache::IS_SET
    }

    #[inline]
    fn owner(&self, address: RuntimeAddr) -> &AtomicU64 {
        wrapped(self.owners, address.0 >> 12)
    }

    #[inline]
    fn slot(address: RuntimeAddr) -> u64 {
        address.0 >> 4
    }

    #[inline]
    fn entry(&self, slot: u64) -> &AtomicU32 {
        wrapped(self.entries, slot)
    }

    /// The rule of the frame that a call returns to at `address`, if it is in its own slot, of a small
    /// step, and from a module whose place is below 64.
    #[inline]
    pub(super) fn near(&self, address: RuntimeAddr) -> Option<ModuleRule> {
        let word = self.owner(address);
        let owner = BlockOwner(word.load(Ordering::Acquire));
        // Before the entry, so that nobody reads a block that was never written.
        if !owner.is_near(address) {
            return None;
        }
        let entry = self.entry(RuleCache::slot(address)).load(Ordering::Acquire);
        if word.load(Ordering::Relaxed) != owner.0 {
            return None;
        }
        // A small step of the same address, at home: one comparison.
        let is_usual = (entry ^ RuleCache::low(address))
            & (RuleCache::STANDING | PackedRule::KIND | RuleCache::ADDRESS)
            == RuleCache::IS_SET;
        is_usual.then(|| ModuleRule {
            rule: PackedRule::in_entry(entry),
            slot: owner.place(),
        })
    }

    /// The rule of a frame that stands there.
    pub(super) fn get(&self, code: CodeAddr) -> Option<ModuleRule> {
        let (address, key) = (code.address(), RuleCache::key(code));
        let word = self.owner(address);
        let owner = BlockOwner(word.load(Ordering::Acquire));
        if !owner.is(address) {
            return None;
        }
        let slot = RuleCache::slot(address);
        let here = self.entry(slot).load(Ordering::Acquire);
        let beside = self.entry(slot ^ 1).load(Ordering::Acquire);
        if word.load(Ordering::Relaxed) != owner.0 {
            return None;
        }
        let is = |entry: u32, key| (entry ^ key) & (RuleCache::STANDING | RuleCache::ADDRESS) == 0;
        let entry = match () {
            () if is(here, key) => here,
            () if is(beside, key | RuleCache::BESIDE) => beside,
            () => return None,
        };
        Some(ModuleRule {
            rule: PackedRule::in_entry(entry),
            slot: owner.place(),
        })
    }

    /// Keeps a rule, in the place of an older one if need be, unless somebody else is writing.
    pub(super) fn put(&self, code: CodeAddr, ModuleRule { rule, slot: place }: ModuleRule) {
        let address = code.address();
        if address.0 >> 47 != 0 {
            return;
        }
        let word = self.owner(address);
        let before = BlockOwner(word.load(Ordering::Acquire));
        if before.is_writing() {
            return;
        }
        let is_owner = before.is(address) && before.place() == place;
        let while_writing = match is_owner {
            true => BlockOwner(before.0 | BlockOwner::WRITING),
            false if self.must_evict(before, address) => before.next(),
            false => return,
        };
        let taken = word.compare_exchange(
            before.0,
            while_writing.0,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if taken.is_err() {
            return;
        }
        // Nobody sees what follows who does not see that somebody writes.
        fence(Ordering::Release);
        let slot = RuleCache::slot(address);
        let block = BLOCK as u64;
        let first = slot / block * block;
        let emptied = match is_owner {
            true => 0..0,
            // Nobody has owned it, so it is empty; but who writes to new memory before it is read has
            // the kernel provide it once, and not twice.
            false if before.0 == 0 => slot..slot + 1,
            false => first..first + block,
        };
        for slot in emptied {
            self.entry(slot).store(0, Ordering::Relaxed);
        }
        self.write(code, rule);
        let owner = match is_owner {
            true => before,
            false => while_writing.with_page(address, place),
        };
        word.store(owner.0, Ordering::Release);
    }

    /// Whether a block's owner has to make room for the page of an address.
    fn must_evict(&self, owner: BlockOwner, address: RuntimeAddr) -> bool {
        // The page is the same, of another module: the one before is gone.
        if owner.place() == ModuleSlot(0) || owner.is(address) {
            return true;
        }
        let wanted = wrapped(self.wanted, address.0 >> 12).fetch_add(1, Ordering::Relaxed);
        wanted % RuleCache::MISSES_TO_EVICT == RuleCache::MISSES_TO_EVICT - 1
    }

    /// Writes to a block that is this writer's.
    fn write(&self, code: CodeAddr, rule: PackedRule) {
        let entry = rule.bits() | RuleCache::key(code);
        let slot = RuleCache::slot(code.address());
        let (own, beside) = (self.entry(slot), self.entry(slot ^ 1));
        let before = own.load(Ordering::Relaxed);
        let is_other = (before ^ entry) & (RuleCache::INTERRUPTED | RuleCache::ADDRESS) != 0;
        let (stays, goes) = match RuleCache::is_at_home(before) && !RuleCache::is_at_home(entry) {
            true => (before, entry),
            false => (entry, before),
        };
        // Who was here, or came too late, goes next door, unless that is taken by one at home.
        let is_free = || !RuleCache::is_at_home(beside.load(Ordering::Relaxed));
        if is_other && goes & RuleCache::IS_SET != 0 && goes & RuleCache::BESIDE == 0 && is_free() {
            beside.store(goes | RuleCache::BESIDE, Ordering::Relaxed);
        }
        own.store(stays, Ordering::Relaxed);
    }

    /// How to leave the frame; `None` where it runs entry code, or no way has the number.
    pub(super) fn way(&self, rule: PackedRule) -> Option<UsualRule> {
        match (rule, rule.leave()) {
            (_, Some(leave)) => Some(UsualRule::Leave(leave)),
            (PackedRule::OUTERMOST, None) => Some(UsualRule::Outermost),
            (PackedRule::SIGNAL, None) => Some(UsualRule::Signal),
            _ => self.numbered.way(rule.rare_number()?),
        }
    }

    /// Whether an entry is of a return address, in its own slot.
    fn is_at_home(entry: u32) -> bool {
        entry & RuleCache::STANDING == RuleCache::IS_SET
    }
}

/// The element with a number of a slice that is as long as a power of two, and goes round.
#[inline]
fn wrapped<T>(slice: &[T], number: u64) -> &T {
    let mask = slice.len().wrapping_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no more of it is used than a length has"
    )]
    let index = number as usize & mask;
    #[expect(clippy::indexing_slicing, reason = "no more than the mask")]
    &slice[index]
}

/// The addresses of a slice.
fn addresses<T>(slice: &[T]) -> Range<*const u8> {
    let Range { start, end } = slice.as_ptr_range();
    start.cast()..end.cast()
}
