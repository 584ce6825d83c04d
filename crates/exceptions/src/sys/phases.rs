//! The phases of an unwind.

use unspool_unwind::call_with_caller_registers;
use unspool_unwind::local::StackTrust;
use unspool_unwind::local::caller_registers::CallerRegisters;

use crate::abi::{
    Actions, CLEANUP_PHASE, CONTINUE_UNWIND, END_OF_STACK, Exception, FATAL_PHASE1_ERROR,
    FATAL_PHASE2_ERROR, FORCE_UNWIND, FOREIGN_EXCEPTION_CAUGHT, HANDLER_FOUND, HANDLER_FRAME,
    INSTALL_CONTEXT, NO_REASON, Personality, ReasonCode, SEARCH_PHASE, StopFunction,
    TO_END_OF_STACK, UnwWord, VERSION,
};
use crate::cache::FrameRule;
use crate::context::UnwindContext;
use crate::facts::FrameAction;
use crate::sys::entry::land;
use crate::sys::personalities;
#[cfg(feature = "panics")]
use crate::sys::statistics;
use crate::walk::{LandingFrame, LandingWalk, WalkPosition};

/// `_Unwind_RaiseException`.
///
/// # Safety
///
/// `exception` is valid.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_RaiseException"))]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn raise_exception(exception: *mut Exception) -> ReasonCode {
    call_with_caller_registers!("rsi", raise)
}

/// `_Unwind_Resume`: called by a landing pad.
///
/// # Safety
///
/// `exception` is valid and being unwound.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_Resume"))]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn resume(exception: *mut Exception) -> ! {
    call_with_caller_registers!("rsi", resume_phase2)
}

/// `_Unwind_Resume_or_Rethrow`.
///
/// # Safety
///
/// `exception` is valid.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_Resume_or_Rethrow"))]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn resume_or_rethrow(exception: *mut Exception) -> ReasonCode {
    call_with_caller_registers!("rsi", raise_again)
}

/// `_Unwind_ForcedUnwind`.
///
/// # Safety
///
/// `exception` is valid, and `stop` takes `argument`.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_ForcedUnwind"))]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn forced_unwind(
    exception: *mut Exception,
    stop: StopFunction,
    argument: UnwWord,
) -> ReasonCode {
    call_with_caller_registers!("rcx", run_forced_unwind)
}

/// `_Unwind_DeleteException`.
///
/// # Safety
///
/// `exception` is valid, and not used again.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_DeleteException"))]
pub unsafe extern "C-unwind" fn delete_exception(exception: *mut Exception) {
    // SAFETY: the caller's promise.
    if let Some(cleanup) = unsafe { (*exception).cleanup } {
        // SAFETY: as above.
        unsafe { cleanup(FOREIGN_EXCEPTION_CAUGHT, exception) };
    }
}

/// An unwind of an exception, at one frame.
struct Unwind {
    walk: LandingWalk,
    exception: *mut Exception,
}

impl Unwind {
    /// Starts at a captured frame. The stack is trusted, as returning functions trust it: whether
    /// it is readable is not asked.
    ///
    /// # Safety
    ///
    /// The functions of all frames of this stack have not returned; `frame` is the caller's.
    /// `exception` is valid.
    unsafe fn new(exception: *mut Exception, frame: &CallerRegisters) -> Unwind {
        // SAFETY: the caller's promise.
        let trust = unsafe { StackTrust::new() };
        Unwind {
            walk: LandingWalk::trusting(LandingFrame::from(frame), trust),
            exception,
        }
    }

    /// The first phase. Ends at the handling frame with [`HANDLER_FOUND`]. `first` becomes the first
    /// frame at which the second phase has something to do.
    ///
    /// # Safety
    ///
    /// As [`raise_exception`].
    unsafe fn search(&mut self, first: &mut Option<WalkPosition>) -> ReasonCode {
        loop {
            let rule = match self.walk.skip_passed() {
                Ok(Some(rule)) => rule,
                Ok(None) => return END_OF_STACK,
                Err(_) => return FATAL_PHASE1_ERROR,
            };
            first.get_or_insert_with(|| self.walk.position());
            if rule.action() == FrameAction::Personality {
                // SAFETY: the caller's promise.
                match unsafe { self.call_personality_apart(rule, SEARCH_PHASE) } {
                    CONTINUE_UNWIND => {}
                    HANDLER_FOUND => return HANDLER_FOUND,
                    _ => return FATAL_PHASE1_ERROR,
                }
            }
            if self.walk.step(rule).is_err() {
                return FATAL_PHASE1_ERROR;
            }
        }
    }

