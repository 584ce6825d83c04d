//! x86-64 without a table.
//!
//! A signal handler returns to a trampoline that calls `rt_sigreturn`. glibc's has CFI, but musl's
//! and Go's have none, and a thread inside that call has the address after it. The stack pointer is
//! then at the kernel's `ucontext`. A call through a bad pointer leaves the return address on top
//! of the stack. A function that keeps a frame pointer has its caller's in `[rbp]` and the return
//! address above it.

use unspool_rows::memory::read_uint;
use unspool_rows::{Arch, CodeAddr, Endian, Memory, Register, Registers, RuntimeAddr, Unreadable};

use super::{Guess, NoGuess, frame_record};
use crate::evidence::Evidence;
use crate::frame::FrameState;
use crate::modules::Modules;

const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RIP: Register = Register(16);

pub(super) fn guess<S, M>(frame: &FrameState, modules: &S, memory: &M) -> Result<Guess, NoGuess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    trampoline(frame, memory)
        .or_else(|none| none.or(|| bad_call(frame, modules, memory)))
        .or_else(|none| none.or(|| frame_record(frame, RBP, memory)))
}

fn word<M: Memory + ?Sized>(memory: &M, addr: RuntimeAddr) -> Result<u64, Unreadable> {
    read_uint(memory, addr, 8, Endian::Little)
}

pub(super) fn trampoline<M>(frame: &FrameState, memory: &M) -> Result<Guess, NoGuess>
where
    M: Memory + ?Sized,
{
    let record = Arch::X86_64.spec().signal_record;
    let record = record.ok_or(NoGuess::Implausible)?;
    let holds = |addr, code: &[u8]| {
        let mut bytes = [0; 16];
        let bytes = bytes.get_mut(..code.len()).unwrap_or_default();
        memory.read(addr, bytes).is_ok() && bytes == code
    };
    let address = frame.code.address();
    // A handler's return address is the trampoline's first instruction, which does not follow a
    // call. A thread that is stopped or sampled in the kernel has the address after the `syscall`.
    let is_after = |code: &[u8]| {
        let start = RuntimeAddr(address.0.wrapping_sub(code.len() as u64));
        matches!(frame.code, CodeAddr::Instruction(_)) && holds(start, code)
    };
    let mut trampolines = record.trampolines.iter();
    let is_there = |_: &_| trampolines.any(|code| holds(address, code) || is_after(code));
    let context = frame.stack_pointer().filter(is_there);
    let context = context.ok_or(NoGuess::Implausible)?;
    let mut registers = Registers::new();
    for (number, offset) in (0..).zip(record.offsets) {
        registers.set(
            Register(number),
            word(memory, RuntimeAddr(context.0.wrapping_add(*offset)))?,
        );
    }
    let known = |register| registers.get(register).map(RuntimeAddr);
    let (Some(cfa), Some(pc)) = (known(RSP), known(RIP)) else {
        return Err(NoGuess::Implausible);
    };
    Ok(Guess {
        evidence: Evidence::SignalTrampoline,
        cfa,
        code: CodeAddr::Instruction(pc),
        code_at: record.address(context.0, RIP).map(RuntimeAddr),
        registers,
    })
}

fn bad_call<S, M>(frame: &FrameState, modules: &S, memory: &M) -> Result<Guess, NoGuess>
where
    S: Modules + ?Sized,
    M: Memory + ?Sized,
{
    let (CodeAddr::Instruction(pc), Some(top)) = (frame.code, frame.stack_pointer()) else {
        return Err(NoGuess::Implausible);
    };
    if modules.is_code(pc) {
        return Err(NoGuess::Implausible);
    }
    let return_address = word(memory, top)?;
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
