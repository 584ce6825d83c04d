//! Signal frames: where a handler returns to, the stack pointer is at the kernel's record of what it
//! interrupted. C libraries say so in a row with an expression for each register.
//!
//! Of x86-64 only.

use super::State;
use super::rule::Said;
use crate::arch::x86_64::{
    RBP, RBP_IN_CONTEXT, RIP, RIP_IN_CONTEXT, RSP, RSP_IN_CONTEXT, is_cfa_in_context,
    is_saved_in_context,
};

/// Whether a row says that the CFA, and the registers that a walk follows, are in the kernel's record.
pub(super) fn is_said_by(said: &Said<'_>) -> bool {
    is_cfa_in_context(said.cfa)
        && is_saved_in_context(RSP, said.stack_pointer)
        && is_saved_in_context(RBP, said.frame_pointer)
        && is_saved_in_context(RIP, said.return_address)
}

/// What was interrupted, on whichever stack, if the record can be read.
pub(super) fn interrupted(frame: State, read: impl Fn(u64) -> Option<u64>) -> Option<State> {
    let word = |place| read(frame.stack_pointer.wrapping_add(place));
    Some(State {
        code: word(RIP_IN_CONTEXT)?,
        stack_pointer: word(RSP_IN_CONTEXT)?,
        frame_pointer: word(RBP_IN_CONTEXT)?,
    })
}
