//! What holds before each instruction of a unit: a forward fixpoint over its control flow.
//!
//! Instructions are cut into segments, which end where control may leave the straight line (calls too) and
//! begin where it may come in. A state is kept for each segment that is jumped to; others are chained to the
//! one before, and done with it. The targets of a jump table are known only once its address is: a segment that
//! turns out to be jumped into is cut in two. Segments are done in the order of their addresses, which is
//! nearly that of the flow; a state can only lose what it knows, so this ends.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::apply::Semantics;
use crate::arch::{Facts, Machine};
use crate::code::{Code, InsnId};
use crate::program::{Image, Part, Program};
use crate::state::State;
use crate::value::Value;

mod back;
mod data;
mod found;
mod guide;
mod ranges;
mod run;
mod segments;

pub use found::{Analysis, Watch};
pub use guide::{By, CodeAlone, Guide};

use data::Data;
use ranges::{Lifted, Ranges};
use run::{Run, Weak};
use segments::{Segment, Target};

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

impl Landing {
    /// Where exceptions out of the call at an address land, by landings in the order of their starts.
    pub(crate) fn pad_of(landings: &[Landing], call: u64) -> Option<u64> {
        let behind = landings.partition_point(|landing| landing.start <= call);
        let landing = landings.get(behind.checked_sub(1)?)?;
        (call < landing.end).then_some(landing.pad)
    }
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

/// Finds what holds before each instruction; keeps its room from unit to unit.
#[derive(Debug)]
pub struct Analyzer {
    machine: Machine,
    semantics: Semantics,
    code: Code,
    ranges: Ranges,
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
    /// Whether something is stored of which it is assumed that it is inside its array.
    assumes_bounds: bool,
    /// How many more operations and segments are done before the unit is given up.
    budget: usize,
}

/// Each instruction can be done so many times on average, before a unit is given up.
const TIMES: usize = 64;

/// So many operations are done of the smallest unit.
const LEAST_BUDGET: usize = 1 << 16;

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
            ranges: Ranges::default(),
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
            assumes_bounds: false,
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
        self.data.anchors.clear();
        self.read(program, image, unit);
        self.follow(program, image, landings, guide);
        while self.finds_anchors(program) {
            self.read(program, image, unit);
            self.follow(program, image, landings, guide);
        }
        let found = Analysis {
            analyzer: self,
            program,
        }
        .found_back();
        if self.find_back(&found) {
            self.follow(program, image, landings, guide);
        }
        Analysis {
            analyzer: self,
            program,
        }
    }

    /// Follows what was read.
    fn follow(
        &mut self,
        program: &Program,
        image: &(impl Image + ?Sized),
        landings: &[Landing],
        guide: &impl Guide,
    ) {
        self.cut(program);
        self.assumes_bounds = false;
        let entry = self.semantics.entry();
        let mut place = 0;
        while let Some(Lifted { range, part, .. }) = self.ranges.get(place).cloned() {
            place += 1;
            if part == Part::Function {
                let own = guide.begin(range.start);
                self.enter(range.start, own.as_ref().unwrap_or(&entry));
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
        }
    }

    /// Decodes the ranges of a unit.
    fn read(&mut self, program: &Program, image: &(impl Image + ?Sized), unit: usize) {
        self.code.clear();
        self.ranges.clear();
        for extent in program.unit(unit) {
            let pieces = self.data.pieces(extent.start..extent.end);
            let (machine, code) = (&mut self.machine, &mut self.code);
            self.ranges.decode(extent, pieces, image, machine, code);
        }
    }

    /// The instruction that starts at an address.
    fn insn_at(&self, address: u64) -> Option<InsnId> {
        self.ranges.insn_at(address)
    }

    /// The instruction to which the address on top of the stack leads, if it is of the unit.
    fn pushed(&self, state: &State) -> Option<InsnId> {
        let sp = state.get(self.semantics.facts.stack_pointer);
        self.insn_at(state.load(sp)?.as_constant()?)
    }
}
