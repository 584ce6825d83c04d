//! AArch64 without a table.
//!
//! `x30` holds the return address until a function saves it, so also after a call through a bad
//! pointer. `x29` points to the frame record: the caller's `x29`, then the return address (AAPCS64
//! §6.4.6). Both may be signed: a guess cannot know, and drops the bits of a signature.

use unspool_rows::{CodeAddr, Memory, Register, RuntimeAddr};

use super::{Guess, NoGuess, frame_record, holds, trampoline};
use crate::evidence::Evidence;
use crate::frame::FrameState;
use crate::modules::Modules;

const FP: Register = Register(29);
const LR: Register = Register(30);
const SP: Register = Register(31);
const PC: Register = Register(32);

pub(super) fn guess(
    frame: &FrameState,
    modules: &(impl Modules + ?Sized),
    memory: &(impl Memory + ?Sized),
) -> Result<Guess, NoGuess> {
    trampoline(frame, memory)
        .or_else(|none| none.or(|| bad_call(frame, modules).ok_or(NoGuess::Implausible)))
        .or_else(|none| none.or(|| by_record(frame, memory)))
}

/// The caller by the frame record, which may be anywhere in the frame. It does not say where the
/// frame ends: if the caller's own record is at the bottom of its frame, as gcc makes it, then
/// there. The record above a signal's trampoline is not its own.
fn by_record(frame: &FrameState, memory: &(impl Memory + ?Sized)) -> Result<Guess, NoGuess> {
    let mut guess = frame_record(frame, FP, memory)?;
    let record = frame.abi.arch.spec().signal_record;
    let mut trampolines = record.into_iter().flat_map(|record| record.trampolines);
    if trampolines.any(|code| holds(memory, guess.code.address(), code)) {
        return Ok(guess);
    }
    let bottom = guess.registers.get(FP).map(RuntimeAddr);
    if let Some(bottom) = bottom.filter(|at| at.0 % 16 == 0 && *at > guess.cfa) {
        guess.cfa = bottom;
        guess.registers.set(SP, bottom.0);
    }
    Ok(guess)
}

fn bad_call<S: Modules + ?Sized>(frame: &FrameState, modules: &S) -> Option<Guess> {
    let CodeAddr::Instruction(pc) = frame.code else {
        return None;
    };
    if modules.is_code(pc) {
        return None;
    }
    let return_address = frame.without_pac(frame.registers.get(LR)?);
    let mut registers = frame.registers;
    registers.set(PC, return_address);
    Some(Guess {
        evidence: Evidence::BadCall,
        cfa: frame.stack_pointer()?,
        code: CodeAddr::Return(RuntimeAddr(return_address)),
        code_at: None,
        registers,
    })
}
