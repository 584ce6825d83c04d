//! Stack pointers of which nothing is known, and with which functions return nevertheless.
//!
//! A function that leaves one stack and goes on with another, as coroutines do, loads a stack pointer of which the code says
//! nothing. So does one that takes off as many words as it has counted. But where it only takes off what it put on from there
//! on, until it returns, without a call, the stack pointer must be where the return finds its address. This is assumed: that
//! functions return to who called them, if not in this life, then in that of the other stack, which was left at the same place.

use super::{Analysis, Analyzer};
use crate::code::InsnId;
use crate::op::{Flow, Op};
use crate::state::AbstractState;
use crate::value::{AbstractValue, ValueFact};

impl Analyzer {
    /// Has operations, by their places, yield the stack pointers that [`Analysis::recoverable_stack_pointers`] has for them; whether there are any.
    pub(super) fn assume_stack_pointers(&mut self, found: &[(u32, i32)]) -> bool {
        for (at, offset) in found {
            self.code
                .replace(*at, Op::AssumeStackPointer { offset: *offset });
        }
        !found.is_empty()
    }
}

impl Analysis<'_> {
    /// The operations, by their places, of whose result, the stack pointer, nothing is known; and how far from the stack pointer at
    /// entry it must be.
    pub(super) fn recoverable_stack_pointers(&self) -> Vec<(u32, i32)> {
        /// Who goes from stack to stack more often does something else.
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

    /// Of the first operation of an instruction that may lose the stack pointer, before which a state holds.
    fn recovered_distance(&self, insn: InsnId, before: AbstractState) -> Option<(u32, i32)> {
        let (code, semantics) = (self.code(), self.analyzer.transfer);
        let sp = semantics.facts.stack_pointer;
        let ops = code.ops_range(insn);
        let mut places = ops.clone().zip(code.ops_at(ops));
        let (at, op) = places.find(|(_, op)| self.may_lose_stack_pointer(op))?;
        let mut behind = before;
        semantics.transfer(&mut behind, *op, at);
        let is_lost = match behind.get(sp).fact() {
            ValueFact::Unknown => true,
            // An argument.
            ValueFact::EntryValue(register, _) => register.0 != sp.into(),
            // What was computed is an address that nobody has left.
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
            Flow::Return { pops: 0 } => offset,
            // The return address was popped.
            Flow::IndirectJump(_) => offset + i64::from(semantics.facts.call_pushes),
            _ => return None,
        };
        let offset = i32::try_from(offset).ok()?;
        semantics.assume_stack_pointer(&mut behind, offset);
        self.end_of_straight_line(insn, at, &mut behind)?;
        let returns = match code.flow(end)? {
            Flow::IndirectJump(target) => {
                self.is_return_by(target, &behind) && self.preserves(&behind)
            }
            _ => self.is_return(&behind),
        };
        returns.then_some((at, offset))
    }

    /// Does what is behind operation `at` of an instruction, up to the next from which control does not just go on, and yields that;
    /// `None` if the stack pointer may be lost on the way.
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

    /// Whether an operation may have the stack pointer be something of which nothing is known.
    fn may_lose_stack_pointer(&self, op: &Op) -> bool {
        let facts = self.abi_info();
        let sp = facts.stack_pointer;
        match *op {
            Op::Load { to, .. }
            | Op::LoadSum { to, .. }
            | Op::LoadIndexed { to, .. }
            | Op::AddUnknown { to, .. }
            | Op::Sum { to, .. } => to == sp,
            Op::Add { to, from, .. } => to == sp && from != sp && from != facts.frame_pointer,
            _ => false,
        }
    }
}