    /// The second phase. Returns only on failure.
    ///
    /// # Safety
    ///
    /// As [`raise_exception`].
    unsafe fn clean_up(&mut self) -> ReasonCode {
        // SAFETY: the caller's promise.
        let handling = unsafe { (*self.exception).private_2 };
        loop {
            let Ok(Some(rule)) = self.walk.skip_passed() else {
                return FATAL_PHASE2_ERROR;
            };
            match rule.action() {
                FrameAction::Continue => {}
                // SAFETY: the frame's call site has this landing pad.
                FrameAction::CleanUp(pad) => unsafe { self.clean_up_at(rule, pad) },
                FrameAction::Personality => {
                    let is_handler = self.walk.frame.identity() == handling;
                    let action = if is_handler {
                        CLEANUP_PHASE | HANDLER_FRAME
                    } else {
                        CLEANUP_PHASE
                    };
                    // SAFETY: the caller's promise.
                    match unsafe { self.call_personality(rule, action) } {
                        // If the handling frame's language declines now, no frame handles the
                        // exception.
                        CONTINUE_UNWIND if !is_handler => {}
                        _ => return FATAL_PHASE2_ERROR,
                    }
                }
            }
            if self.walk.step(rule).is_err() {
                return FATAL_PHASE2_ERROR;
            }
        }
    }

    /// The only phase of a forced unwind; `stop` decides where it ends. Returns only on failure.
    ///
    /// # Safety
    ///
    /// As [`forced_unwind`].
    unsafe fn clean_up_until(&mut self, stop: StopFunction) -> ReasonCode {
        let exception = self.exception;
        // SAFETY: the caller's promise.
        let &Exception {
            class,
            private_2: argument,
            ..
        } = unsafe { &*exception };
        let mut action = FORCE_UNWIND | CLEANUP_PHASE;
        loop {
            let Ok(rule) = self.walk.rule() else {
                return FATAL_PHASE2_ERROR;
            };
            if rule.is_none() {
                action |= TO_END_OF_STACK;
            }
            let procedure = rule.map_or_else(Default::default, |rule| self.walk.procedure(rule));
            let mut context = UnwindContext::new(&self.walk.frame, &procedure);
            self.walk.complete(&mut context);
            // SAFETY: the caller's promise.
            let reason = unsafe { stop(VERSION, action, class, exception, &mut context, argument) };
            let Some(rule) = rule.filter(|_| reason == NO_REASON) else {
                return if reason == NO_REASON {
                    END_OF_STACK
                } else {
                    FATAL_PHASE2_ERROR
                };
            };
            match rule.action() {
                FrameAction::Continue => {}
                // SAFETY: the frame's call site has this landing pad.
                FrameAction::CleanUp(pad) => unsafe { self.clean_up_at(rule, pad) },
                FrameAction::Personality => {
                    // SAFETY: the caller's promise.
                    match unsafe { self.call_personality_apart(rule, action) } {
                        CONTINUE_UNWIND => {}
                        _ => return FATAL_PHASE2_ERROR,
                    }
                }
            }
            if self.walk.step(rule).is_err() {
                return FATAL_PHASE2_ERROR;
            }
        }
    }

    /// Calls the frame's personality routine. If that has set the context in the second phase,
    /// continues in the frame as it is set.
    ///
    /// # Safety
    ///
    /// As [`raise_exception`].
    #[inline(always)]
    unsafe fn call_personality(&mut self, rule: FrameRule, action: Actions) -> ReasonCode {
        let procedure = self.walk.procedure(rule);
        let address = usize::try_from(personalities::routine(procedure.personality)).unwrap_or(0);
        // SAFETY: null, or a function of this type, as unwind tables name it.
        let personality = unsafe { core::mem::transmute::<usize, Option<Personality>>(address) };
        let Some(personality) = personality else {
            return CONTINUE_UNWIND;
        };
        let mut context = UnwindContext::new(&self.walk.frame, &procedure);
        self.walk.complete(&mut context);
        // SAFETY: the caller's promise.
        let class = unsafe { (*self.exception).class };
        // SAFETY: the frame's language is responsible for its personality routine.
        let reason = unsafe { personality(VERSION, action, class, self.exception, &mut context) };
        if reason == INSTALL_CONTEXT && action & CLEANUP_PHASE != 0 {
            #[cfg(feature = "panics")]
            if action & HANDLER_FRAME != 0 {
                statistics::land(self.exception);
            }
            self.walk.pop_arguments(rule);
            context.install(&mut self.walk.frame);
            let [first, second, ..] = context.registers;
            // SAFETY: the personality routine has set the context to a landing pad.
            unsafe { land(&self.walk.frame.registers, first, second) }
        }
        reason
    }

