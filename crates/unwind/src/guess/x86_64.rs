//! x86-64 without a table.
//!
//! A call through a bad pointer leaves the return address on top of the stack. A function that
//! keeps a frame pointer has its caller's in `[rbp]` and the return address above it.

use unspool_rows::memory::read_uint;
use unspool_rows::{CodeAddr, Endian, Memory, Register, RuntimeAddr};

use super::{Guess, NoGuess, frame_record, trampoline};
use crate::evidence::Evidence;
use crate::frame::FrameState;
use crate::modules::Modules;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

pub(super) fn guess(
    frame: &FrameState,
    modules: &(impl Modules + ?Sized),
    memory: &(impl Memory + ?Sized),
) -> Result<Guess, NoGuess> {
    trampoline(frame, memory)
        .or_else(|none| none.or(|| bad_call(frame, modules, memory)))
        .or_else(|none| none.or(|| frame_record(frame, RBP, memory)))
}

fn bad_call(
    frame: &FrameState,
    modules: &(impl Modules + ?Sized),
    memory: &(impl Memory + ?Sized),
) -> Result<Guess, NoGuess> {
    let (CodeAddr::Instruction(pc), Some(top)) = (frame.code, frame.stack_pointer()) else {
        return Err(NoGuess::Implausible);
    };
    if modules.is_code(pc) {
        return Err(NoGuess::Implausible);
    }
    let return_address = read_uint(memory, top, 8, Endian::Little)?;
    // The word was read, so its end is an address.
    let cfa = RuntimeAddr(top.0.wrapping_add(8));
    let mut registers = frame.registers;
    registers.set(RSP, cfa.0);
    registers.set(RIP, return_address);
    Ok(Guess {
        evidence: Evidence::BadCall,
        cfa,
        code: CodeAddr::Return(RuntimeAddr(return_address)),
        code_at: Some(top),
        registers,
    })
}
