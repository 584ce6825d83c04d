//! x86-64: the registers, the trap flag, and the kernel's signal frame.

use std::io;

use libc::c_int;
use unspool_rows::{Abi, Register};

use crate::compare::StoppedMemory;
use crate::sys::{self, Regs};

pub(crate) const ABI: Abi = Abi::X86_64;

/// The trap flag: the processor stops behind each instruction.
pub(crate) const TRAP_FLAG: u64 = 0x100;

/// The registers after a step. The kernel hides the trap flag that it set, except after
/// instructions that load flags: after `popf` and `iretq` it takes it for the program's own.
pub(crate) fn clear_trap_flag(tid: i32) -> io::Result<Regs> {
    let mut regs = sys::registers(tid)?;
    if regs.eflags & TRAP_FLAG != 0 {
        regs.eflags &= !TRAP_FLAG;
        sys::set_registers(tid, &regs)?;
    }
    Ok(regs)
}

/// The general registers by DWARF number; the last is the program counter.
pub(crate) fn general(regs: &Regs) -> [u64; 17] {
    [
        regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi, regs.rbp, regs.rsp, regs.r8,
        regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15, regs.rip,
    ]
}

/// The registers that calls preserve, in the order of their DWARF numbers.
pub(crate) fn preserved(regs: &Regs) -> [u64; 6] {
    [regs.rbx, regs.rbp, regs.r12, regs.r13, regs.r14, regs.r15]
}

/// Whether the kernel has just put a signal frame on the stack: it passes the signal, and the
/// address of the saved registers, which is behind the return address.
pub(crate) fn is_handler(regs: &Regs, signal: Option<c_int>) -> bool {
    let number = signal.map_or(1..=64, |signal| {
        let signal = u64::from(signal.unsigned_abs());
        signal..=signal
    });
    number.contains(&regs.rdi) && regs.rdx == regs.rsp.wrapping_add(8)
}

/// The code that a signal interrupted, at the begin of its handler: the stack pointer, the address,
/// and the registers that calls preserve.
pub(crate) fn interrupted(memory: &StoppedMemory<'_>, regs: &Regs) -> Option<(u64, u64, [u64; 6])> {
    let record = ABI.arch.spec().signal_record?;
    let start = regs.rsp.wrapping_add(8);
    let saved = |number| memory.word(record.address(start, Register(number))?);
    let preserved = [
        saved(3)?,
        saved(6)?,
        saved(12)?,
        saved(13)?,
        saved(14)?,
        saved(15)?,
    ];
    Some((saved(7)?, saved(16)?, preserved))
}
