//! x86-64 without a table.
//!
//! A signal handler returns to a trampoline that calls `rt_sigreturn`; glibc's has CFI, but
//! musl's and Go's have none, and who is in the call is behind them all. Its stack pointer is then at the kernel's `ucontext`. A call
//! through a bad pointer leaves the return address on top of the stack. A function that keeps a
//! frame pointer has its caller's in `[rbp]` and the return address above it.

use unspool_ir::memory::read_uint;
use unspool_ir::{
    CfaRule, CodeAddr, Endian, Expression, Memory, Register, RegisterRule, Registers, RuntimeAddr,
    Unreadable,
};

use super::{Guess, NoGuess, frame_record};
use crate::cursor::Cursor;
use crate::evidence::Evidence;
use crate::modules::Modules;

pub(crate) const RBP: Register = Register(6);
pub(crate) const RSP: Register = Register(7);
pub(crate) const RIP: Register = Register(16);

/// `mov $15, %rax; syscall`: `rt_sigreturn`, as every C library and the kernel's own writes it.
pub const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// Where the kernel's record of a signal, a `ucontext_t`, has the registers, by DWARF number, in bytes
/// (asm/sigcontext.h). The stack pointer is at the record where a trampoline runs.
pub const IN_CONTEXT: [u64; 17] = [
    144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168,
];

/// Where it has the frame pointer.
pub(crate) const RBP_IN_CONTEXT: u64 = IN_CONTEXT[6];
/// Where it has the stack pointer.
pub const RSP_IN_CONTEXT: u64 = IN_CONTEXT[7];
/// Where it has the code address.
pub const RIP_IN_CONTEXT: u64 = IN_CONTEXT[16];

pub(super) fn guess<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Result<Guess, NoGuess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    trampoline(cursor, memory)
        .or_else(|none| none.or(|| bad_call(cursor, modules, memory)))
        .or_else(|none| none.or(|| frame_record(cursor, RBP, memory)))
}

fn word<M: Memory + ?Sized>(memory: &M, addr: RuntimeAddr) -> Result<u64, Unreadable> {
    read_uint(memory, addr, 8, Endian::Little)
}

pub(super) fn trampoline<M>(cursor: &Cursor, memory: &M) -> Result<Guess, NoGuess>
where
    M: Memory + ?Sized,
{
    let begins_at = |start| {
        let mut bytes = [0; TRAMPOLINE.len()];
        memory.read(start, &mut bytes).is_ok() && bytes == TRAMPOLINE
    };
    let address = cursor.code().address();
    // A handler's return address is the trampoline's first instruction, not one after a call. A thread that
    // is stopped or sampled in the kernel has the address behind the `syscall`.
    let end = matches!(cursor.code(), CodeAddr::Instruction(_));
    let end = end.then(|| RuntimeAddr(address.0.wrapping_sub(TRAMPOLINE.len() as u64)));
    let context = cursor
        .stack_pointer()
        .filter(|_| begins_at(address) || end.is_some_and(begins_at))
        .ok_or(NoGuess::Implausible)?;
    let mut registers = Registers::new();
    for (number, offset) in (0..).zip(IN_CONTEXT) {
        let addr = RuntimeAddr(context.0.wrapping_add(offset));
        registers.set(Register(number), word(memory, addr)?);
    }
    let known = |register| registers.get(register).map(RuntimeAddr);
    let (Some(cfa), Some(pc)) = (known(RSP), known(RIP)) else {
        return Err(NoGuess::Implausible);
    };
    Ok(Guess {
        evidence: Evidence::SignalTrampoline,
        cfa,
        code: CodeAddr::Instruction(pc),
        code_at: Some(RuntimeAddr(context.0.wrapping_add(RIP_IN_CONTEXT))),
        registers,
    })
}

fn bad_call<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Result<Guess, NoGuess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    let (CodeAddr::Instruction(pc), Some(top)) = (cursor.code(), cursor.stack_pointer()) else {
        return Err(NoGuess::Implausible);
    };
    if modules.is_code(pc) {
        return Err(NoGuess::Implausible);
    }
    let return_address = word(memory, top)?;
    // The word was read, so its end is an address.
    let cfa = RuntimeAddr(top.0.wrapping_add(8));
    let mut registers = *cursor.registers();
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

/// Whether an expression says that a word is in the kernel's record, at the stack pointer, and is no more
/// than that but for an end.
fn is_in_context(expression: Expression<'_>, register: Register, end: &[u8]) -> bool {
    let place = IN_CONTEXT.get(usize::from(register.0)).copied();
    super::beside(RSP, expression).is_some_and(|(distance, rest)| {
        place == u64::try_from(distance).ok() && place.is_some() && rest == end
    })
}

/// Whether a rule says that a register is where the kernel's record has it.
pub(crate) fn is_saved_in_context(register: Register, rule: Option<RegisterRule<'_>>) -> bool {
    matches!(rule, Some(RegisterRule::Expression(at)) if is_in_context(at, register, &[]))
}

/// Whether a CFA is the stack pointer that the kernel's record has.
pub(crate) fn is_cfa_in_context(cfa: CfaRule<'_>) -> bool {
    const DEREF: u8 = 0x06;
    matches!(cfa, CfaRule::Expression(cfa) if is_in_context(cfa, RSP, &[DEREF]))
}
