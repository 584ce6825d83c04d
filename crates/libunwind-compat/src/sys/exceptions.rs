//! `_Unwind_*`: the level of exception handling that languages share (Itanium C++ ABI, "Exception
//! Handling", Level I).
//!
//! There are two phases. The first calls the personality routines from the innermost frame outwards
//! to find the handling frame, and changes nothing. The second goes the same way, and each frame
//! cleans up, up to the handling one. A frame that cleans up is entered at its landing pad, and
//! continues the unwind with `_Unwind_Resume`.
//!
//! The process may have other unwinders. glibc begins the unwinds of `pthread_exit` and
//! `pthread_cancel` with libgcc's, and a plugin may have a libgcc of its own. Personality routines
//! then call us with their contexts, and landing pads with their exceptions, and vice versa. So
//! [`UnwindContext`] and [`Exception`] have libgcc's layout.

use core::ffi::{c_int, c_void};

use unspool_rows::RuntimeAddr;
use unspool_rows::packed_row::SavedRegisters;
use unspool_unwind::local::ReadableMemory;

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

/// `_Unwind_Exception`: the header of a language's exception object. All unwinders use the two last
/// fields equally, so that one can resume an exception that another has raised.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Exception {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(ReasonCode, *mut Exception)>,
    /// The stop function of a forced unwind; none for an exception.
    stop: Option<StopFunction>,
    /// The stop function's argument; for an exception, [`ExceptionWalk::identity`] of the handling
    /// frame.
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

/// `_Unwind_Context`: a frame, with libgcc's layout on x86-64 (`struct _Unwind_Context`, gcc's
/// libgcc/unwind-dw2.c, since gcc 4.2). `_Unwind_Get*` and `_Unwind_Set*` of this library and of
/// any libgcc accept each other's contexts. A plugin may contain a statically linked libgcc, and
/// glibc begins the unwinds of `pthread_exit` and `pthread_cancel` with its own.
#[repr(C)]
#[derive(Debug)]
pub struct UnwindContext {
    /// By DWARF's numbers: values if `is_value` is set, else their addresses. The last is unused.
    registers: [UnwWord; UnwindContext::REGISTERS],
    /// The stack pointer of the frame: the CFA of the frame that it called.
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
    /// `EXTENDED_CONTEXT_BIT`: `is_value` is valid.
    const EXTENDED: UnwWord = 1 << 62;

    /// Empty, with all registers as values.
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

    /// The address of a register's value; null for an unknown value or register.
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

/// The state of a walk for exceptions.
struct ExceptionWalk {
    context: UnwindContext,
    cursor: ClientCursor<'static>,
    /// The personality routine of the frame's procedure, or 0.
    handler: UnwWord,
}

impl ExceptionWalk {
    /// Starts at the frame with its registers in a context of `call_with_context`.
    fn new(context: *mut c_void) -> ExceptionWalk {
        ExceptionWalk {
            context: UnwindContext::EMPTY,
            cursor: own::cursor(context, false).without_objects(),
            handler: 0,
        }
    }

    /// The same for an unwind that lands in one of the frames. It trusts the stack, like returning
    /// functions: it does not check that memory is readable.
    ///
    /// # Safety
    ///
    /// All frames of this stack are of functions that have not returned.
    unsafe fn to_land(context: *mut c_void) -> ExceptionWalk {
        let mut frames = ExceptionWalk::new(context);
        // SAFETY: the caller's promise; the context is in a frame below those.
        frames
            .cursor
            .add_readable(unsafe { ReadableMemory::trusted(context) });
        frames
    }

    /// Looks up the procedure of the frame.
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

    /// The frame as a context for other code.
    fn as_context(&mut self) -> *mut UnwindContext {
        let (shown, cursor) = (&mut self.context, &self.cursor);
        shown.cfa = cursor.get(abi::RSP).unwrap_or(0);
        shown.ip = cursor.ip();
        shown.flags = if cursor.is_interrupted() {
            UnwindContext::EXTENDED | UnwindContext::INTERRUPTED
        } else {
            UnwindContext::EXTENDED
        };
        let is_known = |number| cursor.is_interrupted() || SavedRegisters::has(number);
        for (value, number) in shown.registers.iter_mut().zip(0..) {
            let known = is_known(number).then(|| cursor.get(number.into()).ok());
            *value = known.flatten().unwrap_or(0);
        }
        for (number, value) in [(7, shown.cfa), (16, shown.ip)] {
            if let Some(register) = shown.registers.get_mut(number) {
                *register = value;
            }
        }
        shown
    }

    /// A value that identifies the frame in the walk. An interrupted frame that called nothing may
    /// have the stack pointer of its handler's frame; libgcc distinguishes them in the same way.
    fn identity(&self) -> UnwWord {
        let stack_pointer = self.cursor.get(abi::RSP).unwrap_or(0);
        stack_pointer.wrapping_sub(UnwWord::from(self.cursor.is_interrupted()))
    }

    /// Steps to the caller: `false` if there is none.
    fn step(&mut self) -> Result<bool, Error> {
        Error::check(self.cursor.step()).map(|code| code > 0)
    }

    /// Steps to the caller, while landing pads can be entered. `false` also if a call-preserved
    /// register is lost, as in callers of code that has only SFrame.
    fn step_to_land(&mut self) -> Result<bool, Error> {
        let has_caller = self.step()?;
        let mut preserved = SavedRegisters::REGISTERS.map(c_int::from).into_iter();
        Ok(has_caller && preserved.all(|register| self.cursor.get(register).is_ok()))
    }

