//! Follows an instruction's effect on a thread's frames: calls, returns, jumps, signals.
//!
//! It changes the shadow stack, counts entries and returns of functions, and sets the breakpoints
//! at which a frame may continue unstepped.

use unspool_code_analysis::op::Flow;
use unspool_rows::{Register, Registers, Vaddr};

use crate::modules::SteppedModules;
use crate::scope::ModuleAddress;
use crate::shadow_stack::{FunctionId, ShadowCertainty, ShadowFrame};
use crate::sys::Regs;
use crate::threads::{StepStart, StoppedThread};
use crate::traced_memory::BreakpointReason;
use crate::x86_64::{self, ABI, preserved};

/// An address in scope, and the function there.
type FunctionAddress = (ModuleAddress, FunctionId);

impl StoppedThread<'_> {
    /// A frame begins: the return address is on top of the stack.
    pub(crate) fn push_call(
        &mut self,
        modules: &mut SteppedModules<'_>,
        regs: &Regs,
        pc: u64,
        id: Option<FunctionId>,
    ) {
        let frame = ShadowFrame {
            key: regs.rsp,
            sp: regs.rsp.wrapping_add(8),
            pc,
            saved: preserved(regs),
            function: id,
            is_interrupted: false,
            began: modules.reactivations(),
            has_run: false,
        };
        let shadow = &mut self.thread.shadow;
        let is_again = shadow.current().is_some_and(|current| {
            let (began, has_run) = (frame.began, frame.has_run);
            let same = ShadowFrame {
                began,
                has_run,
                ..*current
            };
            same == frame
        });
        shadow.push(frame);
        let Some(id) = id else {
            self.memory.stop_at(pc, BreakpointReason::Resume);
            return;
        };
        let Some(function) = modules.function_mut(id) else {
            return;
        };
        function.entered += u64::from(!is_again);
        let bias = regs.rip.wrapping_sub(function.start.0);
        for pad in &function.pads {
            let pad = pad.0.wrapping_add(bias);
            self.memory.stop_at(pad, BreakpointReason::Resume);
        }
    }

    /// A signal was delivered: the handler begins, with the kernel's saved registers behind its
    /// frame.
    pub(crate) fn push_signal_frame(
        &mut self,
        modules: &mut SteppedModules<'_>,
        regs: &Regs,
        id: Option<FunctionId>,
    ) {
        let memory = self.memory.memory();
        let Some((sp, pc, saved)) = x86_64::interrupted(&memory, regs) else {
            return;
        };
        let restorer = memory.word(regs.rsp).unwrap_or(0);
        let of_restorer = modules.function_at(self.memory, restorer);
        let frame = ShadowFrame {
            key: regs.rsp.wrapping_add(8),
            sp,
            pc,
            saved,
            function: of_restorer.map(|(_, id)| id),
            is_interrupted: true,
            began: modules.reactivations(),
            has_run: false,
        };
        self.thread.shadow.push(frame);
        self.push_call(modules, regs, restorer, id);
        if modules.function_at(self.memory, pc).is_some() {
            self.memory.stop_at(pc, BreakpointReason::Resume);
        }
        if let Some((site, _)) = of_restorer {
            self.check_restorer(modules, site, restorer, &frame);
        }
    }

    /// The row that an unwinder uses for an interrupted frame: that of the byte before the
    /// handler's return address. An unwinder that reaches a frame through a signal frame must look
    /// up the interrupted address, and not the byte before.
    fn check_restorer(
        &mut self,
        modules: &SteppedModules<'_>,
        site: ModuleAddress,
        restorer: u64,
        truth: &ShadowFrame,
    ) {
        let spec = ABI.arch.spec();
        let mut registers = Registers::new();
        registers.set(spec.stack_pointer, truth.key);
        registers.set(spec.pc, restorer);
        for (number, value) in spec.preserved.iter().zip(truth.saved) {
            registers.set(Register(*number), value);
        }
        let looked_up = Vaddr(site.at.0.wrapping_sub(1));
        let pending = &mut self.thread.pending.0;
        pending.extend(modules.compare(self.memory, site, looked_up, &registers, truth));
        pending.extend(modules.undeclared_signal(site, truth));
    }

    /// Updates the frames for an instruction.
    pub(crate) fn follow(
        &mut self,
        modules: &mut SteppedModules<'_>,
        start: &StepStart,
        regs: &Regs,
    ) {
        let following = start.regs.rip.wrapping_add(start.instruction.length.into());
        let function = modules.function_at(self.memory, regs.rip);
        let id = function.map(|(_, id)| id);
        let (old_sp, sp, pc) = (start.regs.rsp, regs.rsp, regs.rip);
        match start.instruction.flow {
            Some(Flow::Call(_) | Flow::IndirectCall(_)) => {
                let is_entry = function.is_none_or(|(site, _)| modules.begins_frame(site));
                // A call to the next instruction, or into the middle, pushes a word and no frame.
                if is_entry && pc != following && sp == old_sp.wrapping_sub(8) {
                    return self.push_call(modules, regs, following, id);
                }
            }
            Some(Flow::Return { .. } | Flow::Resume(_)) => {
                let ended = match self.thread.shadow.returned(old_sp, sp) {
                    None if self.has_given_up(pc) => self.thread.shadow.end(),
                    ended => ended,
                };
                match ended {
                    Some(ended) => modules.count_return(&ended, regs),
                    // A pushed target: a jump.
                    None => drop(self.on_jump(modules, start.function, function, regs)),
                }
            }
            Some(Flow::IndirectJump(_)) if self.has_given_up(pc) => {
                if let Some(ended) = self.thread.shadow.end() {
                    modules.count_return(&ended, regs);
                }
            }
            Some(Flow::Jump(_) | Flow::IndirectJump(_)) => {
                let shadow = &mut self.thread.shadow;
                let is_return = shadow
                    .current()
                    .is_some_and(|frame| frame.pc == pc && frame.key < sp);
                if is_return || id != Some(start.function) {
                    shadow.leave(sp);
                    if !is_return
                        && !self.on_jump(modules, start.function, function, regs)
                        && id.is_some()
                    {
                        self.thread.shadow.becomes(id);
                    }
                }
            }
            None | Some(Flow::Branch { .. })
                if (pc == following || start.instruction.flow.is_some())
                    && id.is_some_and(|id| id != start.function) =>
            {
                self.thread.shadow.becomes(id);
            }
            None | Some(Flow::Trap | Flow::Unknown) if pc != following && pc != start.regs.rip => {
                let shadow = &mut self.thread.shadow;
                if !shadow.resumed(pc, sp) {
                    shadow.leave(sp);
                }
            }
            _ => {}
        }
        if start.instruction.loads_stack_pointer && start.instruction.flow.is_none() {
            let shadow = &mut self.thread.shadow;
            shadow.jumped(old_sp, sp);
            if shadow.certainty == ShadowCertainty::Certain {
                shadow.becomes(id);
            }
        }
    }

    /// Control went to another function by a jump. With the stack as at a call, the frame of the
    /// previous function is passed on. With an address of that function on top of the stack, it is
    /// a call. Returns whether one of these holds.
    fn on_jump(
        &mut self,
        modules: &mut SteppedModules<'_>,
        from: FunctionId,
        to: Option<FunctionAddress>,
        regs: &Regs,
    ) -> bool {
        let shadow = &mut self.thread.shadow;
        let is_call = shadow.current().is_some_and(|frame| frame.key == regs.rsp);
        if !is_call {
            return self.push_call_by_jump(modules, from, to, regs);
        }
        let Some((site, id)) = to else {
            return false;
        };
        shadow.becomes(Some(id));
        let function = modules.function_mut(id);
        if let Some(function) = function.filter(|function| function.start == site.at) {
            function.entered += 1;
        }
        true
    }

    /// Control went to another function by a jump: if an address of the previous function is on top
    /// of the stack, or in the register that the row names, it is the return address. Returns
    /// whether that is so.
    fn push_call_by_jump(
        &mut self,
        modules: &mut SteppedModules<'_>,
        from: FunctionId,
        to: Option<FunctionAddress>,
        regs: &Regs,
    ) -> bool {
        if let Some((site, id)) = to.filter(|(_, id)| *id != from)
            && let Some(back) = modules.linked_return_address(site, regs)
            && (modules.function_at(self.memory, back)).is_some_and(|(_, own)| own == from)
        {
            // Nothing is on the stack for it.
            let entered = Regs {
                rsp: regs.rsp.wrapping_sub(8),
                ..*regs
            };
            self.push_call(modules, &entered, back, Some(id));
            return true;
        }
        if to.is_some_and(|(site, id)| id == from || !modules.has_row_of_begin(site)) {
            return false;
        }
        let Some(back) = self.memory.memory().word(regs.rsp) else {
            return false;
        };
        let function = modules.function_at(self.memory, back);
        let is_own = function.is_some_and(|(_, id)| id == from);
        if is_own {
            self.push_call(modules, regs, back, to.map(|(_, id)| id));
        }
        is_own
    }

    /// Whether control goes to the innermost frame's return address, with another word in its place
    /// on the stack: words pushed by an outlined prologue stay there.
    fn has_given_up(&self, pc: u64) -> bool {
        let current = self.thread.shadow.current();
        let frame = current.filter(|frame| frame.pc == pc && !frame.is_interrupted);
        let word = frame.and_then(|frame| self.memory.memory().word(frame.key));
        word.is_some_and(|word| word != pc)
    }

    /// Control left the scope: stepping resumes at the innermost frame's return address.
    pub(crate) fn leave_scope(&mut self, modules: &SteppedModules<'_>) {
        let shadow = &mut self.thread.shadow;
        let current = shadow.current().copied();
        if let Some(frame) = current.filter(|frame| frame.function.is_some()) {
            shadow.becomes(None);
            if modules.function_at(self.memory, frame.pc).is_some() {
                self.memory.stop_at(frame.pc, BreakpointReason::Resume);
            }
        }
    }
}
