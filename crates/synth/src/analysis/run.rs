//! The work on one unit: where control goes from each instruction, and with what.

use core::cmp::Reverse;
use core::ops::Range;
use std::sync::Arc;

use super::data::ReadTable;
use super::guide::{By, Guide};
use super::ranges::Lifted;
use super::segments::{Segment, Target};
use super::{Analyzer, Landing};
use crate::apply::Told;
use crate::code::InsnId;
use crate::op::{Flow, Way};
use crate::program::{Image, Part, Program, Returns};
use crate::state::State;
use crate::value::{JumpTable, Known, Value};

/// An edge that is only followed where nothing else leads.
#[derive(Debug)]
pub(super) struct Weak {
    pub(super) from: InsnId,
    pub(super) to: InsnId,
    pub(super) state: Box<State>,
}

/// The work on one unit.
pub(super) struct Run<'a, I: ?Sized, G> {
    pub(super) analyzer: &'a mut Analyzer,
    pub(super) program: &'a Program,
    pub(super) image: &'a I,
    pub(super) landings: &'a [Landing],
    pub(super) guide: &'a G,
    /// The ranges before this one are come into.
    pub(super) next_range: usize,
    /// The guesses before this one are followed.
    pub(super) next_guess: usize,
}

/// Whether a call leads to no function that is known.
fn is_unknown(target: Target) -> bool {
    matches!(target, Target::Outside(None))
}

