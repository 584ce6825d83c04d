//! The shadow stack: the truth about a thread's frames, recorded when they began.
//!
//! Frames are identified by the address of their return address. A thread may have several stacks;
//! it is on one of them, and the others are kept until the stack pointer returns to them.

use std::collections::VecDeque;

/// A function in scope: indexes of its module and of itself there.
pub(crate) type FunctionId = (usize, usize);

/// The registers that a frame's caller will have when it continues, and the frame's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShadowFrame {
    /// The address of the return address.
    pub(crate) key: u64,
    /// The stack pointer that the caller expects.
    pub(crate) sp: u64,
    /// The return address.
    pub(crate) pc: u64,
    /// The caller's values of the preserved registers: rbx, rbp, r12 to r15.
    pub(crate) saved: [u64; 6],
    /// The function that runs in it; `None` if that is out of scope, and its return is awaited.
    pub(crate) function: Option<FunctionId>,
    /// It was interrupted by a signal: nothing is popped behind the return.
    pub(crate) is_interrupted: bool,
    /// Number of reactivations when it began.
    pub(crate) began: u64,
    /// The thread ran at full speed while this was the innermost known frame.
    pub(crate) has_run: bool,
}

/// The function that control is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningFunction {
    pub(crate) id: FunctionId,
    /// Number of reactivations when tracing of all its entries began; `None` if they are not all
    /// traced.
    pub(crate) complete_since: Option<u64>,
}

impl ShadowFrame {
    /// Whether it is the same frame, with any function in it.
    fn is(&self, other: &ShadowFrame) -> bool {
        (self.key, self.pc, self.sp) == (other.key, other.pc, other.sp)
    }

    /// Whether a frame of the running function is certainly the current one: the function was not
    /// called again within it.
    pub(crate) fn is_certainly(&self, running: RunningFunction) -> bool {
        let are_seen = |since| since <= self.began;
        self.function == Some(running.id)
            && (!self.has_run || running.complete_since.is_some_and(are_seen))
    }

    /// Whether its caller continues.
    pub(crate) fn returns_to(&self, pc: u64, sp: u64) -> bool {
        let popped = sp.checked_sub(self.sp);
        let most = if self.is_interrupted {
            0
        } else {
            MAX_RET_BYTES
        };
        self.pc == pc && popped.is_some_and(|popped| popped <= most)
    }
}

/// Frames on one stack, the outermost first.
#[derive(Debug, Default)]
struct ShadowFrames {
    frames: Vec<ShadowFrame>,
    /// The stack that was left for this one, by number.
    parent: Option<u64>,
    number: u64,
    /// The stack pointer when it was left.
    left_at: u64,
}

/// Greatest size of return address and arguments that a function pops by itself, in bytes.
const MAX_POPPED_BYTES: u64 = 128;
/// Greatest number of bytes that `ret N` pops.
const MAX_RET_BYTES: u64 = 0xffff;
/// Greatest size of a frame, in bytes; a stack pointer further away is on another stack.
const MAX_FRAME_BYTES: u64 = 1 << 20;
/// Number of stacks remembered.
const MAX_STACKS: usize = 4096;

/// The frames of a thread.
#[derive(Debug, Default)]
pub(crate) struct ShadowStack {
    /// Stacks that were left, the last one last.
    left: VecDeque<ShadowFrames>,
    active: ShadowFrames,
    count: u64,
    /// Whether the frame of the running code is known.
    pub(crate) certainty: ShadowCertainty,
}

/// Certainty that the innermost frame is that of the running code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ShadowCertainty {
    #[default]
    Certain,
    /// The stack is new. If the running code calls a function on it, that code's frame is still
    /// known; after a switch to another context, no frame is.
    NewStack,
    /// It may be another frame.
    Uncertain,
}

impl ShadowFrames {
    /// Drops frames with a return address below the stack pointer. Frames that run at full speed
    /// end unseen, so their callers may have run at full speed since.
    fn drop_below(&mut self, sp: u64) {
        while let Some(gone) = self.frames.pop_if(|frame| frame.key < sp) {
            if let Some(caller) = self.frames.last_mut() {
                caller.has_run |= gone.has_run;
            }
        }
    }

    /// Ends the frame with its return address at `key`, after its return was seen.
    fn end(&mut self, key: u64) -> Option<ShadowFrame> {
        self.drop_below(key);
        self.frames.pop_if(|frame| frame.key == key)
    }

    /// Whether a stack pointer is where this stack was left, or further out in it.
    fn has(&self, sp: u64) -> bool {
        let outermost = self.frames.first();
        outermost.is_some_and(|frame| self.left_at <= sp && sp <= frame.key)
    }
}

