//! Signal frames: at a handler's return address, the stack pointer is at the kernel's record of the
//! interrupted frame. C libraries describe that by a row with an expression for each register.

use unspool_rows::{Abi, Register};

use super::FastFrame;

/// The interrupted frame, on any stack, if the record is readable.
pub(super) fn interrupted(
    frame: FastFrame,
    abi: Abi,
    read: impl Fn(u64) -> Option<u64>,
) -> Option<FastFrame> {
    let spec = abi.arch.spec();
    let record = spec.signal_record?;
    let word = |register: Register| read(record.address(frame.stack_pointer, register)?);
    Some(FastFrame {
        code: word(spec.pc)?,
        stack_pointer: word(spec.stack_pointer)?,
        frame_pointer: word(spec.frame_pointer?)?,
    })
}
