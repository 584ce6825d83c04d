//! Stopping all threads of a process and resuming them. Runs on the tracing thread.
//!
//! `PTRACE_SEIZE` attaches without stopping, `PTRACE_INTERRUPT` stops. Neither sends a signal, and
//! the kernel restarts a system call in which a thread waits. A call that the kernel cannot restart
//! returns `EINTR` as it would under a debugger: `epoll_wait`, `semop`, `sigtimedwait` and others
//! in signal(7) under "stop signals".

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::sys;
use crate::{NoRegisters, ProcessError, Thread, ThreadState, procfs, registers, signal};

/// Scans of the task list are repeated until this many in a row show no new thread: the kernel may
/// skip an entry when a thread ends between two reads of the directory.
const QUIET_SCANS: u32 = 2;

/// How often the task list is scanned before the first thread is stopped. Usually the second scan
/// shows no new thread; a program may start threads endlessly.
const SCANS_BEFORE_STOP: u32 = 3;

/// The first polls for a stopped thread follow without a pause; then pauses grow up to this.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(1);
const MAX_BUSY_POLLS: u32 = 64;

/// The threads of one process that this thread traces.
#[derive(Debug)]
pub(super) struct Tracees {
    pid: i32,
    timeout: Duration,
    /// How long they may be stopped.
    max_stop: Option<Duration>,
    list: BTreeMap<i32, Tracee>,
    stopped_at: Option<Instant>,
}

#[derive(Debug)]
struct Tracee {
    name: Option<String>,
    state: TraceeState,
}

/// The progress of stopping a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceeState {
    /// Attached to and not yet asked to stop.
    Seized,
    /// Asked to stop.
    Interrupted,
    /// Stopped; `signal` must be delivered when it resumes, unless it is 0.
    Stopped { signal: i32, by_job_control: bool },
    /// It did not stop in time.
    Stuck { state: char },
    /// Ended, but still listed: the first thread of a process that has other threads.
    Zombie,
    /// Ended.
    Gone,
}

impl Tracees {
    pub(super) fn new(pid: i32, timeout: Duration) -> Tracees {
        Tracees {
            pid,
            timeout,
            max_stop: None,
            list: BTreeMap::new(),
            stopped_at: None,
        }
    }

    /// Limits how long they are stopped.
    pub(super) fn with_max_stop(mut self, max_stop: Option<Duration>) -> Tracees {
        self.max_stop = max_stop;
        self
    }