impl ShadowStack {
    /// The innermost frame.
    pub(crate) fn current(&self) -> Option<&ShadowFrame> {
        let mut stack = &self.active;
        // A stack is younger than the one that was left for it, so this ends.
        loop {
            if let Some(frame) = stack.frames.last() {
                return Some(frame);
            }
            let parent = stack.parent?;
            stack = self.left.iter().find(|other| other.number == parent)?;
        }
    }

    fn current_mut(&mut self) -> Option<&mut ShadowFrame> {
        let current = *self.current()?;
        let left = self.left.iter_mut().map(|stack| &mut stack.frames);
        let mut stacks = std::iter::once(&mut self.active.frames).chain(left);
        stacks.find_map(|frames| frames.last_mut().filter(|frame| **frame == current))
    }

    /// Whether a frame still exists.
    pub(crate) fn has(&self, frame: &ShadowFrame) -> bool {
        self.active.frames.iter().any(|other| other.is(frame)) || self.has_left(frame)
    }

    /// Whether a frame is on a stack that was left.
    pub(crate) fn has_left(&self, frame: &ShadowFrame) -> bool {
        let mut frames = self.left.iter().flat_map(|stack| &stack.frames);
        frames.any(|other| other.is(frame))
    }

    /// A function was called, or a signal interrupted one.
    pub(crate) fn push(&mut self, frame: ShadowFrame) {
        self.active.drop_below(frame.key.saturating_add(1));
        self.active.frames.push(frame);
        self.certainty = ShadowCertainty::Certain;
    }

    /// Sets the function that runs in the innermost frame; `None` if it is out of scope.
    pub(crate) fn becomes(&mut self, function: Option<FunctionId>) {
        if let Some(frame) = self.current_mut() {
            frame.function = function;
        }
    }

    /// The thread runs at full speed.
    pub(crate) fn runs(&mut self) {
        if let Some(frame) = self.current_mut() {
            frame.has_run = true;
        }
    }

    /// Control left the innermost frames: drops those with a return address below the stack
    /// pointer.
    pub(crate) fn leave(&mut self, sp: u64) {
        self.active.drop_below(sp);
    }

    /// A return took its target from the stack at `key`. Returns the frame that it ended, if any.
    pub(crate) fn returned(&mut self, key: u64, sp: u64) -> Option<ShadowFrame> {
        let is_it = |frame: &ShadowFrame| frame.key == key;
        if !self.active.frames.iter().any(is_it) {
            let found = self
                .left
                .iter()
                .position(|stack| stack.frames.iter().any(is_it));
            match found {
                Some(place) => self.switch_to(place, key),
                None => {
                    self.active.drop_below(sp);
                    return None;
                }
            }
        }
        self.certainty = ShadowCertainty::Certain;
        self.active.end(key)
    }

    /// Ends the innermost frame.
    pub(crate) fn end(&mut self) -> Option<ShadowFrame> {
        let key = self.current()?.key;
        self.active.end(key)
    }

    /// Interrupted code resumes.
    pub(crate) fn resumed(&mut self, pc: u64, sp: u64) -> bool {
        self.land(|frame| frame.is_interrupted && frame.pc == pc && frame.sp == sp)
    }

    /// Control arrived at an awaited address: the return from a function out of scope. Without such
    /// a frame, it may be in the middle of a frame of the function there: after a jump over frames,
    /// or at a breakpoint that awaits it.
    pub(crate) fn landed(
        &mut self,
        pc: u64,
        sp: u64,
        function: Option<RunningFunction>,
    ) -> ShadowLanding {
        if self.land(|frame| frame.returns_to(pc, sp)) {
            return ShadowLanding::Returned;
        }
        match function {
            Some(function) if self.find_within(function, sp) => ShadowLanding::Within,
            _ => ShadowLanding::Nowhere,
        }
    }

    /// Ends the outermost frame that passes the test: others with the same return address were
    /// jumped over.
    fn land(&mut self, is_it: impl Fn(&ShadowFrame) -> bool) -> bool {
        let of = |stack: &ShadowFrames| {
            let mut frames = stack.frames.iter();
            frames.find(|frame| is_it(frame)).map(|frame| frame.key)
        };
        let key = match of(&self.active) {
            Some(key) => key,
            None => {
                let mut stacks = self.left.iter().enumerate().rev();
                let found = stacks.find_map(|(place, stack)| Some((place, of(stack)?)));
                let Some((place, key)) = found else {
                    return false;
                };
                let left_at = self.active.frames.last().map_or(0, |frame| frame.key);
                self.switch_to(place, left_at);
                key
            }
        };
        self.active.end(key);
        self.certainty = ShadowCertainty::Certain;
        true
    }

