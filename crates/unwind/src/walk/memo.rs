//! The last walk, to be verified instead of walked again.
//!
//! A frame's caller depends on the frame's code address, its stack pointer, its frame pointer if it
//! matters, the module's table, and the words that its rule reads. So a walk that reaches a
//! remembered frame, with the same address and stack pointer, continues exactly like the remembered
//! walk, if
//!
//! 1. every word that the remembered walk read from there on is unchanged,
//! 2. the frame pointer is unchanged, if a CFA further out depends on it,
//! 3. every module in its path is unchanged.
//!
//! The words are compared one by one, but no load waits for another, unlike in a chain of loads.
//!
//! Words that hold a CFA are compared, too. Words that hold frame pointers matter only if a later
//! CFA is based on one of them. In code without frame pointers they hold any data of the program,
//! and may change.
//!
//! Only steps by rules from a return address are remembered, up to the outermost frame. Signal
//! frames, interrupted frames, and steps that need more than two registers are walked every time,
//! and so are all frames inside of them.

use core::cmp::Reverse;

use unspool_rows::packed_row::{CfaBase, SavedRegister};
use unspool_rows::{AddressStack, FrameRegisters, Memory, PackedRow};

use super::entry_rule::{EntryRule, FRAME_POINTER, SmallStep};
use super::rule_cache::RuleCache;
use super::{FrameSink, LiveModules, MemoResult, ModuleSlotSet, RuleEnd, WalkRecorder};
use crate::modules::Modules;

/// The limit of remembered frames: of a deeper stack, the outermost ones.
const MAX_FRAMES: usize = 640;

/// The index of the outermost one.
const OUTERMOST: usize = MAX_FRAMES - 1;

/// The limit of remembered frame pointers and CFAs in memory.
const MAX_SAVED_WORDS: usize = NO_SAVED as usize;

/// An index that means that there are none of them.
const NO_SAVED: u32 = 384;

/// The number of slots for stack pointers: a stack of 16 KiB has one for each.
const INDEX: usize = 1 << 10;

/// The slot of a stack pointer, which is a multiple of 16 at a call.
fn slot(stack_pointer: u64) -> usize {
    (stack_pointer >> 4) as usize % INDEX
}

/// The limit of noted steps of a walk, the last ones: a power of two, and greater than that of
/// remembered frames.
const STEPS: usize = 1 << 10;

/// A walk's step by a rule.
#[derive(Debug, Clone, Copy)]
struct RecordedStep {
    from: FrameRegisters,
    rule: EntryRule,
}

/// The memo's data about one frame, without its return address.
#[derive(Debug, Clone, Copy)]
struct FrameDetail {
    frame_pointer: u64,
    /// The index of the first of `saved` to be compared from here on.
    saved: u32,
    /// Whether a CFA from here on depends on this frame's frame pointer.
    needs_frame_pointer: bool,
}

/// The last walk of a thread: 60 KiB.
///
/// Frames are stored in the order of a walk, with the outermost at the end of all arrays. Inner
/// ones are added before them.
#[derive(Debug)]
pub struct Memo {
    /// Return addresses.
    codes: [u64; MAX_FRAMES],
    /// Their ends: the stack pointers of the same frames.
    stack_pointers: AddressStack<MAX_FRAMES>,
    /// Indices of frames in these arrays, by stack pointer: the last one noted. Comparing a walk's
    /// stack pointers with the remembered ones in turn would need a branch on each that no
    /// processor can predict.
    index: [u16; INDEX],
    details: [FrameDetail; MAX_FRAMES],
    /// Frame pointers that matter and CFAs in memory, and their addresses.
    saved: [u64; MAX_SAVED_WORDS],
    saved_ends: AddressStack<MAX_SAVED_WORDS>,
    /// The modules in its path, or in that of other walks since.
    slots: ModuleSlotSet,
    end: RuleEnd,
    /// The steps of the present walk, a ring.
    recorded: [RecordedStep; STEPS],
    /// The number of steps since the last that cannot be remembered.
    steps: usize,
    /// How often in a row the memo was of little use.
    useless: u8,
    /// How many further walks do without the memo.
    idle: u8,
}

/// A remembered frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedFrame(usize);

impl Memo {
    /// The number of useless walks in a row that are still remembered.
    const MAX_USELESS_WALKS: u8 = 2;
    /// After those, one walk in this many is remembered.
    const SKIPPED_WALKS: u8 = 8;

    /// An empty memo.
    #[must_use]
    pub const fn new() -> Self {
        const FRAME: FrameRegisters = FrameRegisters {
            code: 0,
            stack_pointer: 0,
            frame_pointer: 0,
        };
        const DETAIL: FrameDetail = FrameDetail {
            frame_pointer: 0,
            saved: 0,
            needs_frame_pointer: false,
        };
        Memo {
            codes: [0; MAX_FRAMES],
            stack_pointers: AddressStack::new(),
            index: [0; INDEX],
            details: [DETAIL; MAX_FRAMES],
            saved: [0; MAX_SAVED_WORDS],
            saved_ends: AddressStack::new(),
            slots: ModuleSlotSet::NONE,
            end: RuleEnd::Outermost,
            recorded: [RecordedStep {
                from: FRAME,
                rule: EntryRule::OUTERMOST,
            }; STEPS],
            steps: 0,
            useless: 0,
            idle: 0,
        }
    }

