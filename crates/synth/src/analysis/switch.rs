//! Functions that leave one stack and go on with another which they left before, as coroutines do.
//!
//! Nothing in the code says what is on the other stack. But a function that stores its stack pointer away, takes another
//! one, and from there on only takes off what it put on, until it returns, agrees with itself: the other stack was left at
//! the same place. This is assumed of them, and of no others: whoever calls something meanwhile may go on with a stack on
//! which nothing is yet.

use super::{Analysis, Analyzer};
use crate::apply::Semantics;
use crate::code::{Code, InsnId};
use crate::op::{Flow, Op};
use crate::state::State;
use crate::value::Value;

impl Analyzer {
    /// Has the operations that [`Analysis::switches`] finds do what is assumed of them; whether there are any.
    pub(super) fn resume(&mut self, switches: &[u32]) -> bool {
        for at in switches {
            self.code.replace(*at, Op::Resume);
        }
        !switches.is_empty()
    }
}

impl Analysis<'_> {
    /// The operations, by their places, that take up another stack which the same function left.
    pub(super) fn switches(&self) -> Vec<u32> {
        let (code, semantics) = (self.code(), self.analyzer.semantics);
        /// Who goes from stack to stack more often does something else.
        const MOST: usize = 16;
        let may_switch = |op: &Op| may_switch(op, semantics);
        if !code.all_ops().iter().any(may_switch) {
            return Vec::new();
        }
        let is_entry_stack = |value: Value| value.has_origin_of(semantics.entry_sp());
        // The stack pointers that were stored, not on the stack.
        let mut left = Vec::new();
        let mut taken: Vec<(InsnId, State)> = Vec::new();
        self.trace(|insn, op, state| match op {
            Some(Op::Store { base, offset, from }) => {
                let (place, value) = (state.get(base).plus(offset.into()), state.get(from));
                if is_entry_stack(value) && !semantics.is_on_stack(place) {
                    left.push(value);
                }
            }
            Some(op) if may_switch(&op) && taken.len() < MOST => taken.push((insn, state.clone())),
            _ => {}
        });
        let switch = |(insn, state): (InsnId, State)| {
            let ops = code.ops_range(insn);
            let mut places = ops.clone().zip(code.ops_at(ops));
            let (at, op) = places.find(|(_, op)| may_switch(op))?;
            let old = state.get(semantics.facts.stack_pointer);
            let mut behind = state.clone();
            semantics.apply(&mut behind, *op, at);
            let new = behind.get(semantics.facts.stack_pointer);
            // What was computed is not what somebody left.
            let is_other = is_entry_stack(old) && !new.has_origin_of(old) && !new.is_base();
            (is_other && self.returns_from(code, insn, at, state, &left, old)).then_some(at)
        };
        taken.into_iter().filter_map(switch).collect()
    }

    /// Whether a function returns as after a call if operation `at` of an instruction takes up a stack that was left as
    /// this one is, and calls nothing before; and somebody has the old stack pointer then.
    fn returns_from(
        &self,
        code: &Code,
        insn: InsnId,
        at: u32,
        mut state: State,
        left: &[Value],
        old: Value,
    ) -> bool {
        let semantics = self.analyzer.semantics;
        let mut is_left = left.contains(&old);
        let mut ops = at..code.ops_range(insn).end;
        let mut insn = insn;
        loop {
            for (place, op) in (ops.start..).zip(code.ops_at(ops.clone())) {
                if place == at {
                    continue;
                }
                if may_switch(op, semantics) {
                    return false;
                }
                semantics.apply(&mut state, *op, place);
            }
            match code.flow(insn) {
                None if code.is_followed(insn) => {}
                Some(Flow::Return { pops: 0 }) => {
                    is_left |= self.is_kept(old, &state);
                    return is_left && self.is_as_called(&state);
                }
                Some(Flow::IndirectJump(target)) => {
                    is_left |= self.is_kept(old, &state);
                    let is_return = self.is_return_by(target, &state);
                    return is_left && is_return && self.preserves(&state);
                }
                _ => return false,
            }
            insn = insn.next();
            ops = code.ops_range(insn);
        }
    }

    /// Whether a register that calls do not preserve holds a value.
    fn is_kept(&self, value: Value, state: &State) -> bool {
        let facts = self.facts();
        let mut registers = crate::op::bits(facts.clobbered);
        registers.any(|register| state.get(register) == value)
    }
}

/// Whether an operation may take up another stack.
fn may_switch(op: &Op, semantics: Semantics) -> bool {
    let sp = semantics.facts.stack_pointer;
    match *op {
        Op::Load { to, .. } | Op::LoadEntry { to, .. } => to == sp,
        Op::Add { to, from, .. } => to == sp && from != sp && from != semantics.facts.frame_pointer,
        _ => false,
    }
}
