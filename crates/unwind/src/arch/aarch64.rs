//! AArch64 without a table.
//!
//! `x30` holds the return address until a function saves it, so after a call through a bad
//! pointer it is there. `x29` points to the frame record: the caller's `x29`, then the return
//! address (AAPCS64 §6.4.6).

use unspool_ir::memory::read_uint;
use unspool_ir::{CodeAddr, Memory, Register, Registers, RuntimeAddr};

use super::Guess;
use crate::cursor::Cursor;
use crate::evidence::Evidence;
use crate::modules::Modules;

const FP: Register = Register(29);
const LR: Register = Register(30);
const SP: Register = Register(31);
const PC: Register = Register(32);

pub(super) fn guess<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Option<Guess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    bad_call(cursor, modules).or_else(|| frame_record(cursor, memory))
}

fn bad_call<S: Modules + ?Sized>(cursor: &Cursor, modules: &S) -> Option<Guess> {
    let CodeAddr::Instruction(pc) = cursor.code() else {
        return None;
    };
    if modules.is_code(pc) {
        return None;
    }
    let return_address = cursor.registers().get(LR)?;
    let mut registers = *cursor.registers();
    registers.set(PC, return_address);
    Some(Guess {
        evidence: Evidence::BadCall,
        cfa: cursor.stack_pointer()?,
        code: CodeAddr::Return(RuntimeAddr(return_address)),
        registers,
    })
}

fn frame_record<M: Memory + ?Sized>(cursor: &Cursor, memory: &M) -> Option<Guess> {
    let frame = cursor.registers().get(FP)?;
    if frame % 8 != 0 || frame < cursor.stack_pointer()?.0 {
        return None;
    }
    let word = |addr: u64| read_uint(memory, RuntimeAddr(addr), 8, cursor.abi().endian).ok();
    let caller_frame = word(frame)?;
    let return_address = word(frame.checked_add(8)?)?;
    let cfa = RuntimeAddr(frame.checked_add(16)?);
    let mut registers = Registers::new();
    registers.set(FP, caller_frame);
    registers.set(SP, cfa.0);
    registers.set(PC, return_address);
    let code = CodeAddr::Return(RuntimeAddr(return_address));
    Some(Guess {
        evidence: Evidence::FramePointer,
        cfa,
        code,
        registers,
    })
}
