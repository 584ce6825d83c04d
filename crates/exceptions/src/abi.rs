//! The types and numbers of the interface.

use core::ffi::{c_int, c_void};

use crate::context::UnwindContext;

/// `_Unwind_Word`.
pub type UnwWord = u64;

/// `_Unwind_Reason_Code`.
pub type ReasonCode = c_int;
/// `_URC_NO_REASON`.
pub const NO_REASON: ReasonCode = 0;
/// `_URC_FOREIGN_EXCEPTION_CAUGHT`.
pub const FOREIGN_EXCEPTION_CAUGHT: ReasonCode = 1;
/// `_URC_FATAL_PHASE2_ERROR`.
pub const FATAL_PHASE2_ERROR: ReasonCode = 2;
/// `_URC_FATAL_PHASE1_ERROR`.
pub const FATAL_PHASE1_ERROR: ReasonCode = 3;
/// `_URC_NORMAL_STOP`. A stop function that returns it ends the unwind, as with all but
/// [`NO_REASON`].
pub const NORMAL_STOP: ReasonCode = 4;
/// `_URC_END_OF_STACK`.
pub const END_OF_STACK: ReasonCode = 5;
/// `_URC_HANDLER_FOUND`.
pub const HANDLER_FOUND: ReasonCode = 6;
/// `_URC_INSTALL_CONTEXT`.
pub const INSTALL_CONTEXT: ReasonCode = 7;
/// `_URC_CONTINUE_UNWIND`.
pub const CONTINUE_UNWIND: ReasonCode = 8;

/// `_Unwind_Action`.
pub type Actions = c_int;
/// `_UA_SEARCH_PHASE`.
pub const SEARCH_PHASE: Actions = 1;
/// `_UA_CLEANUP_PHASE`.
pub const CLEANUP_PHASE: Actions = 2;
/// `_UA_HANDLER_FRAME`.
pub const HANDLER_FRAME: Actions = 4;
/// `_UA_FORCE_UNWIND`.
pub const FORCE_UNWIND: Actions = 8;
/// `_UA_END_OF_STACK`.
pub const TO_END_OF_STACK: Actions = 16;

/// The version of the interface that personality routines get.
pub const VERSION: c_int = 1;

/// `_Unwind_Exception`: the header of a language's exception object. All unwinders use the two last
/// fields equally, so that one can resume an exception that another has raised.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Exception {
    /// The language and the vendor.
    pub class: u64,
    /// Deletes the exception.
    pub cleanup: Option<unsafe extern "C-unwind" fn(ReasonCode, *mut Exception)>,
    /// The stop function of a forced unwind; none for an exception.
    pub stop: Option<StopFunction>,
    /// The stop function's argument; for an exception, the handling frame's
    /// [`identity`](crate::walk::LandingFrame::identity).
    pub private_2: UnwWord,
}

/// `_Unwind_Stop_Fn`.
pub type StopFunction = unsafe extern "C-unwind" fn(
    c_int,
    Actions,
    u64,
    *mut Exception,
    *mut UnwindContext,
    UnwWord,
) -> ReasonCode;

/// `_Unwind_Personality_Fn`.
pub type Personality = unsafe extern "C-unwind" fn(
    c_int,
    Actions,
    u64,
    *mut Exception,
    *mut UnwindContext,
) -> ReasonCode;

/// `_Unwind_Trace_Fn`.
pub type TraceFunction = unsafe extern "C-unwind" fn(*mut UnwindContext, *mut c_void) -> ReasonCode;
