//! The abstract state before each instruction of a unit: a forward dataflow analysis to the
//! fixpoint.
//!
//! Instructions are divided into basic blocks. A block ends where control may leave it (calls too)
//! and begins where control may enter. Only blocks that are jump targets have a stored state. The
//! others extend the previous block, and their states are computed with it (extended basic blocks).
//! The targets of a jump table are known only when its address is; a target inside a block splits
//! that block. The worklist is in address order, which is nearly the order of control flow. States
//! only lose information, so the iteration ends.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arch::{AbiInfo, Lifter};
use crate::code::{InsnId, LiftedCode};
use crate::op::ReturnTarget;
use crate::program::{CodeImage, ExtentKind, ProgramCode, ReturnBehavior};
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

/// A range of code and the landing pad of its exceptions.
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
    /// The landing pad for exceptions of the call at `call`. `landings` are in the order of their
    /// starts.
    pub(crate) fn pad_of(landings: &[Landing], call: u64) -> Option<u64> {
        let behind = landings.partition_point(|landing| landing.start <= call);
        let landing = landings.get(behind.checked_sub(1)?)?;
        (call < landing.end).then_some(landing.pad)
    }
}

/// A join of paths with different stack pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackHeightConflict {
    /// The instruction where they join.
    pub at: InsnId,
    /// The stack pointer of the paths that joined first.
    pub first: AbstractValue,
    /// The instruction before the join on the first of those paths.
    pub first_from: InsnId,
    /// The stack pointer of the other path.
    pub other: AbstractValue,
    /// The instruction before the join on the other path.
    pub other_from: InsnId,
}

/// A control-flow graph edge to the begin of a block, except fall-through inside an extended basic
/// block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CfgEdge {
    /// Target.
    pub target: InsnId,
    /// Source; `None` if it is outside the unit.
    pub source: Option<InsnId>,
}

/// Runs the dataflow analysis; keeps its memory from unit to unit.
#[derive(Debug)]
pub struct Analyzer {
    lifter: Lifter,
    transfer: TransferFunction,
    code: LiftedCode,
    ranges: Ranges,
    /// Stored states. Only the first [`Analyzer::state_count`] are in use.
    states: Vec<AbstractState>,
    /// Number of states in use. The rest is spare memory.
    state_count: usize,
    blocks: Vec<BasicBlock>,
    /// Targets of direct jumps and calls, by index in [`LiftedCode::flows`].
    targets: Vec<BranchTarget>,
    /// Number of the block that begins at each instruction, plus 1.
    block_by_insn: Vec<u32>,
    worklist: BinaryHeap<Reverse<InsnId>>,
    deferred_edges: Vec<DeferredEdge>,
    /// The deferred edges that were not followed.
    rejected_edges: Vec<DeferredEdge>,
    /// Indirect jumps with unknown targets and their states, if targets are guessed.
    unresolved_states: Vec<(InsnId, AbstractState)>,
    conflicts: Vec<StackHeightConflict>,
    unresolved: Vec<InsnId>,
    data: InlineData,
    /// Jump edges, if they are kept.
    edges: Option<Vec<CfgEdge>>,
    /// Whether a store was assumed to stay inside its array.
    assumes_bounds: bool,
    /// What callers find behind a function of which nothing is known, if not what the ABI promises.
    unknown_callee: Option<ReturnBehavior>,
    /// Operations and blocks left before the unit is given up.
    budget: usize,
}

/// Average visits of one instruction before the unit is given up.
const MAX_STEPS_PER_INSN: usize = 64;

/// Least budget of a unit, in operations.
const MIN_BUDGET_STEPS: usize = 1 << 16;

fn as_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Analyzer {
    /// An analyzer for an architecture.
    #[must_use]
    pub fn new(lifter: Lifter) -> Analyzer {
        Analyzer {
            transfer: TransferFunction::new(lifter.abi_info()),
            lifter,
            code: LiftedCode::default(),
            ranges: Ranges::default(),
            states: Vec::new(),
            state_count: 0,
            blocks: Vec::new(),
            targets: Vec::new(),
            block_by_insn: Vec::new(),
            worklist: BinaryHeap::new(),
            deferred_edges: Vec::new(),
            rejected_edges: Vec::new(),
            unresolved_states: Vec::new(),
            conflicts: Vec::new(),
            unresolved: Vec::new(),
            data: InlineData::default(),
            edges: None,
            assumes_bounds: false,
            unknown_callee: None,
            budget: 0,
        }
    }

    /// Keeps edges for [`Analysis::edges`].
    #[must_use]
    pub fn with_edges(mut self) -> Analyzer {
        self.edges = Some(Vec::new());
        self
    }

    /// The architecture's ABI parameters.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        self.transfer.abi_info
    }

    /// The state at a function's entry.
    #[must_use]
    pub fn entry(&self) -> AbstractState {
        self.transfer.entry()
    }

    /// Computes the state before each instruction of a unit. `landings` must be in the order of
    /// their starts.
    pub fn analyze<'a>(
        &'a mut self,
        program: &'a ProgramCode,
        image: &(impl CodeImage + ?Sized),
        unit: usize,
        landings: &[Landing],
        guide: &impl Assumptions,
    ) -> Analysis<'a> {
        self.transfer.changed_by_calls = guide.changed_by_calls();
        self.unknown_callee = guide.unknown_callee();
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

    /// Solves for the lifted code.
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
                let own = guide.function_entry_state(*address);
                self.add_entry_state(*address, own.as_ref().unwrap_or(&entry));
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
            next_other_range: 0,
            next_guess: 0,
        };
        run.solve();
        if let Some(edges) = &mut self.edges {
            edges.sort_unstable();
            edges.dedup();
        }
        if self.budget == 0 {
            // Nothing is certain before the end.
            for block in &mut self.blocks {
                block.state = 0;
                block.extends_previous = false;
            }
        }
    }

    /// Lifts the ranges of a unit.
    fn lift_unit(&mut self, program: &ProgramCode, image: &(impl CodeImage + ?Sized), unit: usize) {
        self.code.clear();
        self.ranges.clear();
        for extent in program.unit(unit) {
            let pieces = self.data.pieces(extent.start..extent.end);
            let (machine, code) = (&mut self.lifter, &mut self.code);
            self.ranges.decode(extent, pieces, image, machine, code);
        }
    }

    /// The instruction that starts at an address.
    fn insn_at(&self, address: u64) -> Option<InsnId> {
        self.ranges.insn_at(address)
    }

    /// The instruction that a return goes to, if the unit has it.
    fn return_target(&self, to: ReturnTarget, state: &AbstractState) -> Option<InsnId> {
        let target = self.transfer.abi_info.return_target(to, state)?;
        self.insn_at(target.as_constant()?)
    }

    /// The instruction that a function entered in this state returns to, if the unit has it.
    fn pushed_return_target(&self, state: &AbstractState) -> Option<InsnId> {
        self.return_target(self.transfer.abi_info.return_target_of_call(), state)
    }
}
