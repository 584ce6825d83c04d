//! Signal frames: where a handler returns to, the stack pointer is at the kernel's record of what it
//! interrupted. C libraries say so in a row with an expression for each register.
//!
//! Of x86-64 only.

use unspool_ir::{CfaRule, RegisterRule};

use super::State;
use super::rare::beside;
use super::rule::Said;
use crate::arch::x86_64::{RBP_IN_CONTEXT, RIP_IN_CONTEXT, RSP, RSP_IN_CONTEXT};

const DEREF: u8 = 0x06;

/// Whether a row says that the CFA, and the registers that a walk follows, are in the kernel's record.
pub(super) fn is_said_by(said: &Said<'_>) -> bool {
    let is_at = |rule, place| {
        matches!(rule, Some(RegisterRule::Expression(expression))
            if beside(RSP, expression) == Some((place, &[])))
    };
    matches!(said.cfa, CfaRule::Expression(cfa)
        if beside(RSP, cfa) == Some((RSP_IN_CONTEXT, &[DEREF])))
        && is_at(said.stack_pointer, RSP_IN_CONTEXT)
        && is_at(said.frame_pointer, RBP_IN_CONTEXT)
        && is_at(said.return_address, RIP_IN_CONTEXT)
}

/// What was interrupted, on whichever stack, if the record can be read.
pub(super) fn interrupted(frame: State, read: impl Fn(u64) -> Option<u64>) -> Option<State> {
    let word = |place| read(frame.stack_pointer.wrapping_add_signed(place));
    Some(State {
        code: word(RIP_IN_CONTEXT)?,
        stack_pointer: word(RSP_IN_CONTEXT)?,
        frame_pointer: word(RBP_IN_CONTEXT)?,
    })
}
