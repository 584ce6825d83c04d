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
//! owner  bits 0-24   bits 22-46 of the page's address
//!        bit 25      the module's place is above 63
//!        bits 26-41  the place of the module
//!        bit 42      somebody writes to the block
//!        bits 43-63  how often it has been given away
//! ```
//!
//! Bits 12 to 21 of an address choose the block, bits 4 to 11 the slot in it, and the slot beside that
//! is the second choice; so owner and entry say all of an address, and which row it means: that of
//! the byte before a return address, or the instruction's own. What they say holds for as long
//! as that module is at that place. Whoever reads it has to see to that, once in a walk.
//!
//! Return addresses come first: an interrupted instruction takes only slots where none of them is at
//! home. There are more instructions than calls, and whoever takes samples meets most of them once.
//!
//! Nobody waits. Who finds a block being written to goes without: what is not kept is looked up
//! again. A reader looks at the owner before and after the entry: if it is the same, the entry was
//! the owner's (a block would have to change hands two million times in between to deceive it). A child
//! that is forked while another thread writes has a block that keeps what it has and takes nothing more.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use unspool_ir::{CodeAddr, RuntimeAddr};

use super::rare::Rare;
use super::rule::Rule;
use crate::modules::Place;

/// Rules in 1 MiB and 10 KiB.
#[derive(Debug)]
pub struct Rules {
    owners: [AtomicU64; Rules::BLOCKS],
    entries: [AtomicU32; Rules::BLOCKS * Rules::BLOCK],
    /// How often other pages wanted the block.
    wanted: [AtomicU8; Rules::BLOCKS],
    /// What rules name by number.
    pub(super) rare: Rare,
}

/// A rule, and the module that it is from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) rule: Rule,
    pub(super) place: Place,
}

/// The word that says whose a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner(u64);

impl Owner {
    const PAGE: u64 = (1 << 25) - 1;
    const HIGH_PLACE: u64 = 1 << 25;
    const PLACE_SHIFT: u32 = 26;
    const WRITING: u64 = 1 << 42;
    const TURN: u64 = 1 << 43;

    /// Nobody's, while its next owner moves in.
    fn next(self) -> Owner {
        let turn = (self.0 & !(Owner::TURN - 1)).wrapping_add(Owner::TURN);
        Owner(turn | Owner::WRITING | Owner::PAGE)
    }

    /// A page of the module at a place; the turn is kept.
    fn of(self, address: RuntimeAddr, place: Place) -> Owner {
        let turn = self.0 & !(Owner::TURN - 1);
        let high = if place.0 < 64 { 0 } else { Owner::HIGH_PLACE };
        let page = address.0 >> 22 & Owner::PAGE;
        Owner(turn | u64::from(place.0) << Owner::PLACE_SHIFT | high | page)
    }

    #[inline]
    fn place(self) -> Place {
        Place((self.0 >> Owner::PLACE_SHIFT & 0xffff) as u16)
    }

    /// Whether it is the page of an address; also whether the module's place is below 64.
    #[inline]
    fn is_near(self, address: RuntimeAddr) -> bool {
        self.0 & (Owner::PAGE | Owner::HIGH_PLACE) == address.0 >> 22
    }

    /// Whether it is the page of an address.
    fn is(self, address: RuntimeAddr) -> bool {
        self.place().0 != 0 && self.0 & Owner::PAGE == address.0 >> 22
    }

    fn is_writing(self) -> bool {
        self.0 & Owner::WRITING != 0
    }
}

impl Rules {
    const BLOCKS: usize = 1 << 10;
    /// Slots of a block: one for 16 bytes of a page.
    const BLOCK: usize = 1 << 8;
    /// How often a block is wanted before its page has to go.
    const PRESSURE: u8 = 16;

    const ADDRESS: u32 = 0xf;
    const IS_SET: u32 = 1 << 22;
    const BESIDE: u32 = 1 << 23;
    const INTERRUPTED: u32 = 1 << 24;

    /// Knows no rule.
    #[must_use]
    pub const fn new() -> Self {
        Rules {
            owners: [const { AtomicU64::new(0) }; Rules::BLOCKS],
            entries: [const { AtomicU32::new(0) }; Rules::BLOCKS * Rules::BLOCK],
            wanted: [const { AtomicU8::new(0) }; Rules::BLOCKS],
            rare: Rare::new(),
        }
    }

    /// What an entry says but for its address and rule.
    const STANDING: u32 = Rules::IS_SET | Rules::BESIDE | Rules::INTERRUPTED;

    /// The bits of an address that an entry has.
    #[inline]
    fn low(address: RuntimeAddr) -> u32 {
        (address.0 & 0xf) as u32
    }

    /// An entry without a rule.
    fn key(code: CodeAddr) -> u32 {
        let is_interrupted = match code {
            CodeAddr::Return(_) => 0,
            CodeAddr::Instruction(_) => Rules::INTERRUPTED,
        };
        Rules::low(code.address()) | is_interrupted | Rules::IS_SET
    }

    #[inline]
    fn block(address: RuntimeAddr) -> usize {
        (address.0 >> 12) as usize % Rules::BLOCKS
    }

    #[inline]
    fn slot(address: RuntimeAddr) -> usize {
        (address.0 >> 4) as usize % (Rules::BLOCKS * Rules::BLOCK)
    }

