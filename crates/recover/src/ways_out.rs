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
    /// How many of those that are no jumps bear out that it was come into as after a call.
    for_it: usize,
    /// The first of them that does not.
    against: Option<u64>,
    /// Those that may be one, if a function begins where they lead.
    jumps: Vec<Jump>,
}

/// A jump out of an extent.
#[derive(Debug, Clone, Copy)]
struct Jump {
    from: u64,
    to: u64,
    /// Whether the stack and the registers are as a caller left them.
    is_as_called: bool,
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

/// What the ways out of a unit say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verdict {
    /// How many bear out that it was come into as after a call.
    pub(crate) for_it: usize,
    /// The first that does not.
    pub(crate) against: Option<u64>,
}

impl WaysOut {
    /// Takes note of an instruction, if it is a way out.
    pub(crate) fn note(
        &mut self,
        analysis: &Analysis<'_>,
        program: &Program,
        id: InsnId,
        state: &State,
    ) {
        let from = analysis.code().range(id).start;
        match analysis.code().flow(id) {
            Some(Flow::Return { .. }) => match analysis.is_return(state) {
                true => self.for_it += 1,
                false => self.against = self.against.or(Some(from)),
            },
            // One that leaves all as it was may be a switch.
            Some(Flow::IndirectJump(to)) => {
                let returns = analysis.is_return_by(to, state) && analysis.preserves(state);
                let calls = analysis.is_as_called(state) && has_given_back(analysis, state);
                self.for_it += usize::from(returns || calls);
            }
            Some(Flow::Jump(to) | Flow::Branch { to, .. }) => {
                let there = program.extent_at(to);
                let is_own = there.is_some_and(|there| (there.start..there.end).contains(&from));
                if !is_own {
                    self.jumps.push(Jump {
                        from,
                        to,
                        is_as_called: analysis.is_as_called(state),
                    });
                }
            }
            _ => {}
        }
    }

    /// Forgets those that cannot speak against it.
    pub(crate) fn keep_against(&mut self) {
        self.jumps.retain(|jump| !jump.is_as_called);
        self.jumps.shrink_to_fit();
    }

    /// What they say of a unit of a program; `outside` says where jumps lead that leave the program.
    pub(crate) fn verdict(&self, program: &Program, outside: impl Fn(u64) -> Goal) -> Verdict {
        let (mut for_it, mut against) = (self.for_it, self.against);
        for jump in &self.jumps {
            let goal = goal(program, jump.to).unwrap_or_else(|| outside(jump.to));
            match (goal, jump.is_as_called) {
                (Goal::Function, true) => for_it += 1,
                (Goal::Function, false) | (Goal::Inside, _) => {
                    against = Some(against.map_or(jump.from, |first| first.min(jump.from)));
                }
                (Goal::Unknown, _) => {}
            }
        }
        Verdict { for_it, against }
    }
}

/// Where a jump out of an extent leads; `None`: out of the program.
fn goal(program: &Program, to: u64) -> Option<Goal> {
    program.extent_at(to)?;
    let returns = program.returns(to) != Some(Returns::Never);
    Some(match program.is_come_into(to) && returns {
        true => Goal::Function,
        false => Goal::Unknown,
    })
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
