//! Running a command at full speed until a signal is about to kill it.
//!
//! The command is traced by `PTRACE_SEIZE`, which costs nothing until it gets a signal, starts a
//! thread, or calls exec. Its child processes are not followed. Signals are passed on as they
//! arrive. Tracing has one effect that a program can notice: executing a set-user-ID program does
//! not change the user.
//!
//! Job control stops and continues the command, with two differences. A process that waits for this
//! program does not see that the command stopped itself. And Ctrl-Z at the terminal stops this
//! program at once: the command's handler for `SIGTSTP`, if any, runs only when the shell continues
//! both.

use std::collections::BTreeSet;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Weak};
use std::thread;

use super::tracees::{self, Tracees};
use super::tracer::{Tracer, TracerState};
use super::{Process, STOP_TIMEOUT, sys};
use crate::surroundings::ProcFiles;
use crate::{ProcessError, Signal, procfs, signal};

/// A command that runs until it exits or is about to be killed by a signal.
///
/// When the value is dropped, the command continues without a tracer. The same holds when this
/// program ends, in any way (`PTRACE_O_EXITKILL` is not set); a held signal is then delivered.
#[derive(Debug)]
pub struct TracedCommand {
    pid: i32,
    state: CommandState,
}

#[derive(Debug)]
enum CommandState {
    /// It runs under the tracing thread.
    Traced(Arc<Tracer>),
    /// It was handed out with its fatal signal; the tracing thread ends when that is dropped. The
    /// thread has ended already if the command could not be inspected, or was killed before it was
    /// traced.
    Dying(Weak<Tracer>),
    /// It has ended.
    Ended(ExitStatus),
}

/// Why a traced command stopped running.
#[derive(Debug)]
pub enum CommandEvent {
    /// It ended: by itself, by a signal that was reported before, or by one that cannot be
    /// reported: `SIGKILL`, or a signal before the program was executed.
    Exited(ExitStatus),
    /// A signal is about to kill it; [`Snapshot::signal`](crate::Snapshot::signal) describes it.
    /// All threads are stopped until the value is dropped or resumed. Then the signal is delivered,
    /// and the next event is the end.
    Fatal(Box<Process>),
    /// A signal kills it, and it could not be inspected before: for instance, it is a 32-bit
    /// process, or prevents others from reading its memory. The signal was delivered; the next
    /// event is the end.
    Unobserved {
        /// The signal.
        signal: Signal,
        /// Why it could not be inspected.
        error: ProcessError,
    },
}

/// The event that ended a wait of the tracing thread.
enum WaitOutcome {
    Ended(ExitStatus),
    Fatal(Signal),
}

impl TracedCommand {
    /// Starts the command with the standard streams, environment and working directory of
    /// `command`.
    ///
    /// This program must not ignore `SIGCHLD`: the kernel then discards the command's exit status.
    ///
    /// # Errors
    ///
    /// The program cannot be executed, or tracing it is forbidden.
    pub fn spawn(command: Command) -> Result<TracedCommand, ProcessError> {
        let tracer = Arc::new(Tracer::start()?);
        let (pid, start) = tracer.run(move |_| spawn_seized(command))??;
        let state = match start {
            SpawnResult::Seized => CommandState::Traced(tracer),
            SpawnResult::Dead => CommandState::Dying(Weak::new()),
        };
        Ok(TracedCommand { pid, state })
    }

    /// The command's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Waits until the command ends or is about to be killed by a signal that it neither
    /// handles, ignores nor blocks.
    ///
    /// # Errors
    ///
    /// The process of an earlier [`CommandEvent::Fatal`] was not dropped yet, or something else
    /// collected its exit status.
    pub fn run_until_fatal_signal(&mut self) -> Result<CommandEvent, ProcessError> {
        match &self.state {
            CommandState::Traced(tracer) => {
                let tracer = Arc::clone(tracer);
                self.run_on(tracer)
            }
            CommandState::Dying(tracer) if tracer.strong_count() > 0 => {
                Err(ProcessError::StillHeld { pid: self.pid() })
            }
            CommandState::Dying(_) => {
                let raw = sys::collect(self.pid).map_err(|error| self.wait_failed(error))?;
                self.state = CommandState::Ended(ExitStatus::from_raw(raw));
                Ok(CommandEvent::Exited(ExitStatus::from_raw(raw)))
            }
            CommandState::Ended(status) => Ok(CommandEvent::Exited(*status)),
        }
    }