    /// The same where facts are learned: the context takes no stack meanwhile.
    ///
    /// # Safety
    ///
    /// As [`raise_exception`].
    #[inline(never)]
    unsafe fn call_personality_apart(&mut self, rule: FrameRule, action: Actions) -> ReasonCode {
        // SAFETY: the caller's promise.
        unsafe { self.call_personality(rule, action) }
    }

    /// Continues in the frame at a landing pad that cleans up, as the personality routines of
    /// [`crate::call_site`] would.
    ///
    /// # Safety
    ///
    /// It is the landing pad of the frame's call site.
    unsafe fn clean_up_at(&mut self, rule: FrameRule, pad: u64) -> ! {
        self.walk.pop_arguments(rule);
        self.walk.frame.registers.code = pad;
        let exception = self.exception.expose_provenance() as u64;
        // SAFETY: the caller's promise.
        unsafe { land(&self.walk.frame.registers, exception, 0) }
    }
}

unsafe extern "C-unwind" fn raise(
    exception: *mut Exception,
    frame: &CallerRegisters,
) -> ReasonCode {
    #[cfg(feature = "panics")]
    let start = statistics::start();
    // SAFETY: the conditions of `raise_exception`: the frame is its caller's.
    let mut unwind = unsafe { Unwind::new(exception, frame) };
    let mut first = None;
    // SAFETY: as above.
    match unsafe { unwind.search(&mut first) } {
        HANDLER_FOUND => {}
        reason => return reason,
    }
    // SAFETY: as above.
    let fields = unsafe { &mut *exception };
    fields.stop = None;
    let handling = unwind.walk.frame.identity();
    fields.private_2 = handling;
    #[cfg(feature = "panics")]
    if let Some(start) = start {
        // SAFETY: as above.
        unsafe { statistics::count(start, exception, frame, handling) };
    }
    // The frames before have nothing to do. No code ran since then except personality routines.
    if let Some(first) = &first {
        unwind.walk.return_to(first);
    }
    // SAFETY: as above.
    unsafe { unwind.clean_up() }
}

unsafe extern "C-unwind" fn run_forced_unwind(
    exception: *mut Exception,
    stop: StopFunction,
    argument: UnwWord,
    frame: &CallerRegisters,
) -> ReasonCode {
    // SAFETY: the conditions of `forced_unwind`.
    let fields = unsafe { &mut *exception };
    fields.stop = Some(stop);
    fields.private_2 = argument;
    // SAFETY: as above: the frame is the caller's.
    let mut unwind = unsafe { Unwind::new(exception, frame) };
    // SAFETY: as above.
    unsafe { unwind.clean_up_until(stop) }
}

unsafe extern "C-unwind" fn resume_phase2(exception: *mut Exception, frame: &CallerRegisters) -> ! {
    // SAFETY: the conditions of `resume`: the frame is its caller's.
    let mut unwind = unsafe { Unwind::new(exception, frame) };
    // SAFETY: as above.
    match unsafe { (*exception).stop } {
        // SAFETY: as above.
        Some(stop) => unsafe { unwind.clean_up_until(stop) },
        // SAFETY: as above.
        None => unsafe { unwind.clean_up() },
    };
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

unsafe extern "C-unwind" fn raise_again(
    exception: *mut Exception,
    frame: &CallerRegisters,
) -> ReasonCode {
    // SAFETY: the conditions of `resume_or_rethrow`.
    let Some(stop) = (unsafe { (*exception).stop }) else {
        // SAFETY: as above.
        return unsafe { raise(exception, frame) };
    };
    // SAFETY: as above: the frame is the caller's.
    let mut unwind = unsafe { Unwind::new(exception, frame) };
    // SAFETY: as above.
    unsafe { unwind.clean_up_until(stop) }
}
