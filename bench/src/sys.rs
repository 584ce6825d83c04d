//! The `unsafe` parts.
#![allow(unsafe_code, reason = "the one module that may")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// Prefetches the cache line of a byte.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let pointer = bytes.as_ptr().wrapping_add(at).cast::<i8>();
        // SAFETY: a prefetch has no visible effect and does not fault, whatever the address (Intel
        // SDM, PREFETCHh).
        unsafe { _mm_prefetch::<_MM_HINT_T0>(pointer) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

/// Maps a file that this program has just written to its own folder.
///
/// # Errors
///
/// The system refuses.
pub fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is private and read-only, and the file is in a `Scratch` folder. Only
    // this user can change it, and this program does not while it is mapped.
    unsafe { memmap2::Mmap::map(file) }
}

/// The resource usage of an exited process, including children that it waited for.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its CPU time, in user mode and in the kernel.
    pub cpu: Duration,
    /// The peak resident memory in bytes.
    ///
    /// Linux includes the resident memory of the process that started it. So only a figure above
    /// this program's own peak is meaningful (`exec_mmap` in the kernel's `fs/exec.c`).
    pub peak: u64,
}

/// Waits for a process to exit.
///
/// # Errors
///
/// The system refuses.
pub fn wait(child: Child) -> io::Result<Usage> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: both pointers are to memory of the right type that outlives the call. The child is
    // ours and was not waited for. A `Child` that was waited for is not passed here; if it were,
    // the call would fail.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
    drop(child); // This does not wait, and nothing can wait any more.
    if waited != pid {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: wait4 succeeded, so it has written all of it (wait4(2)).
    let usage = unsafe { usage.assume_init() };
    let kilobytes = u64::try_from(usage.ru_maxrss).map_err(io::Error::other)?;
    Ok(Usage {
        status: ExitStatus::from_raw(status),
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        peak: kilobytes * 1024,
    })
}

/// The processor time of this thread; zero if the system does not say.
#[must_use]
pub fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to memory of the right type that outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Sends SIGINT to the process group of a child, which leads it, as Ctrl-C in a terminal does.
///
/// # Errors
///
/// The system refuses.
pub fn interrupt(child: &Child) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: the call takes numbers only; the child was not waited for, so that its PID is not
    // reused.
    match unsafe { libc::kill(-pid, libc::SIGINT) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