    /// When they must be released.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stopped_at?.checked_add(self.max_stop?)
    }

    /// Takes over threads that this thread traces already; `signalled` is one of them that stopped
    /// before the delivery of a signal.
    pub(super) fn adopt(&mut self, tids: impl IntoIterator<Item = i32>, signalled: (i32, i32)) {
        let (signalled, signal) = signalled;
        for tid in tids {
            let stage = if tid == signalled {
                TraceeState::Stopped {
                    signal,
                    by_job_control: false,
                }
            } else {
                TraceeState::Seized
            };
            self.add(tid, stage);
        }
    }

    /// Attaches to every thread and stops it. Returns the time of the first request to stop.
    ///
    /// All present threads come first, so that they stop at about the same time. Threads that those
    /// started meanwhile follow. Only a running thread can start another one, so this ends when all
    /// are stopped, at the latest after the timeout.
    pub(super) fn stop(&mut self) -> Result<Instant, ProcessError> {
        for _ in 0..SCANS_BEFORE_STOP {
            if !self.seize_new()? {
                break;
            }
        }
        let since = Instant::now();
        self.stopped_at = Some(since);
        let deadline = since + self.timeout;
        let mut quiet = 0;
        while quiet < QUIET_SCANS {
            self.stop_seized(deadline);
            if Instant::now() >= deadline {
                break;
            }
            quiet = if self.seize_new()? { 0 } else { quiet + 1 };
        }
        let found = self
            .list
            .values()
            .any(|tracee| tracee.state != TraceeState::Gone);
        let pid = self.pid.unsigned_abs();
        if found {
            Ok(since)
        } else {
            Err(ProcessError::NoSuchProcess { pid })
        }
    }

    /// Attaches to new threads. Returns whether there were any.
    fn seize_new(&mut self) -> Result<bool, ProcessError> {
        let tasks = match procfs::tasks(self.pid) {
            Ok(tasks) => tasks,
            Err(error) if procfs::is_gone(&error) => Vec::new(),
            Err(source) => {
                return Err(ProcessError::Proc {
                    path: procfs::path(self.pid, "task"),
                    source,
                });
            }
        };
        let mut any = false;
        for tid in tasks {
            let known = self.list.get(&tid).map(|tracee| tracee.state);
            // A new thread may have reused the ID of one that is gone.
            if known.is_none_or(|stage| stage == TraceeState::Gone) {
                let stage = self.seize(tid)?;
                self.add(tid, stage);
                any |= known != Some(stage);
            }
        }
        Ok(any)
    }

    fn seize(&self, tid: i32) -> Result<TraceeState, ProcessError> {
        match sys::seize(tid, 0) {
            Ok(()) => Ok(TraceeState::Seized),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.explain_refusal(tid, error)
            }
            // It ended after the scan of the directory.
            Err(error) if procfs::is_gone(&error) => Ok(TraceeState::Gone),
            Err(error) => Err(ProcessError::from_ptrace(
                self.pid,
                tid,
                "PTRACE_SEIZE",
                error,
            )),
        }
    }

    /// A thread cannot be seized if it has ended, or is traced: perhaps by this very thread, to
    /// which the kernel attaches threads that a traced command starts.
    fn explain_refusal(&self, tid: i32, error: io::Error) -> Result<TraceeState, ProcessError> {
        let Ok(status) = procfs::TaskStatus::read(self.pid, tid) else {
            return Ok(TraceeState::Gone);
        };
        if status.tracer == sys::own_tid() {
            return Ok(TraceeState::Seized);
        }
        let alone = self
            .list
            .values()
            .all(|tracee| tracee.state == TraceeState::Gone);
        if status.has_ended() && !(alone && self.thread_count() == 1) {
            return Ok(if tid == self.pid {
                TraceeState::Zombie
            } else {
                TraceeState::Gone
            });
        }
        Err(ProcessError::from_ptrace(
            self.pid,
            tid,
            "PTRACE_SEIZE",
            error,
        ))
    }

    fn thread_count(&self) -> usize {
        procfs::tasks(self.pid).map_or(0, |tasks| tasks.len())
    }

    fn add(&mut self, tid: i32, state: TraceeState) {
        let name = match state {
            TraceeState::Gone => None,
            _ => procfs::name(self.pid, tid),
        };
        self.list.insert(tid, Tracee { name, state });
    }

    fn stop_seized(&mut self, deadline: Instant) {
        self.interrupt_seized();
        self.await_stops(deadline);
    }

    fn interrupt_seized(&mut self) {
        for (tid, tracee) in &mut self.list {
            if tracee.state == TraceeState::Seized {
                // It fails for a thread that has just ended; waiting detects that.
                let _ = sys::interrupt(*tid);
                tracee.state = TraceeState::Interrupted;
            }
        }
    }

    /// Waits until every interrupted thread has stopped or ended, or until `deadline`.
    fn await_stops(&mut self, deadline: Instant) {
        let mut looks = 0;
        while !self.poll_all(looks) {
            if Instant::now() >= deadline {
                self.give_up();
                return;
            }
            sleep_between_polls(looks);
            looks += 1;
        }
    }

    /// Polls every thread once; returns whether there is nothing left to wait for.
    fn poll_all(&mut self, looks: u32) -> bool {
        let mut done = true;
        for (tid, tracee) in &mut self.list {
            if tracee.state == TraceeState::Interrupted {
                tracee.state = poll(*tid).unwrap_or(TraceeState::Interrupted);
            }
            // The end of a first thread is not reported while others live.
            let look_closer = looks >= MAX_BUSY_POLLS && *tid == self.pid;
            if look_closer && tracee.state == TraceeState::Interrupted && has_ended(self.pid, *tid)
            {
                tracee.state = TraceeState::Zombie;
            }
            done &= tracee.state != TraceeState::Interrupted;
        }
        done
    }

    fn give_up(&mut self) {
        for (tid, tracee) in &mut self.list {
            if tracee.state == TraceeState::Interrupted {
                let status = procfs::TaskStatus::read(self.pid, *tid);
                tracee.state = match status {
                    Ok(status) if status.has_ended() => TraceeState::Zombie,
                    Ok(status) => TraceeState::Stuck {
                        state: status.state,
                    },
                    Err(_) => TraceeState::Gone,
                };
            }
        }
    }

    /// The threads with their registers.
    pub(super) fn threads(&self, layout: &registers::RegisterLayout) -> Vec<Thread> {
        let listed = self
            .list
            .iter()
            .filter(|(_, tracee)| tracee.state != TraceeState::Gone);
        listed
            .map(|(tid, tracee)| self.thread(*tid, tracee, layout))
            .collect()
    }

    fn thread(&self, tid: i32, tracee: &Tracee, layout: &registers::RegisterLayout) -> Thread {
        let decoded = match tracee.state {
            TraceeState::Stopped { .. } => read_registers(tid, layout),
            TraceeState::Stuck { state } => Err(NoRegisters::NotStopped {
                waited: self.timeout,
                state,
            }),
            _ => Err(NoRegisters::Exited),
        };
        Thread {
            tid: tid.unsigned_abs(),
            name: tracee.name.clone(),
            state: tracee.state.state(),
            syscall: decoded.ok().and_then(|decoded| decoded.syscall),
            registers: decoded.map(|decoded| decoded.registers),
        }
    }

    /// The bits of a code address that hold a signature, from the first thread that has them.
    pub(super) fn pac_mask(&self) -> u64 {
        let mut masks = [0_u8; 16];
        let stopped = self
            .list
            .iter()
            .find(|(_, tracee)| tracee.state.is_stopped());
        let size = stopped
            .and_then(|(tid, _)| sys::register_set(*tid, sys::NT_ARM_PAC_MASK, &mut masks).ok());
        match (size, masks.last_chunk::<8>()) {
            (Some(16), Some(code)) => u64::from_le_bytes(*code),
            _ => 0,
        }
    }

    /// Resumes all threads, delivers the signals that were held back, and returns how long the
    /// process was stopped. A second call does nothing.
    ///
    /// Threads with a signal come last: the signal may end the process, and with it threads that
    /// are still stopped.
    pub(super) fn release(&mut self) -> Duration {
        for signalled in [false, true] {
            for (tid, tracee) in &mut self.list {
                if matches!(tracee.state, TraceeState::Stopped { signal, .. } if (signal != 0) == signalled)
                {
                    tracee.release(*tid);
                }
            }
        }
        self.release_stuck();
        self.stopped_at
            .take()
            .map_or(Duration::ZERO, |start| start.elapsed())
    }

    /// A running thread cannot be detached from; one that stopped late can. The end of this thread
    /// releases the rest.
    fn release_stuck(&mut self) {
        for (tid, tracee) in &mut self.list {
            if tracee.state.may_still_stop()
                && let Some(stage @ TraceeState::Stopped { .. }) = poll(*tid)
            {
                tracee.state = stage;
                tracee.release(*tid);
            }
        }
    }
}

