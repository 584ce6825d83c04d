//! Live processes: stopping all threads, reading registers and memory, and resuming.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_rows::{Abi, Arch, Endian, Memory, Register, RuntimeAddr};

use crate::maps::{Mapping, Mappings};
use crate::surroundings::ProcFiles;
use crate::unstopped::RunningMemory;
use crate::{
    AuxVector, MappedFile, NoRegisters, ProcessError, Signal, Snapshot, Thread, mapped_file,
    procfs, registers,
};

mod command;
mod copies;
mod memory;
mod pages;
mod sys;
mod tracees;
mod tracer;
mod write;

pub use command::{CommandEvent, TracedCommand};
pub use memory::{ProcessMemory, STACK_WINDOW_BYTES};
pub use write::MemoryWriteError;

use tracees::Tracees;
use tracer::Tracer;

/// How to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttachOptions {
    /// The time limit for stopping all threads, counted from the first request. An uninterruptible
    /// thread (state `D`) may never stop; the others stay stopped meanwhile. If threads are started
    /// constantly, the search for new ones ends after this time.
    pub stop_timeout: Duration,
    /// The longest time for which the process is stopped. Then it resumes, as by
    /// [`Process::resume`]: what was not read by then cannot be read. `None`: until it is resumed.
    pub max_stop: Option<Duration>,
}

impl Default for AttachOptions {
    /// One second to stop, and no limit after that.
    fn default() -> Self {
        AttachOptions {
            stop_timeout: STOP_TIMEOUT,
            max_stop: None,
        }
    }
}

const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A live process with all its threads stopped.
///
/// They resume when the value is dropped, also on a panic, and when this program is killed. Signals
/// that arrived meanwhile are then delivered. [`Process::resume`] resumes them earlier and keeps
/// everything read so far. To stop a process only briefly, attach, call
/// [`Process::prefetch_stacks`], resume, and then unwind.
///
/// Stopping makes those system calls return `EINTR` early that the kernel cannot restart:
/// `epoll_wait`, `semop`, `sigtimedwait` and others (signal(7), "Interruption of system calls and
/// library functions by stop signals"). All others are not disturbed.
#[derive(Debug)]
pub struct Process {
    pid: i32,
    /// The thread for reading memory and files of `/proc`.
    reader: i32,
    abi: Abi,
    threads: Vec<Thread>,
    mappings: Arc<Mappings>,
    auxv: AuxVector,
    executable: Option<PathBuf>,
    memory: ProcessMemory,
    current_memory: RunningMemory,
    signal: Option<Signal>,
    pac_mask: u64,
    stop: RefCell<StopState>,
}

/// Whether the process is still stopped.
#[derive(Debug)]
enum StopState {
    Active {
        tracer: Arc<Tracer>,
        since: Instant,
    },
    Finished {
        stopped: Duration,
        was_released: bool,
    },
}

/// The tracing thread's report about the threads that it stopped.
#[derive(Debug)]
struct StoppedThreads {
    threads: Vec<Thread>,
    since: Instant,
    pac_mask: u64,
}

impl Process {
    /// Stops all threads of the process `pid`; a thread's ID also selects its process.
    ///
    /// # Errors
    ///
    /// There is no such process, it may not be traced, is traced by another program, or is a 32-bit
    /// one. A single thread that cannot be stopped is not an error: its registers give the reason.
    pub fn attach(pid: u32) -> Result<Process, ProcessError> {
        Process::attach_with(pid, &AttachOptions::default())
    }

    /// Like [`Process::attach`].
    ///
    /// # Errors
    ///
    /// Those of [`Process::attach`].
    pub fn attach_with(pid: u32, options: &AttachOptions) -> Result<Process, ProcessError> {
        let pid = process_of(pid)?;
        let before = ProcFiles::read(living_thread(pid))?;
        let tracer = Arc::new(Tracer::start()?);
        let (timeout, max_stop) = (options.stop_timeout, options.max_stop);
        let tracees = Tracees::new(pid, timeout).with_max_stop(max_stop);
        tracer.run(move |state| *state = Some(tracees))?;
        Process::stop(pid, before, tracer)
    }