    /// Selects the innermost frame of a function that a stack pointer may be in.
    fn find_within(&mut self, function: RunningFunction, sp: u64) -> bool {
        let is_in = |stack: &ShadowFrames| {
            let mut frames = stack.frames.iter().rev();
            let frame = frames.find(|frame| frame.key >= sp);
            frame.is_some_and(|frame| {
                frame.is_certainly(function) && frame.key - sp < MAX_FRAME_BYTES
            })
        };
        if !is_in(&self.active) {
            let mut left = self.left.iter();
            let Some(place) = left.rposition(|stack| stack.has(sp) && is_in(stack)) else {
                return false;
            };
            self.switch_to(place, sp);
        }
        self.active.drop_below(sp);
        self.certainty = ShadowCertainty::Certain;
        true
    }

    /// The stack pointer was loaded with a value that is not relative to the old one.
    pub(crate) fn jumped(&mut self, from: u64, to: u64) {
        let innermost = self.active.frames.last();
        let limit = innermost.map(|frame| frame.key.saturating_add(MAX_POPPED_BYTES));
        let is_within = limit.is_some_and(|limit| from <= to && to <= limit);
        if is_within || from == to {
            return;
        }
        let exact = self.left.iter().rposition(|stack| stack.left_at == to);
        let near = || self.left.iter().rposition(|stack| stack.has(to));
        if let Some(place) = exact.or_else(near) {
            self.certainty = match exact {
                Some(_) => ShadowCertainty::Certain,
                None => ShadowCertainty::Uncertain,
            };
            self.switch_to(place, from);
            self.active.drop_below(to);
            return;
        }
        let outermost = self.active.frames.first();
        if from < to && outermost.is_some_and(|frame| to <= frame.key) {
            // A jump over frames, or a stack within a frame of this one.
            self.certainty = ShadowCertainty::Uncertain;
            return;
        }
        self.count += 1;
        let fresh = ShadowFrames {
            parent: self.parent_of_next(),
            number: self.count,
            ..ShadowFrames::default()
        };
        self.leave_for(fresh, from);
        self.certainty = ShadowCertainty::NewStack;
    }

    /// Decides whether a new stack belongs to another context with unknown frames.
    pub(crate) fn settle(&mut self, is_other: bool) {
        self.certainty = ShadowCertainty::Certain;
        if is_other {
            self.active.parent = None;
        }
    }

    /// The stack with the innermost frame that continues on a new one.
    fn parent_of_next(&self) -> Option<u64> {
        if self.active.frames.is_empty() {
            self.active.parent
        } else {
            Some(self.active.number)
        }
    }

    fn switch_to(&mut self, place: usize, left_at: u64) {
        if let Some(stack) = self.left.remove(place) {
            self.leave_for(stack, left_at);
        }
    }

    fn leave_for(&mut self, stack: ShadowFrames, left_at: u64) {
        let mut before = std::mem::replace(&mut self.active, stack);
        before.left_at = left_at;
        if !before.frames.is_empty() {
            self.left.push_back(before);
        }
        if self.left.len() > MAX_STACKS {
            self.left.pop_front();
        }
    }

    /// In an uncertain state: the current frame is certain if the running function is the frame's.
    pub(crate) fn validate(&mut self, function: Option<RunningFunction>, sp: u64) {
        if self.certainty == ShadowCertainty::Uncertain
            && let Some(function) = function
        {
            self.find_within(function, sp);
        }
    }
}

