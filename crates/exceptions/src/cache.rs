//! The facts of frames, by code address: a table of fixed size, for all threads.
//!
//! Any number of threads may read and write it, from signal handlers too, without waiting. A slot
//! is a line of the processor's cache: [`VersionedWords`].
//!
//! ```text
//! version
//! key          bits 0-47   the code address
//!              bit 62      the frame was interrupted there; else it is a return address
//! row          the packed row, or another word, but not 0
//! action       bits 0-46   0 continue · 1 the personality routine decides · else a landing pad,
//!                          which is below 2^47, as all code of processes
//!              bit 47      the frame has pushed arguments
//!              bits 48-63  0 true for ever · 1-0x7ffe while this module is loaded · 0x7fff in
//!                          one frame · 0x8000 and more: in this generation of generated code
//! personality, lsda, start, arguments
//! ```
//!
//! Facts are found in the slot of the address's low bits, or in one of its three neighbours; those
//! of an interrupted frame four slots off.

use unspool_rows::{CodeAddr, PackedRow};
use unspool_unwind::ModuleSlot;
use unspool_unwind::versioned_words::VersionedWords;

use crate::facts::{FrameAction, FrameFacts, PersonalityAddr, ProcedureInfo, Validity};

/// A code address with its kind, as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FactsKey(u64);

const INTERRUPTED: u64 = 1 << 62;
/// The first and the last address that can be code's.
const CODE: [u64; 2] = [2, (1 << 48) - 1];
const PERSONALITY: u64 = 1;
const ARGUMENTS: u64 = 1 << 47;
const GENERATION: u16 = 1 << 15;
const FRAME: u16 = GENERATION - 1;

impl FactsKey {
    /// No facts have this key.
    pub(crate) const NONE: FactsKey = FactsKey(u64::MAX);

    /// The key of a code address.
    #[inline(always)]
    #[must_use]
    pub(crate) fn new(address: u64, is_interrupted: bool) -> FactsKey {
        let [first, last] = CODE;
        if address.wrapping_sub(first) > last - first {
            return FactsKey::NONE;
        }
        FactsKey(address | if is_interrupted { INTERRUPTED } else { 0 })
    }

    /// The key of a code address; `None` if it cannot be code.
    #[must_use]
    pub(crate) fn from_code(code: CodeAddr) -> Option<FactsKey> {
        let is_interrupted = matches!(code, CodeAddr::Instruction(_));
        let key = FactsKey::new(code.address().0, is_interrupted);
        (key != FactsKey::NONE).then_some(key)
    }

    #[inline(always)]
    fn slot(self) -> usize {
        let group = if self.0 & INTERRUPTED == 0 {
            0
        } else {
            FactsCache::WAYS
        };
        slot_of(self.0) ^ group
    }
}

#[inline(always)]
fn slot_of(address: u64) -> usize {
    usize::try_from(address).unwrap_or(0) % FactsCache::SLOTS
}

/// What a walk needs of each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRule {
    row: u64,
    action: u64,
}

impl FrameRule {
    /// Not a packed row.
    const NO_ROW: u64 = u64::MAX;

    /// No frame's.
    pub(crate) const NONE: FrameRule = FrameRule { row: 0, action: 0 };

    /// A frame's rule. The row is `None` if it does not fit into a word.
    #[must_use]
    pub(crate) fn new(
        row: Option<PackedRow>,
        action: FrameAction,
        validity: Validity,
        has_arguments: bool,
    ) -> FrameRule {
        let validity = match validity {
            Validity::Process => 0,
            Validity::Module(slot) => slot.0,
            Validity::Frame => FRAME,
            Validity::Generation(number) => GENERATION | number,
        };
        FrameRule {
            row: row.map_or(FrameRule::NO_ROW, PackedRow::word),
            action: u64::from(validity) << 48
                | match action {
                    FrameAction::Continue => 0,
                    FrameAction::Personality => PERSONALITY,
                    FrameAction::CleanUp(pad) => pad & (ARGUMENTS - 1),
                }
                | if has_arguments { ARGUMENTS } else { 0 },
        }
    }

    /// The row; [`PackedRow::form`] is `None` if it does not fit into a word.
    #[inline(always)]
    #[must_use]
    pub(crate) fn row(self) -> PackedRow {
        PackedRow::from_word(self.row)
    }

    /// Whether it is true as long as the process runs.
    #[inline(always)]
    #[must_use]
    pub(crate) fn is_permanent(self) -> bool {
        self.action >> 48 == 0
    }

    /// How long it is true.
    #[must_use]
    pub(crate) fn validity(self) -> Validity {
        match u16::try_from(self.action >> 48) {
            Ok(0) | Err(_) => Validity::Process,
            Ok(FRAME) => Validity::Frame,
            Ok(number @ 1..FRAME) => Validity::Module(ModuleSlot(number)),
            Ok(number) => Validity::Generation(number - GENERATION),
        }
    }

