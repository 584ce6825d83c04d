//! The system calls of a tracer, each as one safe function.
//!
//! This is `libc` and not `nix`. nix's `Signal` cannot express real-time signals. So its `waitpid`
//! fails on a thread that stopped for one (its state is then lost), and its `detach` cannot deliver
//! one. glibc itself uses signals 32 and 33.
//!
//! Functions that take addresses of the other process can do no harm here: the addresses are plain
//! numbers, which the kernel checks.
#![expect(unsafe_code, reason = "ptrace and waitid are system calls")]

use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use libc::{c_int, c_uint, c_void, pid_t};

use crate::signal;

/// `PTRACE_EVENT_STOP`: the event of a stop caused by `PTRACE_INTERRUPT`, job control or the start
/// of an automatically traced thread.
pub(crate) const EVENT_STOP: c_int = 128;
/// `NT_PRSTATUS`: the general registers.
pub(crate) const NT_PRSTATUS: c_int = 1;
/// `NT_PRFPREG`: the floating-point and vector registers.
pub(crate) const NT_PRFPREG: c_int = 2;
/// `NT_ARM_PAC_MASK`: the bits of a pointer that hold a signature, for data and for code.
pub(crate) const NT_ARM_PAC_MASK: c_int = 0x406;

/// The result of waiting for a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStatus {
    /// It stopped; `event` is the `PTRACE_EVENT_…` or 0, `signal` the signal of the stop.
    Stopped { signal: c_int, event: c_int },
    /// It is gone, with the raw status of wait(2).
    Gone { raw: c_int },
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A request with a number as `data`: any request that does not write to our memory.
fn request(request: c_uint, tid: pid_t, data: usize) -> io::Result<()> {
    // SAFETY: the requests that callers pass (SEIZE, INTERRUPT, CONT, LISTEN, DETACH) take
    // `data` by value; the kernel neither reads nor writes memory of this process.
    let result = unsafe { libc::ptrace(request, tid, 0_usize, data) };
    checked(result).map(drop)
}

/// A request that fills `into`, which has the size that the request writes.
fn request_into<T>(request: c_uint, tid: pid_t, addr: usize, into: &mut T) -> io::Result<()> {
    let into: *mut T = into;
    // The system call and not the C function: for PEEK requests the function returns the word
    // instead of storing it, and an error could be mistaken for a word.
    // SAFETY: callers pair each request with the type that the kernel writes for it, and `into` is
    // a unique reference to one, valid for the duration of the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::c_ulong::from(request),
            libc::c_long::from(tid),
            addr,
            into,
        )
    };
    checked(result).map(drop)
}

/// Starts tracing a thread without stopping it.
pub(crate) fn seize(tid: pid_t, options: c_int) -> io::Result<()> {
    request(
        libc::PTRACE_SEIZE,
        tid,
        usize::try_from(options).unwrap_or(0),
    )
}

/// Asks a running thread to stop.
pub(crate) fn interrupt(tid: pid_t) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Resumes a stopped thread, and delivers `signal` to it unless that is 0.
pub(crate) fn resume(tid: pid_t, signal: c_int) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, usize::try_from(signal).unwrap_or(0))
}

/// Leaves a thread stopped for job control until `SIGCONT` arrives.
pub(crate) fn listen(tid: pid_t) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Ends the tracing of a stopped thread, resumes it and delivers `signal` unless that is 0.
pub(crate) fn detach(tid: pid_t, signal: c_int) -> io::Result<()> {
    request(
        libc::PTRACE_DETACH,
        tid,
        usize::try_from(signal).unwrap_or(0),
    )
}

/// The `siginfo_t` of the signal that stopped a thread.
pub(crate) fn siginfo(tid: pid_t) -> io::Result<[u8; signal::SIGINFO_SIZE]> {
    #[repr(C, align(8))]
    struct Siginfo([u8; signal::SIGINFO_SIZE]);
    let mut siginfo = Siginfo([0; signal::SIGINFO_SIZE]);
    request_into(libc::PTRACE_GETSIGINFO, tid, 0, &mut siginfo)?;
    Ok(siginfo.0)
}

/// Copies a register set of a stopped thread; returns how many bytes of `into` it filled.
pub(crate) fn register_set(tid: pid_t, set: c_int, into: &mut [u8]) -> io::Result<usize> {
    let mut vector = libc::iovec {
        iov_base: into.as_mut_ptr().cast::<c_void>(),
        iov_len: into.len(),
    };
    // The kernel writes the vector's length, and at most that many bytes to `into`.
    request_into(
        libc::PTRACE_GETREGSET,
        tid,
        usize::try_from(set).unwrap_or(0),
        &mut vector,
    )?;
    Ok(vector.iov_len.min(into.len()))
}

/// Copies one word of a stopped thread's memory.
pub(crate) fn peek(tid: pid_t, addr: usize) -> io::Result<[u8; size_of::<usize>()]> {
    let mut word = 0_usize;
    request_into(libc::PTRACE_PEEKDATA, tid, addr, &mut word)?;
    Ok(word.to_ne_bytes())
}

/// Checks, without waiting, whether the traced thread `tid` stopped or ended.
pub(crate) fn poll(tid: pid_t) -> io::Result<Option<WaitStatus>> {
    let found = look(libc::P_PID, id_of(tid), libc::WEXITED | libc::WNOHANG)?;
    Ok(found.map(|(_, status)| status))
}

/// Checks, without waiting, whether the traced thread `tid` stopped; does not collect its end.
pub(crate) fn poll_stop(tid: pid_t) -> io::Result<Option<WaitStatus>> {
    let found = look(libc::P_PID, id_of(tid), libc::WSTOPPED | libc::WNOHANG)?;
    Ok(found.map(|(_, status)| status))
}

