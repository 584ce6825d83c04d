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
//! Words that hold frame pointers matter only where a later CFA is based on one of them. Where
//! code keeps no frame pointers they hold whatever the program put there, and may change as
//! they like.
//!
//! Only steps by a [`super::rule::Rule`] are remembered, up to the outermost frame. A signal frame, or any other
//! step that takes more than two registers, is walked every time, and so is what lies inside of it.

use unspool_ir::{Memory, RuntimeAddr};

use super::{Frames, Recent, Record, State};
use crate::evidence::End;
use crate::modules::{Modules, Place};

/// The most frames that are remembered: the outermost ones of a stack that is deeper.
const MOST: usize = 768;

/// The most frame pointers that are remembered.
const MOST_SAVED: usize = 512;

/// The most modules that a remembered walk goes through.
const MOST_MODULES: usize = 16;

/// A step that a walk took by a rule: the frame that it left.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) code: u64,
    pub(super) stack_pointer: u64,
    pub(super) frame_pointer: u64,
    /// Where the caller's frame pointer was read; 0 where it is unchanged.
    pub(super) saved_at: u64,
    pub(super) by_frame_pointer: bool,
}

/// What was remembered of one frame, beside its code address and stack pointer.
#[derive(Debug, Clone, Copy, Default)]
struct Detail {
    frame_pointer: u64,
    /// How many frame pointers are to be compared from here on.
    saved: u32,
    /// Whether a CFA from here on depends on the frame pointer that this frame has.
    needs_frame_pointer: bool,
}

/// A frame pointer in memory.
#[derive(Debug, Clone, Copy, Default)]
struct Saved {
    at: u64,
    value: u64,
}

/// The last walk of a thread: 56 KiB.
#[derive(Debug)]
pub struct Memo {
    /// Return addresses, the outermost frame's first.
    codes: [u64; MOST],
    /// The stack pointers of the same frames. The word below is the return address.
    stack_pointers: [u64; MOST],
    details: [Detail; MOST],
    frames: usize,
    saved: [Saved; MOST_SAVED],
    places: [Place; MOST_MODULES],
    modules: usize,
    end: End,
    /// The steps of the walk under way, a ring.
    taken: [Taken; MOST],
    /// How many steps there were since the last that cannot be remembered.
    steps: usize,
    /// The remembered frame that was passed last, from inside.
    passed: usize,
}

/// A frame that is remembered.
#[derive(Debug, Clone, Copy)]
struct Joint(usize);

impl Memo {
    /// Remembers nothing.
    #[must_use]
    pub const fn new() -> Self {
        Memo {
            codes: [0; MOST],
            stack_pointers: [0; MOST],
            details: [Detail {
                frame_pointer: 0,
                saved: 0,
                needs_frame_pointer: false,
            }; MOST],
            frames: 0,
            saved: [Saved { at: 0, value: 0 }; MOST_SAVED],
            places: [Place::NOWHERE; MOST_MODULES],
            modules: 0,
            end: End::Outermost,
            taken: [Taken {
                code: 0,
                stack_pointer: 0,
                frame_pointer: 0,
                saved_at: 0,
                by_frame_pointer: false,
            }; MOST],
            steps: 0,
            passed: 0,
        }
    }

    /// Begins a walk.
    pub(super) fn begin(&mut self) {
        self.steps = 0;
        self.passed = self.frames;
    }

    /// Forgets the walk that is remembered.
    pub(super) fn forget(&mut self) {
        self.frames = 0;
        self.passed = 0;
        self.modules = 0;
    }

    /// The remembered frame with this code address and stack pointer, and this frame pointer
    /// where it matters. A walk asks from inside to outside.
    #[inline]
    fn find(&mut self, frame: &State) -> Option<Joint> {
        while let Some(at) = self.passed.checked_sub(1) {
            let known = *self.stack_pointers.get(at)?;
            if known > frame.stack_pointer {
                return None;
            }
            if known == frame.stack_pointer {
                let is_same = *self.codes.get(at)? == frame.code;
                let detail = self.details.get(at)?;
                let fits =
                    !detail.needs_frame_pointer || detail.frame_pointer == frame.frame_pointer;
                return (is_same && fits).then_some(Joint(at));
            }
            self.passed = at;
        }
        None
    }

