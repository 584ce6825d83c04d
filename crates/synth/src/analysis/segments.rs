//! Instructions that are done one after another, and the states that arrive at them.

use core::cmp::Reverse;
use core::ops::Range;

use super::ranges::Lifted;
use super::{Analyzer, Conflict, Edge, as_u32};
use crate::code::{Code, InsnId};
use crate::op::Flow;
use crate::program::{Part, Program, Returns};
use crate::state::State;
use crate::value::ANYWHERE;

/// Instructions that are done one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) first: InsnId,
    pub(super) end: InsnId,
    /// Where its operations are in [`Code`].
    pub(super) ops_start: u32,
    pub(super) ops_end: u32,
    /// Where its last instruction is among [`Code::flows`], plus 1; 0 if the processor just goes on from it.
    pub(super) flow: u32,
    /// The place, plus 1, of the state that holds at its begin; 0 if nothing is known to jump there.
    pub(super) state: u32,
    /// The instruction that jumped there first.
    pub(super) from: InsnId,
    pub(super) is_queued: bool,
    /// Whether a direct jump leads there.
    pub(super) is_target: bool,
    /// Whether it is only come into from the segment before.
    pub(super) is_chained: bool,
    /// Whether the next segment comes directly behind, and is of the same function.
    pub(super) has_next: bool,
    /// Whether control goes on there.
    pub(super) goes_on: bool,
}

impl Segment {
    /// One that is yet to be [closed](Segment::close).
    pub(super) fn new(first: InsnId, ops_start: u32) -> Segment {
        Segment {
            first,
            end: first,
            ops_start,
            ops_end: ops_start,
            flow: 0,
            state: 0,
            from: first,
            is_queued: false,
            is_target: false,
            is_chained: false,
            has_next: false,
            goes_on: false,
        }
    }

    /// Has it end before an instruction.
    pub(super) fn close(&mut self, end: InsnId, code: &Code) {
        self.end = end;
        let last = self.last();
        self.ops_end = code.ops_range(last).end;
        self.flow = code.flow_place(last).map_or(0, |place| as_u32(place + 1));
        self.has_next = code.is_followed(last);
    }

    /// Whether something is known to lead there.
    pub(super) fn is_reached(&self) -> bool {
        self.state != 0 || self.is_chained
    }

    /// Where its operations are in [`Code`].
    pub(super) fn ops(&self) -> Range<u32> {
        self.ops_start..self.ops_end
    }

    pub(super) fn last(&self) -> InsnId {
        InsnId(self.end.0.saturating_sub(1))
    }

    /// The place of its last instruction among [`Code::flows`].
    pub(super) fn flow(&self) -> Option<usize> {
        Some(self.flow.checked_sub(1)? as usize)
    }
}

/// Where a direct jump or call goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// To an instruction of the unit; a call only if no function begins there.
    Inside(InsnId),
    /// Elsewhere, or it is not known where; what becomes of a call.
    Outside(Option<Returns>),
}

/// Tells names of run-time addresses that paths meet with from those that operations made.
const JOINED: u32 = 1 << 27;

impl Analyzer {
    /// Cuts the instructions into segments.
    pub(super) fn cut(&mut self, program: &Program) {
        self.used_states = 0;
        self.segments.clear();
        self.queue.clear();
        self.weak.clear();
        self.astray.clear();
        self.conflicts.clear();
        self.unresolved.clear();
        self.data.forget();
        if let Some(edges) = &mut self.edges {
            edges.clear();
        }
        const BEGINS: u32 = 1;
        const IS_TARGET: u32 = 2;
        const IS_FUNCTION: u32 = 4;
        let mut segment_at = core::mem::take(&mut self.segment_at);
        segment_at.clear();
        segment_at.resize(self.code.len(), 0);
        let mut note = |insn: InsnId, what: u32| {
            if let Some(at) = segment_at.get_mut(insn.index()) {
                *at |= what;
            }
        };
        for Lifted { insns, part, .. } in self.ranges.iter() {
            let is_function = *part == Part::Function;
            let what = if is_function { IS_FUNCTION } else { 0 };
            note(InsnId(insns.start), BEGINS | what);
        }
        self.targets.clear();
        for (id, flow) in self.code.flows() {
            note(id.next(), BEGINS);
            let target = self.target(program, *flow);
            if let (Flow::Jump(_) | Flow::Branch { .. }, Target::Inside(insn)) = (flow, target) {
                note(insn, BEGINS | IS_TARGET);
            }
            self.targets.push(target);
        }
        self.segment_at = segment_at;
        for (first, at) in (0..).map(InsnId).zip(&mut self.segment_at) {
            if *at == 0 {
                continue;
            }
            let mut ops_start = 0;
            if let Some(last) = self.segments.last_mut() {
                last.close(first, &self.code);
                last.has_next &= *at & IS_FUNCTION == 0;
                ops_start = last.ops_end;
            }
            self.segments.push(Segment {
                is_target: *at & IS_TARGET != 0,
                ..Segment::new(first, ops_start)
            });
            *at = as_u32(self.segments.len());
        }
        if let Some(last) = self.segments.last_mut() {
            last.close(InsnId(as_u32(self.code.len())), &self.code);
        }
    }

