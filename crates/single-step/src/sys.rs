//! The system calls of a tracer, each as one safe function.
//!
//! Addresses of the other process are plain numbers here, which the kernel checks.
#![expect(unsafe_code, reason = "ptrace, waitpid and kcmp are system calls")]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libc::{c_int, c_uint, pid_t};

/// The general registers of a thread.
pub(crate) type Regs = libc::user_regs_struct;

/// Result of waiting for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStatus {
    /// It stopped with a signal; `event` is the `PTRACE_EVENT_…` or 0.
    Stopped { signal: c_int, event: c_int },
    /// It is gone; `raw` is the status of wait(2).
    Gone { raw: c_int },
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// A request with a number as `data`.
fn request(request: c_uint, tid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the requests that callers pass (SETOPTIONS, CONT, SINGLESTEP) take `data` by value;
    // the kernel neither reads nor writes memory of this process.
    let result = unsafe { libc::ptrace(request, tid, 0_usize, data) };
    checked(result).map(drop)
}

/// A request that fills a value, which has the type that the request writes.
fn get<T>(request: c_uint, tid: pid_t) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: callers pair each request with the type that the kernel writes for it, which has that
    // size.
    let result = unsafe { libc::ptrace(request, tid, 0_usize, value.as_mut_ptr()) };
    checked(result)?;
    // SAFETY: the types are structures of numbers, for which all bytes are valid.
    Ok(unsafe { value.assume_init() })
}

/// Makes the child of `command` traced by the thread that starts it, from `execve` on.
pub(crate) fn trace(command: &mut Command) {
    let closure = || {
        // SAFETY: TRACEME takes no arguments and touches no memory.
        let result = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) };
        checked(result).map(drop)
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed, and no memory may be
    // allocated: the closure makes one system call, and builds its error from a number.
    unsafe { command.pre_exec(closure) };
}

/// Makes the kernel place a program's memory at the same addresses each time, where it allows that.
pub(crate) fn place_alike(command: &mut Command) {
    let closure = || {
        let persona = libc::c_ulong::try_from(libc::ADDR_NO_RANDOMIZE).unwrap_or(0);
        // SAFETY: personality takes a number and touches no memory.
        unsafe { libc::personality(persona) };
        Ok(())
    };
    // SAFETY: the closure makes one system call, which is async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(closure) };
}

/// Traces threads, children and executed programs, which all die when the tracer does.
pub(crate) fn follow(tid: pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_EXITKILL
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC;
    let options = usize::try_from(options).unwrap_or(0);
    request(libc::PTRACE_SETOPTIONS, tid, options)
}

/// Resumes a thread, and delivers a signal to it unless that is 0.
pub(crate) fn go_on(tid: pid_t, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, usize::try_from(signal).unwrap_or(0))
}

/// Makes a thread execute one instruction, after delivery of a signal unless that is 0.
pub(crate) fn step(tid: pid_t, signal: c_int) -> io::Result<()> {
    let signal = usize::try_from(signal).unwrap_or(0);
    request(libc::PTRACE_SINGLESTEP, tid, signal)
}

/// The general registers of a stopped thread.
pub(crate) fn registers(tid: pid_t) -> io::Result<Regs> {
    get(libc::PTRACE_GETREGS, tid)
}

/// The vector registers of a stopped thread: the low 64 bits of each.
pub(crate) fn vectors(tid: pid_t) -> io::Result<[u64; 16]> {
    let state: libc::user_fpregs_struct = get(libc::PTRACE_GETFPREGS, tid)?;
    let mut low = [0; 16];
    for (low, words) in low.iter_mut().zip(state.xmm_space.chunks(4)) {
        if let [first, second, ..] = words {
            *low = u64::from(*first) | u64::from(*second) << 32;
        }
    }
    Ok(low)
}

/// Sets the general registers of a stopped thread.
pub(crate) fn set_registers(tid: pid_t, registers: &Regs) -> io::Result<()> {
    let from: *const Regs = registers;
    // SAFETY: SETREGS reads a `user_regs_struct`, which `from` points to.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGS, tid, 0_usize, from) };
    checked(result).map(drop)
}

/// Sets the program counter of a stopped thread.
pub(crate) fn set_pc(tid: pid_t, pc: u64) -> io::Result<()> {
    let offset = std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(Regs, rip);
    // SAFETY: POKEUSER takes an offset in `struct user` and a word by value; no memory of this
    // process is touched.
    let result = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, tid, offset, pc) };
    checked(result).map(drop)
}

/// The message of an event: the new thread, or the former ID of the thread that called exec.
pub(crate) fn message(tid: pid_t) -> io::Result<pid_t> {
    let message: libc::c_ulong = get(libc::PTRACE_GETEVENTMSG, tid)?;
    Ok(pid_t::try_from(message).unwrap_or(0))
}

/// Cause of a thread's `SIGTRAP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrapCause {
    /// A breakpoint instruction.
    Breakpoint,
    /// Another process or thread sent the signal.
    Sent,
    /// It has executed one instruction, or the processor stopped for another reason.
    Step,
}

