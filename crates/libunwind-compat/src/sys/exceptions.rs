//! `_Unwind_*`: the level of exception handling that languages share (Itanium C++ ABI, "Exception
//! Handling", Level I).
//!
//! Two phases: the first asks the personality routines from the innermost frame out which frame
//! handles the exception, and changes nothing; the second goes the same way and has each frame
//! clean up, up to that one. A frame that cleans up is entered at its landing pad, and comes back
//! with `_Unwind_Resume`.
//!
//! There may be other unwinders in the process: glibc begins the unwinds of `pthread_exit` and `pthread_cancel` with
//! libgcc's, and a plugin may have a libgcc of its own. Personality routines then come to us with their contexts, and
//! landing pads with their exceptions, and the other way round. So [`UnwindContext`] and [`Exception`] are those of libgcc.

use core::ffi::{c_int, c_void};

use unspool_rows::RuntimeAddr;
use unspool_unwind::local::ReadableMemory;
use unspool_unwind::steps::PRESERVED;

use crate::abi::{self, Error, ProcInfo, UnwWord};
use crate::cursor::ClientCursor;
use crate::own_process::procedure_info;
use crate::sys::context::call_with_context;
use crate::sys::{callbacks, own};

unsafe extern "C" {
    safe fn abort() -> !;
}

/// `_Unwind_Reason_Code`.
type ReasonCode = c_int;
const NO_REASON: ReasonCode = 0;
const FOREIGN_EXCEPTION_CAUGHT: ReasonCode = 1;
const FATAL_PHASE2_ERROR: ReasonCode = 2;
const FATAL_PHASE1_ERROR: ReasonCode = 3;
const END_OF_STACK: ReasonCode = 5;
const HANDLER_FOUND: ReasonCode = 6;
const INSTALL_CONTEXT: ReasonCode = 7;
const CONTINUE_UNWIND: ReasonCode = 8;

/// `_Unwind_Action`.
type Actions = c_int;
const SEARCH_PHASE: Actions = 1;
const CLEANUP_PHASE: Actions = 2;
const HANDLER_FRAME: Actions = 4;
const FORCE_UNWIND: Actions = 8;
const TO_END_OF_STACK: Actions = 16;

const VERSION: c_int = 1;

/// `_Unwind_Exception`: what the throwing language puts before its own. Every unwinder uses the two last fields
/// alike, so that one can resume what another has raised.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Exception {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(ReasonCode, *mut Exception)>,
    /// The function that a forced unwind asks whether to stop; none for an exception.
    stop: Option<StopFunction>,
    /// The stop function's argument; for an exception, [`ExceptionWalk::identity`] of the frame that handles it.
    private_2: UnwWord,
}

type StopFunction = unsafe extern "C" fn(
    c_int,
    Actions,
    u64,
    *mut Exception,
    *mut UnwindContext,
    UnwWord,
) -> ReasonCode;

type Personality =
    unsafe extern "C" fn(c_int, Actions, u64, *mut Exception, *mut UnwindContext) -> ReasonCode;

/// `_Unwind_Context`: a frame, laid out as libgcc has it on x86-64 (`struct _Unwind_Context`, gcc's
/// libgcc/unwind-dw2.c, since gcc 4.2). `_Unwind_Get*` and `_Unwind_Set*` of this library and of any libgcc take the
/// contexts of the other: one may be linked statically into a plugin, and glibc begins the unwinds of
/// `pthread_exit` and `pthread_cancel` with its own.
#[repr(C)]
#[derive(Debug)]
pub struct UnwindContext {
    /// By DWARF's numbers: values where `is_value` says so, else their addresses. The last stands for no register.
    registers: [UnwWord; UnwindContext::REGISTERS],
    /// The stack pointer of the frame, which is the CFA of the one that it called.
    cfa: UnwWord,
    ip: UnwWord,
    lsda: UnwWord,
    text_base: UnwWord,
    data_base: UnwWord,
    procedure: UnwWord,
    flags: UnwWord,
    version: UnwWord,
    args_size: UnwWord,
    is_value: [u8; UnwindContext::REGISTERS],
}

impl UnwindContext {
    const REGISTERS: usize = 18;
    /// `SIGNAL_FRAME_BIT`: the frame was interrupted.
    const INTERRUPTED: UnwWord = 1 << 63;
    /// `EXTENDED_CONTEXT_BIT`: `is_value` is there.
    const EXTENDED: UnwWord = 1 << 62;