    pub(super) fn target(&self, program: &Program, flow: Flow) -> Target {
        let inside = match flow {
            Flow::Jump(to) | Flow::Branch { to, .. } => self.insn_at(to),
            Flow::Call(to) => match program.returns(to) {
                None if !program.is_entry(to) => self.insn_at(to),
                returns => return Target::Outside(returns),
            },
            _ => None,
        };
        inside.map_or(Target::Outside(None), Target::Inside)
    }

    /// An instruction by its place among [`Code::flows`], and where it goes.
    pub(super) fn flow(&self, place: usize) -> Option<(InsnId, Flow, Target)> {
        let (insn, flow) = self.code.flows().get(place)?;
        Some((*insn, *flow, *self.targets.get(place)?))
    }

    pub(super) fn enter(&mut self, address: u64, entry: &State) {
        if let Some(insn) = self.insn_at(address) {
            self.flow_into(insn, entry, None);
        }
    }

    pub(super) fn segment_at(&self, insn: InsnId) -> Option<usize> {
        let number = self.segment_at.get(insn.index())?;
        Some(number.checked_sub(1)? as usize)
    }

    /// What holds at the begin of a segment that is jumped to.
    pub(super) fn state_of(&self, segment: &Segment) -> Option<&State> {
        self.states.get(segment.state.checked_sub(1)? as usize)
    }

    /// The last segment that begins before an instruction, of those that are wanted.
    pub(super) fn segment_before(
        &self,
        insn: InsnId,
        is_wanted: impl Fn(&Segment) -> bool,
    ) -> Option<usize> {
        let before = (0..insn.0).rev().map(InsnId);
        let mut places = before.filter_map(|id| self.segment_at(id));
        places.find(|place| self.segments.get(*place).is_some_and(&is_wanted))
    }

    /// The segment that begins with an instruction; cuts the one in two that it is inside of.
    pub(super) fn segment_from(&mut self, insn: InsnId) -> Option<usize> {
        if let Some(place) = self.segment_at(insn) {
            return Some(place);
        }
        let place = self.segment_before(insn, |_| true)?;
        let segment = self.segments.get_mut(place)?;
        let rest = Segment {
            first: insn,
            ops_start: self.code.ops_range(insn).start,
            state: 0,
            from: insn,
            is_queued: false,
            is_target: false,
            // Whoever did the whole did this.
            is_chained: segment.is_reached(),
            ..*segment
        };
        segment.close(insn, &self.code);
        segment.goes_on = true;
        self.segments.push(rest);
        *self.segment_at.get_mut(insn.index())? = as_u32(self.segments.len());
        Some(self.segments.len() - 1)
    }

    /// Lets a state arrive at an instruction by a jump.
    pub(super) fn flow_into(&mut self, to: InsnId, state: &State, from: Option<InsnId>) {
        let Some(place) = self.segment_from(to) else {
            return;
        };
        let Some(segment) = self.segments.get_mut(place) else {
            return;
        };
        if let Some(edges) = &mut self.edges {
            edges.push(Edge { to, from });
        }
        let from = from.unwrap_or(to);
        let sp = self.semantics.facts.stack_pointer;
        // Wherever the stack was moved to, on whichever path: it is where it is here. What is on it may have moved along.
        let mut renamed;
        let (arrived, mut state) = (state.get(sp), state);
        if let Some(base) = arrived.base_of() {
            let here = to.0 | JOINED | base & ANYWHERE;
            renamed = state.clone();
            renamed.rename_base(sp, here);
            let known = segment.state.checked_sub(1);
            let known = known.and_then(|known| self.states.get(known as usize));
            if let Some(known) = known.filter(|_| base == here && arrived.offset() != 0) {
                renamed.forget_slots_but(here, known);
            }
            state = &renamed;
        }
        let Some(known) = segment.state.checked_sub(1) else {
            if self.used_states == self.states.len() {
                self.states.push(State::new());
            }
            if let Some(room) = self.states.get_mut(self.used_states) {
                room.assign(state);
            }
            self.used_states += 1;
            segment.state = as_u32(self.used_states);
            segment.from = from;
            let was_chained = core::mem::take(&mut segment.is_chained);
            self.enqueue(to);
            if was_chained
                && let Some(head) = self.segment_before(to, |segment| segment.state != 0)
                && let Some(head) = self.segments.get(head)
            {
                // What leads here from before is a way of its own now.
                self.enqueue(head.first);
            }
            return;
        };
        let Some(known) = self.states.get_mut(known as usize) else {
            return;
        };
        let (first, other) = (known.get(sp), arrived);
        let is_other = |distance| distance != 0;
        let has_moved = first.distance_from(other).is_some_and(is_other);
        let is_told = || self.conflicts.iter().any(|conflict| conflict.at == to);
        if has_moved && !is_told() {
            self.conflicts.push(Conflict {
                at: to,
                first,
                first_from: segment.from,
                other,
                other_from: from,
            });
        }
        if known.join(state) {
            self.enqueue(to);
        }
    }

    /// Does operations, by their places.
    pub(super) fn apply(&self, ops: Range<u32>, state: &mut State) {
        for (at, op) in (ops.start..).zip(self.code.ops_at(ops)) {
            self.semantics.apply(state, *op, at);
        }
    }

    pub(super) fn enqueue(&mut self, insn: InsnId) {
        let place = self.segment_at(insn);
        let segment = place.and_then(|place| self.segments.get_mut(place));
        if let Some(segment) = segment
            && !segment.is_queued
        {
            segment.is_queued = true;
            self.queue.push(Reverse(insn));
        }
    }
}
