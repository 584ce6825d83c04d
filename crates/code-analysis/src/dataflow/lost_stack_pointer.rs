//! Unknown stack pointers of functions that return nevertheless.
//!
//! A function that switches stacks, like a coroutine's switch, loads a stack pointer about which
//! the code says nothing. So does a function that pops as many words as it has counted. But some of
//! them, from there to the return, make no call and pop only what they push. Then the stack pointer
//! must be where the return finds its address. This is assumed: functions return to their callers,
//! in this activation or in that of the other stack, which was left at the same place.

use super::{Analysis, Analyzer};
use crate::code::InsnId;
use crate::op::{Flow, Op};
use crate::state::AbstractState;
use crate::value::{AbstractValue, ValueFact};

impl Analyzer {
    /// Makes operations, by index, yield the stack pointers that
    /// [`Analysis::recoverable_stack_pointers`] found. Returns whether there are any.
    pub(super) fn assume_stack_pointers(&mut self, found: &[(u32, i32)]) -> bool {
        for (at, offset) in found {
            self.code
                .replace(*at, Op::AssumeStackPointer { offset: *offset });
        }
        !found.is_empty()
    }
}

impl Analysis<'_> {
    /// Indexes of the operations that lose the stack pointer, with its necessary distance from the
    /// stack pointer at entry.
    pub(super) fn recoverable_stack_pointers(&self) -> Vec<(u32, i32)> {
        /// A function with more stack switches does something else.
        const MAX_STACK_SWITCHES: usize = 16;
        let may_lose = |op: &Op| self.may_lose_stack_pointer(op);
        if !self.code().all_ops().iter().any(may_lose) {
            return Vec::new();
        }
        let mut places: Vec<(InsnId, AbstractState)> = Vec::new();
        self.visit_ops(|insn, op, state| {
            if op.is_some_and(|op| may_lose(&op)) && places.len() < MAX_STACK_SWITCHES {
                places.push((insn, state.clone()));
            }
        });
        let found = |(insn, before)| self.recovered_distance(insn, before);
        places.into_iter().filter_map(found).collect()
    }

    /// The same for the first operation of an instruction that may lose the stack pointer, given
    /// the state before it.
    fn recovered_distance(&self, insn: InsnId, before: AbstractState) -> Option<(u32, i32)> {
        let (code, semantics) = (self.code(), self.analyzer.transfer);
        let sp = semantics.abi_info.stack_pointer;
        let ops = code.ops_range(insn);
        let mut places = ops.clone().zip(code.ops_at(ops));
        let (at, op) = places.find(|(_, op)| self.may_lose_stack_pointer(op))?;
        let mut behind = before;
        semantics.transfer(&mut behind, *op, at);
        let is_lost = match behind.get(sp).fact() {
            ValueFact::Unknown => true,
            // An argument.
            ValueFact::EntryValue(register, _) => register.0 != sp.into(),
            // A computed address is not that of a stack left earlier.
            _ => false,
        };
        if !is_lost {
            return None;
        }
        let somewhere = AbstractValue::symbolic_base(at, 0);
        let mut moved = behind.clone();
        moved.set(sp, somewhere);
        let end = self.end_of_straight_line(insn, at, &mut moved)?;
        let offset = somewhere.distance_from(moved.get(sp))?;
        let offset = match code.flow(end)? {
            Flow::Return { pops: 0, .. } => offset,
            // The return address was popped.
            Flow::IndirectJump(_) => offset + i64::from(semantics.abi_info.call_pushes),
            _ => return None,
        };
        let offset = i32::try_from(offset).ok()?;
        semantics.assume_stack_pointer(&mut behind, offset);
        self.end_of_straight_line(insn, at, &mut behind)?;
        let returns = match code.flow(end)? {
            Flow::IndirectJump(target) => {
                self.is_return_by(target, &behind) && self.preserves(&behind)
            }
            Flow::Return { to, .. } => self.is_return(to, &behind),
            _ => false,
        };
        returns.then_some((at, offset))
    }

    /// Applies the operations behind operation `at` of an instruction, up to the next instruction
    /// that does more than fall through, and returns that one; `None` if the stack pointer may be
    /// lost before.
    fn end_of_straight_line(
        &self,
        insn: InsnId,
        at: u32,
        state: &mut AbstractState,
    ) -> Option<InsnId> {
        let (code, semantics) = (self.code(), self.analyzer.transfer);
        let mut insn = insn;
        let mut ops = at + 1..code.ops_range(insn).end;
        loop {
            for (place, op) in (ops.start..).zip(code.ops_at(ops.clone())) {
                if self.may_lose_stack_pointer(op) {
                    return None;
                }
                semantics.transfer(state, *op, place);
            }
            if code.flow(insn).is_some() {
                return Some(insn);
            }
            if !code.is_adjacent_to_next(insn) {
                return None;
            }
            insn = insn.next();
            ops = code.ops_range(insn);
        }
    }

    /// Whether an operation may make the stack pointer unknown.
    fn may_lose_stack_pointer(&self, op: &Op) -> bool {
        let abi_info = self.abi_info();
        let sp = abi_info.stack_pointer;
        match *op {
            Op::Load { to, .. }
            | Op::LoadSum { to, .. }
            | Op::LoadIndexed { to, .. }
            | Op::AddUnknown { to, .. }
            | Op::Sum { to, .. } => to == sp,
            Op::Add { to, from, .. } => to == sp && from != sp && from != abi_info.frame_pointer,
            _ => false,
        }
    }
}
