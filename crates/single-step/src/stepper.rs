//! Decides at each stop whether a thread steps on or runs, and compares rows on the way.

use std::io;

use libc::c_int;
use unspool_rows::RuntimeAddr;

use crate::faults::FaultLog;
use crate::instruction::InstructionKind;
use crate::modules::SteppedModules;
use crate::scope::ModuleAddress;
use crate::shadow_stack::{FunctionId, ShadowCertainty, ShadowFrame, ShadowLanding};
use crate::sys::{self, Regs, TrapCause};
use crate::threads::{StepStart, StoppedThread, ThreadMode};
use crate::traced_memory::{Breakpoint, BreakpointReason};
use crate::x86_64::{TRAP_FLAG, clear_trap_flag, is_handler};
use crate::{SingleStepError, StepRequest};

/// Number of successive instructions without anything new that are stepped before a thread runs at
/// full speed.
const MAX_IDLE_STEPS: u32 = 32;
/// Number of successive entries without anything new after which a function is retired.
const MAX_IDLE_ENTRIES: u32 = 100;

/// Signals that halt threads that should not end: from instructions, `abort`, and the time limit.
const FATAL_SIGNALS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGSYS,
    libc::SIGABRT,
    libc::SIGSTOP,
];

/// A waiting thread, and the reason.
#[derive(Debug)]
pub(crate) struct HaltedThread {
    pub(crate) tid: i32,
    /// The signal that arrived; 0 if it reached its halt address.
    pub(crate) signal: c_int,
    pub(crate) regs: Regs,
}

/// Numbers of a run.
#[derive(Debug, Default)]
pub(crate) struct StepCounts {
    pub(crate) steps: u64,
    pub(crate) checked: u64,
    /// Number of instructions in an uncertain frame.
    pub(crate) uncertain: u64,
    /// Number of function entries without a call.
    pub(crate) entries_without_call: u64,
}

/// Handles the stops of threads in and around the functions in scope.
pub(crate) struct Stepper<'r> {
    pub(crate) modules: SteppedModules<'r>,
    pub(crate) faults: FaultLog,
    pub(crate) counts: StepCounts,
    /// The address where threads are halted. If there is one, fatal signals also halt them.
    pub(crate) halt: Option<u64>,
    /// The halted thread.
    pub(crate) halted: Option<HaltedThread>,
}

