//! What holds before each instruction of a unit: a forward fixpoint over its control flow.
//!
//! Instructions are cut into segments, which end where control may leave the straight line (calls too) and
//! begin where it may come in. A state is kept for each segment that is jumped to; others are chained to the
//! one before, and done with it. The targets of a jump table are known only once its address is: a segment that
//! turns out to be jumped into is cut in two. Segments are done in the order of their addresses, which is
//! nearly that of the flow; a state can only lose what it knows, so this ends.

use core::cmp::Reverse;
use core::ops::Range;
use std::collections::BinaryHeap;

use crate::apply::{Semantics, Told};
use crate::arch::{Facts, Machine};
use crate::code::{Code, InsnId};
use crate::op::{Flow, Op, Way};
use crate::program::{Image, Part, Program, Returns};
use crate::state::State;
use crate::value::{Entries, JumpTable, Known, Value};

use data::Data;

mod back;
mod data;

/// Says what the code alone does not: nothing, for who must not believe a table.
pub trait Guide {
    /// Whether control comes to `address` in this state.
    fn comes(&self, by: By, address: u64, state: &State) -> bool {
        let _ = (by, address, state);
        true
    }

    /// The state at `address`, the start of a fragment that nothing else leads to.
    fn entry(&self, address: u64) -> Option<State> {
        let _ = address;
        None
    }

    /// Where indirect jumps may lead of which it is not known where they lead, if nothing else leads there.
    fn guesses(&self) -> &[u64] {
        &[]
    }

    /// Whether a function of its own begins at `address`, in the middle of another, to which a call leads.
    fn is_function(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// How many bytes of arguments the unwinder takes off the stack when an exception out of the call at
    /// `address` lands, before which the stack pointer is `sp` (`DW_CFA_GNU_args_size`).
    fn args_size(&self, address: u64, sp: Value) -> u64 {
        let _ = (address, sp);
        0
    }
}

/// A way to come somewhere of which it is not certain that it is ever gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Behind a call, if the function called returns.
    Return,
    /// By a jump from another extent.
    Jump,
}

/// Believes the code alone.
#[derive(Debug, Clone, Copy)]
pub struct CodeAlone;

impl Guide for CodeAlone {}

/// Is told what holds before instructions while a unit is followed, as it is known then: perhaps better than it turns out
/// to be, in which case it is told again.
pub trait Observer {
    /// Whether it wants to be told at all.
    const LOOKS: bool;

    /// What must be known of a state at `address` if control comes there by a jump, beside addresses of the stack; the rest
    /// may be forgotten. Bit n stands for register n.
    fn needs(&self, address: u64) -> u64;

    /// What holds before an instruction, as [`Analysis::watch`] has it; `None` gives the unit up.
    fn see(
        &mut self,
        so_far: &Analysis<'_>,
        insn: InsnId,
        state: &State,
        written: u64,
    ) -> Option<Watch>;
}

/// Waits for the end.
#[derive(Debug, Clone, Copy)]
struct Patient;

impl Observer for Patient {
    const LOOKS: bool = false;

    fn needs(&self, _: u64) -> u64 {
        u64::MAX
    }

    fn see(&mut self, _: &Analysis<'_>, _: InsnId, _: &State, _: u64) -> Option<Watch> {
        Some(Watch::ALL)
    }
}

/// A range of code out of which exceptions land somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landing {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The landing pad.
    pub pad: u64,
}

/// Paths that meet and disagree about the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// The instruction where they meet.
    pub at: InsnId,
    /// What it was on the paths that came first.
    pub first: Value,
    /// The instruction that the first of them came from.
    pub first_from: InsnId,
    /// What it is on the other.
    pub other: Value,
    /// The instruction that the other came from.
    pub other_from: InsnId,
}

/// A way of control to the begin of a block, other than from the instruction before it in the same block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Where it leads.
    pub to: InsnId,
    /// The instruction that it comes from; `None` if that is outside the unit.
    pub from: Option<InsnId>,
}