    /// Whether exceptions always pass the frame: it has nothing to do, as long as the process runs.
    #[inline(always)]
    #[must_use]
    pub(crate) fn is_always_passed(self) -> bool {
        self.action == 0
    }

    /// Whether the frame has pushed arguments.
    #[inline(always)]
    #[must_use]
    pub(crate) fn has_arguments(self) -> bool {
        self.action & ARGUMENTS != 0
    }

    /// Whether exceptions do nothing in the frame: [`FrameAction::Continue`].
    #[inline(always)]
    #[must_use]
    pub(crate) fn is_passed(self) -> bool {
        self.action & (ARGUMENTS - 1) == 0
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

/// The facts of the last addresses used. All zero, it is empty.
#[derive(Debug)]
pub(crate) struct FactsCache([FactsSlot; FactsCache::SLOTS]);

/// The words of the table above, after the version.
#[derive(Debug)]
#[repr(align(64))]
struct FactsSlot(VersionedWords<7>);

impl FactsCache {
    /// The capacity in addresses.
    pub(crate) const SLOTS: usize = 1 << 15;

    /// The number of slots in which an address's facts may be.
    const WAYS: usize = 4;

    /// An empty cache.
    #[must_use]
    pub(crate) const fn empty() -> FactsCache {
        FactsCache([const { FactsSlot(VersionedWords::new()) }; FactsCache::SLOTS])
    }

    /// Forgets everything, except what is being written.
    #[cfg(any(test, feature = "panics"))]
    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|slot| slot.0.clear_key());
    }

    /// The rule of frames that were left by a call, if it is in the address's own slot. An address
    /// that is not code has none with a row; an empty slot's rule has none.
    // The address may be any word of a damaged stack. It is not the key of an interrupted frame in
    // this slot: those are four slots off.
    #[inline(always)]
    pub(crate) fn quick_rule(&self, return_address: u64) -> Option<FrameRule> {
        let slot = self.0.get(slot_of(return_address))?;
        let [_, row, action] = slot.0.read(return_address)?;
        Some(FrameRule { row, action })
    }

    /// The procedure of frames that were left by a call and have this rule, if it is in the
    /// address's own slot.
    #[inline(always)]
    pub(crate) fn quick_procedure(
        &self,
        return_address: u64,
        rule: FrameRule,
    ) -> Option<ProcedureInfo> {
        let slot = self.0.get(slot_of(return_address))?;
        let [_, row, action, personality, lsda, start] = slot.0.read(return_address)?;
        (rule == FrameRule { row, action }).then_some(ProcedureInfo {
            personality: PersonalityAddr::from_word(personality),
            lsda,
            start,
        })
    }

    /// What a walk needs of frames at an address, if it is cached.
    #[inline(always)]
    #[must_use]
    pub(crate) fn rule(&self, key: FactsKey) -> Option<FrameRule> {
        let [_, row, action] = self.read(key)?;
        Some(FrameRule { row, action })
    }

    /// All that is cached of frames at an address.
    #[inline]
    #[must_use]
    pub(crate) fn facts(&self, key: FactsKey) -> Option<FrameFacts> {
        let [_, row, action, personality, lsda, start, arguments] = self.read(key)?;
        Some(FrameFacts {
            rule: FrameRule { row, action },
            procedure: ProcedureInfo {
                personality: PersonalityAddr::from_word(personality),
                lsda,
                start,
            },
            arguments,
        })
    }

    /// The first words of an address's facts.
    #[inline(always)]
    fn read<const N: usize>(&self, key: FactsKey) -> Option<[u64; N]> {
        match self.0.get(key.slot())?.0.read(key.0) {
            Some(words) => Some(words),
            None => self.read_neighbours(key),
        }
    }

    #[inline(never)]
    fn read_neighbours<const N: usize>(&self, key: FactsKey) -> Option<[u64; N]> {
        self.slots(key).skip(1).find_map(|slot| slot.read(key.0))
    }

    /// The slots of a key, its own first.
    fn slots(&self, key: FactsKey) -> impl Iterator<Item = &VersionedWords<7>> + Clone {
        (0..FactsCache::WAYS).filter_map(move |way| Some(&self.0.get(key.slot() ^ way)?.0))
    }

    /// Keeps the facts of an address: instead of its former ones, in an empty slot, or instead of
    /// another's.
    // Not inlined: learning facts does not need its stack.
    #[inline(never)]
    pub(crate) fn put(&self, key: FactsKey, facts: &FrameFacts) {
        let &FrameFacts {
            rule: FrameRule { row, action },
            procedure,
            arguments,
        } = facts;
        let personality = procedure.personality.word();
        let (lsda, start) = (procedure.lsda, procedure.start);
        let words = [key.0, row, action, personality, lsda, start, arguments];
        VersionedWords::put(self.slots(key), words);
    }
}

#[cfg(test)]
mod tests;
