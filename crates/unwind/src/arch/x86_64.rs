//! x86-64 without a table.
//!
//! A signal handler returns to a trampoline that calls `rt_sigreturn`; glibc's has CFI, but
//! musl's and Go's have none. Its stack pointer is then at the kernel's `ucontext`. A call
//! through a bad pointer leaves the return address on top of the stack. A function that keeps a
//! frame pointer has its caller's in `[rbp]` and the return address above it.

use unspool_ir::memory::read_uint;
use unspool_ir::{CodeAddr, Endian, Memory, Register, Registers, RuntimeAddr};

use super::Guess;
use crate::cursor::Cursor;
use crate::evidence::Evidence;
use crate::modules::Modules;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

/// `mov $15, %rax; syscall`: `rt_sigreturn`, as every C library and the kernel's own writes it.
const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// Where `uc_mcontext` has the registers (asm/sigcontext.h): offset from the stack pointer at
/// the trampoline, by DWARF number.
const SIGCONTEXT: [(u16, u64); 17] = [
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
    (6, 120),
    (3, 128),
    (1, 136),
    (0, 144),
    (2, 152),
    (7, 160),
    (16, 168),
];

pub(super) fn guess<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Option<Guess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    trampoline(cursor, memory)
        .or_else(|| bad_call(cursor, modules, memory))
        .or_else(|| frame_pointer(cursor, memory))
}

fn word<M: Memory + ?Sized>(memory: &M, addr: RuntimeAddr) -> Option<u64> {
    read_uint(memory, addr, 8, Endian::Little).ok()
}

fn trampoline<M: Memory + ?Sized>(cursor: &Cursor, memory: &M) -> Option<Guess> {
    // A handler's return address is the trampoline's first instruction, not one after a call.
    let start = cursor.code().address();
    let mut bytes = [0; TRAMPOLINE.len()];
    memory.read(start, &mut bytes).ok()?;
    if bytes != TRAMPOLINE {
        return None;
    }
    let context = cursor.stack_pointer()?;
    let mut registers = Registers::new();
    for (register, offset) in SIGCONTEXT {
        let addr = RuntimeAddr(context.0.wrapping_add(offset));
        registers.set(Register(register), word(memory, addr)?);
    }
    Some(Guess {
        evidence: Evidence::SignalTrampoline,
        cfa: RuntimeAddr(registers.get(RSP)?),
        code: CodeAddr::Instruction(RuntimeAddr(registers.get(RIP)?)),
        registers,
    })
}

fn bad_call<S, M>(cursor: &Cursor, modules: &S, memory: &M) -> Option<Guess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    let CodeAddr::Instruction(pc) = cursor.code() else {
        return None;
    };
    if modules.is_code(pc) {
        return None;
    }
    let top = cursor.stack_pointer()?;
    let return_address = word(memory, top)?;
    let cfa = RuntimeAddr(top.0.checked_add(8)?);
    let mut registers = *cursor.registers();
    registers.set(RSP, cfa.0);
    registers.set(RIP, return_address);
    let code = CodeAddr::Return(RuntimeAddr(return_address));
    Some(Guess {
        evidence: Evidence::BadCall,
        cfa,
        code,
        registers,
    })
}

fn frame_pointer<M: Memory + ?Sized>(cursor: &Cursor, memory: &M) -> Option<Guess> {
    let frame = cursor.registers().get(RBP)?;
    if frame % 8 != 0 || frame < cursor.stack_pointer()?.0 {
        return None;
    }
    let caller_frame = word(memory, RuntimeAddr(frame))?;
    let return_address = word(memory, RuntimeAddr(frame.checked_add(8)?))?;
    let cfa = RuntimeAddr(frame.checked_add(16)?);
    let mut registers = Registers::new();
    registers.set(RBP, caller_frame);
    registers.set(RSP, cfa.0);
    registers.set(RIP, return_address);
    let code = CodeAddr::Return(RuntimeAddr(return_address));
    Some(Guess {
        evidence: Evidence::FramePointer,
        cfa,
        code,
        registers,
    })
}