/// Instructions that are done one after another.
#[derive(Debug, Clone, Copy)]
struct Segment {
    first: InsnId,
    end: InsnId,
    /// Where its operations are in [`Code`].
    ops_start: u32,
    ops_end: u32,
    /// Where its last instruction is among [`Code::flows`], plus 1; 0 if the processor just goes on from it.
    flow: u32,
    /// The place, plus 1, of the state that holds at its begin; 0 if nothing is known to jump there.
    state: u32,
    /// The instruction that jumped there first.
    from: InsnId,
    is_queued: bool,
    /// Whether a direct jump leads there.
    is_target: bool,
    /// Whether it is only come into from the segment before.
    is_chained: bool,
    /// Whether the next segment comes directly behind, and is of the same function.
    has_next: bool,
    /// Whether control goes on there.
    goes_on: bool,
}

impl Segment {
    /// One that is yet to be [closed](Segment::close).
    fn new(first: InsnId, ops_start: u32) -> Segment {
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
    fn close(&mut self, end: InsnId, code: &Code) {
        self.end = end;
        let last = self.last();
        self.ops_end = code.ops_range(last).end;
        self.flow = code.flow_place(last).map_or(0, |place| as_u32(place + 1));
        self.has_next = code.is_followed(last);
    }

    /// Whether something is known to lead there.
    fn is_reached(&self) -> bool {
        self.state != 0 || self.is_chained
    }

    /// Where its operations are in [`Code`].
    fn ops(&self) -> Range<u32> {
        self.ops_start..self.ops_end
    }

    fn last(&self) -> InsnId {
        InsnId(self.end.0.saturating_sub(1))
    }

    /// The place of its last instruction among [`Code::flows`].
    fn flow(&self) -> Option<usize> {
        Some(self.flow.checked_sub(1)? as usize)
    }
}

/// A range of a unit's code.
#[derive(Debug, Clone)]
struct Lifted {
    range: Range<u64>,
    /// Its instructions.
    insns: Range<u32>,
    /// Where its bytes are in [`Analyzer::starts`], if they are there.
    starts: Range<usize>,
    /// How it is come into.
    part: Part,
}

/// Where a direct jump or call goes.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// To an instruction of the unit; a call only if no function begins there.
    Inside(InsnId),
    /// Elsewhere, or it is not known where; what becomes of a call.
    Outside(Option<Returns>),
}

/// An edge that is only followed where nothing else leads.
#[derive(Debug)]
struct Weak {
    from: InsnId,
    to: InsnId,
    state: Box<State>,
}

/// Finds what holds before each instruction; keeps its room from unit to unit.
#[derive(Debug)]
pub struct Analyzer {
    machine: Machine,
    semantics: Semantics,
    code: Code,
    ranges: Vec<Lifted>,
    /// For each byte of the ranges, one range after another, the instruction that starts there, plus 1.
    starts: Vec<u32>,
    /// The states of segments that are jumped to are the first ones.
    states: Vec<State>,
    /// How many those are. The others are room.
    used_states: usize,
    segments: Vec<Segment>,
    /// Where direct jumps and calls go, by their places in [`Code::flows`].
    targets: Vec<Target>,
    /// The segment that begins with an instruction, plus 1.
    segment_at: Vec<u32>,
    queue: BinaryHeap<Reverse<InsnId>>,
    weak: Vec<Weak>,
    /// Indirect jumps of which it is not known where they lead, and what holds there, if guesses are made.
    astray: Vec<(InsnId, State)>,
    conflicts: Vec<Conflict>,
    unresolved: Vec<InsnId>,
    data: Data,
    /// Where control was found to go by jumps, if that is kept.
    edges: Option<Vec<Edge>>,
    /// How many more operations and segments are done before the unit is given up.
    budget: usize,
}

/// Each instruction can be done so many times on average, before a unit is given up.
const TIMES: usize = 64;

/// So many operations are done of the smallest unit.
const LEAST_BUDGET: usize = 1 << 16;

/// What is known of a unit.
#[derive(Debug)]
pub struct Analysis<'a> {
    analyzer: &'a Analyzer,
    program: &'a Program,
}

/// Tells names of run-time addresses that paths meet with from those that operations made.
const JOINED: u32 = 1 << 27;

