//! The traced threads, the memory of their processes, and how a stopped thread is resumed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;

use libc::c_int;

use crate::displaced::DisplacedInstruction;
use crate::faults::{PendingFault, PendingFaults};
use crate::instruction::SteppedInstruction;
use crate::shadow_stack::{FunctionId, ShadowStack};
use crate::sys::{self, Regs, TrapCause};
use crate::traced_memory::TracedMemory;
use crate::x86_64::TRAP_FLAG;

/// What a thread does until its next stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ThreadMode {
    /// It runs at full speed.
    #[default]
    Running,
    /// It executes one instruction in scope.
    Stepping,
    /// It executes one instruction with a breakpoint, and then runs.
    Passing,
}

/// An instruction that a thread executes, and the registers before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepStart {
    pub(crate) regs: Regs,
    pub(crate) instruction: SteppedInstruction,
    pub(crate) function: FunctionId,
}

#[derive(Debug, Default)]
pub(crate) struct TracedThread {
    process: i32,
    space: u32,
    pub(crate) shadow: ShadowStack,
    pub(crate) mode: ThreadMode,
    pub(crate) step_start: Option<StepStart>,
    /// The signal that it was resumed with.
    pub(crate) given: c_int,
    /// The instruction that it executes displaced, or that a new thread begins behind.
    displaced: Option<DisplacedInstruction>,
    /// Number of changes of its memory when it was resumed.
    changes: u64,
    /// Number of successive instructions without anything new.
    pub(crate) idle: u32,
    pub(crate) pending: PendingFaults,
    /// It has not stopped for the first time yet.
    pub(crate) is_new: bool,
}

impl TracedThread {
    fn new(process: i32, space: u32) -> TracedThread {
        TracedThread {
            process,
            space,
            is_new: true,
            ..TracedThread::default()
        }
    }
}

/// All traced threads.
#[derive(Debug, Default)]
pub(crate) struct TracedThreads {
    threads: HashMap<i32, TracedThread>,
    spaces: HashMap<u32, TracedMemory>,
    next_space: u32,
    /// Threads that stopped before they were announced.
    early: HashSet<i32>,
}

impl TracedThreads {
    /// The traced processes.
    pub(crate) fn processes(&self) -> BTreeSet<i32> {
        self.threads.values().map(|thread| thread.process).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Whether a thread that stopped was announced. If not, the stop is kept for
    /// [`TracedThreads::begin_child`].
    pub(crate) fn is_announced(&mut self, tid: i32) -> bool {
        let is_known = self.threads.contains_key(&tid);
        if !is_known {
            self.early.insert(tid);
        }
        is_known
    }

    /// A stopped thread. A killed one is an error.
    pub(crate) fn get(&mut self, tid: i32) -> io::Result<StoppedThread<'_>> {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let thread = self.threads.get_mut(&tid).ok_or_else(gone)?;
        let memory = self.spaces.get_mut(&thread.space).ok_or_else(gone)?;
        Ok(StoppedThread {
            tid,
            thread,
            memory,
        })
    }

    /// A thread ended. Returns its pending faults.
    pub(crate) fn end_thread(&mut self, tid: i32) -> Vec<PendingFault> {
        self.early.remove(&tid);
        let ended = self.threads.remove(&tid);
        self.drop_unused();
        ended.map(|thread| thread.pending.0).unwrap_or_default()
    }

    /// Another program is executed in a process. Returns the pending faults of its threads, of which
    /// one is left.
    pub(crate) fn end_process(&mut self, process: i32) -> Vec<PendingFault> {
        let ended = self
            .threads
            .extract_if(|_, thread| thread.process == process);
        let pending = ended.flat_map(|(_, thread)| thread.pending.0).collect();
        self.drop_unused();
        pending
    }

    /// A program begins in a process.
    pub(crate) fn begin_process(&mut self, process: i32) -> io::Result<()> {
        self.next_space += 1;
        let memory = TracedMemory::open(process)?;
        self.spaces.insert(self.next_space, memory);
        let thread = TracedThread {
            is_new: false,
            ..TracedThread::new(process, self.next_space)
        };
        self.threads.insert(process, thread);
        Ok(())
    }

    fn drop_unused(&mut self) {
        let used: HashSet<u32> = self.threads.values().map(|thread| thread.space).collect();
        self.spaces.retain(|number, _| used.contains(number));
    }