    /// Nothing but that registers are values.
    const EMPTY: UnwindContext = UnwindContext {
        registers: [0; UnwindContext::REGISTERS],
        cfa: 0,
        ip: 0,
        lsda: 0,
        text_base: 0,
        data_base: 0,
        procedure: 0,
        flags: UnwindContext::EXTENDED,
        version: 0,
        args_size: 0,
        is_value: [1; UnwindContext::REGISTERS],
    };

    /// Where the value of a register is; null for one that is unknown, or that there is not.
    fn register(&mut self, number: c_int) -> *mut UnwWord {
        let Ok(number) = usize::try_from(number) else {
            return core::ptr::null_mut();
        };
        let is_extended = self.flags & UnwindContext::EXTENDED != 0;
        let is_value = is_extended && self.is_value.get(number).is_some_and(|is| *is != 0);
        match self.registers.get_mut(number) {
            Some(value) if is_value => value,
            Some(addr) => {
                let addr = usize::try_from(*addr).unwrap_or(0);
                core::ptr::with_exposed_provenance_mut(addr)
            }
            None => core::ptr::null_mut(),
        }
    }
}

/// What is called for the frames of a walk.
struct ExceptionWalk {
    context: UnwindContext,
    cursor: ClientCursor<'static>,
    /// The personality routine of the frame's procedure, or 0.
    handler: UnwWord,
}

impl ExceptionWalk {
    /// From the frame whose registers are in a context of `call_with_context`.
    fn new(context: *mut c_void) -> ExceptionWalk {
        ExceptionWalk {
            context: UnwindContext::EMPTY,
            cursor: own::cursor(context, false).by_rules(),
            handler: 0,
        }
    }

    /// The same for an unwind that lands in one of the frames, which trusts the stack as the functions do that return
    /// on it: it asks nobody whether it can be read.
    ///
    /// # Safety
    ///
    /// The frames of this stack are those of functions that have not returned.
    unsafe fn to_land(context: *mut c_void) -> ExceptionWalk {
        let mut frames = ExceptionWalk::new(context);
        // SAFETY: the caller's promise; the context is in a frame below those.
        frames
            .cursor
            .add_readable(unsafe { ReadableMemory::trusted(context) });
        frames
    }

    /// Finds out what procedure the frame is of.
    fn look_up(&mut self) -> Result<(), Error> {
        let pc = self.cursor.code().lookup();
        let info = match procedure_info(pc) {
            Ok(info) => info,
            Err(Error::NO_INFO) => ProcInfo::EMPTY,
            Err(error) => return Err(error),
        };
        self.handler = info.handler;
        let shown = &mut self.context;
        (shown.lsda, shown.procedure) = (info.lsda, info.start_ip);
        shown.data_base = info.gp;
        Ok(())
    }

    /// The frame as others see it.
    fn as_context(&mut self) -> *mut UnwindContext {
        let (shown, cursor) = (&mut self.context, &self.cursor);
        shown.cfa = cursor.get(abi::RSP).unwrap_or(0);
        shown.ip = cursor.ip();
        shown.flags = match cursor.is_interrupted() {
            true => UnwindContext::EXTENDED | UnwindContext::INTERRUPTED,
            false => UnwindContext::EXTENDED,
        };
        let is_known = |number: u32| cursor.is_interrupted() || PRESERVED >> number & 1 != 0;
        for (value, number) in shown.registers.iter_mut().zip(0..) {
            let known = is_known(number)
                .then(|| c_int::try_from(number).ok())
                .flatten();
            *value = known
                .and_then(|number| cursor.get(number).ok())
                .unwrap_or(0);
        }
        for (number, value) in [(7, shown.cfa), (16, shown.ip)] {
            if let Some(register) = shown.registers.get_mut(number) {
                *register = value;
            }
        }
        shown
    }

    /// What tells the frame from all others of the walk. One that was interrupted may have called nobody and have the
    /// stack pointer of its handler's frame; libgcc tells them apart in the same way.
    fn identity(&self) -> UnwWord {
        let stack_pointer = self.cursor.get(abi::RSP).unwrap_or(0);
        stack_pointer.wrapping_sub(UnwWord::from(self.cursor.is_interrupted()))
    }

    /// Steps to the caller: `false` where there is none.
    fn step(&mut self) -> Result<bool, Error> {
        Error::check(self.cursor.step()).map(|code| code > 0)
    }

