//! The last walk, to be verified instead of walked again.
//!
//! A frame's caller follows from the frame's code address, its stack pointer, its frame pointer
//! where that matters, the module's table, and the words that its rule reads. So a walk that comes to
//! a frame which is remembered, with the same address and stack pointer, goes on exactly as
//! the remembered one did, if
//!
//! 1. every word that the remembered walk read from there on is what it was,
//! 2. the frame pointer is what it was, where a CFA further out depends on it,
//! 3. every module that it went through is still the one that it was.
//!
//! The words are compared one by one, but none waits for another: that is what a chain of loads
//! cannot do.
//!
//! Words that hold a CFA are compared, too; those that hold frame pointers matter only where a later
//! CFA is based on one of them. Where code keeps no frame pointers they hold whatever the program put
//! there, and may change as they like.
//!
//! Only steps by a [`PackedRule`](crate::rule::Rule) from a return address are remembered, up to the outermost frame. A
//! signal frame and what it interrupted, or any step that takes more than two registers, are walked every
//! time, and so is what lies inside of them.

use core::cmp::Reverse;

use unspool_rows::{AddressStack, Memory};

use super::{FastFrame, FrameSink, LiveModules, MemoResult, ModuleSlotSet, RuleEnd, WalkRecorder};
use crate::modules::Modules;
use crate::rule::{FrameStep, RealignedFrame};

/// The most frames that are remembered: the outermost ones of a stack that is deeper.
const MAX_FRAMES: usize = 640;

/// Where the outermost of them is.
const OUTERMOST: usize = MAX_FRAMES - 1;

/// The most frame pointers, and CFAs in memory, that are remembered.
const MAX_SAVED_WORDS: usize = NO_SAVED as usize;

/// As the index of the first of them: there is none.
const NO_SAVED: u32 = 384;

/// The number of places for stack pointers: a stack of 16 KiB has one for each.
const INDEX: usize = 1 << 10;

/// The place of a stack pointer, which is a multiple of 16 where a call is made.
fn slot(stack_pointer: u64) -> usize {
    (stack_pointer >> 4) as usize % INDEX
}

/// How many steps of a walk are noted, the last ones: a power of two, and more than are remembered.
const STEPS: usize = 1 << 10;

/// A step that a walk took by a rule.
#[derive(Debug, Clone, Copy)]
struct RecordedStep {
    from: FastFrame,
    /// What led to the caller.
    ///
    /// ```text
    /// bits 0-1   what the CFA was based on: 0 the stack pointer, 1 the frame pointer; 2: it was in memory
    /// bits 2-63  how many bytes below the return address the caller's frame pointer was; 0 where it
    ///            stayed. For 2: where CFA and frame pointer were, as `Realigned` packs them
    /// ```
    way: u64,
}

/// [`RecordedStep::way`], as far as it matters to what is remembered.
enum RecordedKind {
    Left {
        by_frame_pointer: bool,
        saved_below: u64,
    },
    Realigned(RealignedFrame),
}

impl RecordedStep {
    const REALIGNED: u64 = 2;

    fn left(from: FastFrame, leave: FrameStep) -> RecordedStep {
        RecordedStep {
            from,
            way: leave.saved_below << 2 | u64::from(leave.by_frame_pointer),
        }
    }

    fn realigned(from: FastFrame, frames: RealignedFrame) -> Option<RecordedStep> {
        Some(RecordedStep {
            from,
            way: frames.packed()? | RecordedStep::REALIGNED,
        })
    }

    fn way(&self) -> RecordedKind {
        match self.way & 3 {
            RecordedStep::REALIGNED => RecordedKind::Realigned(RealignedFrame::unpacked(self.way)),
            base => RecordedKind::Left {
                by_frame_pointer: base == 1,
                saved_below: self.way >> 2,
            },
        }
    }
}

/// What is remembered of one frame, beside its return address.
#[derive(Debug, Clone, Copy)]
struct FrameDetail {
    frame_pointer: u64,
    /// The index of the first of `saved` that is to be compared from here on.
    saved: u32,
    /// Whether a CFA from here on depends on the frame pointer that this frame has.
    needs_frame_pointer: bool,
}

