//! Exits of a unit: evidence whether it is entered as assumed.
//!
//! At each exit of a function the stack must be as a caller left it. The registers that calls
//! preserve must have their entry values. Code in the middle of a function, entered in another
//! state than assumed, cannot do that: the words that it pops are not the ones that it finds.

use unspool_code_analysis::op::Flow;
use unspool_code_analysis::state::AbstractSlot;
use unspool_code_analysis::{
    AbstractState, AbstractValue, Analysis, InsnId, ProgramCode, ReturnBehavior,
};

/// The exits of a unit.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    /// Number of exits other than jumps that confirm an entry as by a call.
    supporting: usize,
    /// The first exit that contradicts it.
    contradicting: Option<u64>,
    /// Jumps that are exits if a function begins at their target.
    jumps: Vec<ExitJump>,
}

/// A jump out of an extent.
#[derive(Debug, Clone, Copy)]
struct ExitJump {
    source: u64,
    target: u64,
    /// Whether the stack and the registers are as a caller left them.
    is_as_at_entry: bool,
}

/// Kind of a jump's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JumpDestination {
    /// The start of a function, which returns in place of this one.
    Function,
    /// The middle of another function.
    MiddleOfFunction,
    /// Unknown, a function that never returns, or the same unit.
    Unknown,
}

/// Evidence from the exits of a unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExitEvidence {
    /// Number of exits that confirm an entry as by a call.
    pub(crate) supporting: usize,
    /// The first exit that contradicts it.
    pub(crate) contradicting: Option<u64>,
}

impl Exits {
    /// Adds an instruction, if it is an exit.
    pub(crate) fn add_insn(
        &mut self,
        analysis: &Analysis<'_>,
        program: &ProgramCode,
        id: InsnId,
        state: &AbstractState,
    ) {
        let source = analysis.code().range(id).start;
        match analysis.code().flow(id) {
            Some(Flow::Return { to, .. }) => {
                if analysis.is_return(to, state) {
                    self.supporting += 1;
                } else {
                    self.contradicting = self.contradicting.or(Some(source));
                }
            }
            // A jump that changes nothing may be a switch.
            Some(Flow::IndirectJump(to)) => {
                let returns = analysis.is_return_by(to, state) && analysis.preserves(state);
                let calls =
                    analysis.is_as_at_entry(state) && has_restored_register(analysis, state);
                self.supporting += usize::from(returns || calls);
            }
            Some(Flow::Jump(to) | Flow::Branch { to, .. }) => {
                let there = program.extent_at(to);
                let is_own = there.is_some_and(|there| (there.start..there.end).contains(&source));
                if !is_own {
                    self.jumps.push(ExitJump {
                        source,
                        target: to,
                        is_as_at_entry: analysis.is_as_at_entry(state),
                    });
                }
            }
            _ => {}
        }
    }

    /// Drops exits that cannot contradict.
    pub(crate) fn retain_contradicting(&mut self) {
        self.jumps.retain(|jump| !jump.is_as_at_entry);
        self.jumps.shrink_to_fit();
    }

    /// Evidence for a unit of a program. `outside` classifies targets of jumps out of the program.
    pub(crate) fn evidence(
        &self,
        program: &ProgramCode,
        outside: impl Fn(u64) -> JumpDestination,
    ) -> ExitEvidence {
        let (mut for_it, mut against) = (self.supporting, self.contradicting);
        for jump in &self.jumps {
            let goal =
                jump_destination(program, jump.target).unwrap_or_else(|| outside(jump.target));
            match (goal, jump.is_as_at_entry) {
                (JumpDestination::Function, true) => for_it += 1,
                (JumpDestination::Function, false) | (JumpDestination::MiddleOfFunction, _) => {
                    against = Some(against.map_or(jump.source, |first| first.min(jump.source)));
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

/// Destination of a jump out of an extent; `None` if it leaves the program.
fn jump_destination(program: &ProgramCode, to: u64) -> Option<JumpDestination> {
    program.extent_at(to)?;
    let returns = program.returns(to) != Some(ReturnBehavior::Never);
    Some(if program.is_call_target(to) && returns {
        JumpDestination::Function
    } else {
        JumpDestination::Unknown
    })
}

/// Whether a register was saved and restored, as leftovers below the stack pointer show.
fn has_restored_register(analysis: &Analysis<'_>, state: &AbstractState) -> bool {
    let abi_info = analysis.abi_info();
    let sp = state.get(abi_info.stack_pointer);
    let is_left = |slot: &AbstractSlot| {
        slot.address
            .distance_from(sp)
            .is_some_and(|distance| distance < 0)
    };
    let mut left = state.slots().iter().filter(|slot| is_left(slot));
    left.any(|slot| {
        let mut preserved = abi_info.preserved.iter();
        preserved.any(|register| slot.value == AbstractValue::entry_value(*register))
    })
}
