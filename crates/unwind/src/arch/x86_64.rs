//! x86-64 without a table.
//!
//! A signal handler returns to a trampoline that calls `rt_sigreturn`; glibc's has CFI, but
//! musl's and Go's have none. Its stack pointer is then at the kernel's `ucontext`. A call
//! through a bad pointer leaves the return address on top of the stack. A function that keeps a
//! frame pointer has its caller's in `[rbp]` and the return address above it.

use unspool_ir::memory::read_uint;
use unspool_ir::{CodeAddr, Endian, Memory, Register, Registers, RuntimeAddr, Unreadable};

use super::{Guess, NoGuess, frame_record};
use crate::cursor::Cursor;
use crate::evidence::Evidence;
use crate::modules::Modules;

pub(crate) const RBP: Register = Register(6);
pub(crate) const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// `mov $15, %rax; syscall`: `rt_sigreturn`, as every C library and the kernel's own writes it.
pub(super) const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// Where `uc_mcontext` has the registers (asm/sigcontext.h): offset from the stack pointer at
/// the trampoline, by DWARF number.
const SIGCONTEXT: [(u16, i64); 17] = [
    (8, 40),
    (9, 48),
    (10, 56),
    (11, 64),
    (12, 72),
    (13, 80),
    (14, 88),
    (15, 96),
    (5, 104),
    (4, 112),
    (6, RBP_IN_CONTEXT),
    (3, 128),
    (1, 136),
    (0, 144),
    (2, 152),
    (7, RSP_IN_CONTEXT),
    (16, RIP_IN_CONTEXT),
];

pub(crate) const RBP_IN_CONTEXT: i64 = 120;
pub(crate) const RSP_IN_CONTEXT: i64 = 160;
pub(crate) const RIP_IN_CONTEXT: i64 = 168;

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
    // A handler's return address is the trampoline's first instruction, not one after a call.
    let start = cursor.code().address();
    let mut bytes = [0; TRAMPOLINE.len()];
    let is_read = memory.read(start, &mut bytes).is_ok();
    let context = cursor
        .stack_pointer()
        .filter(|_| is_read && bytes == TRAMPOLINE)
        .ok_or(NoGuess::Implausible)?;
    let mut registers = Registers::new();
    for (register, offset) in SIGCONTEXT {
        let addr = RuntimeAddr(context.0.wrapping_add_signed(offset));
        registers.set(Register(register), word(memory, addr)?);
    }
    let known = |register| registers.get(register).map(RuntimeAddr);
    let (Some(cfa), Some(pc)) = (known(RSP), known(RIP)) else {
        return Err(NoGuess::Implausible);
    };
    Ok(Guess {
        evidence: Evidence::SignalTrampoline,
        cfa,
        code: CodeAddr::Instruction(pc),
        code_at: Some(RuntimeAddr(context.0.wrapping_add_signed(RIP_IN_CONTEXT))),
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