    fn run_on(&mut self, tracer: Arc<Tracer>) -> Result<CommandEvent, ProcessError> {
        let pid = self.pid;
        let outcome = tracer.run(move |state| EventLoop::new(pid).until_fatal(state))?;
        match outcome.map_err(|error| self.wait_failed(error))? {
            WaitOutcome::Ended(status) => {
                self.state = CommandState::Ended(status);
                Ok(CommandEvent::Exited(status))
            }
            WaitOutcome::Fatal(signal) => {
                self.state = CommandState::Dying(Arc::downgrade(&tracer));
                Ok(match hold(pid, tracer, signal) {
                    Ok(process) => CommandEvent::Fatal(Box::new(process)),
                    Err(error) => CommandEvent::Unobserved { signal, error },
                })
            }
        }
    }

    fn wait_failed(&self, source: io::Error) -> ProcessError {
        ProcessError::Ptrace {
            request: "waitid",
            tid: self.pid(),
            source,
        }
    }
}

/// Stops the other threads of a process with a thread that stopped before a fatal signal. The
/// process keeps the last use of `tracer`; on an error it is dropped, and all threads resume.
fn hold(pid: i32, tracer: Arc<Tracer>, signal: Signal) -> Result<Process, ProcessError> {
    let around = ProcFiles::read(signal.tid.cast_signed())?;
    Ok(Process::stop(pid, around, tracer)?.with_signal(signal))
}

/// The kernel's description of the signal that stopped the thread `tid`.
fn describe(tid: i32, signal: i32) -> Signal {
    let siginfo = sys::siginfo(tid).ok();
    let described = siginfo.and_then(|bytes| Signal::parse(tid.unsigned_abs(), &bytes));
    described.unwrap_or(Signal {
        tid: tid.unsigned_abs(),
        number: signal,
        code: 0,
        address: None,
        sender: None,
    })
}

/// The loop that forwards signals and events.
struct EventLoop {
    pid: i32,
    tids: BTreeSet<i32>,
}

impl EventLoop {
    fn new(pid: i32) -> EventLoop {
        EventLoop {
            pid,
            tids: BTreeSet::from([pid]),
        }
    }

    /// On a fatal signal, hands the threads over to the tracing thread's `state`.
    fn until_fatal(mut self, state: &mut TracerState) -> io::Result<WaitOutcome> {
        loop {
            let (tid, status) = sys::wait_any()?;
            match status {
                sys::WaitStatus::Gone { raw } if tid == self.pid => {
                    return Ok(WaitOutcome::Ended(ExitStatus::from_raw(raw)));
                }
                sys::WaitStatus::Gone { .. } => {
                    self.tids.remove(&tid);
                }
                sys::WaitStatus::Stopped { signal, event } => {
                    if self.handle_stop(tid, signal, event) {
                        let mut tracees = Tracees::new(self.pid, STOP_TIMEOUT);
                        tracees.adopt(self.tids, (tid, signal));
                        *state = Some(tracees);
                        return Ok(WaitOutcome::Fatal(describe(tid, signal)));
                    }
                }
            }
        }
    }

    /// Resumes a stopped thread; returns whether a fatal signal stopped it.
    fn handle_stop(&mut self, tid: i32, signal: i32, event: i32) -> bool {
        let passed = if !self.tids.contains(&tid) && !self.admit(tid) {
            sys::detach(tid, 0)
        } else if event == 0 && self.is_fatal(tid, signal) {
            return true;
        } else {
            if event == libc::PTRACE_EVENT_EXEC {
                // The other threads are gone, and this one has the process's ID now.
                self.tids = BTreeSet::from([self.pid]);
            }
            go_on(tid, signal, event)
        };
        if passed.is_err() {
            // It was killed while it was stopped; waiting reports that. In any case, the same stop
            // must not be found again and again.
            let _ = sys::collect_stop(tid);
        }
        false
    }

    /// A thread that the kernel attached automatically. `clone` without `SIGCHLD` can also start a
    /// process, which is released.
    fn admit(&mut self, tid: i32) -> bool {
        let ours = procfs::is_thread_of(self.pid, tid);
        if ours {
            self.tids.insert(tid);
        }
        ours
    }

