//! Dataflow analysis of arguments: their locations at each instruction, and the values passed by
//! calls.
//!
//! The unwind analysis only tracks call-preserved registers. Arguments need more: values of 4
//! bytes, copies in slots that the program may have the address of, and, for calls, registers with
//! equal values. So this is a separate forward analysis along the edges that [`Analysis`] found.
//! Where two paths disagree, the join is unknown. The stack pointer at each instruction is taken
//! from the unwind analysis.
//!
//! A value in a register is certain. A value in a slot is certain until others may have the address
//! of something in the frame: such code may write next to it, at any time.

mod effect;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use unspool_arg_table::{ArgSource, CallSiteValue};
use unspool_code_analysis::op::Flow;
use unspool_code_analysis::{Analysis, InsnId, SideEffect};

use effect::{ArgEffect, OpContext, number_of};
pub(crate) use state::ArgState;

/// A call, and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct CallEffect {
    /// The instruction.
    pub at: InsnId,
    /// The function called, if the code determines it.
    pub target: Option<u64>,
    /// The known values in argument registers.
    pub arguments: Vec<(u8, CallSiteValue)>,
}

/// A slot in which the program keeps an argument (`unspool_keep.h`), from an instruction on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptSlot {
    pub(crate) source: ArgSource,
    /// Its size in bytes.
    pub(crate) bytes: u8,
    /// Its location: a register plus an offset in bytes.
    pub(crate) base: u8,
    pub(crate) offset: i32,
}

/// Facts about the file apart from the code.
pub(crate) trait CodeContext {
    /// Whether a function takes arguments in memory, if that is known.
    fn takes_stack(&self, entry: u64) -> Option<bool>;

    /// The slots kept from the instruction at an address on.
    fn kept_slots(&self, address: u64) -> Vec<KeptSlot>;

    /// Whether a function may return a second time after its caller has continued, like `setjmp`.
    fn returns_twice(&self, entry: u64) -> bool;

    /// The side effects of the instruction at some addresses, apart from its operations.
    fn details(&self, insn: Range<u64>) -> Vec<SideEffect>;

    /// The number in read-only memory.
    fn constant(&self, address: u64, bytes: u8) -> Option<u64>;
}

/// The locations of arguments in a unit's functions.
pub(crate) struct ArgDataflow<'a> {
    analysis: &'a Analysis<'a>,
    context: &'a dyn CodeContext,
    effects: Vec<ArgEffect>,
    /// The ends of instructions' effects.
    ends: BTreeMap<InsnId, (usize, usize)>,
    /// Whether all edges are known.
    is_whole: bool,
    block_states: BTreeMap<InsnId, ArgState>,
    /// The instructions that may be interrupted after a part of their effects.
    stopping_midway: BTreeSet<InsnId>,
}

/// The maximum average number of visits per block before the analysis of a unit is aborted.
const MAX_VISITS_PER_BLOCK: usize = 64;

impl<'a> ArgDataflow<'a> {
    /// Analyzes a unit, which must have been analyzed [with
    /// edges](unspool_code_analysis::Analyzer::with_edges).
    #[must_use]
    pub(crate) fn solve(analysis: &'a Analysis<'a>, beside: &'a dyn CodeContext) -> Self {
        let mut arguments = ArgDataflow {
            analysis,
            context: beside,
            effects: Vec::new(),
            ends: BTreeMap::new(),
            is_whole: analysis.unresolved().is_empty(),
            block_states: BTreeMap::new(),
            stopping_midway: BTreeSet::new(),
        };
        arguments.lower_instructions();
        arguments.run_worklist();
        arguments
    }

    /// Lowers instructions to effects.
    fn lower_instructions(&mut self) {
        let abi_info = self.analysis.abi_info();
        let code = self.analysis.code();
        let mut ends: BTreeMap<InsnId, (usize, usize)> = BTreeMap::new();
        let mut steps = Vec::new();
        let mut stopping_midway = BTreeSet::new();
        // The side effects of the last instruction come after its operations.
        let mut last: Option<(InsnId, Vec<ArgEffect>)> = None;
        self.analysis.visit_ops(|insn, op, state| {
            let frame = OpContext { abi_info, state };
            if last.as_ref().is_none_or(|(last, _)| *last != insn) {
                finish(last.take(), &mut steps, &mut ends);
                let mut own = Vec::new();
                for detail in self.context.details(code.range(insn)) {
                    let constant = |address, bytes| self.context.constant(address, bytes);
                    frame.push_detail_effects(detail, constant, &mut own);
                    if detail == SideEffect::Interruptible {
                        stopping_midway.insert(insn);
                    }
                }
                last = Some((insn, own));
            }
            let range = ends.entry(insn).or_insert_with(|| {
                let start = steps.len();
                let kept = self.context.kept_slots(code.range(insn).start);
                steps.extend(kept.iter().filter_map(|kept| frame.keep(kept)));
                (start, steps.len())
            });
            match op {
                Some(op) => frame.push_effects(op, &mut steps),
                None => {
                    let target = match code.flow(insn) {
                        Some(Flow::Call(target)) => Some(Some(target)),
                        Some(Flow::IndirectCall(_)) => Some(None),
                        _ => None,
                    };
                    if let Some(target) = target {
                        let sp = frame.distance(state.get(abi_info.stack_pointer));
                        steps.push(ArgEffect::Call { sp, target });
                    }
                }
            }
            range.1 = steps.len();
        });
        finish(last, &mut steps, &mut ends);
        (self.effects, self.ends) = (steps, ends);
        self.stopping_midway = stopping_midway;
    }

