//! Whether code was come into as was assumed, as its ways out tell.
//!
//! At each way out of a function the stack must be as a caller left it, and the registers that calls preserve must hold
//! what they held. Code that is come into in another state than was assumed, in the middle of a function, cannot do
//! that: what it takes off the stack is not what it finds there.

use unspool_synth::op::Flow;
use unspool_synth::state::Slot;
use unspool_synth::{Analysis, InsnId, Program, Returns, State, Value};

/// The ways out of a unit.
#[derive(Debug, Default)]
pub(crate) struct WaysOut {
    /// How many bear out that it was come into as after a call.
    pub(crate) for_it: usize,
    /// The first that does not.
    pub(crate) against: Option<u64>,
}

/// Where a jump leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// To the start of a function, which returns in place of this one.
    Function,
    /// Into a function that is another one.
    Inside,
    /// To where nothing is known of, or to a function that never returns, or to the same unit.
    Unknown,
}

/// What a way out says.
enum Says {
    Yes,
    No,
    Nothing,
}

impl WaysOut {
    /// Looks at the ways out of what was analyzed. `outside` says where jumps lead that leave the program.
    pub(crate) fn of(
        analysis: &Analysis<'_>,
        program: &Program,
        outside: impl Fn(u64) -> Goal,
    ) -> WaysOut {
        let mut ways = WaysOut::default();
        analysis.visit(
            |id, state| match says(analysis, program, id, state, &outside) {
                Says::Yes => ways.for_it += 1,
                Says::No => {
                    let at = analysis.code().range(id).start;
                    ways.against.get_or_insert(at);
                }
                Says::Nothing => {}
            },
        );
        ways
    }
}

/// Whether a register was saved and has its value back: what is left below the stack pointer tells.
fn has_given_back(analysis: &Analysis<'_>, state: &State) -> bool {
    let facts = analysis.facts();
    let sp = state.get(facts.stack_pointer);
    let is_left = |slot: &Slot| {
        slot.at
            .distance_from(sp)
            .is_some_and(|distance| distance < 0)
    };
    let mut left = state.slots().iter().filter(|slot| is_left(slot));
    left.any(|slot| {
        let mut preserved = facts.preserved.iter();
        preserved.any(|register| slot.holds == Value::at_entry(*register))
    })
}

fn says(
    analysis: &Analysis<'_>,
    program: &Program,
    id: InsnId,
    state: &State,
    outside: &impl Fn(u64) -> Goal,
) -> Says {
    let facts = analysis.facts();
    let yes_or_no = |yes| match yes {
        true => Says::Yes,
        false => Says::No,
    };
    match analysis.code().flow(id) {
        Some(Flow::Return { .. }) => {
            let target = state.load(state.get(facts.stack_pointer));
            let returns = target == Some(Value::at_entry(facts.return_address));
            yes_or_no(analysis.is_as_called(state) && returns)
        }
        // One that leaves all as it was may be a switch.
        Some(Flow::IndirectJump(to)) => {
            let returns = analysis.is_return_by(to, state) && analysis.preserves(state);
            let calls = analysis.is_as_called(state) && has_given_back(analysis, state);
            match returns || calls {
                true => Says::Yes,
                false => Says::Nothing,
            }
        }
        Some(Flow::Jump(to) | Flow::Branch { to, .. }) => {
            let here = analysis.code().range(id).start;
            match goal(program, here, to).unwrap_or_else(|| outside(to)) {
                Goal::Function => yes_or_no(analysis.is_as_called(state)),
                Goal::Inside => Says::No,
                Goal::Unknown => Says::Nothing,
            }
        }
        _ => Says::Nothing,
    }
}

/// Where a jump leads; `None`: out of the program.
fn goal(program: &Program, here: u64, to: u64) -> Option<Goal> {
    let there = program.extent_at(to)?;
    let is_own = (there.start..there.end).contains(&here);
    let returns = program.returns(to) != Some(Returns::Never);
    Some(match program.is_come_into(to) && !is_own && returns {
        true => Goal::Function,
        false => Goal::Unknown,
    })
}
