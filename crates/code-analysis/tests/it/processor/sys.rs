//! The system calls of a tracer, each as one safe function. Addresses of the other process are
//! plain numbers, which the kernel checks.
#![expect(unsafe_code, reason = "ptrace and waitpid are system calls")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libc::{c_int, c_long, c_uint, iovec, pid_t};

/// The general registers of a thread.
pub(crate) type UserRegs = libc::user_regs_struct;

fn checked(result: c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes the child of `command` traced by the thread that starts it, from `execve` on.
pub(crate) fn trace(command: &mut Command) {
    let closure = || {
        // SAFETY: TRACEME takes no arguments and touches no memory.
        checked(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) })
    };
    // SAFETY: the closure makes one system call, which is async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(closure) };
}

/// Executes one instruction of a thread. Returns the signal that it stopped with.
pub(crate) fn step(pid: pid_t) -> io::Result<c_int> {
    // SAFETY: SINGLESTEP takes a signal's number, 0 for none, and touches no memory of this
    // process.
    checked(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0_usize, 0_usize) })?;
    wait(pid)
}

/// Waits for the next stop of a thread. Returns its signal.
pub(crate) fn wait(pid: pid_t) -> io::Result<c_int> {
    let mut raw = 0;
    let into: *mut c_int = &raw mut raw;
    // SAFETY: `into` points to one `int` of this function.
    checked(unsafe { libc::waitpid(pid, into, 0) }.into())?;
    if libc::WIFSTOPPED(raw) {
        Ok(libc::WSTOPSIG(raw))
    } else {
        Err(io::Error::other(format!("the child ended: {raw:#x}")))
    }
}

/// General registers that are all 0.
pub(crate) fn no_registers() -> UserRegs {
    // SAFETY: the structure consists of numbers, for which all bytes are valid.
    unsafe { std::mem::zeroed() }
}

/// The general registers of a stopped thread.
pub(crate) fn registers(pid: pid_t) -> io::Result<UserRegs> {
    let mut registers = no_registers();
    let into: *mut UserRegs = &raw mut registers;
    // SAFETY: GETREGS writes a `user_regs_struct`, which `into` points to.
    checked(unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, 0_usize, into) })?;
    Ok(registers)
}

/// Sets the general registers of a stopped thread.
pub(crate) fn set_registers(pid: pid_t, registers: &UserRegs) -> io::Result<()> {
    let from: *const UserRegs = registers;
    // SAFETY: SETREGS reads a `user_regs_struct`, which `from` points to.
    checked(unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, 0_usize, from) })
}

/// `NT_X86_XSTATE`: XSAVE's output.
const EXTENDED: usize = 0x202;

fn extended(request: c_uint, pid: pid_t, bytes: &mut [u8]) -> io::Result<usize> {
    let mut vector = iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let at: *mut iovec = &raw mut vector;
    // SAFETY: both requests take an `iovec`; the kernel reads or writes the bytes that it
    // describes: those of `bytes`.
    checked(unsafe { libc::ptrace(request, pid, EXTENDED, at) })?;
    Ok(vector.iov_len)
}

/// All other registers of a stopped thread, in XSAVE's format.
pub(crate) fn extended_state(pid: pid_t) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 1 << 16];
    let length = extended(libc::PTRACE_GETREGSET, pid, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Sets these registers.
pub(crate) fn set_extended_state(pid: pid_t, state: &mut [u8]) -> io::Result<()> {
    extended(libc::PTRACE_SETREGSET, pid, state).map(drop)
}
