//! Rules by code address: a direct map that all walks share.
//!
//! Small and dense, because a walk over many call sites waits for this memory: four bytes for 16
//! bytes of code, in blocks for pages of 4 KiB. A page can be in only one block, selected by its
//! address. The block's owner word holds the page and its module.
//!
//! ```text
//! entry  bits 0-3    bits 0-3 of the address
//!        bits 4-20   the rule
//!        bit 22      there is a rule
//!        bit 23      it is in the neighbouring slot
//!        bit 24      the address is an interrupted instruction, not a return address
//!
//! owner  bits 0-30   bits 17-47 of the page's address
//!        bit 31      the module's slot is above 63, or the block has no owner
//!        bits 32-47  the module's slot
//!        bit 48      a thread is writing to the block
//!        bits 49-63  the turn: how often the owner has changed
//! ```
//!
//! The number of blocks is a power of two from 64 on. Bits of an address from 12 on select the
//! block, bits 4 to 11 the slot in it, and the neighbouring slot is the second choice. So owner and
//! entry give the whole address, and its row: that of the byte before a return address, or the
//! instruction's own. They are valid while that module is in that slot, which a reader must check,
//! once in a walk.
//!
//! Return addresses come first: an interrupted instruction takes only slots without a return
//! address in its own slot. There are more instructions than calls, and a sampler reaches most of
//! them once.
//!
//! No thread waits. If a block is being written to, it is not used: a rule that is not kept is
//! looked up again. A reader checks the owner before and after the entry: if it is the same, the
//! entry was the owner's. To deceive it, a block would have to change owners a multiple of 32,768
//! times in between, and return to the same page. That takes half a million failed look-ups of
//! rules. A child that is forked while another thread writes has a block that keeps its content and
//! accepts nothing more.

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use unspool_rows::{CodeAddr, PackedRow, RuntimeAddr};

use super::entry_rule::EntryRule;
use crate::modules::ModuleSlot;
use crate::row_numbers::RowNumbers;

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

/// Rules that walks share, in the memory of a [`RuleCacheMemory`] or, if the size is known only at
/// run time, of `MappedRuleCache` (feature `local`). Any number of threads may use them at once.
#[derive(Debug, Clone, Copy)]
pub struct RuleCache<'m> {
    /// Their number is a power of two.
    owners: &'m [AtomicU64],
    /// [`BLOCK`] for each owner.
    entries: &'m [AtomicU32],
    /// How often other pages wanted the block.
    wanted: &'m [AtomicU8],
    /// The rows of rules that are no small steps.
    rows: &'m NumberedRows,
}

/// The rows that entries have by number: no module is known to need a thousand.
type NumberedRows = RowNumbers<4096>;

/// A rule, and its module.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModuleRule {
    pub(super) rule: EntryRule,
    pub(super) slot: ModuleSlot,
}

/// The word with a block's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockOwner(u64);

impl BlockOwner {
    const PAGE_SHIFT: u32 = 17;
    const PAGE_MASK: u64 = (1 << 31) - 1;
    /// Set if there is no owner, or its module slot is not below 64: [`BlockOwner::is_near`] is
    /// never true then.
    const NOT_NEAR: u64 = 1 << 31;
    const PLACE_SHIFT: u32 = 32;
    /// Set while the next owner moves in.
    const WRITING: u64 = 1 << 48;
    /// The lowest bit of the turn, which counts owners.
    const TURN: u64 = 1 << 49;

    /// No owner, while the next one moves in.
    fn next(self) -> BlockOwner {
        let turn = (self.0 & !(BlockOwner::TURN - 1)).wrapping_add(BlockOwner::TURN);
        BlockOwner(turn | BlockOwner::WRITING | BlockOwner::NOT_NEAR)
    }

    /// A page of the module in a slot; the turn is kept.
    fn with_page(self, address: RuntimeAddr, slot: ModuleSlot) -> BlockOwner {
        let turn = self.0 & !(BlockOwner::TURN - 1);
        let high = if slot.0 < 64 { 0 } else { BlockOwner::NOT_NEAR };
        let page = address.0 >> BlockOwner::PAGE_SHIFT & BlockOwner::PAGE_MASK;
        BlockOwner(turn | u64::from(slot.0) << BlockOwner::PLACE_SHIFT | high | page)
    }

    #[inline]
    fn place(self) -> ModuleSlot {
        ModuleSlot((self.0 >> BlockOwner::PLACE_SHIFT & 0xffff) as u16)
    }

    /// Whether it is the page of an address, and its module slot is below 64.
    #[inline]
    fn is_near(self, address: RuntimeAddr) -> bool {
        // With the sign, in the place of a bit that no address has: one instruction.
        let page = (self.0 << 32).cast_signed() >> 32;
        page.cast_unsigned() == address.0 >> BlockOwner::PAGE_SHIFT
    }

    /// Whether it is the page of an address.
    fn is(self, address: RuntimeAddr) -> bool {
        self.place().0 != 0 && self.0 & BlockOwner::PAGE_MASK == address.0 >> BlockOwner::PAGE_SHIFT
    }

    fn is_writing(self) -> bool {
        self.0 & BlockOwner::WRITING != 0
    }
}

