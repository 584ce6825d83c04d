//! `_Unwind_Backtrace`. The rest of `_Unwind_*` is [`unspool_exceptions`], which does not guess.

use core::ffi::{c_int, c_void};

use unspool_exceptions::abi::{
    END_OF_STACK, FATAL_PHASE1_ERROR, NO_REASON, ReasonCode, TraceFunction,
};
use unspool_exceptions::context::UnwindContext;
use unspool_exceptions::facts::FrameHandler;
use unspool_exceptions::walk::LandingFrame;
use unspool_rows::packed_row::SavedRegisters;

use crate::abi::{self, Error};
use crate::cursor::ClientCursor;
use crate::own_process::procedure_info;
use crate::sys::context::call_with_context;
use crate::sys::own;

/// `_Unwind_Backtrace`.
///
/// # Safety
///
/// `visit` takes `argument`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Unwind_Backtrace"))]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn backtrace(
    visit: TraceFunction,
    argument: *mut c_void,
) -> ReasonCode {
    call_with_context!("rdx", trace)
}

unsafe extern "C-unwind" fn trace(
    visit: TraceFunction,
    argument: *mut c_void,
    context: *mut c_void,
) -> ReasonCode {
    let mut cursor = own::cursor(context, false).without_objects();
    loop {
        let Ok(mut shown) = context_of(&cursor) else {
            return FATAL_PHASE1_ERROR;
        };
        // SAFETY: the conditions of `backtrace`.
        if unsafe { visit(&mut shown, argument) } != NO_REASON {
            return FATAL_PHASE1_ERROR;
        }
        match cursor.step() {
            1.. => {}
            0 => return END_OF_STACK,
            _ => return FATAL_PHASE1_ERROR,
        }
    }
}

/// The cursor's frame, with the registers that are known.
fn context_of(cursor: &ClientCursor<'_>) -> Result<UnwindContext, Error> {
    let info = match procedure_info(cursor.code().lookup()) {
        Ok(info) => info,
        Err(Error::NO_INFO) => abi::ProcInfo::EMPTY,
        Err(error) => return Err(error),
    };
    let register = |number: c_int| cursor.get(number).unwrap_or(0);
    let frame = LandingFrame {
        preserved: SavedRegisters::REGISTERS.map(|number| register(number.into())),
        stack_pointer: register(abi::RSP),
        code: cursor.ip(),
        record: u64::from(cursor.is_interrupted()) * LandingFrame::UNKNOWN,
    };
    let handler = FrameHandler {
        personality: info.handler,
        lsda: info.lsda,
        start: info.start_ip,
    };
    let mut context = UnwindContext::new(&frame, &handler);
    if cursor.is_interrupted() {
        for (value, number) in context.registers.iter_mut().zip(0..=16) {
            *value = register(number);
        }
    }
    Ok(context)
}