    /// A thread stops before the delivery of a signal only if the signal is not blocked. It is
    /// fatal if it is neither handled nor ignored, and kills by default.
    fn is_fatal(&self, tid: i32, signal: i32) -> bool {
        signal::kills_by_default(signal)
            && procfs::TaskStatus::read(self.pid, tid)
                .is_ok_and(|status| status.takes_default_action(signal))
    }
}

/// Resumes a stopped thread after an event, or after a signal that need not be reported.
fn go_on(tid: i32, signal: i32, event: i32) -> io::Result<()> {
    match event {
        0 => sys::resume(tid, signal),
        sys::EVENT_STOP if signal::stops_by_default(signal) => sys::listen(tid),
        _ => sys::resume(tid, 0),
    }
}

/// The progress of a new child.
enum SpawnResult {
    /// It is traced and executes the program, or died meanwhile.
    Seized,
    /// A signal killed it before it was traced.
    Dead,
}

/// Starts a command and attaches to it before it executes the program.
///
/// `Command::spawn` returns only when the program is executed, and the child must wait until it is
/// traced. So a second thread starts it, and this one, the tracer, attaches.
fn spawn_seized(mut command: Command) -> Result<(i32, SpawnResult), ProcessError> {
    let program = String::from_utf8_lossy(command.get_program().as_encoded_bytes()).into_owned();
    let failed = |source| ProcessError::Spawn {
        program: program.clone(),
        source,
    };
    let (report, report_writer) = io::pipe().map_err(failed)?;
    let (release, release_writer) = io::pipe().map_err(failed)?;
    sys::hold_at(
        &mut command,
        sys::Gate {
            report: report_writer.as_raw_fd(),
            release: release.as_raw_fd(),
            release_writer: release_writer.as_raw_fd(),
        },
    );
    let spawning = thread::Builder::new()
        .name("unspool-spawner".to_string())
        .spawn(move || {
            // The child uses the descriptors of these; they must stay open until it runs.
            let _open = (report_writer, release);
            command.spawn().map(|child| child.id().cast_signed())
        })
        .map_err(|source| ProcessError::Tracer { source })?;
    let seized = seize_reported(report, release_writer);
    if let Some(Ok(pid)) = seized {
        serve_until(pid, || spawning.is_finished());
    }
    let spawned = spawning
        .join()
        .unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
    match (spawned, seized) {
        (Ok(pid), Some(Ok(_))) => Ok((pid, SpawnResult::Seized)),
        // It was neither released nor did it give up.
        (Ok(pid), _) => Ok((pid, SpawnResult::Dead)),
        // It gave up on request.
        (Err(_), Some(Err(error))) => Err(error),
        (Err(source), _) => Err(failed(source)),
    }
}

/// Waits for the child's report, attaches to it and releases it. If attaching failed, the child is
/// asked to give up. `None` means that no report arrived: the child does not exist, or ended.
fn seize_reported(
    mut report: PipeReader,
    mut release: PipeWriter,
) -> Option<Result<i32, ProcessError>> {
    let mut pid = [0; 4];
    report.read_exact(&mut pid).ok()?;
    let pid = u32::from_ne_bytes(pid).cast_signed();
    let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
    let seized = sys::seize(pid, options)
        .map_err(|error| ProcessError::from_ptrace(pid, pid, "PTRACE_SEIZE", error));
    // A child that has died meanwhile needs no answer.
    let _ = release.write_all(&[u8::from(seized.is_err())]);
    Some(seized.map(|()| pid))
}

/// Resumes the child after each signal before it executes the program: even an ignored signal stops
/// it. The thread that spawned it collects its end.
fn serve_until(pid: i32, mut spawned: impl FnMut() -> bool) {
    let mut looks = 0;
    while !spawned() {
        match sys::poll_stop(pid) {
            Ok(Some(sys::WaitStatus::Stopped { signal, event })) => {
                let _ = go_on(pid, signal, event);
                if event == libc::PTRACE_EVENT_EXEC {
                    // From now on, events belong to the program.
                    return;
                }
                looks = 0;
            }
            _ => tracees::sleep_between_polls(looks),
        }
        looks += 1;
    }
}