    /// Whether every word from a frame on is what it was, and every module.
    fn holds<M: Memory + ?Sized>(
        &self,
        Joint(at): Joint,
        memory: &M,
        is_there: impl FnMut(&Place) -> bool,
    ) -> bool {
        let codes = self.codes.get(..at).unwrap_or_default();
        let pointers = self.stack_pointers.get(..at).unwrap_or_default();
        let mut difference = 0;
        for (code, pointer) in codes.iter().zip(pointers) {
            match memory.read_eight(RuntimeAddr(pointer.wrapping_sub(8))) {
                Ok(word) => difference |= u64::from_le_bytes(word) ^ code,
                Err(_) => return false,
            }
        }
        let saved = self.details.get(at).map_or(0, |detail| detail.saved);
        for saved in self.saved.get(..saved as usize).unwrap_or_default() {
            match memory.read_eight(RuntimeAddr(saved.at)) {
                Ok(word) => difference |= u64::from_le_bytes(word) ^ saved.value,
                Err(_) => return false,
            }
        }
        let mut places = self.places.get(..self.modules).unwrap_or_default().iter();
        difference == 0 && places.all(is_there)
    }

    /// Puts the steps that were taken before the frames that are remembered, as many as fit.
    fn prepend(&mut self, recent: &Recent) {
        let all = recent
            .used()
            .and_then(|mut places| places.try_for_each(|place| self.remember_place(place)));
        if all.is_none() {
            return self.forget();
        }
        let kept = self.steps.min(MOST).min(MOST - self.frames);
        for back in 1..=kept {
            let Some(taken) = self.taken.get((self.steps - back) % MOST).copied() else {
                break;
            };
            if self.remember(&taken).is_none() {
                break;
            }
        }
        self.steps = 0;
    }

    /// `None` where there is no more room.
    fn remember(&mut self, taken: &Taken) -> Option<()> {
        let outer = *self.details.get(self.frames.checked_sub(1)?)?;
        let mut saved = outer.saved;
        if taken.saved_at != 0 && outer.needs_frame_pointer {
            *self.saved.get_mut(saved as usize)? = Saved {
                at: taken.saved_at,
                value: outer.frame_pointer,
            };
            saved += 1;
        }
        let passes_on = taken.saved_at == 0 && outer.needs_frame_pointer;
        *self.codes.get_mut(self.frames)? = taken.code;
        *self.stack_pointers.get_mut(self.frames)? = taken.stack_pointer;
        *self.details.get_mut(self.frames)? = Detail {
            frame_pointer: taken.frame_pointer,
            saved,
            needs_frame_pointer: taken.by_frame_pointer || passes_on,
        };
        self.frames += 1;
        Some(())
    }

    fn remember_place(&mut self, place: Place) -> Option<()> {
        let known = self.places.get(..self.modules)?;
        if !known.contains(&place) {
            *self.places.get_mut(self.modules)? = place;
            self.modules += 1;
        }
        Some(())
    }
}

impl Record for Memo {
    #[inline]
    fn take(&mut self, taken: Taken) {
        if let Some(slot) = self.taken.get_mut(self.steps % MOST) {
            *slot = taken;
        }
        self.steps += 1;
    }

    fn interrupt(&mut self) {
        self.steps = 0;
    }

    #[inline]
    fn resume<S: Modules + ?Sized, M: Memory + ?Sized>(
        &mut self,
        frame: State,
        memory: &M,
        modules: &S,
        recent: &mut Recent,
        frames: &mut Frames<'_>,
    ) -> Option<End> {
        let joint = self.find(&frame)?;
        if !self.holds(joint, memory, |place| recent.is_there(place, modules)) {
            self.forget();
            return None;
        }
        let callers = self.codes.get(..joint.0).unwrap_or_default();
        let all = callers.iter().rev().try_for_each(|code| frames.push(*code));
        self.frames = joint.0 + 1;
        self.prepend(recent);
        Some(all.map_or(End::Limit, |()| self.end))
    }

    fn finish(&mut self, code: RuntimeAddr, stack_pointer: u64, end: End, recent: &Recent) {
        self.forget();
        self.end = end;
        if let (Some(first), Some(pointer), Some(detail)) = (
            self.codes.first_mut(),
            self.stack_pointers.first_mut(),
            self.details.first_mut(),
        ) {
            *first = code.0;
            *pointer = stack_pointer;
            *detail = Detail::default();
            self.frames = 1;
        }
        self.prepend(recent);
    }
}

impl Default for Memo {
    fn default() -> Self {
        Memo::new()
    }
}
