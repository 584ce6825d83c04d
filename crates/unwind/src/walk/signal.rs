//! Signal frames: at a handler's return address, the stack pointer is at the kernel's record of the
//! interrupted frame. C libraries describe that by a row with an expression for each register.
//!
//! For x86-64 only.

use super::FastFrame;
use crate::arch::x86_64::{RBP_IN_CONTEXT, RIP_IN_CONTEXT, RSP_IN_CONTEXT};

/// The interrupted frame, on any stack, if the record is readable.
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
