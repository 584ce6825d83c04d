//! The facts of frames, by code address: a table of fixed size, for all threads.
//!
//! Any number of threads may read and write it, from signal handlers too, without waiting. A slot
//! is a line of the processor's cache. Its version is odd while it is written, and higher
//! afterwards. A reader that finds the same even version before and after has read one address's
//! facts. A child that is forked while a slot is written has one slot less.
//!
//! ```text
//! version
//! key          bits 0-47   the code address
//!              bit 48      it is a return address
//!              bit 49      the frame was interrupted there
//! row          the packed row, or 0
//! action       bits 0-46   0 continue · 1 the personality routine decides · else a landing pad,
//!                          which is below 2^47, as all code of processes
//!              bit 47      the frame has pushed arguments
//!              bits 48-63  0 true for ever · 1-0x7fff while this module is loaded
//!                          · 0x8000 and more: in this generation of generated code
//! personality, lsda, start, arguments
//! ```
//!
//! Facts are found in the slot of the address's low bits, or in its neighbour.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use unspool_rows::{CodeAddr, PackedRow};
use unspool_unwind::ModuleSlot;

use crate::facts::{FrameAction, FrameFacts, FrameHandler, Validity};

/// A code address with its kind, as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactsKey(u64);

const CALLED: u64 = 1 << 48;
const INTERRUPTED: u64 = 1 << 49;
const ADDRESS: u64 = CALLED - 1;
const PERSONALITY: u64 = 1;
const ARGUMENTS: u64 = 1 << 47;
const GENERATION: u16 = 1 << 15;

impl FactsKey {
    /// The key of a code address below 2^48: no other can be code.
    #[inline(always)]
    #[must_use]
    pub fn new(address: u64, is_interrupted: bool) -> FactsKey {
        FactsKey(address | if is_interrupted { INTERRUPTED } else { CALLED })
    }

    /// The key of a code address; `None` if it cannot be code.
    #[must_use]
    pub fn from_code(code: CodeAddr) -> Option<FactsKey> {
        let address = code.address().0;
        let is_interrupted = matches!(code, CodeAddr::Instruction(_));
        ((2..=ADDRESS).contains(&address)).then(|| FactsKey::new(address, is_interrupted))
    }

    #[inline(always)]
    fn slot(self) -> usize {
        usize::try_from(self.0).unwrap_or(0) % FactsCache::SLOTS
    }
}

/// What a walk needs of each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRule {
    /// The packed row's word, or 0.
    row: u64,
    action: u64,
}

impl FrameRule {
    /// The row; [`PackedRow::form`] is `None` if it does not fit into a word.
    #[inline(always)]
    #[must_use]
    pub fn row(self) -> PackedRow {
        PackedRow::from_word(self.row)
    }

    /// Whether it is true as long as the process runs.
    #[inline(always)]
    #[must_use]
    pub fn is_permanent(self) -> bool {
        self.action >> 48 == 0
    }

    /// How long it is true.
    #[must_use]
    pub fn validity(self) -> Validity {
        match u16::try_from(self.action >> 48) {
            Ok(0) | Err(_) => Validity::Process,
            Ok(number @ 1..GENERATION) => Validity::Module(ModuleSlot(number)),
            Ok(number) => Validity::Generation(number - GENERATION),
        }
    }

    /// Whether the frame has pushed arguments.
    #[inline(always)]
    #[must_use]
    pub fn has_arguments(self) -> bool {
        self.action & ARGUMENTS != 0
    }

    /// What exceptions do in the frame.
    #[inline(always)]
    #[must_use]
    pub fn action(self) -> FrameAction {
        match self.action & (ARGUMENTS - 1) {
            0 => FrameAction::Continue,
            PERSONALITY => FrameAction::Personality,
            pad => FrameAction::CleanUp(pad),
        }
    }
}

impl From<&FrameFacts> for FrameRule {
    fn from(facts: &FrameFacts) -> FrameRule {
        let validity = match facts.validity {
            Validity::Process | Validity::Frame => 0,
            Validity::Module(slot) => slot.0,
            Validity::Generation(number) => GENERATION | number,
        };
        FrameRule {
            row: facts.row.map_or(0, PackedRow::word),
            action: u64::from(validity) << 48
                | match facts.action {
                    FrameAction::Continue => 0,
                    FrameAction::Personality => PERSONALITY,
                    FrameAction::CleanUp(pad) => pad & (ARGUMENTS - 1),
                }
                | if facts.arguments == 0 { 0 } else { ARGUMENTS },
        }
    }
}

