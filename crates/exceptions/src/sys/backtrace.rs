//! `_Unwind_Backtrace` and `backtrace`. They check every address that they read, unlike an unwind
//! that lands.

use core::ffi::{c_int, c_void};

use unspool_rows::RuntimeAddr;
use unspool_unwind::local::ReadableMemory;

use crate::abi::{END_OF_STACK, FATAL_PHASE1_ERROR, NO_REASON, ReasonCode, TraceFunction};
use crate::sys::entry::call_with_frame;
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
    call_with_frame!("rdx", trace)
}

unsafe extern "C-unwind" fn trace(
    visit: TraceFunction,
    argument: *mut c_void,
    frame: &LandingFrame,
) -> ReasonCode {
    let mut walk = LandingWalk::new(*frame, ReadableMemory::stack());
    loop {
        let Ok(rule) = walk.rule() else {
            return FATAL_PHASE1_ERROR;
        };
        let (handler, _) = walk.handler();
        let mut context = walk.context(&handler);
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
    call_with_frame!("rdx", write_addresses)
}

unsafe extern "C" fn write_addresses(
    buffer: *mut RuntimeAddr,
    size: c_int,
    frame: &LandingFrame,
) -> c_int {
    let size = usize::try_from(size).unwrap_or(0);
    if size == 0 {
        return 0;
    }
    // SAFETY: the condition of `addresses`; an address has the representation of a pointer.
    let addresses = unsafe { core::slice::from_raw_parts_mut(buffer, size) };
    let mut walk = LandingWalk::new(*frame, ReadableMemory::stack());
    let mut count = 0;
    for address in addresses {
        *address = RuntimeAddr(walk.frame.code);
        count += 1;
        let is_left = matches!(walk.rule(), Ok(Some(rule)) if walk.step(rule).is_ok());
        if !is_left || walk.frame.code == 0 {
            break;
        }
    }
    count
}