fn as_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Analyzer {
    /// An analyzer for a machine.
    #[must_use]
    pub fn new(machine: Machine) -> Analyzer {
        Analyzer {
            semantics: Semantics::new(machine.facts()),
            machine,
            code: Code::default(),
            ranges: Vec::new(),
            starts: Vec::new(),
            states: Vec::new(),
            used_states: 0,
            segments: Vec::new(),
            targets: Vec::new(),
            segment_at: Vec::new(),
            queue: BinaryHeap::new(),
            weak: Vec::new(),
            astray: Vec::new(),
            conflicts: Vec::new(),
            unresolved: Vec::new(),
            data: Data::default(),
            edges: None,
            budget: 0,
        }
    }

    /// Keeps where control goes, for [`Analysis::edges`].
    #[must_use]
    pub fn with_edges(mut self) -> Analyzer {
        self.edges = Some(Vec::new());
        self
    }

    /// What must be known of the machine.
    #[must_use]
    pub fn facts(&self) -> &'static Facts {
        self.semantics.facts
    }

    /// What holds at the entry of a function.
    #[must_use]
    pub fn entry(&self) -> State {
        self.semantics.entry()
    }

    /// Finds what holds before each instruction of a unit of a program. `landings` must be in the order of
    /// their starts.
    pub fn analyze<'a>(
        &'a mut self,
        program: &'a Program,
        image: &(impl Image + ?Sized),
        unit: usize,
        landings: &[Landing],
        guide: &impl Guide,
    ) -> Analysis<'a> {
        self.observe(program, image, unit, landings, guide, &mut Patient);
        while self.finds_anchors(program) {
            self.read(program, image, unit);
            self.follow(program, image, landings, guide, &mut Patient);
        }
        let found = Analysis {
            analyzer: self,
            program,
        }
        .found_back();
        if self.find_back(&found) {
            self.follow(program, image, landings, guide, &mut Patient);
        }
        Analysis {
            analyzer: self,
            program,
        }
    }

    /// Follows a unit as [`Analyzer::analyze`] does, and tells an observer of it meanwhile. `None` if it gave the unit up, or
    /// the unit is too large.
    pub fn observe<'a>(
        &'a mut self,
        program: &'a Program,
        image: &(impl Image + ?Sized),
        unit: usize,
        landings: &[Landing],
        guide: &impl Guide,
        observer: &mut impl Observer,
    ) -> Option<Analysis<'a>> {
        self.data.anchors.clear();
        self.read(program, image, unit);
        self.follow(program, image, landings, guide, observer)
    }

    /// Follows what was read.
    fn follow<'a>(
        &'a mut self,
        program: &'a Program,
        image: &(impl Image + ?Sized),
        landings: &[Landing],
        guide: &impl Guide,
        observer: &mut impl Observer,
    ) -> Option<Analysis<'a>> {
        self.cut(program);
        let entry = self.semantics.entry();
        for place in 0..self.ranges.len() {
            let Some(Lifted { range, part, .. }) = self.ranges.get(place).cloned() else {
                break;
            };
            if part == Part::Function {
                self.enter(range.start, &entry);
            }
            for address in program.entries_in(range) {
                self.enter(*address, &entry);
            }
        }
        self.budget = self.code.len().saturating_mul(TIMES).max(LEAST_BUDGET);
        let mut run = Run {
            analyzer: self,
            program,
            image,
            landings,
            guide,
            observer,
            next_range: 0,
            next_guess: 0,
        };
        run.drain();
        if let Some(edges) = &mut self.edges {
            edges.sort_unstable();
            edges.dedup();
        }
        if self.budget == 0 {
            // Before the end nothing is certain.
            for segment in &mut self.segments {
                segment.state = 0;
                segment.is_chained = false;
            }
            return None;
        }
        Some(Analysis {
            analyzer: self,
            program,
        })
    }

    /// Decodes the ranges of a unit.
    fn read(&mut self, program: &Program, image: &(impl Image + ?Sized), unit: usize) {
        self.code.clear();
        self.ranges.clear();
        self.starts.clear();
        for extent in program.unit(unit) {
            let range = extent.start..extent.end;
            let (first, begin) = (as_u32(self.code.len()), self.starts.len());
            if let Some(bytes) = image.bytes(range.clone()) {
                for piece in self.data.pieces(&range) {
                    let at = |address: u64| usize::try_from(address - range.start).ok();
                    let place = at(piece.start).zip(at(piece.end));
                    let part = place.and_then(|(start, end)| bytes.get(start..end));
                    let part = part.unwrap_or_default();
                    self.machine.lift(part, piece.start, &mut self.code);
                }
                self.starts.resize(begin + bytes.len(), 0);
            }
            let insns = first..as_u32(self.code.len());
            let starts = self.starts.get_mut(begin..).unwrap_or_default();
            for (number, address) in (first + 1..).zip(self.code.starts(insns.clone())) {
                let at = usize::try_from(address - range.start).ok();
                if let Some(start) = at.and_then(|at| starts.get_mut(at)) {
                    *start = number;
                }
            }
            self.ranges.push(Lifted {
                range,
                insns,
                starts: begin..self.starts.len(),
                part: extent.part,
            });
        }
    }

    /// Cuts the instructions into segments.
    fn cut(&mut self, program: &Program) {
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
        for Lifted { insns, part, .. } in &self.ranges {
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

    /// The part of [`Analyzer::starts`] of the last range that begins at an address or before, and the place of the address there,
    /// if the range has it.
    fn starts_near(&self, address: u64) -> Option<(&[u32], usize)> {
        let behind = self
            .ranges
            .partition_point(|lifted| lifted.range.start <= address);
        let lifted = self.ranges.get(behind.checked_sub(1)?)?;
        let at = usize::try_from(address - lifted.range.start).ok()?;
        Some((self.starts.get(lifted.starts.clone())?, at))
    }

    /// The instruction that starts at an address.
    fn insn_at(&self, address: u64) -> Option<InsnId> {
        let (starts, at) = self.starts_near(address)?;
        Some(InsnId(starts.get(at)?.checked_sub(1)?))
    }

    /// The instruction to which the address on top of the stack leads, if it is of the unit.
    fn pushed(&self, state: &State) -> Option<InsnId> {
        let sp = state.get(self.semantics.facts.stack_pointer);
        self.insn_at(state.load(sp)?.as_constant()?)
    }

    /// The instruction that has an address of the unit in its middle.
    fn straddler(&self, address: u64) -> Option<InsnId> {
        let (starts, at) = self.starts_near(address)?;
        let starts = starts.get(..=at)?;
        let number = starts.iter().rev().find(|number| **number != 0)?;
        let insn = InsnId(number.checked_sub(1)?);
        let range = self.code.range(insn);
        (range.start < address && address < range.end).then_some(insn)
    }

    fn target(&self, program: &Program, flow: Flow) -> Target {
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
    fn flow(&self, place: usize) -> Option<(InsnId, Flow, Target)> {
        let (insn, flow) = self.code.flows().get(place)?;
        Some((*insn, *flow, *self.targets.get(place)?))
    }

    /// The range that an instruction is of.
    fn range_of(&self, insn: InsnId) -> Option<&Lifted> {
        let behind = self
            .ranges
            .partition_point(|lifted| lifted.insns.start <= insn.0);
        self.ranges.get(behind.checked_sub(1)?)
    }

    fn enter(&mut self, address: u64, entry: &State) {
        if let Some(insn) = self.insn_at(address) {
            self.flow_into(insn, entry, None, |_| u64::MAX);
        }
    }

    fn segment_at(&self, insn: InsnId) -> Option<usize> {
        let number = self.segment_at.get(insn.index())?;
        Some(number.checked_sub(1)? as usize)
    }

    /// What holds at the begin of a segment that is jumped to.
    fn state_of(&self, segment: &Segment) -> Option<&State> {
        self.states.get(segment.state.checked_sub(1)? as usize)
    }

    /// The last segment that begins before an instruction, of those that are wanted.
    fn segment_before(&self, insn: InsnId, is_wanted: impl Fn(&Segment) -> bool) -> Option<usize> {
        let before = (0..insn.0).rev().map(InsnId);
        let mut places = before.filter_map(|id| self.segment_at(id));
        places.find(|place| self.segments.get(*place).is_some_and(&is_wanted))
    }

    /// The segment that begins with an instruction; cuts the one in two that it is inside of.
    fn segment_from(&mut self, insn: InsnId) -> Option<usize> {
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

    /// Lets a state arrive at an instruction by a jump. `needs` says what must be known there, as [`Observer::needs`] has it.
    fn flow_into(
        &mut self,
        to: InsnId,
        state: &State,
        from: Option<InsnId>,
        needs: impl FnOnce(u64) -> u64,
    ) {
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
        // Wherever the stack was moved to, on whichever path: it is where it is here.
        let mut renamed;
        let mut state = state;
        if state.get(sp).base_of().is_some() {
            renamed = state.clone();
            renamed.rename_base(sp, to.0 | JOINED);
            state = &renamed;
        }
        let Some(known) = segment.state.checked_sub(1) else {
            if self.used_states == self.states.len() {
                self.states.push(State::new());
            }
            if let Some(room) = self.states.get_mut(self.used_states) {
                room.assign(state);
                let needed = needs(self.code.range(to).start);
                if needed != u64::MAX {
                    self.semantics.keep(room, needed);
                }
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
        let (first, other) = (known.get(sp), state.get(sp));
        if !known.join(state) {
            return;
        }
        if first != other && first.is_address() {
            self.conflicts.push(Conflict {
                at: to,
                first,
                first_from: segment.from,
                other,
                other_from: from,
            });
        }
        self.enqueue(to);
    }

    /// Does operations, by their places.
    fn apply(&self, ops: Range<u32>, state: &mut State) {
        for (at, op) in (ops.start..).zip(self.code.ops_at(ops)) {
            self.semantics.apply(state, *op, at);
        }
    }

    fn enqueue(&mut self, insn: InsnId) {
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

/// The work on one unit.
struct Run<'a, I: ?Sized, G, O> {
    analyzer: &'a mut Analyzer,
    program: &'a Program,
    image: &'a I,
    landings: &'a [Landing],
    guide: &'a G,
    observer: &'a mut O,
    /// The ranges before this one are come into.
    next_range: usize,
    /// The guesses before this one are followed.
    next_guess: usize,
}

impl<I: Image + ?Sized, G: Guide, O: Observer> Run<'_, I, G, O> {
    fn drain(&mut self) {
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
        let needs = |address| self.observer.needs(address);
        self.analyzer.flow_into(to, state, Some(from), needs);
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
        let mut watch = Some(Watch::ALL);
        while let Some(segment) = self.analyzer.segments.get(place).copied() {
            if O::LOOKS {
                let so_far = Analysis {
                    analyzer: &*self.analyzer,
                    program: self.program,
                };
                so_far.follow(&segment, state, &mut watch, |insn, state, written| {
                    self.observer.see(&so_far, insn, state, written)
                });
                if watch.is_none() {
                    self.analyzer.budget = 0;
                    return;
                }
            } else {
                self.analyzer.apply(segment.ops(), state);
            }
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
            Flow::Call(_) | Flow::IndirectCall => match target {
                Target::Inside(inside) => self.call_inside(insn, inside, state),
                Target::Outside(returns) => self.call(insn, returns, state),
            },
            Flow::IndirectJump(register) => {
                self.indirect(insn, state.get(register), state);
                false
            }
            Flow::Return { .. } => {
                self.returns(insn, state);
                false
            }
            Flow::Trap => false,
        }
    }

    fn jump(&mut self, from: InsnId, target: Target, state: &State) {
        let Target::Inside(target) = target else {
            return self.come_back(from, state);
        };
        let Some(Lifted { insns, part, .. }) = self.analyzer.range_of(target) else {
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
        if self.analyzer.code.is_followed(insn) && insn.next() != to {
            self.perhaps(insn, insn.next(), state);
        }
        false
    }

    /// Follows a call; whether it comes back.
    fn call(&mut self, insn: InsnId, returns: Option<Returns>, state: &mut State) -> bool {
        let semantics = self.analyzer.semantics;
        let Range { start, end } = self.analyzer.code.range(insn);
        let sp = state.get(semantics.facts.stack_pointer);
        semantics.call(state, returns);
        if let Some(pad) = self.pad_of(start) {
            let mut landed = state.clone();
            let popped = i64::try_from(self.guide.args_size(end - 1, sp)).unwrap_or(0);
            landed.set(semantics.facts.stack_pointer, sp.plus(popped));
            self.flow_into(pad, &landed, insn);
        }
        if returns == Some(Returns::Never) {
            return false;
        }
        if self.analyzer.code.is_followed(insn) && !self.guide.comes(By::Return, end, state) {
            self.perhaps(insn, insn.next(), state);
            return false;
        }
        true
    }

    fn pad_of(&self, call: u64) -> Option<InsnId> {
        let landings = self.landings;
        let behind = landings.partition_point(|landing| landing.start <= call);
        let landing = landings.get(behind.checked_sub(1)?)?;
        if call >= landing.end {
            return None;
        }
        self.analyzer.insn_at(landing.pad)
    }

    fn returns(&mut self, insn: InsnId, state: &mut State) {
        // A return to what a call of this unit pushed.
        if let Some(target) = self.analyzer.pushed(state) {
            self.analyzer.semantics.pop_return(state);
            self.flow_into(target, state, insn);
        }
    }

    fn indirect(&mut self, insn: InsnId, target: Value, state: &State) {
        match target.known() {
            Known::Target(table) => {
                let targets = self.targets(table);
                for to in &targets {
                    self.flow_into(*to, state, insn);
                }
                if targets.is_empty() {
                    self.leave_for_anywhere(insn, state);
                }
            }
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

    /// The instructions that a jump table leads to.
    fn targets(&mut self, table: JumpTable) -> Vec<InsnId> {
        let size = match table.entries {
            Entries::Distances => 4,
            Entries::Addresses => 8,
        };
        let Some(bytes) = self.image.bytes_from(table.address) else {
            return Vec::new();
        };
        let room = match self.program.next_taken(table.address) {
            Some(next) => usize::try_from(next - table.address).unwrap_or(usize::MAX) / size,
            None => usize::MAX,
        };
        // The index may be bounded by its type only: the table need not be as long.
        let count = table
            .last
            .map_or(room, |last| room.min(usize::from(last) + 1));
        let entries = bytes.chunks_exact(size);
        let mut found = Vec::new();
        let mut end = table.address;
        for address in entries.take(count).map(|entry| table.target(entry)) {
            match self.analyzer.insn_at(address) {
                Some(to) => found.push(to),
                // What cannot be leads to the end of the function; what is no entry leads anywhere.
                None if !self.is_end(address) => {
                    if table.last.is_some() {
                        self.analyzer.data.missed.push(address);
                    }
                    break;
                }
                None => {}
            }
            end += size as u64;
        }
        self.analyzer.data.tables.push(table.address..end);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether a range of the unit ends at an address.
    fn is_end(&self, address: u64) -> bool {
        let ranges = &self.analyzer.ranges;
        let place = ranges.partition_point(|lifted| lifted.range.end < address);
        let range = ranges.get(place);
        range.is_some_and(|lifted| lifted.range.end == address)
    }
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
        let facts = self.facts();
        let target = state.load(state.get(facts.stack_pointer));
        target == Some(Value::at_entry(facts.return_address)) && self.is_as_called(state)
    }

    /// Whether a jump to the address in a register is a return: that is the return address, and the stack is as a
    /// return leaves it.
    #[must_use]
    pub fn is_return_by(&self, target: u8, state: &State) -> bool {
        let facts = self.facts();
        let left = Value::at_entry(facts.stack_pointer).plus(facts.call_pushes.into());
        state.get(target) == Value::at_entry(facts.return_address)
            && state.get(facts.stack_pointer) == left
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
            let mut watch = Some(Watch::ALL);
            for segment in self.chain(head) {
                let see = |insn, state: &State, written| Some(see(insn, state, written));
                self.follow(segment, &mut state, &mut watch, see);
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
        let range = self.analyzer.range_of(insn);
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
    fn not_followed(&self) -> impl Iterator<Item = InsnId> {
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

    /// Tells of the instructions of a segment, and does their operations, until the answer is `None`.
    #[inline]
    fn follow(
        &self,
        segment: &Segment,
        state: &mut State,
        watch: &mut Option<Watch>,
        mut see: impl FnMut(InsnId, &State, u64) -> Option<Watch>,
    ) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.semantics);
        let mut ops = code.ops_at(segment.ops()).iter();
        let mut at = segment.ops_start;
        for step in code.steps(segment.first, segment.end) {
            let Some(watched) = *watch else {
                return;
            };
            let leaves = || match code.flow(step.id) {
                Some(Flow::Call(_) | Flow::IndirectCall) => {
                    watched.calls || semantics.keeps_below(state)
                }
                flow => flow.is_some_and(Flow::leaves),
            };
            let is_watched = state.is_written(watched.written) || step.end >= watched.until;
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