    /// Steps to the caller, as far as landing pads can be entered: `false` also where a register is lost that functions
    /// preserve, as in callers of code that has SFrame only.
    fn step_to_land(&mut self) -> Result<bool, Error> {
        let has_caller = self.step()?;
        let mut preserved = (0..16).filter(|number| PRESERVED >> number & 1 != 0);
        Ok(has_caller && preserved.all(|register| self.cursor.get(register).is_ok()))
    }

    /// Asks the frame's language, if it has one.
    ///
    /// # Safety
    ///
    /// As [`raise_exception`].
    unsafe fn call_personality(
        &mut self,
        action: Actions,
        exception: *mut Exception,
    ) -> ReasonCode {
        let handler = usize::try_from(self.handler).unwrap_or(0);
        // SAFETY: null, or a function of this type: that is what unwind tables name.
        let handler = unsafe { core::mem::transmute::<usize, Option<Personality>>(handler) };
        let Some(handler) = handler else {
            return CONTINUE_UNWIND;
        };
        // SAFETY: the caller's promise.
        let class = unsafe { (*exception).class };
        let shown = self.as_context();
        // SAFETY: the frame's language answers for its personality routine.
        unsafe { handler(VERSION, action, class, exception, shown) }
    }

    /// Continues in the frame, at the landing pad that the context names, with its two arguments.
    fn install(&mut self) -> ReasonCode {
        let [first, second, ..] = self.context.registers;
        self.cursor.land_at(self.context.ip);
        // Registers that can always be set.
        let _ = self.cursor.set(abi::RAX, first);
        let _ = self.cursor.set(abi::RDX, second);
        let entered = self.cursor.establish();
        let resumed = entered.and_then(|()| callbacks::resume(&mut self.cursor));
        // It comes back only when it fails.
        resumed.map_or(FATAL_PHASE2_ERROR, |_| FATAL_PHASE2_ERROR)
    }
}

/// `_Unwind_RaiseException`.
///
/// # Safety
///
/// `exception` is valid.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_RaiseException")
)]
#[unsafe(naked)]
pub unsafe extern "C" fn raise_exception(exception: *mut Exception) -> ReasonCode {
    call_with_context!("rsi", raise)
}

/// `_Unwind_Resume`: comes from a landing pad.
///
/// # Safety
///
/// `exception` is valid and on its way.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_Resume"))]
#[unsafe(naked)]
pub unsafe extern "C" fn resume(exception: *mut Exception) -> ! {
    call_with_context!("rsi", resume_phase2)
}

/// `_Unwind_Resume_or_Rethrow`.
///
/// # Safety
///
/// `exception` is valid.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_Resume_or_Rethrow")
)]
#[unsafe(naked)]
pub unsafe extern "C" fn resume_or_rethrow(exception: *mut Exception) -> ReasonCode {
    call_with_context!("rsi", raise_again)
}

/// `_Unwind_ForcedUnwind`.
///
/// # Safety
///
/// `exception` is valid, and `stop` takes `argument`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_ForcedUnwind")
)]
#[unsafe(naked)]
pub unsafe extern "C" fn forced_unwind(
    exception: *mut Exception,
    stop: StopFunction,
    argument: UnwWord,
) -> ReasonCode {
    call_with_context!("rcx", run_forced_unwind)
}

/// `_Unwind_Backtrace`.
///
/// # Safety
///
/// `visit` takes `argument`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_Backtrace"))]
#[unsafe(naked)]
pub unsafe extern "C" fn backtrace(visit: TraceFunction, argument: *mut c_void) -> ReasonCode {
    call_with_context!("rdx", trace)
}

/// `_Unwind_Trace_Fn`.
pub type TraceFunction = unsafe extern "C" fn(*mut UnwindContext, *mut c_void) -> ReasonCode;

unsafe extern "C" fn raise(exception: *mut Exception, context: *mut c_void) -> ReasonCode {
    // SAFETY: what `raise_exception` asks for.
    let handler = match unsafe { search(exception, context) } {
        Ok(handler) => handler,
        Err(reason) => return reason,
    };
    // SAFETY: as above.
    let exception_fields = unsafe { &mut *exception };
    exception_fields.stop = None;
    exception_fields.private_2 = handler;
    // SAFETY: as above.
    unsafe { clean_up(exception, context) }
}

