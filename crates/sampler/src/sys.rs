//! The system calls of this crate.
#![expect(unsafe_code, reason = "system calls")]

use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

/// Gives way to all other threads of the system.
pub(crate) fn lower_priority() {
    const LOWEST: i32 = 19;
    // SAFETY: takes numbers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}

/// While it lives, its thread goes before others of the system, if this user may have that: rings are
/// full soon when a machine is busy.
#[derive(Debug)]
pub(crate) struct PriorityBoost {
    before: i32,
}

impl PriorityBoost {
    const HIGH: i32 = -15;

    pub(crate) fn new() -> Self {
        // SAFETY: takes numbers; 0 is the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PriorityBoost::HIGH.min(before)) };
        PriorityBoost { before }
    }
}

impl Drop for PriorityBoost {
    fn drop(&mut self) {
        // SAFETY: takes numbers; 0 is the calling thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.before) };
    }
}

/// The clock of all records, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time lives through the call. This clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    // SAFETY: two numbers, for which all bits are good, zero at first.
    let time = unsafe { time.assume_init() };
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Waits until one of some files is ready, or the time in milliseconds is over. Says of each whether
/// there is something to read, or whether there will never be more.
pub(crate) fn wait(files: &[BorrowedFd<'_>], milliseconds: i32) -> io::Result<Vec<Readiness>> {
    let mut polled: Vec<_> = files
        .iter()
        .map(|file| libc::pollfd {
            fd: file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let count = libc::nfds_t::try_from(polled.len()).unwrap_or(libc::nfds_t::MAX);
    // SAFETY: as many entries as are said, which live through the call.
    let done = unsafe { libc::poll(polled.as_mut_ptr(), count, milliseconds) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let ready = |entry: &libc::pollfd| match entry.revents {
        0 => Readiness::Pending,
        events if events & libc::POLLIN != 0 => Readiness::Readable,
        _ => Readiness::Closed,
    };
    Ok(polled.iter().map(ready).collect())
}

/// What [`wait`] says of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Pending,
    Readable,
    Closed,
}

/// The signals that end a recording or are passed on, as they come: they do nothing else any more in this
/// thread, and in those that it begins.
#[derive(Debug)]
pub(crate) struct Signals {
    file: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    /// Those that are for the command alone.
    const PASSED_ON: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

    /// Whether a signal ends a recording.
    pub(crate) fn is_ending(signal: i32) -> bool {
        Signals::ENDING.contains(&signal)
    }

    pub(crate) fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set lives through the call, which makes it empty.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in Signals::ENDING.into_iter().chain(Signals::PASSED_ON) {
            // SAFETY: the set was made by the call above.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: both sets live through the call, which writes the second.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the set lives through the call.
        let file =
            unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Signals {
            // SAFETY: the kernel has just made the descriptor, for nobody else.
            file: unsafe { OwnedFd::from_raw_fd(file) },
            // SAFETY: the call that succeeded wrote it.
            before: unsafe { before.assume_init() },
        })
    }

    /// The next signal that came.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: as many bytes as are said, which live through the call.
        let read = unsafe { libc::read(self.file.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(read) != Ok(size) {
            return None;
        }
        // SAFETY: the kernel wrote all of it.
        let info = unsafe { info.assume_init() };
        i32::try_from(info.ssi_signo).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sends a signal to a process.
pub(crate) fn send(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: takes numbers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// A file that becomes readable when a process ends.
pub(crate) fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    let file = unsafe {
        libc::syscall(
            libc::SYS_pidfd_open,
            libc::pid_t::try_from(pid).unwrap_or(-1),
            0,
        )
    };
    match i32::try_from(file) {
        // SAFETY: the kernel has just made the descriptor, for nobody else.
        Ok(file @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A command that was begun, and waits before its program runs.
#[derive(Debug)]
pub(crate) struct PausedCommand {
    /// Its process.
    pub(crate) pid: u32,
    go: io::PipeWriter,
    child: JoinHandle<io::Result<Child>>,
}

impl PausedCommand {
    /// Begins a command, with the signals as they were before some were caught.
    pub(crate) fn spawn(mut command: Command, signals: &Signals) -> io::Result<PausedCommand> {
        let (mut pid_from, mut pid_to) = io::pipe()?;
        let (mut go_from, go) = io::pipe()?;
        let mask = signals.before;
        // The child has it too. Were it open there, the child would wait for itself.
        let unused = go.as_raw_fd();
        let hold = move || {
            // SAFETY: the child's own copy of the descriptor, which nobody else uses there.
            unsafe { libc::close(unused) };
            let told = pid_to.write_all(&std::process::id().to_ne_bytes());
            // Who began it may have given up, or be gone: then the program does not run, and nobody is there to be
            // told.
            if told.and_then(|()| go_from.read_exact(&mut [0])).is_err() {
                // SAFETY: ends the child, which has nothing of its own yet.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: the set was filled by the kernel.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut())
            };
            Ok(())
        };
        // SAFETY: what runs in the child between fork and exec are system calls only, on memory of its
        // own.
        unsafe { command.pre_exec(hold) };
        // It returns when the program runs.
        let child = thread::Builder::new().spawn(move || command.spawn())?;
        let mut pid = [0; 4];
        match pid_from.read_exact(&mut pid) {
            Ok(()) => Ok(PausedCommand {
                pid: u32::from_ne_bytes(pid),
                go,
                child,
            }),
            Err(error) => Err(join(child).err().unwrap_or(error)),
        }
    }

    /// Has its program run.
    pub(crate) fn resume(mut self) -> io::Result<Child> {
        self.go.write_all(&[1])?;
        join(self.child)
    }
}

fn join(child: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    child
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