    /// Calls the frame's personality routine, if it has one.
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
        // SAFETY: null, or a function of this type, as unwind tables name it.
        let handler = unsafe { core::mem::transmute::<usize, Option<Personality>>(handler) };
        let Some(handler) = handler else {
            return CONTINUE_UNWIND;
        };
        // SAFETY: the caller's promise.
        let class = unsafe { (*exception).class };
        let shown = self.as_context();
        // SAFETY: the frame's language is responsible for its personality routine.
        unsafe { handler(VERSION, action, class, exception, shown) }
    }

    /// Continues in the frame, at the landing pad in the context, with its two arguments.
    fn install(&mut self) -> ReasonCode {
        let [first, second, ..] = self.context.registers;
        self.cursor.land_at(self.context.ip);
        // These registers can always be set.
        let _ = self.cursor.set(abi::RAX, first);
        let _ = self.cursor.set(abi::RDX, second);
        let entered = self.cursor.establish();
        let resumed = entered.and_then(|()| callbacks::resume(&mut self.cursor));
        // It only returns on failure.
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

/// `_Unwind_Resume`: called by a landing pad.
///
/// # Safety
///
/// `exception` is valid and being unwound.
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
    // SAFETY: the conditions of `raise_exception`.
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

/// The first phase: [`ExceptionWalk::identity`] of the handling frame.
// Not inlined: the second phase does not need its stack.
#[inline(never)]
unsafe fn search(exception: *mut Exception, context: *mut c_void) -> Result<UnwWord, ReasonCode> {
    // SAFETY: the conditions of `raise_exception`: the stack is the one that it was called on.
    let mut frames = unsafe { ExceptionWalk::to_land(context) };
    loop {
        frames.look_up().map_err(|_| FATAL_PHASE1_ERROR)?;
        // SAFETY: the conditions of `raise_exception`.
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

/// The second phase. Returns only on failure.
unsafe fn clean_up(exception: *mut Exception, context: *mut c_void) -> ReasonCode {
    // SAFETY: the conditions of `raise_exception`.
    let handler = unsafe { (*exception).private_2 };
    // SAFETY: as above: its frames have not returned.
    let mut frames = unsafe { ExceptionWalk::to_land(context) };
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE2_ERROR;
        }
        let is_handler = frames.identity() == handler;
        let action = if is_handler {
            CLEANUP_PHASE | HANDLER_FRAME
        } else {
            CLEANUP_PHASE
        };
        // SAFETY: the conditions of `raise_exception`.
        match unsafe { frames.call_personality(action, exception) } {
            INSTALL_CONTEXT => return frames.install(),
            // If the handling frame's language declines now, no frame handles the exception.
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
    // SAFETY: the conditions of `forced_unwind`.
    let fields = unsafe { &mut *exception };
    fields.stop = Some(stop);
    fields.private_2 = argument;
    // SAFETY: as above.
    unsafe { clean_up_until(stop, exception, context) }
}

/// The only phase of a forced unwind; `stop` decides where it ends. Returns only on failure.
unsafe fn clean_up_until(
    stop: StopFunction,
    exception: *mut Exception,
    context: *mut c_void,
) -> ReasonCode {
    // SAFETY: the conditions of `forced_unwind`.
    let Exception {
        class,
        private_2: beside,
        ..
    } = *unsafe { &*exception };
    // SAFETY: as above: its frames have not returned.
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
    // SAFETY: the conditions of `resume`.
    match unsafe { (*exception).stop } {
        // SAFETY: as above.
        Some(stop) => unsafe { clean_up_until(stop, exception, context) },
        // SAFETY: as above.
        None => unsafe { clean_up(exception, context) },
    };
    abort()
}

unsafe extern "C" fn raise_again(exception: *mut Exception, context: *mut c_void) -> ReasonCode {
    // SAFETY: the conditions of `resume_or_rethrow`.
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
        // SAFETY: the conditions of `backtrace`.
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

/// `_Unwind_GetGR`: zero for an unknown register.
///
/// # Safety
///
/// `context` is an unwinder's, and has no other user meanwhile.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetGR"))]
pub unsafe extern "C" fn get_gr(context: &mut UnwindContext, register: c_int) -> UnwWord {
    // SAFETY: null, or the address of the value: in the context, or found by the frame's unwinder.
    unsafe { context.register(register).as_ref() }.map_or(0, |value| *value)
}

/// `_Unwind_SetGR`. It silently ignores a register that cannot be set.
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

/// `_Unwind_GetIPInfo`: `is_exact` if the address is that of an instruction, not behind a call.
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

/// `_Unwind_GetCFA`: the stack pointer of the frame: the CFA of the frame that it called.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetCFA"))]
pub extern "C" fn get_cfa(context: &UnwindContext) -> UnwWord {
    context.cfa
}

/// `_Unwind_GetBSP`: x86-64 has none.
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

/// `_Unwind_GetTextRelBase`: unused on x86-64.
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

/// `_Unwind_FindEnclosingFunction`: zero if no entry covers the address.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_FindEnclosingFunction")
)]
pub extern "C" fn find_enclosing_function(ip: UnwWord) -> UnwWord {
    procedure_info(RuntimeAddr(ip)).map_or(0, |info| info.start_ip)
}