impl<'r> Stepper<'r> {
    pub(crate) fn new(request: &'r StepRequest) -> Result<Stepper<'r>, SingleStepError> {
        Ok(Stepper {
            modules: SteppedModules::new(request)?,
            faults: FaultLog::default(),
            counts: StepCounts::default(),
            halt: None,
            halted: None,
        })
    }

    /// A thread stopped with a signal.
    pub(crate) fn on_signal(
        &mut self,
        mut tracee: StoppedThread<'_>,
        signal: c_int,
    ) -> io::Result<()> {
        match (signal, tracee.thread.mode) {
            (libc::SIGSTOP, _) if tracee.thread.is_new => {
                tracee.thread.is_new = false;
                tracee.interrupt(0)
            }
            (libc::SIGTRAP, ThreadMode::Stepping | ThreadMode::Passing) => self.on_step(tracee),
            (libc::SIGTRAP, ThreadMode::Running) => self.on_breakpoint(tracee),
            _ if self.halt.is_some() && FATAL_SIGNALS.contains(&signal) => {
                self.halt(tracee, signal)
            }
            _ => tracee.interrupt(signal),
        }
    }

    /// Keeps a thread waiting where it is.
    fn halt(&mut self, mut tracee: StoppedThread<'_>, signal: c_int) -> io::Result<()> {
        let tid = tracee.tid;
        let mut regs = sys::registers(tid)?;
        tracee.set_back(&mut regs)?;
        self.halted = Some(HaltedThread { tid, signal, regs });
        Ok(())
    }

    /// A thread at full speed reached a breakpoint.
    fn on_breakpoint(&mut self, mut tracee: StoppedThread<'_>) -> io::Result<()> {
        let mut regs = sys::registers(tracee.tid)?;
        match sys::trap(tracee.tid)? {
            TrapCause::Breakpoint => {}
            // It is a late report of a step.
            TrapCause::Step if regs.eflags & TRAP_FLAG == 0 => return tracee.go_on(0),
            // The signal was sent, or the program steps itself.
            TrapCause::Step | TrapCause::Sent => return tracee.go_on(libc::SIGTRAP),
        }
        let at = regs.rip.wrapping_sub(1);
        let is_ours = |known: &Breakpoint| known.is_set() || !known.is_own();
        let Some(breakpoint) = tracee.memory.breakpoint(at).filter(is_ours) else {
            return tracee.go_on(libc::SIGTRAP);
        };
        regs.rip = at;
        sys::set_pc(tracee.tid, at)?;
        if !breakpoint.is_set() {
            // It was removed while this thread stopped there, or after the process was forked.
            tracee.memory.write(at, &breakpoint);
            return tracee.run_on(&regs);
        }
        if breakpoint.is_loader {
            self.modules.find(tracee.tid, tracee.memory)?;
        }
        if self.halt == Some(at) {
            tracee.thread.shadow.landed(at, regs.rsp, None);
            return self.next(tracee, &regs);
        }
        let function = self.modules.function_at(tracee.memory, at);
        if breakpoint.is_entry
            && let Some((site, id)) = function
            && self.on_entry(&mut tracee, &regs, site, id)
        {
            return self.next(tracee, &regs);
        }
        let function = function.map(|(_, id)| id);
        let running = function.map(|id| self.modules.running(id));
        let landed = tracee.thread.shadow.landed(at, regs.rsp, running);
        match landed {
            ShadowLanding::Returned => {
                // The caller may have been visited often enough: then it runs at full speed soon.
                self.has_unvisited(&mut tracee, at);
                self.next(tracee, &regs)
            }
            ShadowLanding::Within if self.has_unvisited(&mut tracee, at) => {
                self.next(tracee, &regs)
            }
            _ => {
                if landed == ShadowLanding::Nowhere {
                    self.resolve_faults(&mut tracee, &regs);
                    self.modules.reactivate(tracee.memory, at, function);
                }
                tracee.memory.pass_at(at, BreakpointReason::Resume);
                tracee.run_on(&regs)
            }
        }
    }

    /// Whether something new may be seen from an instruction on.
    fn has_unvisited(&mut self, tracee: &mut StoppedThread<'_>, at: u64) -> bool {
        let Some((site, _)) = self.modules.function_at(tracee.memory, at) else {
            return false;
        };
        if self.modules.is_unvisited(site) {
            return true;
        }
        tracee.thread.idle = tracee.thread.idle.max(MAX_IDLE_STEPS - 2);
        self.modules.count_stop(site)
    }

    /// A thread at full speed entered a function. Returns whether it is stepped.
    fn on_entry(
        &mut self,
        tracee: &mut StoppedThread<'_>,
        regs: &Regs,
        site: ModuleAddress,
        id: FunctionId,
    ) -> bool {
        let caller = tracee.memory.memory().word(regs.rsp);
        if let Some(pc) = caller.filter(|pc| tracee.memory.follows_call(*pc)) {
            tracee.push_call(&mut self.modules, regs, pc, Some(id));
        } else if is_handler(regs, None) {
            tracee.push_signal_frame(&mut self.modules, regs, Some(id));
        } else {
            self.counts.entries_without_call += 1;
            return false;
        }
        let Some(function) = self.modules.function_mut(id) else {
            return false;
        };
        function.idle += 1;
        if function.idle > MAX_IDLE_ENTRIES {
            function.is_retired = true;
            function.was_retired = true;
            let RuntimeAddr(at) = site.bias.to_runtime(site.at);
            tracee.memory.pass_at(at, BreakpointReason::Entry);
        }
        true
    }

    /// A thread has executed one instruction.
    fn on_step(&mut self, mut tracee: StoppedThread<'_>) -> io::Result<()> {
        let mut regs = clear_trap_flag(tracee.tid)?;
        let displaced = tracee.set_back(&mut regs)?;
        let before = tracee.thread.step_start;
        let own_start = before.map(|before| before.regs.rip);
        let Some(start) = displaced.map(|displaced| displaced.at).or(own_start) else {
            return tracee.run_on(&regs);
        };
        match tracee.stop_cause(&regs, start, displaced)? {
            TrapCause::Breakpoint => {
                // It was set there, for another thread, when this one was about to step.
                regs.rip = start;
                sys::set_pc(tracee.tid, start)?;
                return self.next(tracee, &regs);
            }
            TrapCause::Sent => return tracee.interrupt(libc::SIGTRAP),
            TrapCause::Step => {}
        }
        self.counts.steps += 1;
        tracee.thread.step_start = None;
        tracee.thread.mode = ThreadMode::Running;
        let given = std::mem::take(&mut tracee.thread.given);
        if before.is_some() && given != 0 && is_handler(&regs, Some(given)) {
            let function = self.modules.function_at(tracee.memory, regs.rip);
            tracee.push_signal_frame(&mut self.modules, &regs, function.map(|(_, id)| id));
            return self.next(tracee, &regs);
        }
        let own_kind = before.map(|before| before.instruction.kind);
        match displaced.map(|displaced| displaced.kind).or(own_kind) {
            Some(InstructionKind::PushesFlags) => tracee.hide_trap_flag(&regs),
            // The program's own stop does not belong to the tracer.
            Some(InstructionKind::Breakpoint) => return tracee.go_on(libc::SIGTRAP),
            _ => {}
        }
        match before {
            Some(before) => {
                tracee.follow(&mut self.modules, &before, &regs);
                self.next(tracee, &regs)
            }
            None => tracee.go_on(0),
        }
    }

    /// Compares, and resumes the thread in the mode that fits its address.
    pub(crate) fn next(&mut self, mut tracee: StoppedThread<'_>, regs: &Regs) -> io::Result<()> {
        self.resolve_faults(&mut tracee, regs);
        if self.halt == Some(regs.rip) {
            return self.halt(tracee, 0);
        }
        let Some((site, id)) = self.modules.function_at(tracee.memory, regs.rip) else {
            tracee.leave_scope(&self.modules);
            return tracee.run_on(regs);
        };
        let running = self.modules.running(id);
        let shadow = &mut tracee.thread.shadow;
        shadow.validate(Some(running), regs.rsp);
        let certainty = shadow.certainty;
        let Some(truth) = shadow.current().copied() else {
            return tracee.run_on(regs);
        };
        if certainty == ShadowCertainty::NewStack
            && self.is_other_context(&mut tracee, regs, site, &truth)?
        {
            return tracee.run_on(regs);
        }
        let is_certain = certainty != ShadowCertainty::Uncertain;
        if is_certain && !truth.is_certainly(running) {
            // The entry of this function was not seen.
            self.modules.reactivate(tracee.memory, regs.rip, Some(id));
            return tracee.run_on(regs);
        }
        let Some((instruction, is_new)) = self.modules.visit(site, id, is_certain) else {
            return tracee.run_on(regs);
        };
        if is_new && is_certain {
            self.counts.checked += 1;
            let registers = self.modules.registers(tracee.tid, regs, site)?;
            let memory = &*tracee.memory;
            let faults = self
                .modules
                .compare(memory, site, site.at, &registers, &truth);
            tracee.thread.pending.0.extend(faults);
        }
        self.counts.uncertain += u64::from(!is_certain);
        let idle = &mut tracee.thread.idle;
        *idle = if is_new { 0 } else { *idle + 1 };
        if *idle > MAX_IDLE_STEPS {
            *idle = 0;
            if let Some(awaited) = self.modules.awaited_in(id, site) {
                for at in awaited.into_iter().chain([truth.pc]) {
                    tracee.memory.stop_at(at, BreakpointReason::Resume);
                }
            }
            return tracee.run_on(regs);
        }
        tracee.step_from(StepStart {
            regs: *regs,
            instruction,
            function: id,
        })
    }

    /// On a new stack: if the row finds a return address in code that is not the innermost frame's,
    /// this is another context with unknown frames.
    fn is_other_context(
        &mut self,
        tracee: &mut StoppedThread<'_>,
        regs: &Regs,
        site: ModuleAddress,
        truth: &ShadowFrame,
    ) -> io::Result<bool> {
        let registers = self.modules.registers(tracee.tid, regs, site)?;
        let memory = &*tracee.memory;
        let comparison = self
            .modules
            .comparison(memory, site, site.at, &registers, truth);
        let found = comparison.and_then(|comparison| comparison.return_address());
        let found = found.filter(|found| {
            *found != truth.pc && (memory.site(*found).is_some() || memory.follows_call(*found))
        });
        tracee.thread.shadow.settle(found.is_some());
        if let Some(pc) = found {
            // Earlier results of rows may be confirmed there.
            tracee.memory.stop_at(pc, BreakpointReason::Resume);
        }
        Ok(found.is_some())
    }

    /// Records the faults that the end of a thread's frames makes certain.
    fn resolve_faults(&mut self, tracee: &mut StoppedThread<'_>, regs: &Regs) {
        let thread = &mut *tracee.thread;
        self.faults
            .record(thread.pending.resolve(&thread.shadow, regs));
    }
}