/// The facts of the last addresses used. All zero, it is empty.
#[derive(Debug)]
pub struct FactsCache([FactsSlot; FactsCache::SLOTS]);

/// Each word of the table above.
#[derive(Debug)]
#[repr(align(64))]
struct FactsSlot {
    version: AtomicU64,
    key: AtomicU64,
    rule: [AtomicU64; 2],
    handler: [AtomicU64; 4],
}

impl FactsCache {
    /// The capacity in addresses.
    pub const SLOTS: usize = 1 << 15;

    /// An empty cache.
    #[must_use]
    pub const fn empty() -> FactsCache {
        FactsCache([const { FactsSlot::empty() }; FactsCache::SLOTS])
    }

    /// Forgets everything, except what is being written.
    pub fn clear(&self) {
        for slot in &self.0 {
            slot.key.store(0, Ordering::Relaxed);
        }
    }

    /// What a walk needs of frames at an address, if it is cached.
    #[inline(always)]
    #[must_use]
    pub fn rule(&self, key: FactsKey) -> Option<FrameRule> {
        let first = self.0.get(key.slot())?.read(key, |slot| &slot.rule);
        let [row, action] = match first {
            Some(found) => found,
            None => self.neighbour(key, |slot| &slot.rule)?,
        };
        Some(FrameRule { row, action })
    }

    #[inline(never)]
    fn neighbour<const N: usize>(
        &self,
        key: FactsKey,
        words: impl FnOnce(&FactsSlot) -> &[AtomicU64; N],
    ) -> Option<[u64; N]> {
        self.0.get(key.slot() ^ 1)?.read(key, words)
    }

    /// Whom to ask about exceptions in frames at an address, and the size of pushed arguments, if
    /// that is cached.
    #[inline]
    #[must_use]
    pub fn handler(&self, key: FactsKey) -> Option<(FrameHandler, u64)> {
        let first = self.0.get(key.slot())?.read(key, |slot| &slot.handler);
        let [personality, lsda, start, arguments] = match first {
            Some(found) => found,
            None => self.neighbour(key, |slot| &slot.handler)?,
        };
        let handler = FrameHandler {
            personality,
            lsda,
            start,
        };
        Some((handler, arguments))
    }

    /// Keeps the facts of an address, instead of another's.
    pub fn put(&self, key: FactsKey, facts: &FrameFacts) {
        let (Some(own), Some(other)) = (self.0.get(key.slot()), self.0.get(key.slot() ^ 1)) else {
            return;
        };
        let has_other = |slot: &FactsSlot| ![0, key.0].contains(&slot.key.load(Ordering::Relaxed));
        if has_other(own) && !has_other(other) {
            other.write(key, facts);
        } else {
            own.write(key, facts);
        }
    }
}

impl FactsSlot {
    const fn empty() -> FactsSlot {
        FactsSlot {
            version: AtomicU64::new(0),
            key: AtomicU64::new(0),
            rule: [const { AtomicU64::new(0) }; 2],
            handler: [const { AtomicU64::new(0) }; 4],
        }
    }

    /// Some of its words, if they are of this key.
    #[inline(always)]
    fn read<const N: usize>(
        &self,
        key: FactsKey,
        words: impl FnOnce(&FactsSlot) -> &[AtomicU64; N],
    ) -> Option<[u64; N]> {
        let version = self.version.load(Ordering::Acquire);
        let is_it = self.key.load(Ordering::Relaxed) == key.0;
        let words = words(self)
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        // The version is read again after all these loads.
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (is_it && is_whole).then_some(words)
    }

    fn write(&self, key: FactsKey, facts: &FrameFacts) {
        let version = self.version.load(Ordering::Relaxed);
        let (even, odd) = (version & !1, version | 1);
        let taken = self
            .version
            .compare_exchange(even, odd, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        // The stores below must not be visible before the odd version.
        fence(Ordering::Release);
        let FrameHandler {
            personality,
            lsda,
            start,
        } = facts.handler;
        let FrameRule { row, action } = FrameRule::from(facts);
        let rule = self.rule.iter().zip([row, action]);
        let handler = [personality, lsda, start, facts.arguments];
        let words = rule.chain(self.handler.iter().zip(handler));
        for (to, word) in words.chain([(&self.key, key.0)]) {
            to.store(word, Ordering::Relaxed);
        }
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
