//! Signal frames: where a handler returns to, the stack pointer is at the kernel's record of what it
//! interrupted. C libraries say so in a row with an expression for each register.
//!
//! Of x86-64 only.

use super::FastFrame;
use crate::arch::x86_64::{RBP_IN_CONTEXT, RIP_IN_CONTEXT, RSP_IN_CONTEXT};

/// What was interrupted, on whichever stack, if the record can be read.
pub(super) fn interrupted(
    frame: FastFrame,
    read: impl Fn(u64) -> Option<u64>,
) -> Option<FastFrame> {
    let word = |place| read(frame.stack_pointer.wrapping_add(place));
    Some(FastFrame {
        code: word(RIP_IN_CONTEXT)?,
        stack_pointer: word(RSP_IN_CONTEXT)?,
        frame_pointer: word(RBP_IN_CONTEXT)?,
    })
}