    /// Stops the threads of `tracer` and collects their state. On failure they resume with the
    /// signals that were held: the tracer ends.
    fn stop(pid: i32, before: ProcFiles, tracer: Arc<Tracer>) -> Result<Process, ProcessError> {
        let arch = Arch::HOST;
        let mut stopped = tracer.run(move |state| match state {
            Some(tracees) => stop_on_tracer(tracees, arch),
            None => Err(ProcessError::NoSuchProcess {
                pid: pid.unsigned_abs(),
            }),
        })??;
        refuse_32_bit(pid, &stopped.threads)?;
        let reader = reader(pid, &stopped.threads);
        let around = before.refreshed(reader)?;
        let mappings = Arc::new(around.mappings);
        let memory = ProcessMemory::new(
            reader,
            Arc::clone(&mappings),
            stack_pointers(&stopped.threads, arch),
            &tracer,
            stopped
                .threads
                .iter()
                .any(|thread| thread.registers.is_ok())
                .then_some(reader),
        );
        if let Some(layout) = registers::layout(arch) {
            layout.find_syscalls(&mut stopped.threads, &memory);
        }
        let assigned = mappings.with_copied_text(&memory);
        let mappings = assigned.map_or(mappings, Arc::new);
        Ok(Process {
            pid,
            reader,
            abi: Abi {
                arch,
                endian: Endian::Little,
            },
            threads: stopped.threads,
            mappings,
            auxv: around.auxv,
            executable: around.executable,
            memory,
            current_memory: RunningMemory(reader.unsigned_abs()),
            signal: None,
            pac_mask: stopped.pac_mask,
            stop: RefCell::new(StopState::Active {
                tracer,
                since: stopped.since,
            }),
        })
    }

    /// Moves the thread that `signal` is for to the front.
    fn with_signal(mut self, signal: Signal) -> Process {
        self.threads.sort_by_key(|thread| thread.tid != signal.tid);
        self.signal = Some(signal);
        self
    }

    /// The process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// The executable's path as the process sees it, if known.
    #[must_use]
    pub fn executable(&self) -> Option<&Path> {
        self.executable.as_deref()
    }

    /// The memory, which stays usable after [`Process::resume`]: then it still has everything read
    /// before, and can read memory that the process cannot write to.
    #[must_use]
    pub fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Reads up to `bytes` of each thread's stack, and as much from each address of `others`
    /// upwards, in as few system calls as possible. So the process can resume before it is unwound.
    /// The others may be stacks found by an earlier walk that do not belong to a thread.
    ///
    /// Returns the number of bytes read. The limit for all stacks together is 512 MiB; what small
    /// stacks leave is available to large ones. The result of an earlier call is discarded.
    pub fn prefetch_stacks(&self, bytes: u64, others: &[RuntimeAddr]) -> usize {
        self.memory.prefetch(bytes, others)
    }

    /// How long the process is or was stopped: from the first request to stop until the last thread
    /// resumed.
    #[must_use]
    pub fn stopped(&self) -> Duration {
        match &*self.stop.borrow() {
            StopState::Active { tracer, since } => tracer
                .stopped_until_release()
                .unwrap_or_else(|| since.elapsed()),
            StopState::Finished { stopped, .. } => *stopped,
        }
    }

    /// Whether the process resumed by itself after [`AttachOptions::max_stop`].
    #[must_use]
    pub fn was_released(&self) -> bool {
        match &*self.stop.borrow() {
            StopState::Active { tracer, .. } => tracer.has_released(),
            StopState::Finished { was_released, .. } => *was_released,
        }
    }

    /// Resumes all threads. Registers, mappings and the memory read so far are kept. Returns how
    /// long the process was stopped.
    pub fn resume(&self) -> Duration {
        let mut stop = self.stop.borrow_mut();
        if let StopState::Active { tracer, since } = &*stop {
            let released = tracer.run(|state| state.take().map(|mut tracees| tracees.release()));
            let released = released.ok().flatten();
            let stopped = released.or_else(|| tracer.stopped_until_release());
            let was_released = tracer.has_released();
            // The tracing thread ends here, and releases everything that it still holds.
            *stop = StopState::Finished {
                stopped: stopped.unwrap_or_else(|| since.elapsed()),
                was_released,
            };
        }
        drop(stop);
        self.stopped()
    }

    /// A thread that has not ended: the first one may have.
    pub(crate) fn reader(&self) -> u32 {
        self.reader.unsigned_abs()
    }

    /// Opens the file behind a mapping, and tells whether it still is the mapped one.
    ///
    /// # Errors
    ///
    /// The mapping has no file, or no [`FileRoute`](crate::FileRoute) leads to one; the error is
    /// that of the path.
    pub fn open_mapped_file(&self, mapping: &Mapping) -> io::Result<MappedFile> {
        mapped_file::open(self.reader, mapping)
    }
}

impl Snapshot for Process {
    fn abi(&self) -> Abi {
        self.abi
    }

