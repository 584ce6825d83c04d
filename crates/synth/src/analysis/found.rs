//! What is known of a unit that was followed.

use core::ops::Range;

use super::ranges::Lifted;
use super::segments::{Segment, Target};
use super::{Analyzer, Conflict, Edge};
use crate::apply::Told;
use crate::arch::Facts;
use crate::code::{Code, InsnId};
use crate::op::{Flow, Op, Way};
use crate::program::{Part, Program};
use crate::state::State;
use crate::value::Value;

/// What is known of a unit.
#[derive(Debug)]
pub struct Analysis<'a> {
    pub(super) analyzer: &'a Analyzer,
    pub(super) program: &'a Program,
}

impl Analysis<'_> {
    /// The instructions.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.analyzer.code
    }

    /// The instruction to which the address on top of the stack leads, if it is of the unit: a call has pushed it, or somebody
    /// who calls by hand.
    #[must_use]
    pub fn pushed(&self, state: &State) -> Option<InsnId> {
        self.analyzer.pushed(state)
    }

    /// Whether something is stored around an address of the stack of which it is assumed that it is inside its array: by an index or a number
    /// that only a run knows.
    #[must_use]
    pub fn assumes_bounds(&self) -> bool {
        self.analyzer.assumes_bounds
    }

    /// What must be known of the machine.
    #[must_use]
    pub fn facts(&self) -> &'static Facts {
        self.analyzer.facts()
    }

    /// Where paths met that disagree about the stack pointer.
    #[must_use]
    pub fn conflicts(&self) -> &[Conflict] {
        &self.analyzer.conflicts
    }

    /// Whether the registers that calls preserve hold what they held at entry.
    #[must_use]
    pub fn preserves(&self, state: &State) -> bool {
        let mut preserved = self.facts().preserved.iter();
        preserved.all(|register| state.get(*register) == Value::at_entry(*register))
    }

    /// Whether these, and the stack pointer, hold what they held at entry.
    #[must_use]
    pub fn is_as_called(&self, state: &State) -> bool {
        let sp = self.facts().stack_pointer;
        state.get(sp) == Value::at_entry(sp) && self.preserves(state)
    }

    /// Whether a return goes to who called, with all as it was at entry.
    #[must_use]
    pub fn is_return(&self, state: &State) -> bool {
        self.facts().is_return(state) && self.is_as_called(state)
    }

    /// Whether a jump to the address in a register is a return: that is the return address, and the stack is as a
    /// return leaves it.
    #[must_use]
    pub fn is_return_by(&self, target: u8, state: &State) -> bool {
        let facts = self.facts();
        let left = Value::at_entry(facts.stack_pointer).plus(facts.call_pushes.into());
        let returns = state.get(target).behind_return(facts.return_address);
        returns.is_some() && state.get(facts.stack_pointer) == left
    }

    /// What holds, of what a row can speak of, while the callee of a call runs before which `state` holds.
    #[must_use]
    pub fn while_called(&self, state: &State) -> State {
        let mut state = state.clone();
        self.analyzer.semantics.callee(&mut state);
        state
    }

    /// What holds behind an instruction from which control goes on, if `state` holds before it.
    #[must_use]
    pub fn behind(&self, insn: InsnId, state: &State) -> State {
        let mut state = state.clone();
        self.analyzer.apply(self.code().ops_range(insn), &mut state);
        state
    }

    /// Whether an instruction is a system call that no thread comes back from, as exits and the return from a
    /// signal's handler are, by what holds before it.
    #[must_use]
    pub fn is_last_call(&self, insn: InsnId, state: &State) -> bool {
        let ops = self.code().ops_of(insn);
        ops.iter()
            .any(|op| self.analyzer.semantics.never_comes_back(op, state))
    }

    /// Indirect jumps of which it is not known where they go.
    #[must_use]
    pub fn unresolved(&self) -> &[InsnId] {
        &self.analyzer.unresolved
    }

    /// Tells of each instruction that something leads to, in the order of the unit's ranges, what holds before it.
    pub fn visit(&self, mut visit: impl FnMut(InsnId, &State)) {
        self.watch(|insn, state, _| {
            visit(insn, state);
            Watch::ALL
        });
    }

    /// Tells of instructions that something leads to, in the order of the unit's ranges, what holds before them,
    /// and what may have changed since the one told before, as [`State::settle`] has it. The answer says which of
    /// those that follow are told; each that [leaves the code](Flow::leaves) is, but for some calls, and each that does not come
    /// directly from one before.
    pub fn watch(&self, mut see: impl FnMut(InsnId, &State, u64) -> Watch) {
        let mut state = State::new();
        for (head, _) in self.stretches() {
            let Some(known) = self.analyzer.state_of(head) else {
                continue;
            };
            state.assign(known);
            state.touch();
            let mut watch = Watch::ALL;
            for segment in self.chain(head) {
                self.follow(segment, &mut state, &mut watch, &mut see);
                self.go_on(segment, &mut state);
            }
        }
    }

    /// Where control was found to go, but for the ways inside blocks: in the order of where it goes. Empty without
    /// [`Analyzer::with_edges`].
    #[must_use]
    pub fn edges(&self) -> &[Edge] {
        self.analyzer.edges.as_deref().unwrap_or_default()
    }

    /// Whether functions are come into at an instruction, as after a call.
    #[must_use]
    pub fn is_entry(&self, insn: InsnId) -> bool {
        let address = self.code().range(insn).start;
        let range = self.analyzer.ranges.of(insn);
        let is_start =
            |lifted: &Lifted| lifted.range.start == address && lifted.part == Part::Function;
        range.is_some_and(is_start) || self.program.is_entry(address)
    }

    /// The instructions that something leads to, in blocks: control comes into one at its begin, and out of each of its
    /// instructions goes on to the next, or leaves it by one of the [edges](Analysis::edges).
    pub fn blocks(&self) -> impl Iterator<Item = Range<u32>> {
        let stretches = self.stretches();
        let reached = stretches.filter(|(head, _)| head.state != 0);
        reached.map(|(head, end)| head.first.0..end.0)
    }

    /// Tells of each operation of the instructions that something leads to what holds before it, in the order of the
    /// blocks; `None` stands for what control does behind the operations, which is told of instructions from which it does not
    /// just go on, and of those that do nothing.
    pub fn trace(&self, mut see: impl FnMut(InsnId, Option<Op>, &State)) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.semantics);
        let mut state = State::new();
        for (head, _) in self.stretches() {
            let Some(known) = self.analyzer.state_of(head) else {
                continue;
            };
            state.assign(known);
            for segment in self.chain(head) {
                let mut ops = (segment.ops_start..)
                    .zip(code.ops_at(segment.ops()))
                    .peekable();
                for step in code.steps(segment.first, segment.end) {
                    let mut is_idle = true;
                    while let Some((at, op)) = ops.next_if(|(at, _)| *at < step.ops_end) {
                        is_idle = false;
                        see(step.id, Some(*op), &state);
                        semantics.apply(&mut state, *op, at);
                    }
                    if step.is_flow || is_idle {
                        see(step.id, None, &state);
                    }
                }
                self.go_on(segment, &mut state);
            }
        }
    }

    /// The instructions that nothing leads to, and that are not in jump tables.
    pub fn unreached(&self) -> impl Iterator<Item = InsnId> {
        self.not_followed().filter(|insn| {
            let range = self.code().range(*insn);
            !self.analyzer.data.is_in_table(&range)
        })
    }

    /// What is no code, or nothing leads to, in its order.
    pub(super) fn not_followed(&self) -> impl Iterator<Item = InsnId> {
        let stretches = self.stretches();
        let unreached = stretches.filter(|(head, _)| head.state == 0);
        unreached.flat_map(|(head, end)| (head.first.0..end.0).map(InsnId))
    }

    /// The segments that are not chained to another, in the order of the code, and where what is chained to each
    /// ends.
    fn stretches(&self) -> impl Iterator<Item = (&Segment, InsnId)> {
        let mut at = InsnId(0);
        core::iter::from_fn(move || {
            let place = self.analyzer.segment_at(at)?;
            let head = self.analyzer.segments.get(place)?;
            at = match head.state {
                0 => head.end,
                _ => self.chain(head).last().map_or(head.end, |last| last.end),
            };
            Some((head, at))
        })
    }

    /// A segment, and those that are chained to it.
    fn chain<'s>(&'s self, head: &'s Segment) -> impl Iterator<Item = &'s Segment> {
        core::iter::successors(Some(head), |segment| {
            let next = self.analyzer.segment_at(segment.end)?;
            let next = self.analyzer.segments.get(next)?;
            (segment.goes_on && next.is_chained).then_some(next)
        })
    }

    /// Tells of the instructions of a segment, and does their operations.
    #[inline]
    fn follow(
        &self,
        segment: &Segment,
        state: &mut State,
        watch: &mut Watch,
        mut see: impl FnMut(InsnId, &State, u64) -> Watch,
    ) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.semantics);
        let mut ops = code.ops_at(segment.ops()).iter();
        let mut at = segment.ops_start;
        for step in code.steps(segment.first, segment.end) {
            let leaves = || match code.flow(step.id) {
                Some(Flow::Call(_) | Flow::IndirectCall) => {
                    watch.calls || semantics.keeps_below(state)
                }
                flow => flow.is_some_and(Flow::leaves),
            };
            let is_watched = state.is_written(watch.written) || step.end >= watch.until;
            if is_watched || step.is_flow && leaves() {
                let written = state.settle();
                *watch = see(step.id, state, written);
            }
            while at < step.ops_end
                && let Some(op) = ops.next()
            {
                semantics.apply(state, *op, at);
                at += 1;
            }
        }
    }

    /// Does what the last instruction of a segment does if control goes on behind it.
    fn go_on(&self, segment: &Segment, state: &mut State) {
        let semantics = self.analyzer.semantics;
        let flow = segment.flow().and_then(|place| self.analyzer.flow(place));
        match flow {
            Some((_, Flow::Call(_) | Flow::IndirectCall, target)) => {
                let returns = match target {
                    Target::Outside(returns) => returns,
                    Target::Inside(_) => None,
                };
                semantics.call(state, returns);
            }
            Some((_, Flow::Branch { test, .. }, _)) => {
                if let Told::Holds(register, value) = semantics.told(state, test, Way::On) {
                    state.set(register, value);
                }
            }
            _ => {}
        }
    }
}

/// Which instructions [`Analysis::watch`] tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Those before which one of these was written, as [`State::settle`] has it.
    pub written: u64,
    /// Those that end at this address, or behind.
    pub until: u64,
    /// All calls, not only those before which something is known of what is below the stack pointer, and is the callee's.
    pub calls: bool,
}

impl Watch {
    /// All.
    pub const ALL: Watch = Watch {
        written: 0,
        until: 0,
        calls: true,
    };
}