impl<I: Image + ?Sized, G: Guide> Run<'_, I, G> {
    pub(super) fn drain(&mut self) {
        let mut state = State::new();
        loop {
            while let Some(Reverse(head)) = self.analyzer.queue.pop() {
                self.chain(head, &mut state);
                if self.analyzer.budget == 0 {
                    return;
                }
            }
            // What nothing else leads to.
            let Some(weak) = self.analyzer.weak.pop() else {
                if self.enter_fragment() || self.enter_guess() {
                    continue;
                }
                return;
            };
            let place = self.analyzer.segment_from(weak.to);
            let segment = place.and_then(|place| self.analyzer.segments.get(place));
            if segment.is_some_and(|segment| !segment.is_reached()) {
                self.flow_into(weak.to, &weak.state, weak.from);
            }
        }
    }

    /// Comes into a fragment that nothing leads to, as its row says; whether there is one.
    fn enter_fragment(&mut self) -> bool {
        while let Some(lifted) = self.analyzer.ranges.get(self.next_range) {
            let start = lifted.range.start;
            self.next_range += 1;
            let first = self.analyzer.insn_at(start);
            let segment = first
                .and_then(|first| self.analyzer.segment_at(first))
                .and_then(|place| self.analyzer.segments.get(place));
            let is_reached = segment.is_none_or(|segment| {
                // What begins with padding begins elsewhere.
                let is_padding = self.analyzer.code.is_padding(segment.first);
                segment.is_reached() || is_padding
            });
            if !is_reached && let Some(state) = self.guide.entry(start) {
                self.analyzer.enter(start, &state);
                return true;
            }
        }
        false
    }

    /// Comes into code that nothing leads to by a jump of which it is not known where it leads; whether there is such code.
    fn enter_guess(&mut self) -> bool {
        while let Some(address) = self.guide.guesses().get(self.next_guess) {
            self.next_guess += 1;
            let Some(to) = self.analyzer.insn_at(*address) else {
                continue;
            };
            let place = self.analyzer.segment_from(to);
            let segment = place.and_then(|place| self.analyzer.segments.get(place));
            let is_reached = segment.is_none_or(Segment::is_reached);
            let jumps = &self.analyzer.astray;
            let before = jumps.iter().rev().find(|(from, _)| *from < to);
            let jump = before.or(jumps.first()).filter(|_| !is_reached);
            if let Some((from, state)) = jump.cloned() {
                self.flow_into(to, &state, from);
                return true;
            }
        }
        false
    }

    /// Lets a state arrive at an instruction by a jump.
    fn flow_into(&mut self, to: InsnId, state: &State, from: InsnId) {
        self.analyzer.flow_into(to, state, Some(from));
    }

    /// Does a segment that is jumped to, and those that are chained to it.
    fn chain(&mut self, head: InsnId, state: &mut State) {
        let Some(mut place) = self.analyzer.segment_at(head) else {
            return;
        };
        let Some(segment) = self.analyzer.segments.get_mut(place) else {
            return;
        };
        segment.is_queued = false;
        let segment = *segment;
        match self.analyzer.state_of(&segment) {
            Some(known) => state.assign(known),
            None => return,
        }
        state.touch();
        while let Some(segment) = self.analyzer.segments.get(place).copied() {
            self.analyzer.apply(segment.ops(), state);
            self.analyzer.assumes_bounds |= state.assumes_bounds();
            let cost = (segment.ops_end - segment.ops_start + 1) as usize;
            self.analyzer.budget = self.analyzer.budget.saturating_sub(cost);
            let goes_on = match segment.flow() {
                Some(flow) => self.leave(flow, state),
                None => true,
            };
            let goes_on = goes_on && segment.has_next;
            if let Some(segment) = self.analyzer.segments.get_mut(place) {
                segment.goes_on = goes_on;
            }
            if !goes_on {
                return;
            }
            let Some(next) = self.analyzer.segment_at(segment.end) else {
                return;
            };
            let Some(behind) = self.analyzer.segments.get_mut(next) else {
                return;
            };
            if behind.is_target || behind.state != 0 {
                self.flow_into(segment.end, state, segment.last());
                return;
            }
            behind.is_chained = true;
            place = next;
        }
    }

    /// Follows the ways out of an instruction, by its place among [`Code::flows`], that are not the next; whether
    /// the next is one, with what `state` is then.
    fn leave(&mut self, place: usize, state: &mut State) -> bool {
        let Some((insn, flow, target)) = self.analyzer.flow(place) else {
            return true;
        };
        let semantics = self.analyzer.semantics;
        match flow {
            Flow::Jump(_) => {
                self.jump(insn, target, state);
                false
            }
            Flow::Branch { test, .. } => {
                match semantics.told(state, test, Way::Taken) {
                    Told::Nothing => self.jump(insn, target, state),
                    Told::Holds(register, value) => {
                        let held = state.get(register);
                        state.set(register, value);
                        self.jump(insn, target, state);
                        state.set(register, held);
                    }
                    Told::Never => {}
                }
                match semantics.told(state, test, Way::On) {
                    Told::Nothing => true,
                    Told::Holds(register, value) => {
                        state.set(register, value);
                        true
                    }
                    Told::Never => false,
                }
            }
            // What lies between is no code.
            Flow::Call(to) if is_unknown(target) && self.is_hidden(insn, to) => false,
            Flow::Call(_) | Flow::IndirectCall => match target {
                Target::Inside(inside) => self.call_inside(insn, inside, state),
                Target::Outside(returns) => self.call(insn, returns, state),
            },
            Flow::IndirectJump(register) => {
                self.indirect(insn, state.get(register), state);
                false
            }
            Flow::Return { pops } => {
                self.returns(insn, pops, state);
                false
            }
            Flow::Trap => self.guide.resumes(self.analyzer.code.range(insn).start),
        }
    }

    fn jump(&mut self, from: InsnId, target: Target, state: &State) {
        let Target::Inside(target) = target else {
            return self.come_back(from, state);
        };
        let Some(Lifted { insns, part, .. }) = self.analyzer.ranges.of(target) else {
            return;
        };
        if insns.contains(&from.0) {
            return self.flow_into(target, state, from);
        }
        let is_function = insns.start == target.0 && *part == Part::Function;
        let to = self.analyzer.code.range(target).start;
        if is_function || self.program.is_entry(to) {
            return self.come_back(from, state);
        }
        if self.guide.comes(By::Jump, to, state) {
            self.flow_into(target, state, from);
        } else {
            self.perhaps(from, target, state);
        }
    }

    /// Follows the return from another function that was jumped to, if the address of code of this one was pushed for that.
    fn come_back(&mut self, from: InsnId, state: &State) {
        if let Some(to) = self.analyzer.pushed(state) {
            let semantics = self.analyzer.semantics;
            let mut back = state.clone();
            semantics.pop_return(&mut back);
            semantics.call(&mut back, None);
            self.flow_into(to, &back, from);
        }
    }

    /// Notes an edge that is only followed if nothing else leads there.
    fn perhaps(&mut self, from: InsnId, to: InsnId, state: &State) {
        self.analyzer.weak.push(Weak {
            from,
            to,
            state: Box::new(state.clone()),
        });
    }

    /// Whether a call goes over what is behind it into what decodes as the middle of an instruction.
    fn is_hidden(&self, call: InsnId, to: u64) -> bool {
        let analyzer = &self.analyzer;
        let hides = analyzer.ranges.straddler(to, &analyzer.code);
        hides.is_some_and(|insn| call < insn)
    }

    /// Follows a call of code of the same function; it need not come back.
    fn call_inside(&mut self, insn: InsnId, to: InsnId, state: &mut State) -> bool {
        let semantics = self.analyzer.semantics;
        let start = self.analyzer.code.range(to).start;
        // A call of what comes next asks for an address.
        if insn.next() != to && self.guide.is_function(start) {
            self.flow_into(to, &semantics.entry(), insn);
            return self.call(insn, None, state);
        }
        let mut inside = state.clone();
        semantics.push_return(&mut inside, self.analyzer.code.range(insn).end);
        self.flow_into(to, &inside, insn);
        semantics.call(state, None);
        // Who takes the address off the stack does not come back: it may be that of a string.
        let next = self.analyzer.code.range(insn).end;
        let is_there = self.analyzer.code.is_followed(insn) && insn.next() != to;
        if is_there && !self.is_text(next..start) && self.guide.comes(By::Return, next, state) {
            self.perhaps(insn, insn.next(), state);
        }
        false
    }

    /// Whether bytes are characters, with a zero behind the last.
    fn is_text(&self, range: Range<u64>) -> bool {
        let is_character = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r' | 0);
        let bytes = self.image.bytes(range).unwrap_or_default();
        bytes.last() == Some(&0) && bytes.iter().all(is_character)
    }

    /// Follows a call; whether it comes back.
    fn call(&mut self, insn: InsnId, returns: Option<Returns>, state: &mut State) -> bool {
        let semantics = self.analyzer.semantics;
        let Range { start, end } = self.analyzer.code.range(insn);
        let sp = state.get(semantics.facts.stack_pointer);
        semantics.call(state, returns);
        let pad = Landing::pad_of(self.landings, start);
        if let Some(pad) = pad.and_then(|pad| self.analyzer.insn_at(pad)) {
            let mut landed = state.clone();
            let popped = i64::try_from(self.guide.args_size(end - 1, sp)).unwrap_or(0);
            landed.set(semantics.facts.stack_pointer, sp.plus(popped));
            self.flow_into(pad, &landed, insn);
        }
        match returns {
            Some(Returns::Never) => return false,
            Some(Returns::Behind(bytes)) => {
                let to = end.saturating_add(bytes.into());
                match self.analyzer.insn_at(to) {
                    Some(next) => self.flow_into(next, state, insn),
                    None => self.analyzer.data.missed.push(to),
                }
                return false;
            }
            _ => {}
        }
        if self.analyzer.code.is_followed(insn) && !self.guide.comes(By::Return, end, state) {
            self.perhaps(insn, insn.next(), state);
            return false;
        }
        true
    }

    fn returns(&mut self, insn: InsnId, pops: u16, state: &mut State) {
        // A return to what a call of this unit pushed.
        if let Some(target) = self.analyzer.pushed(state) {
            let sp = self.analyzer.semantics.facts.stack_pointer;
            self.analyzer.semantics.pop_return(state);
            state.set(sp, state.get(sp).plus(pops.into()));
            self.flow_into(target, state, insn);
        }
    }

    fn indirect(&mut self, insn: InsnId, target: Value, state: &State) {
        match target.known() {
            Known::Target(table) => self.jump_by(insn, table, state),
            Known::Constant(to) => {
                let target = self.analyzer.target(self.program, Flow::Jump(to));
                self.jump(insn, target, state);
            }
            _ => self.leave_for_anywhere(insn, state),
        }
    }

    /// Notes a jump that leads to no place of the unit that is known: it is a tail call if the stack is as at entry.
    fn leave_for_anywhere(&mut self, insn: InsnId, state: &State) {
        let semantics = self.analyzer.semantics;
        let sp = state.get(semantics.facts.stack_pointer);
        self.come_back(insn, state);
        if !self.guide.guesses().is_empty() {
            self.analyzer.astray.push((insn, state.clone()));
        }
        let is_tail_call = sp == semantics.entry_sp();
        if !is_tail_call && !self.analyzer.unresolved.contains(&insn) {
            self.analyzer.unresolved.push(insn);
        }
    }

    /// Follows a jump through a table. That is as much work as it has targets, unless all of them are known to be reached
    /// with what holds now.
    fn jump_by(&mut self, insn: InsnId, table: JumpTable, state: &State) {
        let targets = self.targets(table);
        if targets.is_empty() {
            return self.leave_for_anywhere(insn, state);
        }
        // To note an edge is less work than to join states.
        let cost = match (self.analyzer.edges.is_some(), self.is_news(table, state)) {
            (true, _) => targets.len().div_ceil(8),
            (false, true) => targets.len(),
            (false, false) => return,
        };
        self.analyzer.budget = self.analyzer.budget.saturating_sub(cost);
        if self.analyzer.budget == 0 {
            return;
        }
        for to in targets.iter() {
            self.flow_into(*to, state, insn);
        }
    }

    /// Whether a state may tell the targets of a table something that others have not told them.
    fn is_news(&mut self, table: JumpTable, state: &State) -> bool {
        let semantics = self.analyzer.semantics;
        // An address that only a run knows has another name at each target.
        let sp = state.get(semantics.facts.stack_pointer);
        let Some(read) = self.analyzer.data.read.get_mut(&table) else {
            return true;
        };
        match &mut read.told {
            _ if sp.base_of().is_some() => true,
            Some(told) => told.join(state),
            told => {
                *told = Some(state.clone());
                true
            }
        }
    }

    /// The instructions that a jump table leads to.
    fn targets(&mut self, table: JumpTable) -> Arc<[InsnId]> {
        if let Some(read) = self.analyzer.data.read.get(&table) {
            return Arc::clone(&read.targets);
        }
        let targets: Arc<[InsnId]> = self.read_targets(table).into();
        let read = ReadTable {
            targets: Arc::clone(&targets),
            told: None,
        };
        self.analyzer.data.read.insert(table, read);
        targets
    }

    fn read_targets(&mut self, table: JumpTable) -> Vec<InsnId> {
        let size = table.entry_size();
        let mut found = Vec::new();
        let mut end = table.address;
        for address in self.program.targets(table, self.image) {
            match self.analyzer.insn_at(address) {
                Some(to) => found.push(to),
                // What cannot be leads to the end of the function; what is no entry leads anywhere.
                None if !self.analyzer.ranges.has_end(address) => {
                    if table.last.is_some() {
                        self.analyzer.data.missed.push(address);
                    }
                    break;
                }
                None => {}
            }
            end += size as u64;
        }
        let read = usize::try_from(end - table.address).unwrap_or(usize::MAX) / size;
        self.analyzer.budget = self.analyzer.budget.saturating_sub(read);
        self.analyzer.data.tables.push(table.address..end);
        found.sort_unstable();
        found.dedup();
        found
    }
}