    fn threads(&self) -> &[Thread] {
        &self.threads
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    fn auxv(&self) -> &AuxVector {
        &self.auxv
    }

    fn memory(&self) -> &dyn Memory {
        &self.memory
    }

    fn current_memory(&self) -> &dyn Memory {
        &self.current_memory
    }

    fn signal(&self) -> Option<&Signal> {
        self.signal.as_ref()
    }

    fn pac_mask(&self) -> u64 {
        self.pac_mask
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.resume();
    }
}

impl ProcessError {
    /// Finds the reason for a failed ptrace request.
    pub(crate) fn from_ptrace(
        pid: i32,
        tid: i32,
        request: &'static str,
        source: io::Error,
    ) -> ProcessError {
        let (id, thread) = (pid.unsigned_abs(), tid.unsigned_abs());
        match source.raw_os_error() {
            Some(libc::ESRCH) => ProcessError::NoSuchProcess { pid: id },
            Some(libc::EPERM | libc::EACCES) => Self::from_seize_refusal(pid, tid),
            _ => ProcessError::Ptrace {
                request,
                tid: thread,
                source,
            },
        }
    }

    /// A thread that has a tracer cannot be attached to, by any user.
    fn from_seize_refusal(pid: i32, tid: i32) -> ProcessError {
        match procfs::TaskStatus::read(pid, tid) {
            Ok(status) if status.tracer != 0 => ProcessError::AlreadyTraced {
                pid: pid.unsigned_abs(),
                tid: tid.unsigned_abs(),
                tracer: status.tracer.unsigned_abs(),
                name: procfs::name(status.tracer, status.tracer).unwrap_or_else(|| "?".into()),
            },
            _ => Self::from_refusal(pid, tid),
        }
    }
}

/// The process of a process or thread ID; not this one.
fn process_of(id: u32) -> Result<i32, ProcessError> {
    let gone = ProcessError::NoSuchProcess { pid: id };
    let Some(tid) = i32::try_from(id).ok().filter(|tid| *tid > 0) else {
        return Err(gone);
    };
    let Ok(status) = procfs::TaskStatus::read(tid, tid) else {
        return Err(gone);
    };
    let pid = status.tgid;
    if pid.unsigned_abs() == std::process::id() {
        return Err(ProcessError::Own { pid: id });
    }
    // A first thread that has ended may have left others.
    if status.has_ended() && pid == tid && procfs::tasks(pid).is_ok_and(|tasks| tasks.len() < 2) {
        return Err(ProcessError::Zombie { pid: id });
    }
    if status.kernel_thread && !status.has_ended() {
        return Err(ProcessError::KernelThread { pid: id });
    }
    Ok(pid)
}

fn stop_on_tracer(tracees: &mut Tracees, arch: Arch) -> Result<StoppedThreads, ProcessError> {
    let layout = registers::layout(arch).ok_or(ProcessError::Architecture)?;
    let since = tracees.stop()?;
    Ok(StoppedThreads {
        threads: tracees.threads(layout),
        since,
        pac_mask: if layout.has_pac_mask {
            tracees.pac_mask()
        } else {
            0
        },
    })
}

/// A process that started as a 64-bit one counts as 32-bit if any of its threads is: the kernel
/// then returns the shorter register block.
fn refuse_32_bit(pid: i32, threads: &[Thread]) -> Result<(), ProcessError> {
    let shorter = |thread: &Thread| matches!(thread.registers, Err(NoRegisters::Size { found, expected }) if found < expected);
    if threads.iter().any(shorter) {
        return Err(ProcessError::ThirtyTwoBit {
            pid: pid.unsigned_abs(),
        });
    }
    Ok(())
}

fn stack_pointers(threads: &[Thread], arch: Arch) -> Vec<u64> {
    let register: Register = arch.spec().stack_pointer;
    let known = threads
        .iter()
        .filter_map(|thread| thread.registers.as_ref().ok());
    known
        .filter_map(|registers| registers.get(register))
        .collect()
}

/// The thread for reading memory and files of `/proc`: the first thread, unless it has ended before
/// the others. The kernel then reports that the process has no memory.
fn reader(pid: i32, threads: &[Thread]) -> i32 {
    let held = |thread: &&Thread| thread.registers.is_ok();
    let first = threads
        .iter()
        .find(|thread| thread.tid == pid.unsigned_abs())
        .filter(held);
    let held = first.or_else(|| threads.iter().find(held));
    held.map_or(pid, |thread| thread.tid.cast_signed())
}

/// The same before the threads are known.
fn living_thread(pid: i32) -> i32 {
    let lives =
        |tid: &i32| procfs::TaskStatus::read(pid, *tid).is_ok_and(|status| !status.has_ended());
    let tasks = || procfs::tasks(pid).unwrap_or_default();
    if lives(&pid) {
        pid
    } else {
        tasks().into_iter().find(lives).unwrap_or(pid)
    }
}