/// Waits for the next stop or end of any thread that the calling thread traces or started;
/// children of other threads of this process are left alone.
pub(crate) fn wait_any() -> io::Result<(pid_t, WaitStatus)> {
    loop {
        // Nothing is found when a thread is killed between two checks of its stop.
        if let Some(found) = look(libc::P_ALL, 0, libc::WEXITED | libc::__WNOTHREAD)? {
            return Ok(found);
        }
    }
}

fn id_of(tid: pid_t) -> libc::id_t {
    libc::id_t::try_from(tid).unwrap_or(libc::id_t::MAX)
}

/// Finds a stop or an end, and collects it, except a stop before the delivery of a signal. The
/// kernel then keeps the signal, and delivers it even if the tracer is killed meanwhile.
///
/// Other stops hold no signal and must be collected. Until then, the kernel rejects requests for a
/// thread that called exec and was not the first of its process.
fn look(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: c_int,
) -> io::Result<Option<(pid_t, WaitStatus)>> {
    Ok(match wait_id(kind, id, flags | libc::WNOWAIT)? {
        Some((tid, WaitStatus::Stopped { event: 1.., .. })) => collect_stop(tid)?,
        Some((tid, WaitStatus::Gone { .. })) => {
            let raw = collect(tid)?;
            Some((tid, WaitStatus::Gone { raw }))
        }
        found => found,
    })
}

/// Collects the stop of the traced thread `tid`, if it is still stopped; never its end.
pub(crate) fn collect_stop(tid: pid_t) -> io::Result<Option<(pid_t, WaitStatus)>> {
    wait_id(libc::P_PID, id_of(tid), libc::WSTOPPED | libc::WNOHANG)
}

/// waitid(2). An end has no raw status here.
fn wait_id(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: c_int,
) -> io::Result<Option<(pid_t, WaitStatus)>> {
    // SAFETY: `siginfo_t` consists of numbers, for which all zeros is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    uninterrupted(|| {
        let info: *mut libc::siginfo_t = &raw mut info;
        // SAFETY: `info` points to one `siginfo_t` of this function.
        unsafe { libc::waitid(kind, id, info, flags | libc::__WALL) }
    })?;
    // SAFETY: waitid fills the fields of SIGCHLD, or leaves them 0 if it found nothing.
    let tid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    Ok(match (tid, info.si_code) {
        (0, _) => None,
        (_, libc::CLD_TRAPPED | libc::CLD_STOPPED) => {
            let (signal, event) = (status & 0x7f, status >> 8);
            Some((tid, WaitStatus::Stopped { signal, event }))
        }
        _ => Some((tid, WaitStatus::Gone { raw: status })),
    })
}

/// Waits for the child or traced thread `tid` to end and collects its raw status.
pub(crate) fn collect(tid: pid_t) -> io::Result<c_int> {
    let mut raw = 0;
    loop {
        uninterrupted(|| {
            let raw: *mut c_int = &raw mut raw;
            // SAFETY: `raw` points to one `int` of this function.
            unsafe { libc::waitpid(tid, raw, libc::__WALL) }
        })?;
        if !libc::WIFSTOPPED(raw) {
            return Ok(raw);
        }
    }
}

/// Repeats a call that a signal interrupted.
fn uninterrupted(mut call: impl FnMut() -> c_int) -> io::Result<c_int> {
    loop {
        match checked(call().into()) {
            Ok(result) => return Ok(c_int::try_from(result).unwrap_or(-1)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The calling thread's id, by the system call: glibc has a function for it since 2.30.
pub(crate) fn own_tid() -> pid_t {
    // SAFETY: gettid takes nothing, touches no memory and always succeeds.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    pid_t::try_from(thread).unwrap_or_default()
}

/// The file descriptors of the pipes on which a new child reports its start, and then waits until
/// its tracer is ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    /// The child writes its process ID here.
    pub(crate) report: RawFd,
    /// The child reads one byte from here: 0 releases it.
    pub(crate) release: RawFd,
    /// The other end of `release`. The child must close its copy: otherwise it would wait forever
    /// if the tracer dies.
    pub(crate) release_writer: RawFd,
}

/// Makes the child that `command` starts wait at `gate` before it executes the program.
pub(crate) fn hold_at(command: &mut Command, gate: Gate) {
    let closure = move || pass(gate);
    // SAFETY: between fork and exec only async-signal-safe calls are allowed, and no memory
    // may be allocated: `pass` calls getpid, write, close and read, and builds its errors from
    // numbers.
    unsafe { command.pre_exec(closure) };
}

/// Runs in the child between fork and exec. Async-signal-safe.
fn pass(gate: Gate) -> io::Result<()> {
    let pid = std::process::id().to_ne_bytes();
    // SAFETY: `pid` is an array of that length on this stack.
    let written = unsafe { libc::write(gate.report, pid.as_ptr().cast::<c_void>(), pid.len()) };
    checked(i64::try_from(written).unwrap_or(-1))?;
    // SAFETY: closes the child's copy of a descriptor that nothing in the child uses later: it is
    // close-on-exec, and the child only executes the program.
    let closed = unsafe { libc::close(gate.release_writer) };
    checked(closed.into())?;
    let mut answer = 1_u8;
    let into: *mut u8 = &raw mut answer;
    // SAFETY: `into` points to one byte on this stack.
    let read = unsafe { libc::read(gate.release, into.cast::<c_void>(), 1) };
    if read == 1 && answer == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}