    #[inline]
    fn owner(&self, address: RuntimeAddr) -> &AtomicU64 {
        #[expect(clippy::indexing_slicing, reason = "less than the number of blocks")]
        &self.owners[Rules::block(address)]
    }

    #[inline]
    fn entry(&self, slot: usize) -> &AtomicU32 {
        #[expect(clippy::indexing_slicing, reason = "less than the number of slots")]
        &self.entries[slot % (Rules::BLOCKS * Rules::BLOCK)]
    }

    /// The rule of the frame that a call returns to at `address`, if it is in its own slot, of a small
    /// step, and from a module whose place is below 64.
    #[inline]
    pub(super) fn near(&self, address: RuntimeAddr) -> Option<Known> {
        let word = self.owner(address);
        let owner = Owner(word.load(Ordering::Acquire));
        // Before the entry, so that nobody reads a block that was never written.
        if !owner.is_near(address) {
            return None;
        }
        let entry = self.entry(Rules::slot(address)).load(Ordering::Acquire);
        if word.load(Ordering::Relaxed) != owner.0 {
            return None;
        }
        // A small step of the same address, at home: one comparison.
        let is_usual = (entry ^ Rules::low(address))
            & (Rules::STANDING | Rule::KIND | Rules::ADDRESS)
            == Rules::IS_SET;
        is_usual.then(|| Known {
            rule: Rule::in_entry(entry),
            place: owner.place(),
        })
    }

    /// The rule of a frame that stands there.
    pub(super) fn get(&self, code: CodeAddr) -> Option<Known> {
        let (address, key) = (code.address(), Rules::key(code));
        let word = self.owner(address);
        let owner = Owner(word.load(Ordering::Acquire));
        if !owner.is(address) {
            return None;
        }
        let slot = Rules::slot(address);
        let here = self.entry(slot).load(Ordering::Acquire);
        let beside = self.entry(slot ^ 1).load(Ordering::Acquire);
        if word.load(Ordering::Relaxed) != owner.0 {
            return None;
        }
        let is = |entry: u32, key| (entry ^ key) & (Rules::STANDING | Rules::ADDRESS) == 0;
        let entry = match () {
            () if is(here, key) => here,
            () if is(beside, key | Rules::BESIDE) => beside,
            () => return None,
        };
        Some(Known {
            rule: Rule::in_entry(entry),
            place: owner.place(),
        })
    }

    /// Keeps a rule, in the place of an older one if need be, unless somebody else is writing.
    pub(super) fn put(&self, code: CodeAddr, Known { rule, place }: Known) {
        let address = code.address();
        if address.0 >> 47 != 0 {
            return;
        }
        let word = self.owner(address);
        let before = Owner(word.load(Ordering::Acquire));
        if before.is_writing() {
            return;
        }
        let is_owner = before.is(address) && before.place() == place;
        let while_writing = match is_owner {
            true => Owner(before.0 | Owner::WRITING),
            false if self.has_to_go(before, address) => before.next(),
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
        let slot = Rules::slot(address);
        let first = slot / Rules::BLOCK * Rules::BLOCK;
        let emptied = match is_owner {
            true => 0..0,
            // Nobody has owned it, so it is empty; but who writes to new memory before it is read has
            // the kernel provide it once, and not twice.
            false if before.0 == 0 => slot..slot + 1,
            false => first..first + Rules::BLOCK,
        };
        for slot in emptied {
            self.entry(slot).store(0, Ordering::Relaxed);
        }
        self.write(code, rule);
        let owner = match is_owner {
            true => before,
            false => while_writing.of(address, place),
        };
        word.store(owner.0, Ordering::Release);
    }

    /// Whether a block's owner has to make room for the page of an address.
    fn has_to_go(&self, owner: Owner, address: RuntimeAddr) -> bool {
        // The page is the same, of another module: the one before is gone.
        if owner.place() == Place(0) || owner.is(address) {
            return true;
        }
        let wanted = self.wanted.get(Rules::block(address));
        wanted.is_some_and(|wanted| {
            wanted.fetch_add(1, Ordering::Relaxed) % Rules::PRESSURE == Rules::PRESSURE - 1
        })
    }

    /// Writes to a block that is this writer's.
    fn write(&self, code: CodeAddr, rule: Rule) {
        let entry = rule.bits() | Rules::key(code);
        let slot = Rules::slot(code.address());
        let (own, beside) = (self.entry(slot), self.entry(slot ^ 1));
        let before = own.load(Ordering::Relaxed);
        let is_other = (before ^ entry) & (Rules::INTERRUPTED | Rules::ADDRESS) != 0;
        let (stays, goes) = match Rules::is_at_home(before) && !Rules::is_at_home(entry) {
            true => (before, entry),
            false => (entry, before),
        };
        // Who was here, or came too late, goes next door, unless that is taken by one at home.
        let is_free = || !Rules::is_at_home(beside.load(Ordering::Relaxed));
        if is_other && goes & Rules::IS_SET != 0 && goes & Rules::BESIDE == 0 && is_free() {
            beside.store(goes | Rules::BESIDE, Ordering::Relaxed);
        }
        own.store(stays, Ordering::Relaxed);
    }

    /// Whether an entry is of a return address, in its own slot.
    fn is_at_home(entry: u32) -> bool {
        entry & Rules::STANDING == Rules::IS_SET
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules::new()
    }
}