/// The first phase: [`ExceptionWalk::identity`] of the frame that handles an exception.
// What it needs of the stack is not for the second phase.
#[inline(never)]
unsafe fn search(exception: *mut Exception, context: *mut c_void) -> Result<UnwWord, ReasonCode> {
    // SAFETY: what `raise_exception` asks for: the stack is the one that it was called on.
    let mut frames = unsafe { ExceptionWalk::to_land(context) };
    loop {
        frames.look_up().map_err(|_| FATAL_PHASE1_ERROR)?;
        // SAFETY: what `raise_exception` asks for.
        match unsafe { frames.call_personality(SEARCH_PHASE, exception) } {
            CONTINUE_UNWIND => {}
            HANDLER_FOUND => return Ok(frames.identity()),
            _ => return Err(FATAL_PHASE1_ERROR),
        }
        match frames.step_to_land() {
            Ok(true) => {}
            Ok(false) => return Err(END_OF_STACK),
            Err(_) => return Err(FATAL_PHASE1_ERROR),
        }
    }
}

/// The second phase. Returns only when it fails.
unsafe fn clean_up(exception: *mut Exception, context: *mut c_void) -> ReasonCode {
    // SAFETY: what `raise_exception` asks for.
    let handler = unsafe { (*exception).private_2 };
    // SAFETY: as above: it goes through frames that have not returned.
    let mut frames = unsafe { ExceptionWalk::to_land(context) };
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE2_ERROR;
        }
        let is_handler = frames.identity() == handler;
        let action = match is_handler {
            true => CLEANUP_PHASE | HANDLER_FRAME,
            false => CLEANUP_PHASE,
        };
        // SAFETY: what `raise_exception` asks for.
        match unsafe { frames.call_personality(action, exception) } {
            INSTALL_CONTEXT => return frames.install(),
            // A language that changes its mind leaves nobody to handle the exception.
            CONTINUE_UNWIND if !is_handler => {}
            _ => return FATAL_PHASE2_ERROR,
        }
        if !matches!(frames.step_to_land(), Ok(true)) {
            return FATAL_PHASE2_ERROR;
        }
    }
}

unsafe extern "C" fn run_forced_unwind(
    exception: *mut Exception,
    stop: StopFunction,
    argument: UnwWord,
    context: *mut c_void,
) -> ReasonCode {
    // SAFETY: what `forced_unwind` asks for.
    let fields = unsafe { &mut *exception };
    fields.stop = Some(stop);
    fields.private_2 = argument;
    // SAFETY: as above.
    unsafe { clean_up_until(stop, exception, context) }
}

/// The only phase of a forced unwind, which ends where `stop` says so. Returns only when it fails.
unsafe fn clean_up_until(
    stop: StopFunction,
    exception: *mut Exception,
    context: *mut c_void,
) -> ReasonCode {
    // SAFETY: what `forced_unwind` asks for.
    let Exception {
        class,
        private_2: beside,
        ..
    } = *unsafe { &*exception };
    // SAFETY: as above: it goes through frames that have not returned.
    let mut frames = unsafe { ExceptionWalk::to_land(context) };
    let mut action = FORCE_UNWIND | CLEANUP_PHASE;
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE2_ERROR;
        }
        let shown = frames.as_context();
        // SAFETY: as above.
        if unsafe { stop(VERSION, action, class, exception, shown, beside) } != NO_REASON {
            return FATAL_PHASE2_ERROR;
        }
        if action & TO_END_OF_STACK != 0 {
            return END_OF_STACK;
        }
        // SAFETY: as above.
        match unsafe { frames.call_personality(action, exception) } {
            INSTALL_CONTEXT => return frames.install(),
            CONTINUE_UNWIND => {}
            _ => return FATAL_PHASE2_ERROR,
        }
        match frames.step_to_land() {
            Ok(true) => {}
            Ok(false) => action |= TO_END_OF_STACK,
            Err(_) => return FATAL_PHASE2_ERROR,
        }
    }
}

unsafe extern "C" fn resume_phase2(exception: *mut Exception, context: *mut c_void) -> ! {
    // SAFETY: what `resume` asks for.
    match unsafe { (*exception).stop } {
        // SAFETY: as above.
        Some(stop) => unsafe { clean_up_until(stop, exception, context) },
        // SAFETY: as above.
        None => unsafe { clean_up(exception, context) },
    };
    abort()
}

unsafe extern "C" fn raise_again(exception: *mut Exception, context: *mut c_void) -> ReasonCode {
    // SAFETY: what `resume_or_rethrow` asks for.
    match unsafe { (*exception).stop } {
        // SAFETY: as above.
        Some(stop) => unsafe { clean_up_until(stop, exception, context) },
        // SAFETY: as above.
        None => unsafe { raise(exception, context) },
    }
}