impl Drop for Tracees {
    fn drop(&mut self) {
        self.release();
    }
}

impl Tracee {
    fn release(&mut self, tid: i32) {
        if let TraceeState::Stopped { signal, .. } = self.state {
            if sys::detach(tid, signal).is_err() {
                // It was killed meanwhile. Its status must be collected, or the end of the process
                // would never be reported to its parent.
                let _ = sys::poll(tid);
            }
            self.state = TraceeState::Gone;
        }
    }
}

impl TraceeState {
    fn is_stopped(self) -> bool {
        matches!(self, TraceeState::Stopped { .. })
    }

    fn may_still_stop(self) -> bool {
        matches!(
            self,
            TraceeState::Stuck { .. } | TraceeState::Seized | TraceeState::Interrupted
        )
    }

    fn state(self) -> ThreadState {
        match self {
            TraceeState::Stopped {
                by_job_control: true,
                ..
            } => ThreadState::JobStopped,
            TraceeState::Stopped { signal: 0, .. } => ThreadState::Stopped,
            TraceeState::Stopped { signal, .. } => ThreadState::Signalled(signal),
            TraceeState::Stuck { state } => ThreadState::NotStopped(state),
            _ => ThreadState::Exited,
        }
    }

    /// Classifies a stop. The kernel reports an interrupt as `EVENT_STOP` with `SIGTRAP`, and a
    /// stop by job control as `EVENT_STOP` with its signal. Other events have `SIGTRAP`, and a
    /// signal before delivery has no event.
    fn from_stop(signal: i32, event: i32) -> TraceeState {
        match event {
            0 => TraceeState::Stopped {
                signal,
                by_job_control: false,
            },
            sys::EVENT_STOP if signal::stops_by_default(signal) => TraceeState::Stopped {
                signal: 0,
                by_job_control: true,
            },
            _ => TraceeState::Stopped {
                signal: 0,
                by_job_control: false,
            },
        }
    }
}

/// Polls whether a thread has stopped; `None` if it still runs.
fn poll(tid: i32) -> Option<TraceeState> {
    match sys::poll(tid) {
        Ok(None) => None,
        Ok(Some(sys::WaitStatus::Stopped { signal, event })) => {
            Some(TraceeState::from_stop(signal, event))
        }
        // On an error there is nothing left to wait for.
        Ok(Some(sys::WaitStatus::Gone { .. })) | Err(_) => Some(TraceeState::Gone),
    }
}

fn has_ended(pid: i32, tid: i32) -> bool {
    procfs::TaskStatus::read(pid, tid).is_ok_and(|status| status.has_ended())
}

/// Sleeps briefly, longer after more unsuccessful polls.
pub(super) fn sleep_between_polls(looks: u32) {
    if looks < MAX_BUSY_POLLS {
        thread::yield_now();
    } else {
        let steps = looks - MAX_BUSY_POLLS + 1;
        thread::sleep(MAX_POLL_INTERVAL.min(Duration::from_micros(20) * steps));
    }
}

fn read_registers(
    tid: i32,
    layout: &registers::RegisterLayout,
) -> Result<registers::DecodedRegisters, NoRegisters> {
    let mut block = [0_u8; 1024];
    let size = sys::register_set(tid, sys::NT_PRSTATUS, &mut block).map_err(|error| {
        NoRegisters::Refused {
            errno: error.raw_os_error().unwrap_or(0),
        }
    })?;
    let wrong_size = NoRegisters::Size {
        found: size,
        expected: layout.size,
    };
    let general = block.get(..size).ok_or(wrong_size)?;
    let mut decoded = layout.decode(general).ok_or(wrong_size)?;
    // No walk needs them: missing ones are unknown.
    if let Ok(size) = sys::register_set(tid, sys::NT_PRFPREG, &mut block) {
        let vectors = block.get(..size).unwrap_or_default();
        layout.decode_vectors(vectors, &mut decoded.registers);
    }
    Ok(decoded)
}