impl RuleCache<'_> {
    /// The number of misses of other pages that evict a block's page.
    const MISSES_TO_EVICT: u8 = 16;

    /// No code of a process is above.
    const ADDRESS_BITS: u32 = 48;
    const ADDRESS: u32 = 0xf;
    const IS_SET: u32 = 1 << 22;
    const IN_NEIGHBOUR_SLOT: u32 = 1 << 23;
    const INTERRUPTED: u32 = 1 << 24;

    /// The size of their memory.
    #[must_use]
    pub fn size(&self) -> RuleCacheSize {
        RuleCacheSize::with_pages(self.owners.len())
    }

    /// The addresses of their memory, for advice to the kernel.
    #[must_use]
    pub fn memory(&self) -> [Range<*const u8>; 3] {
        [
            addresses(self.entries),
            addresses(self.owners),
            addresses(self.wanted),
        ]
    }

    /// The flags of an entry, without its address and rule.
    const STANDING: u32 = RuleCache::IS_SET | RuleCache::IN_NEIGHBOUR_SLOT | RuleCache::INTERRUPTED;

    /// The bits of an address that an entry stores.
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

    /// The rule of a frame with the return address `address`, if it is in its own slot, a small
    /// step, and from a module with a slot below 64.
    #[inline]
    pub(super) fn near(&self, address: RuntimeAddr) -> Option<ModuleRule> {
        let word = self.owner(address);
        let owner = BlockOwner(word.load(Ordering::Acquire));
        // Before the entry, so that a block that was never written is not read.
        if !owner.is_near(address) {
            return None;
        }
        let entry = self.entry(RuleCache::slot(address)).load(Ordering::Acquire);
        if word.load(Ordering::Relaxed) != owner.0 {
            return None;
        }
        // A small step of the same address, in its own slot: one comparison.
        let is_usual = (entry ^ RuleCache::low(address))
            & (RuleCache::STANDING | EntryRule::NUMBERED | RuleCache::ADDRESS)
            == RuleCache::IS_SET;
        is_usual.then(|| ModuleRule {
            rule: EntryRule::in_entry(entry),
            slot: owner.place(),
        })
    }

    /// The rule of a frame at a code address.
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
            () if is(beside, key | RuleCache::IN_NEIGHBOUR_SLOT) => beside,
            () => return None,
        };
        Some(ModuleRule {
            rule: EntryRule::in_entry(entry),
            slot: owner.place(),
        })
    }

    /// Caches a rule, replacing an older one if necessary, unless another thread is writing.
    pub(super) fn put(&self, code: CodeAddr, ModuleRule { rule, slot: place }: ModuleRule) {
        let address = code.address();
        if address.0 >> RuleCache::ADDRESS_BITS != 0 {
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
        // A thread that does not see this mark does not see the stores below.
        fence(Ordering::Release);
        let slot = RuleCache::slot(address);
        let block = BLOCK as u64;
        let first = slot / block * block;
        let emptied = match is_owner {
            true => 0..0,
            // It was never owned, so it is empty. Writing to new memory before it is read makes the
            // kernel provide it once, and not twice.
            false if before.0 == 0 => slot..slot + 1,
            false => first..first + block,
        };
        for slot in emptied {
            self.entry(slot).store(0, Ordering::Relaxed);
        }
        self.write(code, rule);
        let owner = if is_owner {
            before
        } else {
            while_writing.with_page(address, place)
        };
        word.store(owner.0, Ordering::Release);
    }

    /// Whether a block's owner must make room for the page of an address.
    fn must_evict(&self, owner: BlockOwner, address: RuntimeAddr) -> bool {
        // The same page, but of another module: the previous module is gone.
        if owner.place() == ModuleSlot(0) || owner.is(address) {
            return true;
        }
        let wanted = wrapped(self.wanted, address.0 >> 12).fetch_add(1, Ordering::Relaxed);
        wanted % RuleCache::MISSES_TO_EVICT == RuleCache::MISSES_TO_EVICT - 1
    }

    /// Writes to a block that this writer has claimed.
    fn write(&self, code: CodeAddr, rule: EntryRule) {
        let entry = rule.bits() | RuleCache::key(code);
        let slot = RuleCache::slot(code.address());
        let (own, beside) = (self.entry(slot), self.entry(slot ^ 1));
        let before = own.load(Ordering::Relaxed);
        let is_other = (before ^ entry) & (RuleCache::INTERRUPTED | RuleCache::ADDRESS) != 0;
        let (stays, goes) = if RuleCache::is_at_home(before) && !RuleCache::is_at_home(entry) {
            (before, entry)
        } else {
            (entry, before)
        };
        // The other entry moves to the neighbouring slot, unless that is in use as an own slot.
        let is_free = || !RuleCache::is_at_home(beside.load(Ordering::Relaxed));
        if is_other
            && goes & RuleCache::IS_SET != 0
            && goes & RuleCache::IN_NEIGHBOUR_SLOT == 0
            && is_free()
        {
            beside.store(goes | RuleCache::IN_NEIGHBOUR_SLOT, Ordering::Relaxed);
        }
        own.store(stays, Ordering::Relaxed);
    }

    /// The row of a rule; `None` for entry code, or an unknown number.
    pub(super) fn row(&self, rule: EntryRule) -> Option<PackedRow> {
        rule.row(|number| self.rows.word(number))
    }

    /// The rule of a row; `None` if there are too many rows.
    pub(super) fn rule(&self, row: PackedRow) -> Option<EntryRule> {
        EntryRule::new(row, |row| self.rows.number(row.word()))
    }

    /// Whether an entry is of a return address, in its own slot.
    fn is_at_home(entry: u32) -> bool {
        entry & RuleCache::STANDING == RuleCache::IS_SET
    }
}

/// The element with a number, modulo the slice's length, which is a power of two.
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
