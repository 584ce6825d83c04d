//! `_Unwind_Backtrace` and `backtrace`. They check every address that they read, unlike an unwind
//! that lands.

use core::ffi::{c_int, c_void};

use unspool_rows::RuntimeAddr;
use unspool_unwind::call_with_caller_registers;
use unspool_unwind::local::caller_registers::CallerRegisters;

use crate::abi::{END_OF_STACK, FATAL_PHASE1_ERROR, NO_REASON, ReasonCode, TraceFunction};
use crate::context::UnwindContext;
use crate::walk::{LandingFrame, LandingWalk};

/// `_Unwind_Backtrace`. As with libgcc, the last frame has no entry: the one above the outermost,
/// at address 0.
///
/// # Safety
///
/// `visit` takes `argument`.
#[unsafe(export_name = "_Unwind_Backtrace")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn backtrace(
    visit: TraceFunction,
    argument: *mut c_void,
) -> ReasonCode {
    call_with_caller_registers!("rdx", trace)
}

unsafe extern "C-unwind" fn trace(
    visit: TraceFunction,
    argument: *mut c_void,
    frame: &CallerRegisters,
) -> ReasonCode {
    let mut walk = LandingWalk::new(LandingFrame::from(frame));
    loop {
        let Ok(rule) = walk.rule() else {
            return FATAL_PHASE1_ERROR;
        };
        let procedure = rule.map_or_else(Default::default, |rule| walk.procedure(rule));
        let mut context = UnwindContext::new(&walk.frame, &procedure);
        walk.complete(&mut context);
        // SAFETY: the conditions of `backtrace`.
        if unsafe { visit(&mut context, argument) } != NO_REASON {
            return FATAL_PHASE1_ERROR;
        }
        let Some(rule) = rule else {
            return END_OF_STACK;
        };
        if walk.step(rule).is_err() {
            return FATAL_PHASE1_ERROR;
        }
    }
}

/// `backtrace`: the caller's address, its caller's, and so on.
///
/// # Safety
///
/// `buffer` has room for `size` addresses.
#[unsafe(export_name = "backtrace")]
#[unsafe(naked)]
pub unsafe extern "C" fn addresses(buffer: *mut RuntimeAddr, size: c_int) -> c_int {
    call_with_caller_registers!("rdx", write_addresses)
}

unsafe extern "C" fn write_addresses(
    buffer: *mut RuntimeAddr,
    size: c_int,
    frame: &CallerRegisters,
) -> c_int {
    let mut walk = LandingWalk::new(LandingFrame::from(frame));
    let mut count = 0;
    while count < size {
        let at = buffer.wrapping_add(usize::try_from(count).unwrap_or(0));
        // SAFETY: the condition of `addresses`; an address has the representation of a pointer.
        unsafe { at.write(RuntimeAddr(walk.frame.registers.code)) };
        count += 1;
        let is_left = matches!(walk.rule(), Ok(Some(rule)) if walk.step(rule).is_ok());
        if !is_left || walk.frame.registers.code == 0 {
            break;
        }
    }
    count
}
