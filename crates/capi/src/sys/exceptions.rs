//! `_Unwind_*`: the level of exception handling that languages share (Itanium C++ ABI, "Exception
//! Handling", Level I).
//!
//! Two phases: the first asks the personality routines from the innermost frame out which frame
//! handles the exception, and changes nothing; the second goes the same way and has each frame
//! clean up, up to that one. A frame that cleans up is entered at its landing pad, and comes back
//! with `_Unwind_Resume`.
//!
//! glibc begins the unwinds of `pthread_exit` and `pthread_cancel` with libgcc's unwinder, whoever
//! else is there. Personality routines then come to us with its contexts, and landing pads with
//! its exceptions: these are handed to it.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use unspool_ir::RuntimeAddr;

use crate::abi::{self, Error, ProcInfo, Word};
use crate::cursor::Cursor;
use crate::own::procedure_info;
use crate::sys::context::call_with_context;
use crate::sys::libgcc::Function;
use crate::sys::{callbacks, own};

unsafe extern "C" {
    safe fn abort() -> !;
}

/// `_Unwind_Reason_Code`.
type Reason = c_int;
const NO_REASON: Reason = 0;
const FOREIGN_EXCEPTION_CAUGHT: Reason = 1;
const FATAL_PHASE2_ERROR: Reason = 2;
const FATAL_PHASE1_ERROR: Reason = 3;
const END_OF_STACK: Reason = 5;
const HANDLER_FOUND: Reason = 6;
const INSTALL_CONTEXT: Reason = 7;
const CONTINUE_UNWIND: Reason = 8;

/// `_Unwind_Action`.
type Action = c_int;
const SEARCH_PHASE: Action = 1;
const CLEANUP_PHASE: Action = 2;
const HANDLER_FRAME: Action = 4;
const FORCE_UNWIND: Action = 8;
const TO_END_OF_STACK: Action = 16;

const VERSION: c_int = 1;

/// `_Unwind_Exception`: what the throwing language puts before its own.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Exception {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(Reason, *mut Exception)>,
    /// The function that a forced unwind asks whether to stop; none for an exception.
    stop: Stop,
    /// What is passed to it; for an exception the stack pointer of the frame that handles it.
    beside: Word,
}

type StopFunction =
    unsafe extern "C" fn(c_int, Action, u64, *mut Exception, *mut Context, Word) -> Reason;

type Personality = unsafe extern "C" fn(c_int, Action, u64, *mut Exception, *mut Context) -> Reason;

/// The function that a forced unwind asks whether to stop, or zero. [`Stop::OURS`] is set if we
/// began the unwind.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
struct Stop(usize);

impl Stop {
    const NONE: Stop = Stop(0);
    /// No function has such an address.
    const OURS: usize = 1 << 63;

    fn new(function: StopFunction) -> Stop {
        Stop(function as usize | Stop::OURS)
    }

    fn is_foreign(self) -> bool {
        self.0 != 0 && self.0 & Stop::OURS == 0
    }

    fn function(self) -> Option<StopFunction> {
        // SAFETY: zero, or a function of this type and perhaps the mark.
        unsafe { core::mem::transmute::<usize, Option<StopFunction>>(self.0 & !Stop::OURS) }
    }
}

/// `_Unwind_Context`: a frame, and its procedure.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// What no context of another unwinder begins with: [`OURS`]'s address.
    mark: *const u8,
    cursor: Cursor<'static>,
    info: ProcInfo,
}

static OURS: u8 = 0;

impl Context {
    /// `None` for another unwinder's.
    ///
    /// # Safety
    ///
    /// `context` is of this or another unwinder, and nobody else uses it meanwhile.
    unsafe fn ours<'c>(context: *mut Context) -> Option<&'c mut Context> {
        // SAFETY: every unwinder's context has a word.
        let mark = unsafe { context.cast::<*const u8>().read() };
        // SAFETY: it has our mark.
        core::ptr::eq(mark, &raw const OURS).then(|| unsafe { &mut *context })
    }

    fn stack_pointer(&self) -> Word {
        self.cursor.get(abi::RSP).unwrap_or(0)
    }

    /// What `ours` says of our context, and libgcc's function of another.
    ///
    /// # Safety
    ///
    /// As [`Context::ours`].
    unsafe fn get(
        context: *mut Context,
        theirs: &Function<Getter>,
        ours: impl FnOnce(&Context) -> Word,
    ) -> Word {
        // SAFETY: the caller's promise.
        if let Some(context) = unsafe { Context::ours(context) } {
            return ours(context);
        }
        // SAFETY: as above; the context is no other unwinder's.
        theirs.get().map_or(0, |theirs| unsafe { theirs(context) })
    }
}

