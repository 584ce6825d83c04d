//! The tracer: hands the stops of a command's threads on, and follows its processes.
//!
//! | module | owns | does |
//! |---|---|---|
//! | `threads` | threads, and the memory of processes | resumes a stopped thread |
//! | `modules` | modules and functions in scope, what was visited | finds them; compares rows |
//! | `frames` | (a thread's shadow stack) | follows an instruction's effect on frames |
//! | `stepper` | counts, the halt address | decides whether a thread steps on or runs |
//! | `faults` | faults, pending and certain | decides when a frame has ended |

use std::collections::BTreeSet;
use std::io;

use libc::c_int;

use crate::stepper::Stepper;
use crate::sys::{self, WaitStatus};
use crate::threads::TracedThreads;
use crate::traced_memory::BreakpointReason;
use crate::{SingleStepError, StepRequest, remote};

/// Traces a command.
///
/// Several can be traced one after another.
pub(crate) struct Tracer<'r> {
    pub(crate) threads: TracedThreads,
    pub(crate) stepper: Stepper<'r>,
    root: i32,
    pub(crate) root_status: Option<i32>,
}

impl<'r> Tracer<'r> {
    pub(crate) fn new(request: &'r StepRequest) -> Result<Tracer<'r>, SingleStepError> {
        Ok(Tracer {
            threads: TracedThreads::default(),
            stepper: Stepper::new(request)?,
            root: 0,
            root_status: None,
        })
    }

    /// The traced processes.
    pub(crate) fn processes(&self) -> BTreeSet<i32> {
        self.threads.processes()
    }

    /// Attaches to a command at its execution, and keeps it waiting. Returns whether there is one.
    pub(crate) fn begin(&mut self, root: i32) -> io::Result<bool> {
        self.root = root;
        self.root_status = None;
        if let (_, WaitStatus::Gone { raw }) = sys::wait()? {
            self.root_status = Some(raw);
            return Ok(false);
        }
        sys::follow(root)?;
        self.on_exec(root)?;
        Ok(true)
    }

    /// Resumes a waiting command.
    pub(crate) fn release(&mut self, root: i32) -> io::Result<()> {
        self.threads.get(root)?.go_on(0)
    }

    /// Handles one stop or end. A thread that was killed meanwhile is no longer traced: its end is
    /// reported next.
    pub(crate) fn handle(&mut self, tid: i32, status: WaitStatus) -> io::Result<()> {
        let done = match status {
            WaitStatus::Gone { raw } => {
                self.on_exit(tid, raw);
                Ok(())
            }
            WaitStatus::Stopped { signal, event } => self.on_stop(tid, signal, event),
        };
        let is_gone = || sys::registers(tid).is_err();
        match done {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) || is_gone() => Ok(()),
            done => done,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.threads.is_empty()
    }

    /// Sets the address where threads halt, in place of the previous one.
    pub(crate) fn halt_at(&mut self, tid: i32, at: u64) -> io::Result<()> {
        let tracee = self.threads.get(tid)?;
        tracee.memory.stop_at(at, BreakpointReason::Resume);
        self.stepper.halt = Some(at);
        self.stepper.halted = None;
        Ok(())
    }

    fn on_exit(&mut self, tid: i32, raw: i32) {
        if tid == self.root {
            self.root_status = Some(raw);
        }
        self.stepper.faults.record(self.threads.end_thread(tid));
    }

    fn on_stop(&mut self, tid: i32, signal: c_int, event: c_int) -> io::Result<()> {
        if !self.threads.is_announced(tid) {
            return Ok(());
        }
        match event {
            libc::PTRACE_EVENT_EXEC => {
                // The system call ends first.
                remote::step(tid)?;
                self.on_exec(tid)?;
            }
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                let child = sys::message(tid)?;
                if self.threads.begin_child(tid, child, event)? {
                    self.on_stop(child, libc::SIGSTOP, 0)?;
                }
            }
            0 => return self.stepper.on_signal(self.threads.get(tid)?, signal),
            _ => {}
        }
        self.threads.get(tid)?.go_on(0)
    }

    /// Another program runs in a process. The kernel has given its thread the process's ID.
    fn on_exec(&mut self, process: i32) -> io::Result<()> {
        self.stepper
            .faults
            .record(self.threads.end_process(process));
        self.threads.begin_process(process)?;
        let tracee = self.threads.get(process)?;
        self.stepper.modules.find(process, tracee.memory)
    }
}