    /// Applies the effects of an instruction.
    fn apply(&self, insn: InsnId, state: &mut ArgState) {
        let abi_info = self.analysis.abi_info();
        let (start, end) = self.ends.get(&insn).copied().unwrap_or_default();
        for step in self.effects.get(start..end).unwrap_or_default() {
            state.step(*step, self.takes_none(*step), abi_info);
            if self.returns_twice(*step) {
                state.forget_written(&self.effects);
            }
        }
    }

    /// Whether an effect calls a function that may return again.
    fn returns_twice(&self, effect: ArgEffect) -> bool {
        match effect {
            ArgEffect::Call {
                target: Some(target),
                ..
            } => self.context.returns_twice(target),
            _ => false,
        }
    }

    /// Whether an effect calls a function that is known to take no arguments in memory.
    fn takes_none(&self, effect: ArgEffect) -> bool {
        match effect {
            ArgEffect::Call {
                target: Some(target),
                ..
            } => self.context.takes_stack(target) == Some(false),
            _ => false,
        }
    }

    /// Runs the worklist until a fixpoint.
    fn run_worklist(&mut self) {
        let abi_info = self.analysis.abi_info();
        let edges = self.analysis.edges();
        let mut targets: BTreeMap<InsnId, Vec<InsnId>> = BTreeMap::new();
        let mut open = BTreeSet::new();
        for edge in edges {
            if let Some(from) = edge.source {
                targets.entry(from).or_default().push(edge.target);
                continue;
            }
            let known = if self.analysis.is_entry(edge.target) {
                ArgState::entry(abi_info)
            } else {
                ArgState::unknown(u64::MAX)
            };
            self.flow_into(edge.target, &known, &mut open);
        }
        let blocks: BTreeMap<u32, u32> = self
            .analysis
            .extended_blocks()
            .map(|block| (block.start, block.end))
            .collect();
        let mut budget = blocks
            .len()
            .saturating_mul(MAX_VISITS_PER_BLOCK)
            .max(1 << 12);
        while let Some(begin) = open.pop_first() {
            let Some(remaining) = budget.checked_sub(1) else {
                self.block_states.clear();
                return;
            };
            budget = remaining;
            let (Some(mut kept), Some(end)) =
                (self.block_states.get(&begin).cloned(), blocks.get(&begin.0))
            else {
                continue;
            };
            for insn in (begin.0..*end).map(InsnId) {
                self.apply(insn, &mut kept);
                for to in targets.get(&insn).into_iter().flatten() {
                    self.flow_into(*to, &kept, &mut open);
                }
            }
        }
    }

    fn flow_into(&mut self, at: InsnId, state: &ArgState, open: &mut BTreeSet<InsnId>) {
        let changed = match self.block_states.get_mut(&at) {
            Some(known) => known.join(state),
            None => {
                self.block_states.insert(at, state.clone());
                true
            }
        };
        if changed {
            open.insert(at);
        }
    }

    /// Whether all edges of the unit are known. If not, no location is certain.
    #[must_use]
    pub(crate) fn is_complete(&self) -> bool {
        self.is_whole
    }

    /// Passes the state before each reachable instruction to `visit`, and for each call the state
    /// while its callee runs.
    pub(crate) fn visit(
        &self,
        mut before: impl FnMut(InsnId, &ArgState),
        mut during: impl FnMut(CallEffect, &ArgState),
    ) {
        for block in self.analysis.extended_blocks() {
            let Some(mut kept) = self.block_states.get(&InsnId(block.start)).cloned() else {
                continue;
            };
            for insn in block.map(InsnId) {
                if self.stopping_midway.contains(&insn) {
                    let mut midway = kept.clone();
                    self.apply(insn, &mut midway);
                    midway.join(&kept);
                    before(insn, &midway);
                } else {
                    before(insn, &kept);
                }
                let call = self.call(insn, &kept);
                self.apply(insn, &mut kept);
                if let Some(mut call) = call {
                    for (_, passed) in &mut call.arguments {
                        // It is read while the callee runs.
                        if let CallSiteValue::Slot { at, is_certain, .. } = passed {
                            *is_certain &= kept.is_private(*at);
                        }
                    }
                    during(call, &kept);
                }
            }
        }
    }

    /// The call of an instruction, and the values in argument registers.
    fn call(&self, insn: InsnId, state: &ArgState) -> Option<CallEffect> {
        let (start, end) = self.ends.get(&insn).copied()?;
        let mut steps = self.effects.get(start..end)?.iter();
        let (step, sp, target) = steps.find_map(|step| match *step {
            ArgEffect::Call { sp, target } => Some((*step, sp, target)),
            _ => None,
        })?;
        let own_from = state.own_from(sp, self.takes_none(step));
        let passed = self
            .analysis
            .abi_info()
            .arguments
            .iter()
            .copied()
            .chain(self.analysis.abi_info().vector_arguments.clone())
            .filter_map(|register| {
                let number = number_of(self.analysis.abi_info(), register);
                let own = state.entry_value(number).map(CallSiteValue::EntryValue);
                let copy = state.copy(number);
                // A callee may change its arguments in memory.
                let copy = copy.filter(|copy| match copy {
                    CallSiteValue::Slot { at, .. } => *at >= own_from,
                    _ => true,
                });
                Some((register, own.or(copy)?))
            });
        Some(CallEffect {
            at: insn,
            target,
            arguments: passed.collect(),
        })
    }
}

/// Adds the side effects of an instruction after its other effects.
fn finish(
    last: Option<(InsnId, Vec<ArgEffect>)>,
    effects: &mut Vec<ArgEffect>,
    ends: &mut BTreeMap<InsnId, (usize, usize)>,
) {
    if let Some((insn, own)) = last
        && let Some((_, end)) = ends.get_mut(&insn)
    {
        effects.extend(own);
        *end = effects.len();
    }
}