type Getter = unsafe extern "C" fn(*mut Context) -> Word;

/// What is called for the frames of a walk.
struct Frames(Context);

impl Frames {
    /// From the frame whose registers are in a context of `call_with_context`.
    fn new(context: *mut c_void) -> Frames {
        Frames(Context {
            mark: &raw const OURS,
            cursor: own::cursor(context, false).by_rules(),
            info: ProcInfo::EMPTY,
        })
    }

    /// Finds out what procedure the frame is of.
    fn look_up(&mut self) -> Result<(), Error> {
        let pc = self.0.cursor.code().lookup();
        self.0.info = match procedure_info(pc) {
            Ok(info) => info,
            Err(Error::NO_INFO) => ProcInfo::EMPTY,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Steps to the caller: `false` where there is none.
    fn step(&mut self) -> Result<bool, Error> {
        Error::check(self.0.cursor.step()).map(|code| code > 0)
    }

    /// Steps to the caller, as far as landing pads can be entered: `false` also where a register is lost that functions
    /// preserve, as in callers of code that has SFrame only.
    fn step_to_land(&mut self) -> Result<bool, Error> {
        /// `rbx`, `rbp`, `r12` to `r15`.
        const PRESERVED: [c_int; 6] = [3, 6, 12, 13, 14, 15];
        let has_caller = self.step()?;
        let mut known = PRESERVED
            .map(|register| self.0.cursor.get(register).is_ok())
            .into_iter();
        Ok(has_caller && known.all(|is_known| is_known))
    }

    /// Asks the frame's language, if it has one.
    ///
    /// # Safety
    ///
    /// As [`raise_exception`].
    unsafe fn ask(&mut self, action: Action, exception: *mut Exception) -> Reason {
        let handler = usize::try_from(self.0.info.handler).unwrap_or(0);
        // SAFETY: null, or a function of this type: that is what unwind tables name.
        let handler = unsafe { core::mem::transmute::<usize, Option<Personality>>(handler) };
        let Some(handler) = handler else {
            return CONTINUE_UNWIND;
        };
        // SAFETY: the caller's promise.
        let class = unsafe { (*exception).class };
        // SAFETY: the frame's language answers for its personality routine.
        unsafe { handler(VERSION, action, class, exception, &raw mut self.0) }
    }

    /// Continues in the frame, which has been set to a landing pad.
    fn install(mut self) -> Reason {
        let entered = self.0.cursor.establish();
        let resumed = entered.and_then(|()| callbacks::resume(&mut self.0.cursor));
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
pub unsafe extern "C" fn raise_exception(exception: *mut Exception) -> Reason {
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
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {resumer}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        resumer = sym resumer,
    )
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
pub unsafe extern "C" fn resume_or_rethrow(exception: *mut Exception) -> Reason {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {rethrower}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        rethrower = sym rethrower,
    )
}

/// What `_Unwind_Resume` is for an exception.
unsafe extern "C" fn resumer(exception: *mut Exception) -> Resumer {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Resumer> = unsafe { Function::new(c"_Unwind_Resume") };
    // SAFETY: what `resume` asks for.
    unsafe { by_whoever_began(exception, &THEIRS, resume_ours) }
}

/// What `_Unwind_Resume_or_Rethrow` is for an exception.
unsafe extern "C" fn rethrower(exception: *mut Exception) -> Resumer {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Resumer> = unsafe { Function::new(c"_Unwind_Resume_or_Rethrow") };
    // SAFETY: what `resume_or_rethrow` asks for.
    unsafe { by_whoever_began(exception, &THEIRS, rethrow_ours) }
}

type Resumer = unsafe extern "C" fn(*mut Exception) -> Reason;

unsafe fn by_whoever_began(
    exception: *mut Exception,
    theirs: &Function<Resumer>,
    ours: Resumer,
) -> Resumer {
    // SAFETY: the caller's promise.
    let stop = unsafe { (*exception).stop };
    match stop.is_foreign() {
        true => theirs.get().unwrap_or(ours),
        false => ours,
    }
}

#[unsafe(naked)]
unsafe extern "C" fn resume_ours(exception: *mut Exception) -> Reason {
    call_with_context!("rsi", go_on)
}

#[unsafe(naked)]
unsafe extern "C" fn rethrow_ours(exception: *mut Exception) -> Reason {
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
    argument: Word,
) -> Reason {
    call_with_context!("rcx", force)
}

/// `_Unwind_Backtrace`.
///
/// # Safety
///
/// `visit` takes `argument`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_Backtrace"))]
#[unsafe(naked)]
pub unsafe extern "C" fn backtrace(visit: TraceFunction, argument: *mut c_void) -> Reason {
    call_with_context!("rdx", trace)
}

/// `_Unwind_Trace_Fn`.
pub type TraceFunction = unsafe extern "C" fn(*mut Context, *mut c_void) -> Reason;

unsafe extern "C" fn raise(exception: *mut Exception, context: *mut c_void) -> Reason {
    // SAFETY: what `raise_exception` asks for.
    let handler = match unsafe { search(exception, context) } {
        Ok(handler) => handler,
        Err(reason) => return reason,
    };
    // SAFETY: as above.
    let exception_fields = unsafe { &mut *exception };
    exception_fields.stop = Stop::NONE;
    exception_fields.beside = handler;
    // SAFETY: as above.
    unsafe { clean_up(exception, context) }
}

/// The first phase: the stack pointer of the frame that handles an exception.
unsafe fn search(exception: *mut Exception, context: *mut c_void) -> Result<Word, Reason> {
    let mut frames = Frames::new(context);
    loop {
        frames.look_up().map_err(|_| FATAL_PHASE1_ERROR)?;
        // SAFETY: what `raise_exception` asks for.
        match unsafe { frames.ask(SEARCH_PHASE, exception) } {
            CONTINUE_UNWIND => {}
            HANDLER_FOUND => return Ok(frames.0.stack_pointer()),
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
unsafe fn clean_up(exception: *mut Exception, context: *mut c_void) -> Reason {
    // SAFETY: what `raise_exception` asks for.
    let handler = unsafe { (*exception).beside };
    let mut frames = Frames::new(context);
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE2_ERROR;
        }
        let is_handler = frames.0.stack_pointer() == handler;
        let action = match is_handler {
            true => CLEANUP_PHASE | HANDLER_FRAME,
            false => CLEANUP_PHASE,
        };
        // SAFETY: what `raise_exception` asks for.
        match unsafe { frames.ask(action, exception) } {
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

unsafe extern "C" fn force(
    exception: *mut Exception,
    stop: StopFunction,
    argument: Word,
    context: *mut c_void,
) -> Reason {
    // SAFETY: what `forced_unwind` asks for.
    let fields = unsafe { &mut *exception };
    fields.stop = Stop::new(stop);
    fields.beside = argument;
    // SAFETY: as above.
    unsafe { clean_up_until(stop, exception, context) }
}

/// The only phase of a forced unwind, which ends where `stop` says so. Returns only when it fails.
unsafe fn clean_up_until(
    stop: StopFunction,
    exception: *mut Exception,
    context: *mut c_void,
) -> Reason {
    // SAFETY: what `forced_unwind` asks for.
    let Exception { class, beside, .. } = *unsafe { &*exception };
    let mut frames = Frames::new(context);
    let mut action = FORCE_UNWIND | CLEANUP_PHASE;
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE2_ERROR;
        }
        let shown = &raw mut frames.0;
        // SAFETY: as above.
        if unsafe { stop(VERSION, action, class, exception, shown, beside) } != NO_REASON {
            return FATAL_PHASE2_ERROR;
        }
        if action & TO_END_OF_STACK != 0 {
            return END_OF_STACK;
        }
        // SAFETY: as above.
        match unsafe { frames.ask(action, exception) } {
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

unsafe extern "C" fn go_on(exception: *mut Exception, context: *mut c_void) -> ! {
    // SAFETY: what `resume` asks for.
    match unsafe { (*exception).stop }.function() {
        // SAFETY: as above.
        Some(stop) => unsafe { clean_up_until(stop, exception, context) },
        // SAFETY: as above.
        None => unsafe { clean_up(exception, context) },
    };
    abort()
}

unsafe extern "C" fn raise_again(exception: *mut Exception, context: *mut c_void) -> Reason {
    // SAFETY: what `resume_or_rethrow` asks for.
    match unsafe { (*exception).stop }.function() {
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
) -> Reason {
    let mut frames = Frames::new(context);
    loop {
        if frames.look_up().is_err() {
            return FATAL_PHASE1_ERROR;
        }
        // SAFETY: what `backtrace` asks for.
        if unsafe { visit(&raw mut frames.0, argument) } != NO_REASON {
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
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetGR"))]
pub unsafe extern "C" fn get_gr(context: *mut Context, register: c_int) -> Word {
    type Type = unsafe extern "C" fn(*mut Context, c_int) -> Word;
    // SAFETY: the type is the function's.
    static THEIRS: Function<Type> = unsafe { Function::new(c"_Unwind_GetGR") };
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { Context::ours(context) } {
        return context.cursor.get(register).unwrap_or(0);
    }
    // SAFETY: the context is no other unwinder's.
    THEIRS
        .get()
        .map_or(0, |theirs| unsafe { theirs(context, register) })
}

/// `_Unwind_SetGR`.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_SetGR"))]
pub unsafe extern "C" fn set_gr(context: *mut Context, register: c_int, value: Word) {
    type Type = unsafe extern "C" fn(*mut Context, c_int, Word);
    // SAFETY: the type is the function's.
    static THEIRS: Function<Type> = unsafe { Function::new(c"_Unwind_SetGR") };
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { Context::ours(context) } {
        // Nobody is told of a register that cannot be set.
        let _ = context.cursor.set(register, value);
        return;
    }
    if let Some(theirs) = THEIRS.get() {
        // SAFETY: the context is no other unwinder's.
        unsafe { theirs(context, register, value) };
    }
}

/// `_Unwind_SetIP`.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_SetIP"))]
pub unsafe extern "C" fn set_ip(context: *mut Context, ip: Word) {
    type Type = unsafe extern "C" fn(*mut Context, Word);
    // SAFETY: the type is the function's.
    static THEIRS: Function<Type> = unsafe { Function::new(c"_Unwind_SetIP") };
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { Context::ours(context) } {
        context.cursor.land_at(ip);
        return;
    }
    if let Some(theirs) = THEIRS.get() {
        // SAFETY: the context is no other unwinder's.
        unsafe { theirs(context, ip) };
    }
}

/// `_Unwind_GetIPInfo`: `is_exact` where the address is that of an instruction, not behind a call.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetIPInfo"))]
pub unsafe extern "C" fn get_ip_info(context: *mut Context, is_exact: &mut c_int) -> Word {
    type Type = unsafe extern "C" fn(*mut Context, &mut c_int) -> Word;
    // SAFETY: the type is the function's.
    static THEIRS: Function<Type> = unsafe { Function::new(c"_Unwind_GetIPInfo") };
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { Context::ours(context) } {
        *is_exact = c_int::from(context.cursor.is_interrupted());
        return context.cursor.ip();
    }
    // SAFETY: the context is no other unwinder's.
    THEIRS
        .get()
        .map_or(0, |theirs| unsafe { theirs(context, is_exact) })
}

/// `_Unwind_GetIP`.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetIP"))]
pub unsafe extern "C" fn get_ip(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetIP") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, |context| context.cursor.ip()) }
}

/// `_Unwind_GetCFA`: the stack pointer of the frame, which is the CFA of the one that it called.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetCFA"))]
pub unsafe extern "C" fn get_cfa(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetCFA") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, Context::stack_pointer) }
}

/// `_Unwind_GetBSP`: other machines have one.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_GetBSP"))]
pub unsafe extern "C" fn get_bsp(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetBSP") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, |_| 0) }
}

/// `_Unwind_GetLanguageSpecificData`.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetLanguageSpecificData")
)]
pub unsafe extern "C" fn get_language_specific_data(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetLanguageSpecificData") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, |context| context.info.lsda) }
}

/// `_Unwind_GetRegionStart`.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetRegionStart")
)]
pub unsafe extern "C" fn get_region_start(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetRegionStart") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, |context| context.info.start_ip) }
}

/// `_Unwind_GetTextRelBase`: nothing is relative to code on x86-64.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetTextRelBase")
)]
pub unsafe extern "C" fn get_text_rel_base(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetTextRelBase") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, |_| 0) }
}

/// `_Unwind_GetDataRelBase`.
///
/// # Safety
///
/// `context` is valid.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_GetDataRelBase")
)]
pub unsafe extern "C" fn get_data_rel_base(context: *mut Context) -> Word {
    // SAFETY: the type is the function's.
    static THEIRS: Function<Getter> = unsafe { Function::new(c"_Unwind_GetDataRelBase") };
    // SAFETY: the caller's promise.
    unsafe { Context::get(context, &THEIRS, |context| context.info.gp) }
}

/// `_Unwind_FindEnclosingFunction`: zero where no entry covers the address.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Unwind_FindEnclosingFunction")
)]
pub extern "C" fn find_enclosing_function(ip: Word) -> Word {
    procedure_info(RuntimeAddr(ip)).map_or(0, |info| info.start_ip)
}
