//! Results of the dataflow analysis of a unit.

use core::ops::Range;

use super::blocks::{BasicBlock, BranchTarget};
use super::ranges::LiftedRange;
use super::{Analyzer, CfgEdge, StackHeightConflict};
use crate::arch::AbiInfo;
use crate::code::{InsnId, LiftedCode};
use crate::op::{BranchEdge, Flow, Op, ReturnTarget};
use crate::program::{ExtentKind, ProgramCode, ReturnBehavior};
use crate::state::AbstractState;
use crate::transfer::BranchFact;
use crate::value::AbstractValue;

/// Results of a unit.
#[derive(Debug)]
pub struct Analysis<'a> {
    pub(super) analyzer: &'a Analyzer,
    pub(super) program: &'a ProgramCode,
}

impl Analysis<'_> {
    /// The instructions.
    #[must_use]
    pub fn code(&self) -> &LiftedCode {
        &self.analyzer.code
    }

    /// The instruction that a function entered in this state returns to, if the unit has it. A call
    /// pushed its address, or code that calls by hand.
    #[must_use]
    pub fn pushed_return_target(&self, state: &AbstractState) -> Option<InsnId> {
        self.analyzer.pushed_return_target(state)
    }

    /// Whether a store around a stack address is assumed to stay inside its array: it has an index
    /// or a number that only a run knows.
    #[must_use]
    pub fn assumes_bounds(&self) -> bool {
        self.analyzer.assumes_bounds
    }

    /// Whether an address is on the stack, at a known distance from the stack pointer.
    #[must_use]
    pub fn is_on_stack(&self, address: AbstractValue) -> bool {
        self.analyzer.transfer.is_on_stack(address)
    }

    /// ABI parameters of the architecture.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        self.analyzer.abi_info()
    }

    /// Joins of paths with different stack pointers.
    #[must_use]
    pub fn conflicts(&self) -> &[StackHeightConflict] {
        &self.analyzer.conflicts
    }

    /// Whether the registers that calls preserve hold their entry values.
    #[must_use]
    pub fn preserves(&self, state: &AbstractState) -> bool {
        let mut preserved = self.abi_info().preserved.iter();
        preserved.all(|register| state.get(*register) == AbstractValue::entry_value(*register))
    }

    /// Whether these registers and the stack pointer hold their entry values.
    #[must_use]
    pub fn is_as_at_entry(&self, state: &AbstractState) -> bool {
        let sp = self.abi_info().stack_pointer;
        state.get(sp) == AbstractValue::entry_value(sp) && self.preserves(state)
    }

    /// Whether a return goes to the caller, with everything as at entry.
    #[must_use]
    pub fn is_return(&self, to: ReturnTarget, state: &AbstractState) -> bool {
        self.abi_info().is_return(to, state) && self.is_as_at_entry(state)
    }

    /// Whether a jump to the address in a register is a return: the register holds the return
    /// address, and the stack is as after a return.
    #[must_use]
    pub fn is_return_by(&self, target: u8, state: &AbstractState) -> bool {
        let abi_info = self.abi_info();
        let left =
            AbstractValue::entry_value(abi_info.stack_pointer).plus(abi_info.call_pushes.into());
        let returns = state
            .get(target)
            .bytes_past_return_address(abi_info.return_address);
        returns.is_some() && state.get(abi_info.stack_pointer) == left
    }

    /// The state during a call, restricted to what rows use; `state` holds before the call.
    #[must_use]
    pub fn state_during_call(&self, state: &AbstractState) -> AbstractState {
        let mut state = state.clone();
        self.analyzer.transfer.transfer_callee(&mut state);
        state
    }

    /// The state behind a tail call of a function that returns so; `state` holds before the jump,
    /// with the stack pointer of the entry. The callee has popped the return address, too.
    #[must_use]
    pub fn state_after_tail_call(
        &self,
        state: &AbstractState,
        returns: Option<ReturnBehavior>,
    ) -> AbstractState {
        let mut state = state.clone();
        self.analyzer.transfer.pop_return(&mut state);
        self.analyzer.transfer.transfer_call(&mut state, returns);
        state
    }

    /// What is found behind a call, if not what the ABI promises; `state` holds behind the operations
    /// of its instruction.
    #[must_use]
    pub fn behavior_of_call(&self, call: InsnId, state: &AbstractState) -> Option<ReturnBehavior> {
        let place = self.code().flow_index(call)?;
        let (_, flow, target) = self.analyzer.flow(place)?;
        self.callee_behavior(flow, target, state)
    }

    /// What is found behind a function at an abstract address, if not what the ABI promises.
    #[must_use]
    pub fn returns_of(&self, function: AbstractValue) -> Option<ReturnBehavior> {
        self.analyzer.returns_of(self.program, function)
    }

    /// Whether a jump leads into the middle of an instruction. What it does there is not known.
    #[must_use]
    pub fn is_overlapping_jump(&self, jump: InsnId) -> bool {
        self.analyzer.data.overlapping_jumps.contains(&jump)
    }

    /// The state behind an instruction that falls through, if `state` holds before it.
    #[must_use]
    pub fn state_after(&self, insn: InsnId, state: &AbstractState) -> AbstractState {
        let mut state = state.clone();
        self.analyzer
            .transfer(self.code().ops_range(insn), &mut state);
        state
    }

    /// Whether an instruction is a system call that never returns, such as an exit or a return from
    /// a signal handler; `state` holds before it.
    #[must_use]
    pub fn is_noreturn_syscall(&self, insn: InsnId, state: &AbstractState) -> bool {
        let ops = self.code().ops_of(insn);
        ops.iter()
            .any(|op| self.analyzer.transfer.never_returns(op, state))
    }

    /// Edges that were assumed never to be taken: their states contradict those of the other paths
    /// to their targets. Each with its source, its target and its state.
    pub fn rejected_edges(&self) -> impl Iterator<Item = (InsnId, InsnId, &AbstractState)> {
        let edges = self.analyzer.rejected_edges.iter();
        edges.map(|edge| (edge.source, edge.target, &*edge.state))
    }

    /// The instruction of the unit that starts at an address.
    #[must_use]
    pub fn insn_at(&self, address: u64) -> Option<InsnId> {
        self.analyzer.insn_at(address)
    }

    /// Indirect jumps with unknown targets.
    #[must_use]
    pub fn unresolved(&self) -> &[InsnId] {
        &self.analyzer.unresolved
    }

    /// Visits each reached instruction in the order of the unit's ranges, with the state before it.
    pub fn visit(&self, mut visit: impl FnMut(InsnId, &AbstractState)) {
        self.visit_filtered(|insn, state, _| {
            visit(insn, state);
            VisitFilter::ALL
        });
    }

    /// Visits reached instructions in the order of the unit's ranges, with the state before them
    /// and the write set since the last visit (see [`AbstractState::take_written`]). The visitor
    /// returns a filter for the instructions that follow. Always visited are instructions that
    /// [leave the code](Flow::leaves), except some calls, and those not directly behind a reached
    /// one.
    pub fn visit_filtered(&self, mut see: impl FnMut(InsnId, &AbstractState, u64) -> VisitFilter) {
        let mut state = AbstractState::new();
        for (head, _) in self.extended_block_heads() {
            let Some(known) = self.analyzer.state_of(head) else {
                continue;
            };
            state.assign(known);
            state.mark_all_written();
            let mut watch = VisitFilter::ALL;
            for block in self.blocks_from(head) {
                self.visit_block(block, &mut state, &mut watch, &mut see);
                self.transfer_fall_through(block, &mut state);
            }
        }
    }

    /// Whether the analysis took too many steps: then nothing is reached.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.analyzer.budget == 0
    }

    /// Whether control may get from each instruction to one of `targets`, by its index. Needs
    /// [`Analyzer::with_edges`].
    #[must_use]
    pub fn leading_to(&self, targets: &[InsnId]) -> Vec<bool> {
        let mut leads = vec![false; self.code().len()];
        let mut falls_in = leads.clone();
        for block in self.extended_blocks() {
            let inner = block.start as usize + 1..block.end as usize;
            falls_in.get_mut(inner).unwrap_or_default().fill(true);
        }
        let edges = self.edges();
        let mut worklist = targets.to_vec();
        while let Some(insn) = worklist.pop() {
            let Some(known) = leads.get_mut(insn.index()) else {
                continue;
            };
            if core::mem::replace(known, true) {
                continue;
            }
            if falls_in.get(insn.index()) == Some(&true) {
                worklist.push(InsnId(insn.0 - 1));
            }
            let first = edges.partition_point(|edge| edge.target < insn);
            let here = edges.iter().skip(first);
            let here = here.take_while(|edge| edge.target == insn);
            worklist.extend(here.filter_map(|edge| edge.source));
        }
        leads
    }

    /// Control-flow graph edges, except those inside blocks, in the order of their targets. Empty
    /// without [`Analyzer::with_edges`].
    #[must_use]
    pub fn edges(&self) -> &[CfgEdge] {
        self.analyzer.edges.as_deref().unwrap_or_default()
    }

    /// Whether an instruction is entered as by a call.
    #[must_use]
    pub fn is_entry(&self, insn: InsnId) -> bool {
        let address = self.code().range(insn).start;
        let range = self.analyzer.ranges.range_of(insn);
        let is_start = |lifted: &LiftedRange| {
            lifted.range.start == address && lifted.kind == ExtentKind::Function
        };
        range.is_some_and(is_start) || self.program.is_extra_entry(address)
    }

    /// The reached instructions, as extended basic blocks. Control enters a block at its begin;
    /// each instruction falls through to the next, or leaves by an [edge](Analysis::edges).
    pub fn extended_blocks(&self) -> impl Iterator<Item = Range<u32>> {
        let stretches = self.extended_block_heads();
        let reached = stretches.filter(|(head, _)| head.state != 0);
        reached.map(|(head, end)| head.first.0..end.0)
    }

    /// Visits each operation of the reached instructions, in the order of the blocks, with the
    /// state before it. `None` stands for control flow after the operations. It is visited for
    /// instructions that do more than fall through and for those without operations.
    pub fn visit_ops(&self, mut see: impl FnMut(InsnId, Option<Op>, &AbstractState)) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.transfer);
        let mut state = AbstractState::new();
        for (head, _) in self.extended_block_heads() {
            let Some(known) = self.analyzer.state_of(head) else {
                continue;
            };
            state.assign(known);
            for block in self.blocks_from(head) {
                let mut ops = (block.ops_start..).zip(code.ops_at(block.ops())).peekable();
                for step in code.block_insns(block.first, block.end) {
                    let mut is_idle = true;
                    while let Some((at, op)) = ops.next_if(|(at, _)| *at < step.ops_end) {
                        is_idle = false;
                        see(step.id, Some(*op), &state);
                        semantics.transfer(&mut state, *op, at);
                    }
                    if step.is_flow || is_idle {
                        see(step.id, None, &state);
                    }
                }
                self.transfer_fall_through(block, &mut state);
            }
        }
    }

    /// The unreached instructions outside jump tables.
    pub fn unreached(&self) -> impl Iterator<Item = InsnId> {
        self.unreached_insns().filter(|insn| {
            let range = self.code().range(*insn);
            !self.analyzer.data.is_in_table(&range)
        })
    }

    /// Unreached instructions and data, in order.
    pub(super) fn unreached_insns(&self) -> impl Iterator<Item = InsnId> {
        let stretches = self.extended_block_heads();
        let unreached = stretches.filter(|(head, _)| head.state == 0);
        unreached.flat_map(|(head, end)| (head.first.0..end.0).map(InsnId))
    }

    /// The first blocks of extended basic blocks, in code order, each with the end of its extended
    /// block.
    fn extended_block_heads(&self) -> impl Iterator<Item = (&BasicBlock, InsnId)> {
        let mut at = InsnId(0);
        core::iter::from_fn(move || {
            let place = self.analyzer.segment_at(at)?;
            let head = self.analyzer.blocks.get(place)?;
            at = match head.state {
                0 => head.end,
                _ => self
                    .blocks_from(head)
                    .last()
                    .map_or(head.end, |last| last.end),
            };
            Some((head, at))
        })
    }

    /// A block and those that extend it.
    fn blocks_from<'s>(&'s self, head: &'s BasicBlock) -> impl Iterator<Item = &'s BasicBlock> {
        core::iter::successors(Some(head), |block| {
            let next = self.analyzer.segment_at(block.end)?;
            let next = self.analyzer.blocks.get(next)?;
            (block.falls_through && next.extends_previous).then_some(next)
        })
    }

    /// Visits the instructions of a block, and applies their operations.
    #[inline]
    fn visit_block(
        &self,
        block: &BasicBlock,
        state: &mut AbstractState,
        filter: &mut VisitFilter,
        mut see: impl FnMut(InsnId, &AbstractState, u64) -> VisitFilter,
    ) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.transfer);
        let mut ops = code.ops_at(block.ops()).iter();
        let mut at = block.ops_start;
        for step in code.block_insns(block.first, block.end) {
            let leaves = || match code.flow(step.id) {
                Some(Flow::Call(_) | Flow::IndirectCall(_)) => {
                    filter.calls || semantics.has_values_below(state)
                }
                flow => {
                    flow.is_some_and(Flow::leaves) || filter.jumps && self.jumps_elsewhere(block)
                }
            };
            let is_watched = state.is_written(filter.written) || step.end >= filter.end;
            if is_watched || step.is_flow && leaves() {
                let written = state.take_written();
                *filter = see(step.id, state, written);
            }
            while at < step.ops_end
                && let Some(op) = ops.next()
            {
                semantics.transfer(state, *op, at);
                at += 1;
            }
        }
    }

    /// Whether a block ends with a jump to another range of code.
    fn jumps_elsewhere(&self, block: &BasicBlock) -> bool {
        let flow = block.flow().and_then(|place| self.analyzer.flow(place));
        match flow {
            Some((insn, Flow::Jump(_) | Flow::Branch { .. }, BranchTarget::Inside(to))) => {
                let range = self.analyzer.ranges.range_of(to);
                range.is_none_or(|range| !range.insns.contains(&insn.0))
            }
            Some((_, Flow::Jump(_) | Flow::Branch { .. }, BranchTarget::Outside(_))) => true,
            _ => false,
        }
    }

    /// What is behind a call, as [`Analysis::behavior_of_call`] says.
    fn callee_behavior(
        &self,
        flow: Flow,
        target: BranchTarget,
        state: &AbstractState,
    ) -> Option<ReturnBehavior> {
        match (self.analyzer).call_target(self.program, flow, target, state) {
            BranchTarget::Outside(returns) => returns,
            BranchTarget::Inside(to) => {
                (self.program).returns_from_inside(self.code().range(to).start)
            }
        }
    }

    /// Applies the fall-through edge of a block's last instruction.
    fn transfer_fall_through(&self, block: &BasicBlock, state: &mut AbstractState) {
        let semantics = self.analyzer.transfer;
        let flow = block.flow().and_then(|place| self.analyzer.flow(place));
        match flow {
            Some((_, flow @ (Flow::Call(_) | Flow::IndirectCall(_)), target)) => {
                let returns = self.callee_behavior(flow, target, state);
                semantics.transfer_call(state, returns);
            }
            Some((
                _,
                Flow::Branch {
                    condition: test, ..
                },
                _,
            )) => {
                if let BranchFact::RegisterIs(register, value) =
                    semantics.branch_fact(state, test, BranchEdge::FallThrough)
                {
                    state.set(register, value);
                }
            }
            _ => {}
        }
    }
}

/// A filter for [`Analysis::visit_filtered`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitFilter {
    /// Visits instructions before which one of these was written; see
    /// [`AbstractState::take_written`].
    pub written: u64,
    /// Visits instructions that end at or behind this address.
    pub end: u64,
    /// Visits all calls, not only those with known contents below the stack pointer, which the
    /// callee owns.
    pub calls: bool,
    /// Visits all direct jumps to other ranges of code.
    pub jumps: bool,
}

impl VisitFilter {
    /// Visits all.
    pub(crate) const ALL: VisitFilter = VisitFilter {
        written: 0,
        end: 0,
        calls: true,
        jumps: true,
    };
}
