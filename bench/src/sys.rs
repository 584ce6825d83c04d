//! What needs `unsafe`.
#![allow(unsafe_code, reason = "the one module that may")]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
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
