//! The worklist iteration over one unit.

use core::cmp::Reverse;
use core::ops::Range;
use std::sync::Arc;

use super::assumptions::{Assumptions, EdgeKind};
use super::blocks::{BasicBlock, BranchTarget};
use super::inline_data::JumpTableTargets;
use super::ranges::LiftedRange;
use super::{Analyzer, Landing};
use crate::code::InsnId;
use crate::op::{BranchEdge, Flow, ResumePoint, ReturnTarget};
use crate::program::{CodeImage, ExtentKind, ProgramCode, ReturnBehavior};
use crate::state::AbstractState;
use crate::transfer::BranchFact;
use crate::value::{AbstractValue, JumpTable, ValueFact};

/// An edge that is only followed if nothing else reaches its target.
#[derive(Debug)]
pub(super) struct DeferredEdge {
    pub(super) source: InsnId,
    pub(super) target: InsnId,
    pub(super) state: Box<AbstractState>,
}

/// The solver of one unit.
pub(super) struct Solver<'a, I: ?Sized, G> {
    pub(super) analyzer: &'a mut Analyzer,
    pub(super) program: &'a ProgramCode,
    pub(super) image: &'a I,
    pub(super) landings: &'a [Landing],
    pub(super) guide: &'a G,
    /// Ranges before this one are entered.
    pub(super) next_range: usize,
    /// The same for ranges that no deferred edge leads to.
    pub(super) next_other_range: usize,
    /// Guessed targets before this one are entered.
    pub(super) next_guess: usize,
}

/// Whether the target of a call is not a known function.
fn is_unknown(target: BranchTarget) -> bool {
    matches!(target, BranchTarget::Outside(None))
}