unsafe extern "C" fn trace(
    visit: TraceFunction,
    argument: *mut c_void,
    context: *mut c_void,
) -> ReasonCode {
    let mut frames = ExceptionWalk::new(context);
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE1_ERROR;
        }
        let shown = frames.as_context();
        // SAFETY: what `backtrace` asks for.
        if unsafe { visit(shown, argument) } != NO_REASON {
            return FATAL_PHASE1_ERROR;
        }
        match frames.step() {
            Ok(true) => {}
            Ok(false) => return END_OF_STACK,
            Err(_) => return FATAL_PHASE1_ERROR,
        }
    }
}

/// `_Unwind_DeleteException`.
///
/// # Safety
///
/// `exception` is valid, and not used again.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_DeleteException")
)]
pub unsafe extern "C" fn delete_exception(exception: *mut Exception) {
    // SAFETY: the caller's promise.
    if let Some(cleanup) = unsafe { (*exception).cleanup } {
        // SAFETY: as above.
        unsafe { cleanup(FOREIGN_EXCEPTION_CAUGHT, exception) };
    }
}

/// `_Unwind_GetGR`: zero for a register that is not known.
///
/// # Safety
///
/// `context` is an unwinder's, and nobody else uses it meanwhile.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetGR"))]
pub unsafe extern "C" fn get_gr(context: &mut UnwindContext, register: c_int) -> UnwWord {
    // SAFETY: null, or where the value is: in the context, or where the frame's unwinder has found it.
    unsafe { context.register(register).as_ref() }.map_or(0, |value| *value)
}

/// `_Unwind_SetGR`. Nobody is told of a register that cannot be set.
///
/// # Safety
///
/// As [`get_gr`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_SetGR"))]
pub unsafe extern "C" fn set_gr(context: &mut UnwindContext, register: c_int, value: UnwWord) {
    // SAFETY: as in `get_gr`.
    if let Some(register) = unsafe { context.register(register).as_mut() } {
        *register = value;
    }
}

/// `_Unwind_SetIP`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_SetIP"))]
pub extern "C" fn set_ip(context: &mut UnwindContext, ip: UnwWord) {
    context.ip = ip;
}

/// `_Unwind_GetIPInfo`: `is_exact` where the address is that of an instruction, not behind a call.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetIPInfo"))]
pub extern "C" fn get_ip_info(context: &UnwindContext, is_exact: &mut c_int) -> UnwWord {
    *is_exact = c_int::from(context.flags & UnwindContext::INTERRUPTED != 0);
    context.ip
}

/// `_Unwind_GetIP`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetIP"))]
pub extern "C" fn get_ip(context: &UnwindContext) -> UnwWord {
    context.ip
}

/// `_Unwind_GetCFA`: the stack pointer of the frame, which is the CFA of the one that it called.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetCFA"))]
pub extern "C" fn get_cfa(context: &UnwindContext) -> UnwWord {
    context.cfa
}

/// `_Unwind_GetBSP`: other machines have one.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetBSP"))]
pub extern "C" fn get_bsp(_context: &UnwindContext) -> UnwWord {
    0
}

/// `_Unwind_GetLanguageSpecificData`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetLanguageSpecificData")
)]
pub extern "C" fn get_language_specific_data(context: &UnwindContext) -> UnwWord {
    context.lsda
}

/// `_Unwind_GetRegionStart`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetRegionStart")
)]
pub extern "C" fn get_region_start(context: &UnwindContext) -> UnwWord {
    context.procedure
}

/// `_Unwind_GetTextRelBase`: nothing is relative to code on x86-64.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetTextRelBase")
)]
pub extern "C" fn get_text_rel_base(context: &UnwindContext) -> UnwWord {
    context.text_base
}

/// `_Unwind_GetDataRelBase`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetDataRelBase")
)]
pub extern "C" fn get_data_rel_base(context: &UnwindContext) -> UnwWord {
    context.data_base
}

/// `_Unwind_FindEnclosingFunction`: zero where no entry covers the address.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_FindEnclosingFunction")
)]
pub extern "C" fn find_enclosing_function(ip: UnwWord) -> UnwWord {
    procedure_info(RuntimeAddr(ip)).map_or(0, |info| info.start_ip)
}
