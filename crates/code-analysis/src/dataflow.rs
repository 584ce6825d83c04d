//! What holds before each instruction of a unit: a forward fixpoint over its control flow.
//!
//! Instructions are cut into segments, which end where control may leave the straight line (calls too) and
//! begin where it may come in. A state is kept for each segment that is jumped to; others are chained to the
//! one before, and done with it. The targets of a jump table are known only once its address is: a segment that
//! turns out to be jumped into is cut in two. Segments are done in the order of their addresses, which is
//! nearly that of the flow; a state can only lose what it knows, so this ends.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::{AbiInfo, Lifter};
use crate::code::{InsnId, LiftedCode};
use crate::program::{CodeImage, ExtentKind, ProgramCode};
use crate::state::AbstractState;
use crate::transfer::TransferFunction;
use crate::value::AbstractValue;

mod assumptions;
mod blocks;
mod inline_data;
mod lost_stack_pointer;
mod ranges;
mod results;
mod solver;

pub use assumptions::{Assumptions, EdgeKind, NoAssumptions};
pub use results::{Analysis, VisitFilter};

use blocks::{BasicBlock, BranchTarget};
use inline_data::InlineData;
use ranges::{LiftedRange, Ranges};
use solver::{DeferredEdge, Solver};

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
pub struct StackHeightConflict {
    /// The instruction where they meet.
    pub at: InsnId,
    /// What it was on the paths that came first.
    pub first: AbstractValue,
    /// The instruction that the first of them came from.
    pub first_from: InsnId,
    /// What it is on the other.
    pub other: AbstractValue,
    /// The instruction that the other came from.
    pub other_from: InsnId,
}

/// A way of control to the begin of a block, other than from the instruction before it in the same block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CfgEdge {
    /// Where it leads.
    pub to: InsnId,
    /// The instruction that it comes from; `None` if that is outside the unit.
    pub from: Option<InsnId>,
}

/// Finds what holds before each instruction; keeps its room from unit to unit.
#[derive(Debug)]
pub struct Analyzer {
    machine: Lifter,
    transfer: TransferFunction,
    code: LiftedCode,
    ranges: Ranges,
    /// The states of segments that are jumped to are the first ones.
    states: Vec<AbstractState>,
    /// How many those are. The others are room.
    state_count: usize,
    blocks: Vec<BasicBlock>,
    /// Where direct jumps and calls go, by their places in [`LiftedCode::flows`].
    targets: Vec<BranchTarget>,
    /// The segment that begins with an instruction, plus 1.
    block_by_insn: Vec<u32>,
    worklist: BinaryHeap<Reverse<InsnId>>,
    deferred_edges: Vec<DeferredEdge>,
    /// Indirect jumps of which it is not known where they lead, and what holds there, if guesses are made.
    unresolved_states: Vec<(InsnId, AbstractState)>,
    conflicts: Vec<StackHeightConflict>,
    unresolved: Vec<InsnId>,
    data: InlineData,
    /// Where control was found to go by jumps, if that is kept.
    edges: Option<Vec<CfgEdge>>,
    /// Whether something is stored of which it is assumed that it is inside its array.
    assumes_bounds: bool,
    /// How many more operations and segments are done before the unit is given up.
    budget: usize,
}

/// Each instruction can be done so many times on average, before a unit is given up.
const MAX_STEPS_PER_INSN: usize = 64;

/// So many operations are done of the smallest unit.
const MIN_BUDGET_STEPS: usize = 1 << 16;

fn as_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Analyzer {
    /// An analyzer for a machine.
    #[must_use]
    pub fn new(machine: Lifter) -> Analyzer {
        Analyzer {
            transfer: TransferFunction::new(machine.abi_info()),
            machine,
            code: LiftedCode::default(),
            ranges: Ranges::default(),
            states: Vec::new(),
            state_count: 0,
            blocks: Vec::new(),
            targets: Vec::new(),
            block_by_insn: Vec::new(),
            worklist: BinaryHeap::new(),
            deferred_edges: Vec::new(),
            unresolved_states: Vec::new(),
            conflicts: Vec::new(),
            unresolved: Vec::new(),
            data: InlineData::default(),
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
    pub fn abi_info(&self) -> &'static AbiInfo {
        self.transfer.facts
    }

    /// What holds at the entry of a function.
    #[must_use]
    pub fn entry(&self) -> AbstractState {
        self.transfer.entry()
    }

    /// Finds what holds before each instruction of a unit of a program. `landings` must be in the order of
    /// their starts.
    pub fn analyze<'a>(
        &'a mut self,
        program: &'a ProgramCode,
        image: &(impl CodeImage + ?Sized),
        unit: usize,
        landings: &[Landing],
        guide: &impl Assumptions,
    ) -> Analysis<'a> {
        self.data.anchors.clear();
        self.lift_unit(program, image, unit);
        self.solve(program, image, landings, guide);
        while self.find_anchors(program) {
            self.lift_unit(program, image, unit);
            self.solve(program, image, landings, guide);
        }
        let found = Analysis {
            analyzer: self,
            program,
        }
        .recoverable_stack_pointers();
        if self.assume_stack_pointers(&found) {
            self.solve(program, image, landings, guide);
        }
        Analysis {
            analyzer: self,
            program,
        }
    }

    /// Follows what was read.
    fn solve(
        &mut self,
        program: &ProgramCode,
        image: &(impl CodeImage + ?Sized),
        landings: &[Landing],
        guide: &impl Assumptions,
    ) {
        self.build_blocks(program);
        self.assumes_bounds = false;
        let entry = self.transfer.entry();
        let mut place = 0;
        while let Some(LiftedRange {
            range, kind: part, ..
        }) = self.ranges.get(place).cloned()
        {
            place += 1;
            if part == ExtentKind::Function {
                let own = guide.function_entry_state(range.start);
                self.add_entry_state(range.start, own.as_ref().unwrap_or(&entry));
            }
            for address in program.extra_entries_in(range) {
                self.add_entry_state(*address, &entry);
            }
        }
        self.budget = self
            .code
            .len()
            .saturating_mul(MAX_STEPS_PER_INSN)
            .max(MIN_BUDGET_STEPS);
        let mut run = Solver {
            analyzer: self,
            program,
            image,
            landings,
            guide,
            next_range: 0,
            next_guess: 0,
        };
        run.solve();
        if let Some(edges) = &mut self.edges {
            edges.sort_unstable();
            edges.dedup();
        }
        if self.budget == 0 {
            // Before the end nothing is certain.
            for segment in &mut self.blocks {
                segment.state = 0;
                segment.extends_previous = false;
            }
        }
    }

    /// Decodes the ranges of a unit.
    fn lift_unit(&mut self, program: &ProgramCode, image: &(impl CodeImage + ?Sized), unit: usize) {
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
    fn pushed_return_target(&self, state: &AbstractState) -> Option<InsnId> {
        let sp = state.get(self.transfer.facts.stack_pointer);
        self.insn_at(state.load(sp)?.as_constant()?)
    }
}