/// Why a thread stopped with `SIGTRAP`.
pub(crate) fn trap(tid: pid_t) -> io::Result<TrapCause> {
    /// `SI_KERNEL` of sigaction(2): x86 reports it for `int3`.
    const KERNEL: c_int = 0x80;
    let info: libc::siginfo_t = get(libc::PTRACE_GETSIGINFO, tid)?;
    Ok(match info.si_code {
        KERNEL => TrapCause::Breakpoint,
        code if code <= 0 => TrapCause::Sent,
        _ => TrapCause::Step,
    })
}

/// The address whose access or execution stopped a thread; `None` if no memory fault did, or the
/// kernel does not say which.
pub(crate) fn fault_address(tid: pid_t) -> io::Result<Option<u64>> {
    /// The codes that only the kernel sets, with an address: `SEGV_MAPERR` and those after it.
    const WITH_ADDRESS: std::ops::Range<c_int> = 1..0x80;
    let info: libc::siginfo_t = get(libc::PTRACE_GETSIGINFO, tid)?;
    let is_fault = matches!(info.si_signo, libc::SIGSEGV | libc::SIGBUS);
    if !is_fault || !WITH_ADDRESS.contains(&info.si_code) {
        return Ok(None);
    }
    // SAFETY: the kernel fills `si_addr` for these signals and codes. The pointer is not followed.
    let address = unsafe { info.si_addr() };
    Ok(u64::try_from(address.addr()).ok())
}

/// A request for the signals that a thread blocks, a bit for each.
fn signal_mask(request: c_uint, tid: pid_t, mask: *mut u64) -> io::Result<()> {
    // SAFETY: both requests take the mask's size, and read or write that many bytes at `mask`.
    // Callers point it to a `u64` of theirs.
    let result = unsafe { libc::ptrace(request, tid, size_of::<u64>(), mask) };
    checked(result).map(drop)
}

/// The signals that a stopped thread blocks.
pub(crate) fn blocked_signals(tid: pid_t) -> io::Result<u64> {
    let mut mask = 0;
    signal_mask(libc::PTRACE_GETSIGMASK, tid, &raw mut mask).map(|()| mask)
}

/// Makes a stopped thread block these signals and no others.
pub(crate) fn block_signals(tid: pid_t, mut mask: u64) -> io::Result<()> {
    signal_mask(libc::PTRACE_SETSIGMASK, tid, &raw mut mask)
}

/// Repeats a system call until no signal to this process interrupts it.
fn uninterrupted(mut call: impl FnMut() -> c_int) -> io::Result<c_int> {
    loop {
        match call() {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            result => return Ok(result),
        }
    }
}

/// Waits for the next stop or end of any thread that the calling thread traces or started.
pub(crate) fn wait() -> io::Result<(pid_t, WaitStatus)> {
    let mut raw = 0;
    let into: *mut c_int = &raw mut raw;
    // SAFETY: `into` points to one `int` of this function.
    let tid =
        uninterrupted(|| unsafe { libc::waitpid(-1, into, libc::__WALL | libc::__WNOTHREAD) })?;
    Ok((tid, status(raw)))
}

fn status(raw: c_int) -> WaitStatus {
    if libc::WIFSTOPPED(raw) {
        WaitStatus::Stopped {
            signal: libc::WSTOPSIG(raw),
            event: raw >> 16,
        }
    } else {
        WaitStatus::Gone { raw }
    }
}

/// Waits for the next stop of one traced thread. Its end is an error, and is reported again by
/// [`wait`].
pub(crate) fn wait_for(tid: pid_t) -> io::Result<WaitStatus> {
    let number = libc::id_t::try_from(tid).unwrap_or(0);
    let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is a `siginfo_t` of this function, to which waitid writes.
    uninterrupted(|| unsafe { libc::waitid(libc::P_PID, number, info.as_mut_ptr(), flags) })?;
    // SAFETY: it was zeroed, and a structure of numbers may have any bytes.
    let info = unsafe { info.assume_init() };
    if matches!(
        info.si_code,
        libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
    ) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let mut raw = 0;
    let into: *mut c_int = &raw mut raw;
    // SAFETY: `into` points to one `int` of this function.
    uninterrupted(|| unsafe { libc::waitpid(tid, into, libc::__WALL) })?;
    Ok(status(raw))
}

/// Sends a signal to a process. It does not matter if the process has ended.
pub(crate) fn signal(pid: pid_t, signal: c_int) {
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(pid, signal) };
}

/// Kills a process.
pub(crate) fn kill(pid: pid_t) {
    signal(pid, libc::SIGKILL);
}

/// Whether two processes share memory; `None` if the kernel does not say.
pub(crate) fn share_memory(one: pid_t, other: pid_t) -> Option<bool> {
    /// `KCMP_VM` of kcmp(2).
    const VM: c_int = 1;
    // SAFETY: kcmp takes numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, VM, 0_usize, 0_usize) };
    (result >= 0).then_some(result == 0)
}