/// The last walk of a thread: 60 KiB.
///
/// Frames lie in the order in which a walk finds them, and end with the outermost at the end of all
/// arrays. Inner ones are added before them.
#[derive(Debug)]
pub struct Memo {
    /// Return addresses.
    codes: [u64; MAX_FRAMES],
    /// Where they end: the stack pointers of the same frames.
    stack_pointers: AddressStack<MAX_FRAMES>,
    /// Where frames are in these arrays, by stack pointer: the last that was noted there. To compare
    /// a walk's stack pointers with the remembered ones in turn takes a branch on each that no processor
    /// can guess.
    index: [u16; INDEX],
    details: [FrameDetail; MAX_FRAMES],
    /// Frame pointers that matter and CFAs in memory, and where they end.
    saved: [u64; MAX_SAVED_WORDS],
    saved_ends: AddressStack<MAX_SAVED_WORDS>,
    /// The modules that it went through, or that other walks since did.
    slots: ModuleSlotSet,
    end: RuleEnd,
    /// The steps of the walk under way, a ring.
    taken: [RecordedStep; STEPS],
    /// How many steps there were since the last that cannot be remembered.
    steps: usize,
    /// How often in a row remembering was of little use.
    useless: u8,
    /// How many walks more do without it.
    idle: u8,
}

/// A frame that is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedFrame(usize);

impl Memo {
    /// So many walks in a row of which little was remembered are remembered all the same.
    const MAX_USELESS_WALKS: u8 = 2;
    /// And of those behind them one in so many.
    const SKIPPED_WALKS: u8 = 8;

    /// Remembers nothing.
    #[must_use]
    pub const fn new() -> Self {
        const FRAME: FastFrame = FastFrame {
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
            taken: [RecordedStep {
                from: FRAME,
                way: 0,
            }; STEPS],
            steps: 0,
            useless: 0,
            idle: 0,
        }
    }

    /// Begins a walk. `false` if it is neither to be looked for among what is remembered nor remembered.
    pub(super) fn begin(&mut self) -> bool {
        self.steps = 0;
        self.idle = self.idle.saturating_sub(1);
        self.idle == 0
    }

    /// Notes of how much use it was to remember: so many frames were walked, so many remembered.
    ///
    /// To remember a walk takes as long as half of it. Where less than half of a stack is in the next, only
    /// some are remembered.
    fn note_use(&mut self, walked: usize, remembered: usize) {
        if walked <= remembered {
            self.useless = 0;
        } else if self.useless < Memo::MAX_USELESS_WALKS {
            self.useless += 1;
        } else {
            self.idle = Memo::SKIPPED_WALKS;
        }
    }

    /// Forgets the walk that is remembered.
    fn forget(&mut self) {
        self.keep_from(MAX_FRAMES);
        self.slots = ModuleSlotSet::NONE;
    }

    /// Forgets the frames before one of those that are remembered.
    fn keep_from(&mut self, at: usize) {
        self.stack_pointers.keep_from(at);
        let detail = self.details.get(at);
        let saved = detail.map_or(MAX_SAVED_WORDS, |detail| detail.saved as usize);
        self.saved_ends.keep_from(saved);
    }

    /// The last frame that is remembered, if the walk went no further for want of room.
    fn unfinished(&self) -> Option<FastFrame> {
        (self.end == RuleEnd::Limit).then_some(FastFrame {
            code: *self.codes.last()?,
            stack_pointer: self.stack_pointers.get(OUTERMOST)?,
            frame_pointer: self.details.last()?.frame_pointer,
        })
    }

    /// Whether every word from a frame on is what it was, and every module.
    #[inline]
    fn holds<S: Modules + ?Sized, M: Memory + ?Sized>(
        &self,
        RecordedFrame(at): RecordedFrame,
        memory: &M,
        modules: &S,
        seen: &mut LiveModules,
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
            && seen.have_all(&self.slots, from_here, modules)
    }

    #[inline]
    fn note(&mut self, taken: RecordedStep) {
        if let Some(slot) = self.taken.get_mut(self.steps % STEPS) {
            *slot = taken;
        }
        self.steps += 1;
    }

    /// Puts the steps that were taken before the frames that are remembered, as many as fit.
    fn prepend(&mut self, seen: &LiveModules) {
        let steps = core::mem::take(&mut self.steps);
        self.slots.add_all(&seen.0);
        if self.slots.is_overfull {
            return self.forget();
        }
        for back in 1..=steps.min(MAX_FRAMES) {
            let taken = self.taken.get((steps - back) % STEPS).copied();
            if taken.and_then(|taken| self.remember(&taken)).is_none() {
                break;
            }
        }
    }