    /// Begins a walk. `false` if this walk neither uses the memo nor is remembered.
    pub(super) fn begin(&mut self) -> bool {
        self.steps = 0;
        self.idle = self.idle.saturating_sub(1);
        self.idle == 0
    }

    /// Notes the memo's use: the numbers of walked and remembered frames.
    ///
    /// Remembering takes half as long as a walk. If less than half of a stack is in the next, only
    /// some walks are remembered.
    fn note_use(&mut self, walked: usize, remembered: usize) {
        if walked <= remembered {
            self.useless = 0;
        } else if self.useless < Memo::MAX_USELESS_WALKS {
            self.useless += 1;
        } else {
            self.idle = Memo::SKIPPED_WALKS;
        }
    }

    /// Forgets the remembered walk.
    fn forget(&mut self) {
        self.keep_from(MAX_FRAMES);
        self.slots = ModuleSlotSet::NONE;
    }

    /// Forgets the frames before one of the remembered ones.
    fn keep_from(&mut self, at: usize) {
        self.stack_pointers.keep_from(at);
        let detail = self.details.get(at);
        let saved = detail.map_or(MAX_SAVED_WORDS, |detail| detail.saved as usize);
        self.saved_ends.keep_from(saved);
    }

    /// The last remembered frame, if that walk stopped for lack of room.
    fn unfinished(&self) -> Option<FrameRegisters> {
        (self.end == RuleEnd::Limit).then_some(FrameRegisters {
            code: *self.codes.last()?,
            stack_pointer: self.stack_pointers.get(OUTERMOST)?,
            frame_pointer: self.details.last()?.frame_pointer,
        })
    }

    /// Whether every word from a frame on is unchanged, and every module.
    #[inline]
    fn holds<S: Modules + ?Sized, M: Memory + ?Sized>(
        &self,
        RecordedFrame(at): RecordedFrame,
        memory: &M,
        modules: &S,
        live_modules: &mut LiveModules,
    ) -> bool {
        let codes = self.codes.get(at + 1..).unwrap_or_default();
        let saved = self
            .details
            .get(at)
            .map_or(0, |detail| detail.saved as usize);
        let saved_ends = self.saved_ends.from(saved);
        let saved = self.saved.get(saved..).unwrap_or_default();
        let from_here = self.codes.get(at..).unwrap_or_default();
        memory.all_near_are(self.stack_pointers.from(at + 1), codes)
            && memory.all_near_are(saved_ends, saved)
            && live_modules.have_all(&self.slots, from_here, modules)
    }

    #[inline]
    fn note(&mut self, recorded: RecordedStep) {
        if let Some(slot) = self.recorded.get_mut(self.steps % STEPS) {
            *slot = recorded;
        }
        self.steps += 1;
    }

    /// Puts the noted steps before the remembered frames, as many as fit.
    fn prepend(&mut self, rules: &RuleCache<'_>, live_modules: &LiveModules) {
        let steps = core::mem::take(&mut self.steps);
        self.slots.add_all(&live_modules.0);
        if self.slots.is_overfull {
            return self.forget();
        }
        for back in 1..=steps.min(MAX_FRAMES) {
            let Some(RecordedStep { from, rule }) = self.recorded.get((steps - back) % STEPS)
            else {
                break;
            };
            if self.remember(*from, *rule, rules).is_none() {
                break;
            }
        }
    }

    /// `None` if there is no more room.
    #[inline(always)]
    fn remember(
        &mut self,
        from: FrameRegisters,
        rule: EntryRule,
        rules: &RuleCache<'_>,
    ) -> Option<()> {
        let outer = self.stack_pointers.first();
        let cfa = self.stack_pointers.get(outer)?;
        let outer = *self.details.get(outer)?;
        let mut saved = outer.saved;
        let needs_frame_pointer = match rule.small_step() {
            Some(SmallStep {
                by_frame_pointer,
                saved_below,
                ..
            }) => {
                let keeps = saved_below == 0;
                if outer.needs_frame_pointer && !keeps {
                    let end = cfa.wrapping_sub(saved_below);
                    self.save(&mut saved, end, outer.frame_pointer)?;
                }
                by_frame_pointer || keeps && outer.needs_frame_pointer
            }
            None => self.save_words(&from, rules.row(rule)?, cfa, &outer, &mut saved)?,
        };
        let detail = FrameDetail {
            frame_pointer: from.frame_pointer,
            saved,
            needs_frame_pointer,
        };
        self.add(&from, detail)
    }

