//! What is known of a unit that was followed.

use core::ops::Range;

use super::blocks::{BasicBlock, BranchTarget};
use super::ranges::LiftedRange;
use super::{Analyzer, CfgEdge, StackHeightConflict};
use crate::arch::AbiInfo;
use crate::code::{InsnId, LiftedCode};
use crate::op::{BranchEdge, Flow, Op};
use crate::program::{ExtentKind, ProgramCode};
use crate::state::AbstractState;
use crate::transfer::BranchFact;
use crate::value::AbstractValue;

/// What is known of a unit.
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

    /// The instruction to which the address on top of the stack leads, if it is of the unit: a call has pushed it, or somebody
    /// who calls by hand.
    #[must_use]
    pub fn pushed_return_target(&self, state: &AbstractState) -> Option<InsnId> {
        self.analyzer.pushed_return_target(state)
    }

    /// Whether something is stored around an address of the stack of which it is assumed that it is inside its array: by an index or a number
    /// that only a run knows.
    #[must_use]
    pub fn assumes_bounds(&self) -> bool {
        self.analyzer.assumes_bounds
    }

    /// What must be known of the machine.
    #[must_use]
    pub fn abi_info(&self) -> &'static AbiInfo {
        self.analyzer.abi_info()
    }

    /// Where paths met that disagree about the stack pointer.
    #[must_use]
    pub fn conflicts(&self) -> &[StackHeightConflict] {
        &self.analyzer.conflicts
    }

    /// Whether the registers that calls preserve hold what they held at entry.
    #[must_use]
    pub fn preserves(&self, state: &AbstractState) -> bool {
        let mut preserved = self.abi_info().preserved.iter();
        preserved.all(|register| state.get(*register) == AbstractValue::entry_value(*register))
    }

    /// Whether these, and the stack pointer, hold what they held at entry.
    #[must_use]
    pub fn is_as_at_entry(&self, state: &AbstractState) -> bool {
        let sp = self.abi_info().stack_pointer;
        state.get(sp) == AbstractValue::entry_value(sp) && self.preserves(state)
    }

    /// Whether a return goes to who called, with all as it was at entry.
    #[must_use]
    pub fn is_return(&self, state: &AbstractState) -> bool {
        self.abi_info().is_return(state) && self.is_as_at_entry(state)
    }

    /// Whether a jump to the address in a register is a return: that is the return address, and the stack is as a
    /// return leaves it.
    #[must_use]
    pub fn is_return_by(&self, target: u8, state: &AbstractState) -> bool {
        let facts = self.abi_info();
        let left = AbstractValue::entry_value(facts.stack_pointer).plus(facts.call_pushes.into());
        let returns = state
            .get(target)
            .bytes_past_return_address(facts.return_address);
        returns.is_some() && state.get(facts.stack_pointer) == left
    }

    /// What holds, of what a row can speak of, while the callee of a call runs before which `state` holds.
    #[must_use]
    pub fn state_during_call(&self, state: &AbstractState) -> AbstractState {
        let mut state = state.clone();
        self.analyzer.transfer.transfer_callee(&mut state);
        state
    }

    /// What holds behind an instruction from which control goes on, if `state` holds before it.
    #[must_use]
    pub fn state_after(&self, insn: InsnId, state: &AbstractState) -> AbstractState {
        let mut state = state.clone();
        self.analyzer
            .transfer(self.code().ops_range(insn), &mut state);
        state
    }

    /// Whether an instruction is a system call that no thread comes back from, as exits and the return from a
    /// signal's handler are, by what holds before it.
    #[must_use]
    pub fn is_noreturn_syscall(&self, insn: InsnId, state: &AbstractState) -> bool {
        let ops = self.code().ops_of(insn);
        ops.iter()
            .any(|op| self.analyzer.transfer.never_returns(op, state))
    }

    /// Indirect jumps of which it is not known where they go.
    #[must_use]
    pub fn unresolved(&self) -> &[InsnId] {
        &self.analyzer.unresolved
    }

    /// Tells of each instruction that something leads to, in the order of the unit's ranges, what holds before it.
    pub fn visit(&self, mut visit: impl FnMut(InsnId, &AbstractState)) {
        self.visit_filtered(|insn, state, _| {
            visit(insn, state);
            VisitFilter::ALL
        });
    }

    /// Tells of instructions that something leads to, in the order of the unit's ranges, what holds before them,
    /// and what may have changed since the one told before, as [`AbstractState::take_written`] has it. The answer says which of
    /// those that follow are told; each that [leaves the code](Flow::leaves) is, but for some calls, and each that does not come
    /// directly from one before.
    pub fn visit_filtered(&self, mut see: impl FnMut(InsnId, &AbstractState, u64) -> VisitFilter) {
        let mut state = AbstractState::new();
        for (head, _) in self.extended_block_heads() {
            let Some(known) = self.analyzer.state_of(head) else {
                continue;
            };
            state.assign(known);
            state.mark_all_written();
            let mut watch = VisitFilter::ALL;
            for segment in self.blocks_from(head) {
                self.visit_block(segment, &mut state, &mut watch, &mut see);
                self.transfer_fall_through(segment, &mut state);
            }
        }
    }

    /// Where control was found to go, but for the ways inside blocks: in the order of where it goes. Empty without
    /// [`Analyzer::with_edges`].
    #[must_use]
    pub fn edges(&self) -> &[CfgEdge] {
        self.analyzer.edges.as_deref().unwrap_or_default()
    }

    /// Whether functions are come into at an instruction, as after a call.
    #[must_use]
    pub fn is_entry(&self, insn: InsnId) -> bool {
        let address = self.code().range(insn).start;
        let range = self.analyzer.ranges.range_of(insn);
        let is_start = |lifted: &LiftedRange| {
            lifted.range.start == address && lifted.kind == ExtentKind::Function
        };
        range.is_some_and(is_start) || self.program.is_extra_entry(address)
    }

    /// The instructions that something leads to, in blocks: control comes into one at its begin, and out of each of its
    /// instructions goes on to the next, or leaves it by one of the [edges](Analysis::edges).
    pub fn extended_blocks(&self) -> impl Iterator<Item = Range<u32>> {
        let stretches = self.extended_block_heads();
        let reached = stretches.filter(|(head, _)| head.state != 0);
        reached.map(|(head, end)| head.first.0..end.0)
    }

    /// Tells of each operation of the instructions that something leads to what holds before it, in the order of the
    /// blocks; `None` stands for what control does behind the operations, which is told of instructions from which it does not
    /// just go on, and of those that do nothing.
    pub fn visit_ops(&self, mut see: impl FnMut(InsnId, Option<Op>, &AbstractState)) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.transfer);
        let mut state = AbstractState::new();
        for (head, _) in self.extended_block_heads() {
            let Some(known) = self.analyzer.state_of(head) else {
                continue;
            };
            state.assign(known);
            for segment in self.blocks_from(head) {
                let mut ops = (segment.ops_start..)
                    .zip(code.ops_at(segment.ops()))
                    .peekable();
                for step in code.block_insns(segment.first, segment.end) {
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
                self.transfer_fall_through(segment, &mut state);
            }
        }
    }

    /// The instructions that nothing leads to, and that are not in jump tables.
    pub fn unreached(&self) -> impl Iterator<Item = InsnId> {
        self.unreached_insns().filter(|insn| {
            let range = self.code().range(*insn);
            !self.analyzer.data.is_in_table(&range)
        })
    }

    /// What is no code, or nothing leads to, in its order.
    pub(super) fn unreached_insns(&self) -> impl Iterator<Item = InsnId> {
        let stretches = self.extended_block_heads();
        let unreached = stretches.filter(|(head, _)| head.state == 0);
        unreached.flat_map(|(head, end)| (head.first.0..end.0).map(InsnId))
    }

    /// The segments that are not chained to another, in the order of the code, and where what is chained to each
    /// ends.
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

    /// A segment, and those that are chained to it.
    fn blocks_from<'s>(&'s self, head: &'s BasicBlock) -> impl Iterator<Item = &'s BasicBlock> {
        core::iter::successors(Some(head), |segment| {
            let next = self.analyzer.segment_at(segment.end)?;
            let next = self.analyzer.blocks.get(next)?;
            (segment.falls_through && next.extends_previous).then_some(next)
        })
    }

    /// Tells of the instructions of a segment, and does their operations.
    #[inline]
    fn visit_block(
        &self,
        segment: &BasicBlock,
        state: &mut AbstractState,
        watch: &mut VisitFilter,
        mut see: impl FnMut(InsnId, &AbstractState, u64) -> VisitFilter,
    ) {
        let (code, semantics) = (&self.analyzer.code, self.analyzer.transfer);
        let mut ops = code.ops_at(segment.ops()).iter();
        let mut at = segment.ops_start;
        for step in code.block_insns(segment.first, segment.end) {
            let leaves = || match code.flow(step.id) {
                Some(Flow::Call(_) | Flow::IndirectCall) => {
                    watch.calls || semantics.has_values_below(state)
                }
                flow => flow.is_some_and(Flow::leaves),
            };
            let is_watched = state.is_written(watch.written) || step.end >= watch.end;
            if is_watched || step.is_flow && leaves() {
                let written = state.take_written();
                *watch = see(step.id, state, written);
            }
            while at < step.ops_end
                && let Some(op) = ops.next()
            {
                semantics.transfer(state, *op, at);
                at += 1;
            }
        }
    }

    /// Does what the last instruction of a segment does if control goes on behind it.
    fn transfer_fall_through(&self, segment: &BasicBlock, state: &mut AbstractState) {
        let semantics = self.analyzer.transfer;
        let flow = segment.flow().and_then(|place| self.analyzer.flow(place));
        match flow {
            Some((_, Flow::Call(_) | Flow::IndirectCall, target)) => {
                let returns = match target {
                    BranchTarget::Outside(returns) => returns,
                    BranchTarget::Inside(_) => None,
                };
                semantics.transfer_call(state, returns);
            }
            Some((_, Flow::Branch { test, .. }, _)) => {
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

/// Which instructions [`Analysis::watch`] tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitFilter {
    /// Those before which one of these was written, as [`AbstractState::take_written`] has it.
    pub written: u64,
    /// Those that end at this address, or behind.
    pub end: u64,
    /// All calls, not only those before which something is known of what is below the stack pointer, and is the callee's.
    pub calls: bool,
}

impl VisitFilter {
    /// All.
    pub const ALL: VisitFilter = VisitFilter {
        written: 0,
        end: 0,
        calls: true,
    };
}