    /// `None` where there is no more room.
    fn remember(&mut self, taken: &RecordedStep) -> Option<()> {
        let outer = self.stack_pointers.first();
        let cfa = self.stack_pointers.get(outer)?;
        let outer = *self.details.get(outer)?;
        let mut saved = outer.saved;
        let needs_frame_pointer = match taken.way() {
            RecordedKind::Left {
                by_frame_pointer,
                saved_below,
            } => {
                let keeps = saved_below == 0;
                if outer.needs_frame_pointer && !keeps {
                    let end = cfa.wrapping_sub(saved_below);
                    self.save(&mut saved, end, outer.frame_pointer)?;
                }
                by_frame_pointer || keeps && outer.needs_frame_pointer
            }
            RecordedKind::Realigned(frames) => {
                let [cfa_at, saved_at] = frames.places(&taken.from);
                let mut words = [(cfa_at, cfa), (saved_at, outer.frame_pointer)];
                words.sort_unstable_by_key(|(at, _)| Reverse(*at));
                for (at, word) in words {
                    if at == cfa_at || outer.needs_frame_pointer {
                        self.save(&mut saved, at.wrapping_add(8), word)?;
                    }
                }
                true
            }
        };
        let detail = FrameDetail {
            frame_pointer: taken.from.frame_pointer,
            saved,
            needs_frame_pointer,
        };
        self.add(&taken.from, detail)
    }

    /// Adds a word that is to be compared, below those before and from `first` on; `None` where there is
    /// no room.
    fn save(&mut self, first: &mut u32, end: u64, word: u64) -> Option<()> {
        self.saved_ends.push(end)?;
        *first = first.checked_sub(1)?;
        *self.saved.get_mut(*first as usize)? = word;
        Some(())
    }

    /// Adds a frame before those that are remembered; `None` where there is no room.
    fn add(&mut self, frame: &FastFrame, detail: FrameDetail) -> Option<()> {
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
    fn find(&mut self, frame: &FastFrame) -> Option<RecordedFrame> {
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
        joint: RecordedFrame,
        memory: &M,
        modules: &S,
        seen: &mut LiveModules,
        frames: &mut FrameSink<'_>,
    ) -> MemoResult {
        if !self.holds(joint, memory, modules, seen) {
            self.forget();
            return MemoResult::Not;
        }
        self.note_use(frames.count, OUTERMOST - joint.0);
        let callers = self.codes.get(joint.0 + 1..).unwrap_or_default();
        let all = frames.push_all(callers);
        if all.is_some()
            && !frames.is_full()
            && let Some(last) = self.unfinished()
        {
            // The next walk remembers more. What was walked so far does not lead on from here.
            self.forget();
            self.interrupt();
            return MemoResult::On(last);
        }
        let end = all.map_or(RuleEnd::Limit, |()| self.end);
        self.keep_from(joint.0);
        if self.steps != 0 {
            self.prepend(seen);
        }
        MemoResult::End(end)
    }

    #[inline]
    fn take(&mut self, frame: &FastFrame, leave: FrameStep) {
        self.note(RecordedStep::left(*frame, leave));
    }

    fn take_realigned(&mut self, frame: &FastFrame, frames: RealignedFrame) {
        match RecordedStep::realigned(*frame, frames) {
            Some(taken) => self.note(taken),
            None => self.interrupt(),
        }
    }

    fn interrupt(&mut self) {
        self.steps = 0;
    }

    fn finish(&mut self, frame: FastFrame, end: RuleEnd, seen: &LiveModules) {
        self.note_use(self.steps, 0);
        self.forget();
        if end == RuleEnd::ZeroReturnAddress {
            return;
        }
        self.end = end;
        let detail = FrameDetail {
            frame_pointer: frame.frame_pointer,
            saved: NO_SAVED,
            // Nobody knows what lies further out.
            needs_frame_pointer: end == RuleEnd::Limit,
        };
        if self.add(&frame, detail).is_some() {
            self.prepend(seen);
        }
    }
}

impl Default for Memo {
    fn default() -> Self {
        Memo::new()
    }
}
