//! Basic blocks and their states.

use core::cmp::Reverse;
use core::ops::Range;

use super::ranges::LiftedRange;
use super::{Analyzer, CfgEdge, StackHeightConflict, as_u32};
use crate::code::{InsnId, LiftedCode};
use crate::op::Flow;
use crate::program::{ExtentKind, ProgramCode, ReturnBehavior};
use crate::state::AbstractState;
use crate::value::{AbstractValue, UNCONSTRAINED_BASE_BITS, ValueFact};

/// A basic block.
#[derive(Debug, Clone, Copy)]
pub(super) struct BasicBlock {
    pub(super) first: InsnId,
    pub(super) end: InsnId,
    /// Start of its operations in [`LiftedCode`].
    pub(super) ops_start: u32,
    pub(super) ops_end: u32,
    /// Index of its last instruction in [`LiftedCode::flows`], plus 1; 0 if that only falls
    /// through.
    pub(super) flow: u32,
    /// Index of the state at its begin, plus 1; 0 if no jump to it is known.
    pub(super) state: u32,
    /// The source of the first jump to it.
    pub(super) first_predecessor: InsnId,
    pub(super) is_in_worklist: bool,
    /// Whether a direct jump leads to it.
    pub(super) is_jump_target: bool,
    /// Whether its only predecessor is the block before it.
    pub(super) extends_previous: bool,
    /// Whether the next block is adjacent and of the same function.
    pub(super) has_adjacent_block: bool,
    /// Whether control falls through to the next block.
    pub(super) falls_through: bool,
}

impl BasicBlock {
    /// A block that still needs [an end](BasicBlock::end_at).
    pub(super) fn new(first: InsnId, ops_start: u32) -> BasicBlock {
        BasicBlock {
            first,
            end: first,
            ops_start,
            ops_end: ops_start,
            flow: 0,
            state: 0,
            first_predecessor: first,
            is_in_worklist: false,
            is_jump_target: false,
            extends_previous: false,
            has_adjacent_block: false,
            falls_through: false,
        }
    }

    /// Ends the block before an instruction.
    pub(super) fn end_at(&mut self, end: InsnId, code: &LiftedCode) {
        self.end = end;
        let last = self.last();
        self.ops_end = code.ops_range(last).end;
        self.flow = code.flow_index(last).map_or(0, |place| as_u32(place + 1));
        self.has_adjacent_block = code.is_adjacent_to_next(last);
    }

    /// Whether a path to it is known.
    pub(super) fn is_reached(&self) -> bool {
        self.state != 0 || self.extends_previous
    }

    /// Indexes of its operations in [`LiftedCode`].
    pub(super) fn ops(&self) -> Range<u32> {
        self.ops_start..self.ops_end
    }

    pub(super) fn last(&self) -> InsnId {
        InsnId(self.end.0.saturating_sub(1))
    }

    /// Index of its last instruction in [`LiftedCode::flows`].
    pub(super) fn flow(&self) -> Option<usize> {
        Some(self.flow.checked_sub(1)? as usize)
    }
}

/// Target of a direct jump or call.
#[derive(Debug, Clone, Copy)]
pub(super) enum BranchTarget {
    /// An instruction of the unit; for calls only if no function begins there.
    Inside(InsnId),
    /// Elsewhere, or unknown; with the effect of a call.
    Outside(Option<ReturnBehavior>),
}

/// Separates symbolic bases made by joins from those made by operations.
const JOIN_BASE_BIT: u32 = 1 << 27;

