//! What needs `unsafe`.
#![allow(unsafe_code, reason = "the one module that may")]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// Asks the processor for the line of a byte, without waiting for it.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let pointer = bytes.as_ptr().wrapping_add(at).cast::<i8>();
        // SAFETY: a prefetch reads nothing that the program sees and does not fault, whatever
        // the address (Intel SDM, PREFETCHh).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

/// Maps a file that this program has just written to a folder of its own.
///
/// # Errors
///
/// The system refuses.
pub fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is private and read-only, and the file lies in a `Scratch` folder: only
    // this user can change it, and this program does not while it is mapped.
    unsafe { memmap2::Mmap::map(file) }
}

/// What a process that has ended came to, with those that it had waited for.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// How it ended.
    pub status: ExitStatus,
    /// Its processor time, in user mode and in the kernel.
    pub cpu: Duration,
    /// The most bytes that were resident at any time.
    ///
    /// Linux counts what was resident in the process that started it, too, so only a figure above
    /// this program's own peak says something (`exec_mmap` in the kernel's `fs/exec.c`).
    pub peak: u64,
}

/// Waits for a process to end.
///
/// # Errors
///
/// The system refuses.
pub fn wait(child: Child) -> io::Result<Usage> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: both pointers are to places of the right type that live until the call returns. The
    // child is ours and was not waited for: whoever has a `Child` that was does not give it away,
    // and if one did, the call would fail.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
    drop(child); // does not wait, and nobody can any more
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: wait4 succeeded, so it has written the whole of it (wait4(2)).
    let usage = unsafe { usage.assume_init() };
    let kilobytes = u64::try_from(usage.ru_maxrss).map_err(io::Error::other)?;
    Ok(Usage {
        status: ExitStatus::from_raw(status),
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        peak: kilobytes * 1024,
    })
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Sends the process group of a child, which leads it, what Ctrl-C in a terminal does.
///
/// # Errors
///
/// The system refuses.
pub fn interrupt(child: &Child) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: takes numbers; the child was not waited for, so that the number is still its own.
    match unsafe { libc::kill(-pid, libc::SIGINT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Executes a command one instruction after another, and does nothing else; yields how many these were.
///
/// # Errors
///
/// The system refuses.
pub fn single_step(command: &mut Command) -> io::Result<u64> {
    let tracee = Tracee::start(command)?;
    let mut steps = 1;
    while tracee.step()? != Stop::Ended {
        steps += 1;
    }
    Ok(steps)
}

/// A program that runs under this thread's eyes, one thread of it.
#[derive(Debug)]
pub struct Tracee {
    pid: libc::pid_t,
    child: Child,
    /// Whether it has ended, so that its number may be another's.
    has_ended: Cell<bool>,
}

/// What became of a program that was let go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A signal is about to be delivered.
    Signal(i32),
    /// It has ended.
    Ended,
}

impl Tracee {
    /// Starts a program, which stops before its first instruction.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn start(command: &mut Command) -> io::Result<Tracee> {
        let traceme = || {
            // SAFETY: TRACEME takes no arguments and touches no memory.
            match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0_usize, 0_usize) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call, and allocates nothing.
        unsafe { command.pre_exec(traceme) };
        let child = command.spawn()?;
        let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
        let tracee = Tracee {
            pid,
            child,
            has_ended: Cell::new(false),
        };
        tracee.wait()?;
        // Whoever kills the measurement ends the program, too.
        // SAFETY: SETOPTIONS takes its data by value.
        let set = unsafe {
            libc::ptrace(
                libc::PTRACE_SETOPTIONS,
                pid,
                0_usize,
                libc::PTRACE_O_EXITKILL,
            )
        };
        match set {
            0 => Ok(tracee),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&self) -> io::Result<Stop> {
        let mut status = 0;
        let into: *mut libc::c_int = &raw mut status;
        // SAFETY: `into` points to one `int` of this function.
        if unsafe { libc::waitpid(self.pid, into, libc::__WALL) } != self.pid {
            return Err(io::Error::last_os_error());
        }
        Ok(match libc::WIFSTOPPED(status) {
            true => Stop::Signal(libc::WSTOPSIG(status)),
            false => {
                self.has_ended.set(true);
                Stop::Ended
            }
        })
    }

    fn resume(&self, request: libc::c_uint, signal: i32) -> io::Result<Stop> {
        let signal = usize::try_from(signal).unwrap_or(0);
        // SAFETY: CONT and SINGLESTEP take their data, a signal, by value.
        match unsafe { libc::ptrace(request, self.pid, 0_usize, signal) } {
            0 => self.wait(),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Executes one instruction.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn step(&self) -> io::Result<Stop> {
        self.resume(libc::PTRACE_SINGLESTEP, 0)
    }

    /// Goes on, with a signal if it is not 0.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn go_on(&self, signal: i32) -> io::Result<Stop> {
        self.resume(libc::PTRACE_CONT, signal)
    }

    /// Its registers.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn registers(&self) -> io::Result<libc::user_regs_struct> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
        // SAFETY: GETREGS writes one `user_regs_struct` to where its data points.
        let done = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                self.pid,
                0_usize,
                registers.as_mut_ptr(),
            )
        };
        match done {
            // SAFETY: GETREGS succeeded, so all of it is written.
            0 => Ok(unsafe { registers.assume_init() }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The low eight bytes of its vector registers, in their order.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn vectors(&self) -> io::Result<[u64; 16]> {
        let mut registers = MaybeUninit::<libc::user_fpregs_struct>::uninit();
        // SAFETY: GETFPREGS writes one `user_fpregs_struct` to where its data points.
        let done = unsafe {
            libc::ptrace(
                libc::PTRACE_GETFPREGS,
                self.pid,
                0_usize,
                registers.as_mut_ptr(),
            )
        };
        let state = match done {
            // SAFETY: GETFPREGS succeeded, so all of it is written.
            0 => unsafe { registers.assume_init() },
            _ => return Err(io::Error::last_os_error()),
        };
        let mut low = [0; 16];
        for (low, words) in low.iter_mut().zip(state.xmm_space.chunks(4)) {
            if let [first, second, ..] = words {
                *low = u64::from(*first) | u64::from(*second) << 32;
            }
        }
        Ok(low)
    }

    /// Changes its registers.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn set_registers(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
        let from: *const libc::user_regs_struct = registers;
        // SAFETY: SETREGS reads one `user_regs_struct` from where its data points.
        match unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0_usize, from) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.has_ended.get() {
            let _ = self.child.kill(); // nobody can be told
            let _ = self.child.wait();
        }
    }
}
