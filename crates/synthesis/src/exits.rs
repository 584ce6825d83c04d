//! Whether code was come into as was assumed, as its ways out tell.
//!
//! At each way out of a function the stack must be as a caller left it, and the registers that calls preserve must hold
//! what they held. Code that is come into in another state than was assumed, in the middle of a function, cannot do
//! that: what it takes off the stack is not what it finds there.

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::state::AbstractSlot;
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, InsnId, ProgramCode, ReturnBehavior,
};

/// The ways out of a unit.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    /// How many of those that are no jumps bear out that it was come into as after a call.
    supporting: usize,
    /// The first of them that does not.
    contradicting: Option<u64>,
    /// Those that may be one, if a function begins where they lead.
    jumps: Vec<ExitJump>,
}

/// A jump out of an extent.
#[derive(Debug, Clone, Copy)]
struct ExitJump {
    from: u64,
    to: u64,
    /// Whether the stack and the registers are as a caller left them.
    is_as_at_entry: bool,
}

/// Where a jump leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JumpDestination {
    /// To the start of a function, which returns in place of this one.
    Function,
    /// Into a function that is another one.
    MiddleOfFunction,
    /// To where nothing is known of, or to a function that never returns, or to the same unit.
    Unknown,
}

/// What the ways out of a unit say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExitEvidence {
    /// How many bear out that it was come into as after a call.
    pub(crate) supporting: usize,
    /// The first that does not.
    pub(crate) contradicting: Option<u64>,
}

impl Exits {
    /// Takes note of an instruction, if it is a way out.
    pub(crate) fn add_insn(
        &mut self,
        analysis: &Analysis<'_>,
        program: &ProgramCode,
        id: InsnId,
        state: &AbstractState,
    ) {
        let from = analysis.code().range(id).start;
        match analysis.code().flow(id) {
            Some(Flow::Return { .. }) => match analysis.is_return(state) {
                true => self.supporting += 1,
                false => self.contradicting = self.contradicting.or(Some(from)),
            },
            // One that leaves all as it was may be a switch.
            Some(Flow::IndirectJump(to)) => {
                let returns = analysis.is_return_by(to, state) && analysis.preserves(state);
                let calls =
                    analysis.is_as_at_entry(state) && has_restored_register(analysis, state);
                self.supporting += usize::from(returns || calls);
            }
            Some(Flow::Jump(to) | Flow::Branch { to, .. }) => {
                let there = program.extent_at(to);
                let is_own = there.is_some_and(|there| (there.start..there.end).contains(&from));
                if !is_own {
                    self.jumps.push(ExitJump {
                        from,
                        to,
                        is_as_at_entry: analysis.is_as_at_entry(state),
                    });
                }
            }
            _ => {}
        }
    }

    /// Forgets those that cannot speak against it.
    pub(crate) fn retain_contradicting(&mut self) {
        self.jumps.retain(|jump| !jump.is_as_at_entry);
        self.jumps.shrink_to_fit();
    }

    /// What they say of a unit of a program; `outside` says where jumps lead that leave the program.
    pub(crate) fn evidence(
        &self,
        program: &ProgramCode,
        outside: impl Fn(u64) -> JumpDestination,
    ) -> ExitEvidence {
        let (mut for_it, mut against) = (self.supporting, self.contradicting);
        for jump in &self.jumps {
            let goal = jump_destination(program, jump.to).unwrap_or_else(|| outside(jump.to));
            match (goal, jump.is_as_at_entry) {
                (JumpDestination::Function, true) => for_it += 1,
                (JumpDestination::Function, false) | (JumpDestination::MiddleOfFunction, _) => {
                    against = Some(against.map_or(jump.from, |first| first.min(jump.from)));
                }
                (JumpDestination::Unknown, _) => {}
            }
        }
        ExitEvidence {
            supporting: for_it,
            contradicting: against,
        }
    }
}

/// Where a jump out of an extent leads; `None`: out of the program.
fn jump_destination(program: &ProgramCode, to: u64) -> Option<JumpDestination> {
    program.extent_at(to)?;
    let returns = program.returns(to) != Some(ReturnBehavior::Never);
    Some(match program.is_call_target(to) && returns {
        true => JumpDestination::Function,
        false => JumpDestination::Unknown,
    })
}

/// Whether a register was saved and has its value back: what is left below the stack pointer tells.
fn has_restored_register(analysis: &Analysis<'_>, state: &AbstractState) -> bool {
    let facts = analysis.abi_info();
    let sp = state.get(facts.stack_pointer);
    let is_left = |slot: &AbstractSlot| {
        slot.address
            .distance_from(sp)
            .is_some_and(|distance| distance < 0)
    };
    let mut left = state.slots().iter().filter(|slot| is_left(slot));
    left.any(|slot| {
        let mut preserved = facts.preserved.iter();
        preserved.any(|register| slot.value == AbstractValue::entry_value(*register))
    })
}