impl Analyzer {
    /// Divides the instructions into basic blocks.
    pub(super) fn build_blocks(&mut self, program: &ProgramCode) {
        self.state_count = 0;
        self.blocks.clear();
        self.worklist.clear();
        self.deferred_edges.clear();
        self.rejected_edges.clear();
        self.unresolved_states.clear();
        self.conflicts.clear();
        self.unresolved.clear();
        self.data.clear();
        if let Some(edges) = &mut self.edges {
            edges.clear();
        }
        const BEGINS: u32 = 1;
        const IS_TARGET: u32 = 2;
        const IS_FUNCTION: u32 = 4;
        let mut segment_at = core::mem::take(&mut self.block_by_insn);
        segment_at.clear();
        segment_at.resize(self.code.len(), 0);
        let mut note = |insn: InsnId, what: u32| {
            if let Some(at) = segment_at.get_mut(insn.index()) {
                *at |= what;
            }
        };
        for LiftedRange {
            insns, kind: part, ..
        } in self.ranges.iter()
        {
            let is_function = *part == ExtentKind::Function;
            let what = if is_function { IS_FUNCTION } else { 0 };
            note(InsnId(insns.start), BEGINS | what);
        }
        self.targets.clear();
        for (id, flow) in self.code.flows() {
            note(id.next(), BEGINS);
            let target = self.target(program, *flow);
            if let (Flow::Jump(_) | Flow::Branch { .. }, BranchTarget::Inside(insn)) =
                (flow, target)
            {
                note(insn, BEGINS | IS_TARGET);
            }
            self.targets.push(target);
        }
        self.block_by_insn = segment_at;
        for (first, at) in (0..).map(InsnId).zip(&mut self.block_by_insn) {
            if *at == 0 {
                continue;
            }
            let mut ops_start = 0;
            if let Some(last) = self.blocks.last_mut() {
                last.end_at(first, &self.code);
                last.has_adjacent_block &= *at & IS_FUNCTION == 0;
                ops_start = last.ops_end;
            }
            self.blocks.push(BasicBlock {
                is_jump_target: *at & IS_TARGET != 0,
                ..BasicBlock::new(first, ops_start)
            });
            *at = as_u32(self.blocks.len());
        }
        if let Some(last) = self.blocks.last_mut() {
            last.end_at(InsnId(as_u32(self.code.len())), &self.code);
        }
    }

    pub(super) fn target(&self, program: &ProgramCode, flow: Flow) -> BranchTarget {
        let inside = match flow {
            Flow::Jump(to) | Flow::Branch { to, .. } => self.insn_at(to),
            Flow::Call(to) => match program.returns(to) {
                None if !program.is_extra_entry(to) => self.insn_at(to),
                returns => return BranchTarget::Outside(returns),
            },
            _ => None,
        };
        inside.map_or(BranchTarget::Outside(None), BranchTarget::Inside)
    }

    /// The target of a call, in the state behind the operations of its instruction. `target` is that
    /// of a direct one.
    pub(super) fn call_target(
        &self,
        program: &ProgramCode,
        flow: Flow,
        target: BranchTarget,
        state: &AbstractState,
    ) -> BranchTarget {
        let Flow::IndirectCall(register) = flow else {
            return target;
        };
        let callee = state.get(register);
        let target = match callee.as_constant() {
            Some(to) => self.target(program, Flow::Call(to)),
            None => BranchTarget::Outside(self.returns_of(program, callee)),
        };
        match target {
            // Code that calls so may leave the callee by a switch of stacks.
            BranchTarget::Outside(Some(ReturnBehavior::Never)) => BranchTarget::Outside(None),
            target => target,
        }
    }

    /// What the caller finds behind a function at an abstract address; `None` if that is what the
    /// ABI promises, or not known.
    pub(super) fn returns_of(
        &self,
        program: &ProgramCode,
        function: AbstractValue,
    ) -> Option<ReturnBehavior> {
        match function.fact() {
            ValueFact::Constant(to) => program.returns(to),
            ValueFact::TableTarget(table) => self.data.callees.get(&table).copied().flatten(),
            _ => self.unknown_callee,
        }
    }

    /// An instruction by its index in [`LiftedCode::flows`], with its control flow and target.
    pub(super) fn flow(&self, place: usize) -> Option<(InsnId, Flow, BranchTarget)> {
        let (insn, flow) = self.code.flows().get(place)?;
        Some((*insn, *flow, *self.targets.get(place)?))
    }

    pub(super) fn add_entry_state(&mut self, address: u64, entry: &AbstractState) {
        if let Some(insn) = self.insn_at(address) {
            self.flow_into(insn, entry, None);
        }
    }

    pub(super) fn segment_at(&self, insn: InsnId) -> Option<usize> {
        let number = self.block_by_insn.get(insn.index())?;
        Some(number.checked_sub(1)? as usize)
    }

    /// The state at the begin of a jump target's block.
    pub(super) fn state_of(&self, block: &BasicBlock) -> Option<&AbstractState> {
        self.states.get(block.state.checked_sub(1)? as usize)
    }