/// Where control arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShadowLanding {
    /// Behind a call that was not traced.
    Returned,
    /// In the middle of a known frame.
    Within,
    /// In no known frame.
    Nowhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: FunctionId = (0, 0);
    const G: FunctionId = (0, 1);

    fn frame(key: u64, pc: u64, function: Option<FunctionId>) -> ShadowFrame {
        ShadowFrame {
            key,
            sp: key + 8,
            pc,
            saved: [0; 6],
            function,
            is_interrupted: false,
            began: 0,
            has_run: true,
        }
    }

    fn running(id: FunctionId, seen_since: Option<u64>) -> RunningFunction {
        RunningFunction {
            id,
            complete_since: seen_since,
        }
    }

    /// One frame of `F` at 0x1000, which called `G`.
    fn two() -> ShadowStack {
        let mut shadow = ShadowStack::default();
        shadow.push(frame(0x1000, 0x1, Some(F)));
        shadow.push(frame(0xf00, 0x2, Some(G)));
        shadow
    }

    fn key(shadow: &ShadowStack) -> Option<u64> {
        shadow.current().map(|frame| frame.key)
    }

    #[test]
    fn a_return_ends_the_frame_whose_return_address_it_takes() {
        let mut shadow = two();
        // A pushed jump target is not a frame's return address.
        assert_eq!(shadow.returned(0xef8, 0xf00), None);
        assert_eq!(key(&shadow), Some(0xf00));
        assert_eq!(
            shadow.returned(0xf00, 0xf08).map(|frame| frame.pc),
            Some(0x2)
        );
        assert_eq!(key(&shadow), Some(0x1000));
    }

    #[test]
    fn the_stack_pointer_selects_among_frames_with_equal_return_addresses() {
        let mut shadow = ShadowStack::default();
        shadow.push(frame(0x1000, 0x9, None));
        shadow.push(frame(0xf00, 0x1, Some(F)));
        shadow.push(frame(0xe00, 0x9, None));
        assert_eq!(shadow.landed(0x9, 0x1008, None), ShadowLanding::Returned);
        assert_eq!(key(&shadow), None);
        // Deeper in a recursion it has not returned yet.
        shadow.push(frame(0x1000, 0x9, None));
        assert_eq!(shadow.landed(0x9, 0xd08, None), ShadowLanding::Nowhere);
        assert_eq!(key(&shadow), Some(0x1000));
    }

    #[test]
    fn callers_of_a_frame_with_an_unseen_end_may_have_run() {
        let has_run = |end: fn(&mut ShadowStack)| {
            let mut shadow = ShadowStack::default();
            for (key, has_run) in [(0x1000, false), (0xf00, true)] {
                let frame = ShadowFrame {
                    has_run,
                    ..frame(key, 0x9, Some(F))
                };
                shadow.push(frame);
            }
            end(&mut shadow);
            shadow.current().unwrap().has_run
        };
        // The running code calls another function at the same place.
        assert!(has_run(|shadow| {
            shadow.push(frame(0xf00, 0x2, None));
            shadow.returned(0xf00, 0xf08);
        }));
        assert!(has_run(|shadow| shadow.leave(0xf80)));
        // Its end was seen.
        assert!(!has_run(|shadow| {
            shadow.returned(0xf00, 0xf08);
        }));
        assert!(!has_run(|shadow| {
            shadow.landed(0x9, 0xf08, None);
        }));
    }

    #[test]
    fn a_landing_pad_is_in_the_frame_of_its_function() {
        let mut shadow = two();
        assert_eq!(
            shadow.landed(0x77, 0xf80, Some(running(G, Some(0)))),
            ShadowLanding::Nowhere
        );
        assert_eq!(
            shadow.landed(0x77, 0xf80, Some(running(F, None))),
            ShadowLanding::Nowhere
        );
        assert_eq!(
            shadow.landed(0x77, 0xf80, Some(running(F, Some(1)))),
            ShadowLanding::Nowhere
        );
        assert_eq!(
            shadow.landed(0x77, 0xf80, Some(running(F, Some(0)))),
            ShadowLanding::Within
        );
        assert_eq!(key(&shadow), Some(0x1000));
    }

    #[test]
    fn a_stack_that_was_left_has_its_frames_when_it_is_come_back_to() {
        let mut shadow = two();
        shadow.jumped(0xe80, 0x90_0000);
        assert_eq!(shadow.certainty, ShadowCertainty::NewStack);
        // Code that calls on another stack still has its frame.
        shadow.settle(false);
        assert_eq!(key(&shadow), Some(0xf00));
        shadow.push(frame(0x8f_fff8, 0x3, Some(F)));
        shadow.jumped(0x8f_ff00, 0xe80);
        assert_eq!(
            (key(&shadow), shadow.certainty),
            (Some(0xf00), ShadowCertainty::Certain)
        );
        shadow.jumped(0xe80, 0x8f_ff00);
        assert_eq!(key(&shadow), Some(0x8f_fff8));
    }

    #[test]
    fn frames_of_another_context_are_unknown() {
        let mut shadow = two();
        shadow.jumped(0xe80, 0x90_0000);
        shadow.settle(true);
        assert_eq!(key(&shadow), None);
        shadow.push(frame(0x8f_fff8, 0x3, Some(G)));
        assert_eq!(key(&shadow), Some(0x8f_fff8));
    }

    #[test]
    fn a_stack_pointer_that_stays_in_its_frame_is_on_the_same_stack() {
        let mut shadow = two();
        for to in [0xf00, 0xec0, 0xf08] {
            shadow.jumped(0xe80, to);
            assert_eq!(
                (key(&shadow), shadow.certainty),
                (Some(0xf00), ShadowCertainty::Certain)
            );
        }
    }
}