impl<I: CodeImage + ?Sized, G: Assumptions> Solver<'_, I, G> {
    pub(super) fn solve(&mut self) {
        let mut state = AbstractState::new();
        loop {
            while let Some(Reverse(head)) = self.analyzer.worklist.pop() {
                self.run_extended_block(head, &mut state);
                if self.analyzer.budget == 0 {
                    return;
                }
            }
            if self.enter_other_fragment() {
                continue;
            }
            // Targets that nothing else reaches.
            let Some(weak) = self.analyzer.deferred_edges.pop() else {
                if self.enter_unreached_fragment() || self.enter_indirect_target() {
                    continue;
                }
                return;
            };
            let place = self.analyzer.block_starting_at(weak.target);
            let block = place.and_then(|place| self.analyzer.blocks.get(place));
            let sp = self.analyzer.transfer.abi_info.stack_pointer;
            let agrees = |block: &BasicBlock| {
                let known = self.analyzer.state_of(block);
                known.is_some_and(|known| known.get(sp) == weak.state.get(sp))
            };
            if block.is_some_and(|block| !block.is_reached() || agrees(block)) {
                self.flow_into(weak.target, &weak.state, weak.source);
            } else {
                self.analyzer.rejected_edges.push(weak);
            }
        }
    }

    /// If a deferred edge leads to the start of a fragment, another fragment may lead there, too.
    /// Enters an unreached one, and returns whether there is one.
    fn enter_other_fragment(&mut self) -> bool {
        let next = self.analyzer.deferred_edges.last();
        let is_start = next.is_some_and(|edge| {
            let range = self.analyzer.ranges.range_of(edge.target);
            range.is_some_and(|range| range.insns.start == edge.target.0)
        });
        if !is_start {
            return false;
        }
        while let Some(range) = self.analyzer.ranges.get(self.next_other_range) {
            let first = InsnId(range.insns.start);
            self.next_other_range += 1;
            let mut edges = self.analyzer.deferred_edges.iter();
            if !edges.any(|edge| edge.target == first) && self.enter_fragment(first) {
                return true;
            }
        }
        false
    }

    /// Enters an unreached fragment with the state of its row. Returns whether there is one.
    fn enter_unreached_fragment(&mut self) -> bool {
        while let Some(lifted) = self.analyzer.ranges.get(self.next_range) {
            let first = InsnId(lifted.insns.start);
            self.next_range += 1;
            if self.enter_fragment(first) {
                return true;
            }
        }
        false
    }

    /// Enters the fragment that begins with an instruction, unless it is reached. Returns whether
    /// that was possible.
    fn enter_fragment(&mut self, first: InsnId) -> bool {
        let start = self.analyzer.code.range(first).start;
        let place = self.analyzer.segment_at(first);
        let block = place.and_then(|place| self.analyzer.blocks.get(place));
        // A range that begins with padding begins elsewhere.
        let is_reached = block.is_none_or(BasicBlock::is_reached);
        let state = if is_reached || self.analyzer.code.is_padding(first) {
            None
        } else {
            self.guide.fragment_entry_state(start)
        };
        if let Some(state) = &state {
            self.analyzer.add_entry_state(start, state);
        }
        state.is_some()
    }

    /// Enters unreached code by an unresolved indirect jump. Returns whether there is any.
    fn enter_indirect_target(&mut self) -> bool {
        while let Some(address) = self.guide.indirect_targets().get(self.next_guess) {
            self.next_guess += 1;
            let Some(to) = self.analyzer.insn_at(*address) else {
                continue;
            };
            let place = self.analyzer.block_starting_at(to);
            let block = place.and_then(|place| self.analyzer.blocks.get(place));
            let is_reached = block.is_none_or(BasicBlock::is_reached);
            let jumps = &self.analyzer.unresolved_states;
            let before = jumps.iter().rev().find(|(from, _)| *from < to);
            let jump = before.or(jumps.first()).filter(|_| !is_reached);
            if let Some((from, state)) = jump.cloned() {
                self.flow_into(to, &state, from);
                return true;
            }
        }
        false
    }

    /// Follows a jump edge to an instruction.
    fn flow_into(&mut self, to: InsnId, state: &AbstractState, from: InsnId) {
        self.analyzer.flow_into(to, state, Some(from));
    }

    /// Runs an extended basic block, from its first block on.
    fn run_extended_block(&mut self, head: InsnId, state: &mut AbstractState) {
        let Some(mut place) = self.analyzer.segment_at(head) else {
            return;
        };
        let Some(block) = self.analyzer.blocks.get_mut(place) else {
            return;
        };
        block.is_in_worklist = false;
        let block = *block;
        match self.analyzer.state_of(&block) {
            Some(known) => state.assign(known),
            None => return,
        }
        state.mark_all_written();
        while let Some(block) = self.analyzer.blocks.get(place).copied() {
            self.analyzer.transfer(block.ops(), state);
            self.analyzer.assumes_bounds |= state.assumes_bounds();
            let cost = (block.ops_end - block.ops_start + 1) as usize;
            self.analyzer.budget = self.analyzer.budget.saturating_sub(cost);
            let goes_on = match block.flow() {
                Some(flow) => self.transfer_control(flow, state),
                None => true,
            };
            let goes_on = goes_on && block.has_adjacent_block;
            if let Some(block) = self.analyzer.blocks.get_mut(place) {
                block.falls_through = goes_on;
            }
            if !goes_on {
                return;
            }
            let Some(next) = self.analyzer.segment_at(block.end) else {
                return;
            };
            let Some(behind) = self.analyzer.blocks.get_mut(next) else {
                return;
            };
            if behind.is_jump_target || behind.state != 0 {
                self.flow_into(block.end, state, block.last());
                return;
            }
            behind.extends_previous = true;
            place = next;
        }
    }

    /// Follows the edges out of an instruction, by its index in
    /// [`crate::code::LiftedCode::flows`], except fall-through. Returns whether it falls through,
    /// with `state` updated.
    fn transfer_control(&mut self, place: usize, state: &mut AbstractState) -> bool {
        let Some((insn, flow, target)) = self.analyzer.flow(place) else {
            return true;
        };
        let semantics = self.analyzer.transfer;
        match flow {
            Flow::Jump(to) => {
                self.jump(insn, to, target, state);
                false
            }
            Flow::Branch {
                to,
                condition: test,
            } => {
                match semantics.branch_fact(state, test, BranchEdge::Taken) {
                    BranchFact::None => self.jump(insn, to, target, state),
                    BranchFact::RegisterIs(register, value) => {
                        let held = state.get(register);
                        state.set(register, value);
                        self.jump(insn, to, target, state);
                        state.set(register, held);
                    }
                    BranchFact::Infeasible => {}
                }
                match semantics.branch_fact(state, test, BranchEdge::FallThrough) {
                    BranchFact::None => true,
                    BranchFact::RegisterIs(register, value) => {
                        state.set(register, value);
                        true
                    }
                    BranchFact::Infeasible => false,
                }
            }
            // The bytes between are data.
            Flow::Call(to) if is_unknown(target) && self.skips_over_target(insn, to) => false,
            Flow::Call(_) | Flow::IndirectCall(_) => {
                if let Flow::IndirectCall(register) = flow {
                    self.read_callees(state.get(register));
                }
                let target = (self.analyzer).call_target(self.program, flow, target, state);
                match target {
                    BranchTarget::Inside(inside) => self.call_within_unit(insn, inside, state),
                    BranchTarget::Outside(returns) => {
                        let edge_kind = match returns {
                            Some(_) => EdgeKind::KnownReturn,
                            None => EdgeKind::CallReturn,
                        };
                        self.call(insn, edge_kind, returns, state)
                    }
                }
            }
            Flow::IndirectJump(register) => {
                self.read_callees(state.get(register));
                self.indirect(insn, state.get(register), state);
                false
            }
            Flow::Return { to, pops } => {
                self.returns(insn, to, pops, state);
                false
            }
            Flow::Resume(point) => {
                self.resume(insn, point, state);
                false
            }
            Flow::Trap => self
                .guide
                .resumes_after_trap(self.analyzer.code.range(insn).start),
            Flow::Unknown => false,
        }
    }

    /// Follows a jump to the address `to`.
    fn jump(&mut self, from: InsnId, to: u64, target: BranchTarget, state: &AbstractState) {
        let inside = match target {
            BranchTarget::Inside(target) => Some(target),
            BranchTarget::Outside(_) => self.behind_prefixes(from, to),
        };
        let part = inside.and_then(|target| Some((target, self.analyzer.ranges.range_of(target)?)));
        if let Some((target, part)) = part
            && part.insns.contains(&from.0)
        {
            return self.flow_into(target, state, from);
        }
        if let Some(back) = self.linked_return(to, state) {
            return self.return_to_linked(from, to, back, state);
        }
        let returns = self.program.returns(to);
        let Some((target, LiftedRange { insns, kind, .. })) = part else {
            return self.return_to_pushed(from, returns, state);
        };
        let is_function = insns.start == target.0 && *kind == ExtentKind::Function;
        if is_function || self.program.is_extra_entry(to) {
            return self.return_to_pushed(from, returns, state);
        }
        if self.guide.flows_in(EdgeKind::ExtentJump, to, state) {
            self.flow_into(target, state, from);
        } else {
            self.defer_edge(from, target, state);
        }
    }

    /// The instruction that a jump enters behind prefixes that do not matter, if it does. Notes a
    /// jump into the middle of an instruction.
    fn behind_prefixes(&mut self, from: InsnId, to: u64) -> Option<InsnId> {
        let Analyzer { ranges, code, .. } = &*self.analyzer;
        let insn = ranges.insn_across(to, code)?;
        let prefixes = self.analyzer.transfer.abi_info.idle_prefixes;
        let skipped = self.image.bytes(code.range(insn).start..to)?;
        if skipped.iter().all(|byte| prefixes.contains(byte)) {
            return Some(insn);
        }
        let jumps = &mut self.analyzer.data.overlapping_jumps;
        if !jumps.contains(&from) {
            jumps.push(from);
        }
        None
    }

    /// Reads which functions a table or a pointer names.
    fn read_callees(&mut self, target: AbstractValue) {
        if let ValueFact::TableTarget(table) = target.fact() {
            let (program, image) = (self.program, self.image);
            let callees = &mut self.analyzer.data.callees;
            callees
                .entry(table)
                .or_insert_with(|| program.returns_of_table(table, image));
        }
    }

    /// Follows the return of a tail-called function, if an address in this unit was pushed for it.
    fn return_to_pushed(
        &mut self,
        from: InsnId,
        returns: Option<ReturnBehavior>,
        state: &AbstractState,
    ) {
        if let Some(to) = self.analyzer.pushed_return_target(state) {
            let semantics = self.analyzer.transfer;
            let mut back = state.clone();
            semantics.pop_return(&mut back);
            semantics.transfer_call(&mut back, returns);
            self.flow_into(to, &back, from);
        }
    }

    /// The instruction that a function at `to` returns to, if it takes the address of this unit's
    /// code from a register.
    fn linked_return(&self, to: u64, state: &AbstractState) -> Option<InsnId> {
        let register = self.guide.link_register(to)?;
        self.analyzer.insn_at(state.get(register).as_constant()?)
    }

    /// Follows the return of such a function.
    fn return_to_linked(&mut self, from: InsnId, to: u64, back: InsnId, state: &AbstractState) {
        let mut state = state.clone();
        let returns = self.program.returns(to);
        self.analyzer.transfer.transfer_call(&mut state, returns);
        self.flow_into(back, &state, from);
    }

    /// Defers an edge: it is only followed if nothing else reaches its target.
    fn defer_edge(&mut self, source: InsnId, target: InsnId, state: &AbstractState) {
        self.analyzer.deferred_edges.push(DeferredEdge {
            source,
            target,
            state: Box::new(state.clone()),
        });
    }

    /// Whether a call jumps over the bytes behind it, into the middle of a decoded instruction.
    fn skips_over_target(&self, call: InsnId, to: u64) -> bool {
        let analyzer = &self.analyzer;
        let hides = analyzer.ranges.insn_across(to, &analyzer.code);
        hides.is_some_and(|insn| call < insn)
    }

    /// Follows a call within the same function, which may never return.
    fn call_within_unit(&mut self, insn: InsnId, to: InsnId, state: &mut AbstractState) -> bool {
        let semantics = self.analyzer.transfer;
        let start = self.analyzer.code.range(to).start;
        // A call of the next instruction only asks for the address.
        if insn.next() != to && self.guide.is_nested_function(start) {
            self.flow_into(to, &semantics.entry(), insn);
            let returns = self.program.returns_from_inside(start);
            return self.call(insn, EdgeKind::KnownReturn, returns, state);
        }
        let mut inside = state.clone();
        semantics.push_return(&mut inside, self.analyzer.code.range(insn).end);
        self.flow_into(to, &inside, insn);
        semantics.transfer_call(state, None);
        // A callee that pops the return address does not return: it may be a string's address.
        let next = self.analyzer.code.range(insn).end;
        let is_there = self.analyzer.code.is_adjacent_to_next(insn) && insn.next() != to;
        if is_there
            && !self.is_text(next..start)
            && self.guide.flows_in(EdgeKind::CallReturn, next, state)
        {
            self.defer_edge(insn, insn.next(), state);
        }
        false
    }

    /// Whether bytes are characters with a terminating zero.
    fn is_text(&self, range: Range<u64>) -> bool {
        let is_character = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r' | 0);
        let bytes = self.image.bytes(range).unwrap_or_default();
        bytes.last() == Some(&0) && bytes.iter().all(is_character)
    }

    /// Follows a call. Returns whether it returns.
    fn call(
        &mut self,
        insn: InsnId,
        edge_kind: EdgeKind,
        returns: Option<ReturnBehavior>,
        state: &mut AbstractState,
    ) -> bool {
        let semantics = self.analyzer.transfer;
        let Range { start, end } = self.analyzer.code.range(insn);
        let sp = state.get(semantics.abi_info.stack_pointer);
        semantics.transfer_call(state, returns);
        let pad = Landing::pad_of(self.landings, start);
        if let Some(pad) = pad.and_then(|pad| self.analyzer.insn_at(pad)) {
            let mut landed = state.clone();
            let popped = i64::try_from(self.guide.args_size(end - 1, sp)).unwrap_or(0);
            landed.set(semantics.abi_info.stack_pointer, sp.plus(popped));
            self.flow_into(pad, &landed, insn);
        }
        match returns {
            Some(ReturnBehavior::Never) => return false,
            Some(ReturnBehavior::SkipsData(bytes)) => {
                let to = end.saturating_add(bytes.into());
                match self.analyzer.insn_at(to) {
                    Some(next) => self.flow_into(next, state, insn),
                    None => self.analyzer.data.misaligned_targets.push(to),
                }
                return false;
            }
            _ => {}
        }
        if !self.analyzer.code.is_adjacent_to_next(insn) {
            return true;
        }
        let next = insn.next();
        let code = &self.analyzer.code;
        let contradicts = |target: &InsnId| {
            let start = code.range(*target).start;
            !self.guide.flows_in(edge_kind, start, state)
        };
        let mut targets = [next, self.behind_padding(next)].into_iter();
        if let Some(target) = targets.find(contradicts) {
            self.defer_edge(insn, target, state);
            return false;
        }
        true
    }

    /// The first instruction that is not padding, from one on. The same one if there is none before
    /// the end of its range.
    fn behind_padding(&self, first: InsnId) -> InsnId {
        let code = &self.analyzer.code;
        let mut insn = first;
        while code.is_padding(insn) && code.flow(insn).is_none() {
            if !code.is_adjacent_to_next(insn) {
                return first;
            }
            insn = insn.next();
        }
        insn
    }

    fn returns(&mut self, insn: InsnId, to: ReturnTarget, pops: u16, state: &mut AbstractState) {
        let abi_info = self.analyzer.transfer.abi_info;
        let target = abi_info.return_target(to, state);
        let Some(address) = target.and_then(AbstractValue::as_constant) else {
            return;
        };
        let sp = abi_info.stack_pointer;
        self.analyzer.transfer.pop_return(state);
        state.set(sp, state.get(sp).plus(pops.into()));
        match self.analyzer.insn_at(address) {
            // A call of this unit pushed it.
            Some(target) => self.flow_into(target, state, insn),
            None => self.jump(insn, address, BranchTarget::Outside(None), state),
        }
    }

    /// Follows the resumption of code of this unit, whose address was pushed.
    fn resume(&mut self, insn: InsnId, point: ResumePoint, state: &mut AbstractState) {
        let ResumePoint::Stack { stack_pointer_at } = point else {
            return;
        };
        if let Some(target) = self.analyzer.pushed_return_target(state) {
            let sp = self.analyzer.transfer.abi_info.stack_pointer;
            let resumed = state.load(state.get(sp).plus(stack_pointer_at.into()));
            let resumed = resumed.filter(|sp| sp.is_address());
            state.set(sp, resumed.unwrap_or(AbstractValue::UNKNOWN));
            self.flow_into(target, state, insn);
        }
    }

    fn indirect(&mut self, insn: InsnId, target: AbstractValue, state: &AbstractState) {
        match target.fact() {
            ValueFact::TableTarget(table) => self.table_jump(insn, table, state),
            ValueFact::Constant(to) => {
                let target = self.analyzer.target(self.program, Flow::Jump(to));
                self.jump(insn, to, target, state);
            }
            _ => self.unresolved_jump(insn, state),
        }
    }

    /// Notes a jump without a known target in the unit: it is a tail call if the stack is as at
    /// entry.
    fn unresolved_jump(&mut self, insn: InsnId, state: &AbstractState) {
        let semantics = self.analyzer.transfer;
        let sp = state.get(semantics.abi_info.stack_pointer);
        self.return_to_pushed(insn, None, state);
        if !self.guide.indirect_targets().is_empty() {
            self.analyzer.unresolved_states.push((insn, state.clone()));
        }
        let is_tail_call = sp == semantics.entry_sp();
        if !is_tail_call && !self.analyzer.unresolved.contains(&insn) {
            self.analyzer.unresolved.push(insn);
        }
    }

    /// Follows a jump through a table. The cost is its number of targets, unless all of them have
    /// already joined this state.
    fn table_jump(&mut self, insn: InsnId, table: JumpTable, state: &AbstractState) {
        let targets = self.targets(table);
        if targets.is_empty() {
            return self.unresolved_jump(insn, state);
        }
        // Noting an edge costs less than a join.
        let cost = match (
            self.analyzer.edges.is_some(),
            self.is_new_information(table, state),
        ) {
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

    /// Whether a state may be new to a table's targets.
    fn is_new_information(&mut self, table: JumpTable, state: &AbstractState) -> bool {
        let semantics = self.analyzer.transfer;
        // A symbolic stack pointer gets another name at each target.
        let sp = state.get(semantics.abi_info.stack_pointer);
        let Some(read) = self.analyzer.data.resolved_tables.get_mut(&table) else {
            return true;
        };
        match &mut read.propagated {
            _ if sp.symbolic_base_id().is_some() => true,
            Some(recorded) => recorded.join(state),
            recorded => {
                *recorded = Some(state.clone());
                true
            }
        }
    }

    /// The targets of a jump table.
    fn targets(&mut self, table: JumpTable) -> Arc<[InsnId]> {
        if let Some(read) = self.analyzer.data.resolved_tables.get(&table) {
            return Arc::clone(&read.targets);
        }
        let targets: Arc<[InsnId]> = self.read_targets(table).into();
        let read = JumpTableTargets {
            targets: Arc::clone(&targets),
            propagated: None,
        };
        self.analyzer.data.resolved_tables.insert(table, read);
        targets
    }

    fn read_targets(&mut self, table: JumpTable) -> Vec<InsnId> {
        let size = table.entry_size();
        let mut found = Vec::new();
        let mut end = table.address;
        for address in self.program.jump_table_targets(table, self.image) {
            match self.analyzer.insn_at(address) {
                Some(to) => found.push(to),
                // Impossible indexes lead to the end of the function; values beyond the table lead
                // anywhere.
                None if !self.analyzer.ranges.has_end(address) => {
                    if table.max_index.is_some() {
                        self.analyzer.data.misaligned_targets.push(address);
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