    /// The last block that begins before an instruction and passes the filter.
    pub(super) fn block_before(
        &self,
        insn: InsnId,
        is_wanted: impl Fn(&BasicBlock) -> bool,
    ) -> Option<usize> {
        let before = (0..insn.0).rev().map(InsnId);
        let mut places = before.filter_map(|id| self.segment_at(id));
        places.find(|place| self.blocks.get(*place).is_some_and(&is_wanted))
    }

    /// The block that begins with an instruction; splits the block that contains it.
    pub(super) fn block_starting_at(&mut self, insn: InsnId) -> Option<usize> {
        if let Some(place) = self.segment_at(insn) {
            return Some(place);
        }
        let place = self.block_before(insn, |_| true)?;
        let block = self.blocks.get_mut(place)?;
        let rest = BasicBlock {
            first: insn,
            ops_start: self.code.ops_range(insn).start,
            state: 0,
            first_predecessor: insn,
            is_in_worklist: false,
            is_jump_target: false,
            // A processed block included this part.
            extends_previous: block.is_reached(),
            ..*block
        };
        block.end_at(insn, &self.code);
        block.falls_through = true;
        self.blocks.push(rest);
        *self.block_by_insn.get_mut(insn.index())? = as_u32(self.blocks.len());
        Some(self.blocks.len() - 1)
    }

    /// Joins a state into the block that begins with `target`.
    pub(super) fn flow_into(
        &mut self,
        target: InsnId,
        state: &AbstractState,
        source: Option<InsnId>,
    ) {
        let Some(place) = self.block_starting_at(target) else {
            return;
        };
        let Some(block) = self.blocks.get_mut(place) else {
            return;
        };
        if let Some(edges) = &mut self.edges {
            edges.push(CfgEdge { target, source });
        }
        let from = source.unwrap_or(target);
        let sp = self.transfer.abi_info.stack_pointer;
        // A relocated stack pointer gets one name at a join, on all paths. Slots relative to it are
        // renamed.
        let mut renamed;
        let (arrived, mut state) = (state.get(sp), state);
        if let Some(base) = arrived.symbolic_base_id() {
            let here = target.0 | JOIN_BASE_BIT | base & UNCONSTRAINED_BASE_BITS;
            renamed = state.clone();
            renamed.rename_base(sp, here);
            let known = block.state.checked_sub(1);
            let known = known.and_then(|known| self.states.get(known as usize));
            if let Some(known) = known.filter(|_| base == here && arrived.offset() != 0) {
                renamed.retain_slots_of(here, known);
            }
            state = &renamed;
        }
        let Some(known) = block.state.checked_sub(1) else {
            if self.state_count == self.states.len() {
                self.states.push(AbstractState::new());
            }
            if let Some(room) = self.states.get_mut(self.state_count) {
                room.assign(state);
            }
            self.state_count += 1;
            block.state = as_u32(self.state_count);
            block.first_predecessor = from;
            let was_chained = core::mem::take(&mut block.extends_previous);
            self.enqueue(target);
            if was_chained
                && let Some(head) = self.block_before(target, |block| block.state != 0)
                && let Some(head) = self.blocks.get(head)
            {
                // The fall-through from before is an edge of its own now.
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
        let is_reported = || self.conflicts.iter().any(|conflict| conflict.at == target);
        if has_moved && !is_reported() {
            self.conflicts.push(StackHeightConflict {
                at: target,
                first,
                first_from: block.first_predecessor,
                other,
                other_from: from,
            });
        }
        if known.join(state) {
            self.enqueue(target);
        }
    }

    /// Applies operations by index.
    pub(super) fn transfer(&self, ops: Range<u32>, state: &mut AbstractState) {
        for (at, op) in (ops.start..).zip(self.code.ops_at(ops)) {
            self.transfer.transfer(state, *op, at);
        }
    }

    pub(super) fn enqueue(&mut self, insn: InsnId) {
        let place = self.segment_at(insn);
        let block = place.and_then(|place| self.blocks.get_mut(place));
        if let Some(block) = block
            && !block.is_in_worklist
        {
            block.is_in_worklist = true;
            self.worklist.push(Reverse(insn));
        }
    }
}