    /// Adds the words that a step has read, except the return address, by a rule that is no small
    /// step. Yields whether a CFA from the frame on depends on its frame pointer.
    fn save_words(
        &mut self,
        from: &FrameRegisters,
        row: PackedRow,
        cfa: u64,
        outer: &FrameDetail,
        saved: &mut u32,
    ) -> Option<bool> {
        let source = row.form()?.cfa(from.code)?;
        let frame_pointer = row.saved().get(FRAME_POINTER)?;
        let base = row.saved_base(cfa, from.frame_pointer);
        let cfa_at = from.frame_pointer.wrapping_add_signed(source.offset);
        let saved_at = match frame_pointer {
            SavedRegister::Below(bytes) => Some(base.wrapping_sub(bytes)),
            SavedRegister::Unchanged | SavedRegister::Undefined => None,
        };
        let saved_at = saved_at.filter(|_| outer.needs_frame_pointer);
        let mut words = [
            source.is_loaded.then_some((cfa_at, cfa)),
            saved_at.map(|at| (at, outer.frame_pointer)),
        ];
        words.sort_unstable_by_key(|word| Reverse(*word));
        for (at, word) in words.into_iter().flatten() {
            self.save(saved, at.wrapping_add(8), word)?;
        }
        let keeps = frame_pointer == SavedRegister::Unchanged;
        let by_frame_pointer = source.base == CfaBase::FramePointer;
        Some(by_frame_pointer || keeps && outer.needs_frame_pointer)
    }

    /// Adds a word for comparison, below the previous ones and from `first` on; `None` if there is
    /// no room.
    fn save(&mut self, first: &mut u32, end: u64, word: u64) -> Option<()> {
        self.saved_ends.push(end)?;
        *first = first.checked_sub(1)?;
        *self.saved.get_mut(*first as usize)? = word;
        Some(())
    }

    /// Adds a frame before the remembered ones; `None` if there is no room.
    fn add(&mut self, frame: &FrameRegisters, detail: FrameDetail) -> Option<()> {
        self.stack_pointers.push(frame.stack_pointer)?;
        let at = self.stack_pointers.first();
        *self.codes.get_mut(at)? = frame.code;
        *self.details.get_mut(at)? = detail;
        *self.index.get_mut(slot(frame.stack_pointer))? = u16::try_from(at).ok()?;
        Some(())
    }
}

impl WalkRecorder for Memo {
    type RecordedFrame = RecordedFrame;

    #[inline]
    fn find(&mut self, frame: &FrameRegisters) -> Option<RecordedFrame> {
        let at = usize::from(*self.index.get(slot(frame.stack_pointer))?);
        if self.stack_pointers.get(at) != Some(frame.stack_pointer) {
            return None;
        }
        let detail = self.details.get(at)?;
        let fits = !detail.needs_frame_pointer || detail.frame_pointer == frame.frame_pointer;
        (*self.codes.get(at)? == frame.code && fits).then_some(RecordedFrame(at))
    }

    fn resume<S: Modules + ?Sized, M: Memory + ?Sized>(
        &mut self,
        recorded: RecordedFrame,
        rules: &RuleCache<'_>,
        memory: &M,
        modules: &S,
        live_modules: &mut LiveModules,
        frames: &mut FrameSink<'_>,
    ) -> MemoResult {
        if !self.holds(recorded, memory, modules, live_modules) {
            self.forget();
            return MemoResult::Unused;
        }
        self.note_use(frames.count, OUTERMOST - recorded.0);
        let callers = self.codes.get(recorded.0 + 1..).unwrap_or_default();
        let all = frames.push_all(callers);
        if all.is_some()
            && !frames.is_full()
            && let Some(last) = self.unfinished()
        {
            // The next walk remembers more. The steps noted so far are not adjacent to later ones.
            self.forget();
            self.interrupt();
            return MemoResult::Frame(last);
        }
        let end = all.map_or(RuleEnd::Limit, |()| self.end);
        self.keep_from(recorded.0);
        if self.steps != 0 {
            self.prepend(rules, live_modules);
        }
        MemoResult::End(end)
    }

    #[inline]
    fn take(&mut self, frame: &FrameRegisters, rule: EntryRule) {
        self.note(RecordedStep { from: *frame, rule });
    }

    fn interrupt(&mut self) {
        self.steps = 0;
    }

    fn finish(
        &mut self,
        frame: FrameRegisters,
        end: RuleEnd,
        rules: &RuleCache<'_>,
        live_modules: &LiveModules,
    ) {
        self.note_use(self.steps, 0);
        self.forget();
        if end == RuleEnd::ZeroReturnAddress {
            return;
        }
        self.end = end;
        let detail = FrameDetail {
            frame_pointer: frame.frame_pointer,
            saved: NO_SAVED,
            // The frames further out are unknown.
            needs_frame_pointer: end == RuleEnd::Limit,
        };
        if self.add(&frame, detail).is_some() {
            self.prepend(rules, live_modules);
        }
    }
}

impl Default for Memo {
    fn default() -> Self {
        Memo::new()
    }
}