    /// A thread or a process was started. Returns whether it has stopped already.
    pub(crate) fn begin_child(&mut self, tid: i32, child: i32, event: c_int) -> io::Result<bool> {
        let parent = self.get(tid)?;
        let (process, mut space) = (parent.thread.process, parent.thread.space);
        // It begins behind the same instruction.
        let displaced = parent.thread.displaced;
        let is_thread = Path::new(&format!("/proc/{process}/task/{child}")).exists();
        let shares =
            is_thread || sys::share_memory(tid, child).unwrap_or(event == libc::PTRACE_EVENT_VFORK);
        if !shares {
            let forked = parent.memory.forked(child, parent.thread.changes);
            self.next_space += 1;
            space = self.next_space;
            // A killed child does not need memory.
            if let Ok(forked) = forked {
                self.spaces.insert(space, forked);
            }
        }
        let process = if is_thread { process } else { child };
        let thread = TracedThread {
            displaced,
            ..TracedThread::new(process, space)
        };
        self.threads.insert(child, thread);
        Ok(self.early.remove(&child))
    }
}

/// A stopped thread, and its memory.
#[derive(Debug)]
pub(crate) struct StoppedThread<'t> {
    pub(crate) tid: i32,
    pub(crate) thread: &'t mut TracedThread,
    pub(crate) memory: &'t mut TracedMemory,
}

impl StoppedThread<'_> {
    /// Resumes it in its mode.
    pub(crate) fn go_on(&mut self, signal: c_int) -> io::Result<()> {
        self.thread.changes = self.memory.changes;
        match self.thread.mode {
            ThreadMode::Running => sys::go_on(self.tid, signal),
            ThreadMode::Stepping | ThreadMode::Passing => sys::step(self.tid, signal),
        }
    }

    /// Resumes it, with a signal, when it has not executed its instruction.
    pub(crate) fn interrupt(&mut self, signal: c_int) -> io::Result<()> {
        self.thread.given = signal;
        if self.thread.mode == ThreadMode::Passing {
            // It will reach the breakpoint again.
            self.thread.mode = ThreadMode::Running;
        }
        if self.thread.displaced.is_some() {
            self.set_back(&mut sys::registers(self.tid)?)?;
        }
        self.go_on(signal)
    }

    /// Makes it execute an instruction in scope.
    pub(crate) fn step_from(&mut self, start: StepStart) -> io::Result<()> {
        self.thread.step_start = Some(start);
        self.thread.mode = ThreadMode::Stepping;
        self.step(start.regs.rip)
    }

    /// Makes it run at full speed, past a breakpoint at its address.
    pub(crate) fn run_on(&mut self, regs: &Regs) -> io::Result<()> {
        let known = self.memory.breakpoint(regs.rip);
        self.thread.shadow.runs();
        self.thread.step_start = None;
        self.thread.mode = if known.is_some_and(|known| known.is_set()) {
            ThreadMode::Passing
        } else {
            ThreadMode::Running
        };
        self.step(regs.rip)
    }

    /// Makes it execute its next instruction, with or without a breakpoint there.
    fn step(&mut self, pc: u64) -> io::Result<()> {
        let displaced = self.memory.aside(self.tid, pc)?;
        if let Some(displaced) = displaced {
            sys::set_pc(self.tid, displaced.copy)?;
        }
        self.thread.displaced = displaced;
        self.thread.given = 0;
        self.go_on(0)
    }

    /// Sets it to the program's view if it executes a displaced instruction: to the original
    /// address, or its successor.
    pub(crate) fn set_back(&mut self, regs: &mut Regs) -> io::Result<Option<DisplacedInstruction>> {
        let Some(displaced) = self.thread.displaced.take() else {
            return Ok(None);
        };
        regs.rip = displaced.original_pc(regs.rip);
        sys::set_pc(self.tid, regs.rip)?;
        if displaced.is_call {
            let pushed = self.memory.memory().word(regs.rsp);
            if let Some(pushed) = pushed.filter(|pushed| displaced.is_in_copy(*pushed)) {
                self.memory
                    .set_word(regs.rsp, displaced.original_pc(pushed));
            }
        }
        Ok(Some(displaced))
    }

    /// Why it stopped when it should execute the instruction at `start`. The kernel is only asked
    /// where the cause may be another than that step.
    pub(crate) fn stop_cause(
        &self,
        regs: &Regs,
        start: u64,
        displaced: Option<DisplacedInstruction>,
    ) -> io::Result<TrapCause> {
        let is_possible = || {
            let known = self.memory.breakpoint(start);
            self.memory.changes != self.thread.changes || known.is_some_and(|it| it.is_set())
        };
        match regs.rip.wrapping_sub(start) {
            0 => sys::trap(self.tid),
            1 if displaced.is_none() && is_possible() => match sys::trap(self.tid)? {
                TrapCause::Breakpoint => Ok(TrapCause::Breakpoint),
                TrapCause::Sent | TrapCause::Step => Ok(TrapCause::Step),
            },
            _ => Ok(TrapCause::Step),
        }
    }

    /// Clears the trap flag in pushed flags: it is the tracer's.
    pub(crate) fn hide_trap_flag(&self, regs: &Regs) {
        if let Some(flags) = self.memory.memory().word(regs.rsp) {
            self.memory.set_word(regs.rsp, flags & !TRAP_FLAG);
        }
    }
}
