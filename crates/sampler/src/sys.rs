//! The system calls of this crate.
#![expect(unsafe_code, reason = "system calls")]

use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

/// The priority of a thread, which can be changed as far as this user may do that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadPriority {
    thread: libc::id_t,
    /// Its usual priority.
    usual: i32,
}

impl ThreadPriority {
    /// Lower than that of all other threads of the system.
    const LOWEST: i32 = 19;

    /// Of the calling thread. Its priority now is its usual one.
    pub(crate) fn current() -> ThreadPriority {
        // SAFETY: the call takes nothing.
        let thread = unsafe { libc::gettid() };
        // SAFETY: the call takes numbers only; 0 is the calling thread.
        let usual = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        ThreadPriority {
            thread: thread.unsigned_abs(),
            usual,
        }
    }

    /// Gives the thread the lowest priority.
    pub(crate) fn lower(self) {
        self.set(ThreadPriority::LOWEST);
    }

    /// Gives the thread its usual priority.
    pub(crate) fn restore(self) {
        self.set(self.usual);
    }

    fn set(self, priority: i32) {
        // SAFETY: the call takes numbers only.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, self.thread, priority) };
    }
}

/// Raises the thread's priority while it lives, if this user may do that: on a busy machine, rings
/// are soon full.
#[derive(Debug)]
pub(crate) struct PriorityBoost(ThreadPriority);

impl PriorityBoost {
    const HIGH: i32 = -15;

    pub(crate) fn new() -> Self {
        let before = ThreadPriority::current();
        before.set(PriorityBoost::HIGH.min(before.usual));
        PriorityBoost(before)
    }
}

impl Drop for PriorityBoost {
    fn drop(&mut self) {
        self.0.restore();
    }
}

/// The clock of all records, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the time outlives the call. This clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    // SAFETY: two numbers, for which all bit patterns are valid, zero at first.
    let time = unsafe { time.assume_init() };
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Waits until one of some files is ready, or a time in milliseconds has passed. Returns for each
/// file whether it has data, or never will have any.
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
    // SAFETY: the pointer and the count describe one slice, which outlives the call.
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

/// The result of [`wait`] for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Pending,
    Readable,
    Closed,
}

/// Queues the signals that end a recording or are passed on. In this thread and those that it
/// creates, they have no other effect until it is dropped, in the same thread.
#[derive(Debug)]
pub(crate) struct Signals {
    file: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    const ENDING: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    /// Signals that are for the command only.
    const PASSED_ON: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

    /// Whether a signal ends a recording.
    pub(crate) fn is_ending(signal: i32) -> bool {
        Signals::ENDING.contains(&signal)
    }

    pub(crate) fn block() -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set outlives the call, which makes it empty.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in Signals::ENDING.into_iter().chain(Signals::PASSED_ON) {
            // SAFETY: the set was made by the call above.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: both sets outlive the call, which writes the second.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: the set outlives the call.
        let file =
            unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Signals {
            // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
            file: unsafe { OwnedFd::from_raw_fd(file) },
            // SAFETY: the successful call wrote it.
            before: unsafe { before.assume_init() },
        })
    }

    /// The next queued signal.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the pointer and the length describe one buffer, which outlives the call.
        let read = unsafe { libc::read(self.file.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(read) != Ok(size) {
            return None;
        }
        // SAFETY: the kernel wrote all of it.
        let info = unsafe { info.assume_init() };
        i32::try_from(info.ssi_signo).ok()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Further signals of the same kind were for the recording, too.
        while self.next().is_some() {}
        // SAFETY: the mask is from the call that blocked these signals, and outlives this one.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
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
        // SAFETY: the call takes numbers only.
        unsafe { libc::kill(pid, signal) };
    }
}

/// A file that becomes readable when a process exits.
pub(crate) fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let file = unsafe {
        libc::syscall(
            libc::SYS_pidfd_open,
            libc::pid_t::try_from(pid).unwrap_or(-1),
            0,
        )
    };
    match i32::try_from(file) {
        // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
        Ok(file @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A created command that waits before its program runs.
#[derive(Debug)]
pub(crate) struct PausedCommand {
    /// Its process ID.
    pub(crate) pid: u32,
    go: io::PipeWriter,
    child: JoinHandle<io::Result<Child>>,
}

impl PausedCommand {
    /// Creates a command's process, with the signal mask from before signals were blocked.
    pub(crate) fn spawn(mut command: Command, signals: &Signals) -> io::Result<PausedCommand> {
        let (mut pid_from, mut pid_to) = io::pipe()?;
        let (mut go_from, go) = io::pipe()?;
        let mask = signals.before;
        // The child inherits it. If it stayed open there, the child would wait for itself.
        let unused = go.as_raw_fd();
        let hold = move || {
            // SAFETY: the child's own copy of the descriptor, which nothing else uses there.
            unsafe { libc::close(unused) };
            let written = pid_to.write_all(&std::process::id().to_ne_bytes());
            // The parent may have given up or exited. Then the program does not run, and there is
            // no one to report to.
            if written.and_then(|()| go_from.read_exact(&mut [0])).is_err() {
                // SAFETY: ends the child, which has no state of its own yet.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: the kernel filled the set.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut())
            };
            Ok(())
        };
        // SAFETY: between fork and exec, the child makes system calls only, on its own memory.
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

    /// Starts its program.
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
