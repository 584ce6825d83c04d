//! The system calls of a tracer, each as one safe function. Addresses of the other process are
//! plain numbers, which the kernel checks.
#![allow(unsafe_code, reason = "ptrace and waitpid are system calls")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libc::{c_int, c_long, c_uint, pid_t};

/// The result of waiting for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceeStatus {
    /// It stopped with a signal; `event` is the `PTRACE_EVENT_…` or 0.
    Stopped { signal: c_int, event: c_int },
    /// It has exited.
    Gone,
}

fn checked(result: c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Makes the child that `command` starts traced by the starting thread, from `execve` on.
pub(super) fn trace(command: &mut Command) {
    let traceme = || {
        // SAFETY: TRACEME takes no arguments and touches no memory.
        checked(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) })
    };
    // SAFETY: the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(traceme) };
}

/// A request with a number as data.
fn number(request: c_uint, tid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the requests that callers pass (SETOPTIONS, CONT, SINGLESTEP) take their data by
    // value.
    checked(unsafe { libc::ptrace(request, tid, 0_usize, data) })
}

/// A request that writes a value of type `T`.
fn get<T>(request: c_uint, tid: pid_t) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: callers pair each request with the type that the kernel writes for it.
    checked(unsafe { libc::ptrace(request, tid, 0_usize, value.as_mut_ptr()) })?;
    // SAFETY: the types are structures of numbers, for which all bytes are valid.
    Ok(unsafe { value.assume_init() })
}

/// Sets the trace options of a thread (`PTRACE_O_…`).
pub(super) fn follow(tid: pid_t, options: c_int) -> io::Result<()> {
    let options = usize::try_from(options).map_err(io::Error::other)?;
    number(libc::PTRACE_SETOPTIONS, tid, options)
}

/// Resumes a thread, with a signal if it is not 0.
pub(super) fn cont(tid: pid_t, signal: c_int) -> io::Result<()> {
    let signal = usize::try_from(signal).unwrap_or(0);
    number(libc::PTRACE_CONT, tid, signal)
}

/// Single-steps a thread.
pub(super) fn step(tid: pid_t) -> io::Result<()> {
    number(libc::PTRACE_SINGLESTEP, tid, 0)
}

/// The thread that the stop of another one announces.
pub(super) fn event_message(tid: pid_t) -> io::Result<pid_t> {
    let message: libc::c_ulong = get(libc::PTRACE_GETEVENTMSG, tid)?;
    pid_t::try_from(message).map_err(io::Error::other)
}

/// The registers of a thread.
pub(super) fn registers(tid: pid_t) -> io::Result<libc::user_regs_struct> {
    get(libc::PTRACE_GETREGS, tid)
}

/// Its floating-point and vector registers.
pub(super) fn vectors(tid: pid_t) -> io::Result<libc::user_fpregs_struct> {
    get(libc::PTRACE_GETFPREGS, tid)
}

/// Changes the registers of a thread.
pub(super) fn set_registers(tid: pid_t, registers: &libc::user_regs_struct) -> io::Result<()> {
    let from: *const libc::user_regs_struct = registers;
    // SAFETY: SETREGS reads one `user_regs_struct` from its data pointer.
    checked(unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0_usize, from) })
}

/// Waits for a thread, or for any if it is -1.
pub(super) fn wait(tid: pid_t) -> io::Result<(pid_t, TraceeStatus)> {
    let mut status = 0;
    let into: *mut c_int = &raw mut status;
    // SAFETY: `into` points to an `int` of this function.
    let of = unsafe { libc::waitpid(tid, into, libc::__WALL) };
    checked(of.into())?;
    let stop_status = if libc::WIFSTOPPED(status) {
        TraceeStatus::Stopped {
            signal: libc::WSTOPSIG(status),
            event: status >> 16,
        }
    } else {
        TraceeStatus::Gone
    };
    Ok((of, stop_status))
}

/// Sends a thread `SIGSTOP`.
pub(super) fn stop(process: pid_t, tid: pid_t) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    checked(unsafe { libc::syscall(libc::SYS_tgkill, process, tid, libc::SIGSTOP) })
}
