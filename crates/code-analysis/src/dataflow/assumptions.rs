//! What the analysis may assume where code alone does not decide.

use crate::program::ReturnBehavior;
use crate::state::AbstractState;
use crate::value::AbstractValue;

/// Answers where the code alone does not decide. Without trust in a table, there are no answers.
pub trait Assumptions {
    /// Whether control reaches `address` in this state.
    fn flows_in(&self, edge_kind: EdgeKind, address: u64, state: &AbstractState) -> bool {
        let _ = (edge_kind, address, state);
        true
    }

    /// The state at `address`, a function's start, if it is not entered as functions are.
    fn function_entry_state(&self, address: u64) -> Option<AbstractState> {
        let _ = address;
        None
    }

    /// The state at `address`, the start of a fragment without a known entry.
    fn fragment_entry_state(&self, address: u64) -> Option<AbstractState> {
        let _ = address;
        None
    }

    /// The register that holds the return address at the start of the function at `address`, if
    /// its callers jump to it.
    fn link_register(&self, address: u64) -> Option<u8> {
        let _ = address;
        None
    }

    /// Registers that calls change by the convention of the code, although the psABI has calls
    /// preserve them: bit n stands for register n.
    fn changed_by_calls(&self) -> u64 {
        0
    }

    /// What callers find behind a function that is called through an unknown pointer, if that may be
    /// less than the ABI promises.
    fn unknown_callee(&self) -> Option<ReturnBehavior> {
        None
    }

    /// Possible targets of unresolved indirect jumps, used if nothing else reaches them.
    fn indirect_targets(&self) -> &[u64] {
        &[]
    }

    /// Whether a called function of its own begins at `address`, in the middle of another.
    fn is_nested_function(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// Whether control resumes after the trap at `address`: a debugger may do that.
    fn resumes_after_trap(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// Bytes of arguments that the unwinder pops before it enters the landing pad of the call at
    /// `address` (`DW_CFA_GNU_args_size`). Before the call the stack pointer is `sp`.
    fn args_size(&self, address: u64, sp: AbstractValue) -> u64 {
        let _ = (address, sp);
        0
    }
}

/// An edge that may never be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// Return from a call, if the callee returns. It is not known, or may pop the return address.
    CallReturn,
    /// Return from a call of a function of the program, whose code returns.
    KnownReturn,
    /// A jump from another extent.
    ExtentJump,
}

/// No assumptions: only the code.
#[derive(Debug, Clone, Copy)]
pub struct NoAssumptions;

impl Assumptions for NoAssumptions {}
