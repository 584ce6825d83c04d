//! A process for untrusted code, and the fence around it.

use std::ffi::{c_int, c_long};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// The limit of the process's processor time in seconds, unless its own limit is lower.
const MAX_CPU_SECONDS: libc::rlim_t = 60;

/// Runs `work` in its own process, behind a fence. Returns the work's result, and the process's
/// exit status.
///
/// The process is a copy of this one, with this thread alone, and its work must neither allocate
/// nor make system calls. Only the output for its result is open. It can only compute
/// (`seccomp`(2), strict mode), and is killed when its time is over. If the fence fails, the work
/// is not run.
pub(in crate::native) fn apart<const N: usize>(
    work: impl FnOnce() -> [u8; N],
) -> io::Result<(Vec<u8>, ExitStatus)> {
    let (output, input) = io::pipe()?;
    // SAFETY: the new process calls only `work`, which is as required above, and system calls.
    let process = match unsafe { libc::fork() } {
        0 => match fence(input.as_raw_fd()) {
            Ok(()) => {
                write(&work());
                end(0)
            }
            Err(error) => end(error.raw_os_error().unwrap_or(libc::EPERM)),
        },
        -1 => return Err(io::Error::last_os_error()),
        process => process,
    };
    drop(input);
    let mut bytes = Vec::new();
    let read = output.take(N as u64).read_to_end(&mut bytes);
    let mut status = 0;
    // SAFETY: a child of this process that was not waited for, and a writable number.
    while unsafe { libc::waitpid(process, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    read?;
    let ended = ExitStatus::from_raw(status);
    match ended.code() {
        Some(error @ 1..) if bytes.is_empty() => Err(io::Error::from_raw_os_error(error)),
        _ => Ok((bytes, ended)),
    }
}

/// The output for the result.
const OUTPUT: c_int = 0;

/// Restricts this process to computing and writing its result.
fn fence(output: c_int) -> io::Result<()> {
    let done = |result: c_long| match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes to a variable of this function.
    done(unsafe { libc::getrlimit(libc::RLIMIT_CPU, &raw mut limit) }.into())?;
    limit.rlim_max = limit.rlim_max.min(MAX_CPU_SECONDS);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: reads its argument.
    done(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) }.into())?;
    // SAFETY: takes numbers only.
    done(unsafe { libc::dup2(output, OUTPUT) }.into())?;
    // By the system call: glibc has a function for it since 2.34.
    let close_range = libc::SYS_close_range;
    // SAFETY: the files belong to this process alone, which uses none of them again.
    done(unsafe { libc::syscall(close_range, 1, u32::MAX, 0) })?;
    // SAFETY: takes numbers only.
    done(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) }.into())
}

/// Writes a result, as much as the other side reads.
fn write(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: this many bytes are readable.
        let written = unsafe { libc::write(OUTPUT, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => bytes = bytes.get(written..).unwrap_or_default(),
            _ => break,
        }
    }
}

/// Ends a process: with 0 behind the fence, else with the reason why the fence failed.
fn end(status: c_int) -> ! {
    loop {
        // SAFETY: ends this thread, the only one; `exit_group` is forbidden behind the fence.
        unsafe { libc::syscall(libc::SYS_exit, i64::from(status)) };
    }
}
