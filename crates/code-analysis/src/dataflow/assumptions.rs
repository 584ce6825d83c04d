//! What is asked and told while a unit is followed.

use crate::state::AbstractState;
use crate::value::AbstractValue;

/// Says what the code alone does not: nothing, for who must not believe a table.
pub trait Assumptions {
    /// Whether control comes to `address` in this state.
    fn flows_in(&self, by: EdgeKind, address: u64, state: &AbstractState) -> bool {
        let _ = (by, address, state);
        true
    }

    /// The state at `address`, the start of a function, if that is not come into as functions are.
    fn function_entry_state(&self, address: u64) -> Option<AbstractState> {
        let _ = address;
        None
    }

    /// The state at `address`, the start of a fragment that nothing else leads to.
    fn fragment_entry_state(&self, address: u64) -> Option<AbstractState> {
        let _ = address;
        None
    }

    /// Where indirect jumps may lead of which it is not known where they lead, if nothing else leads there.
    fn indirect_targets(&self) -> &[u64] {
        &[]
    }

    /// Whether a function of its own begins at `address`, in the middle of another, to which a call leads.
    fn is_nested_function(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// Whether control goes on behind the trap at `address`: a debugger may have it do that.
    fn resumes_after_trap(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// How many bytes of arguments the unwinder takes off the stack when an exception out of the call at
    /// `address` lands, before which the stack pointer is `sp` (`DW_CFA_GNU_args_size`).
    fn args_size(&self, address: u64, sp: AbstractValue) -> u64 {
        let _ = (address, sp);
        0
    }
}

/// A way to come somewhere of which it is not certain that it is ever gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// Behind a call, if the function called returns.
    CallReturn,
    /// By a jump from another extent.
    ExtentJump,
}

/// Believes the code alone.
#[derive(Debug, Clone, Copy)]
pub struct NoAssumptions;

impl Assumptions for NoAssumptions {}
