//! `_Unwind_Backtrace`. The rest of `_Unwind_*` is [`unspool_exceptions`], which does not guess.

use core::ffi::{c_int, c_void};

use unspool_exceptions::abi::{
    END_OF_STACK, FATAL_PHASE1_ERROR, NO_REASON, ReasonCode, TraceFunction,
};
use unspool_exceptions::context::UnwindContext;
use unspool_exceptions::facts::{PersonalityAddr, ProcedureInfo};
use unspool_exceptions::walk::{Interruption, LandingFrame};
use unspool_rows::packed_row::SavedRegisters;
use unspool_unwind::local::caller_registers::CallerRegisters;

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
    let registers = CallerRegisters {
        preserved: SavedRegisters::REGISTERS.map(|number| register(number.into())),
        stack_pointer: register(abi::RSP),
        code: cursor.ip(),
        shadow_stack_pointer: 0,
    };
    let interruption = if cursor.is_interrupted() {
        Interruption::Unrecorded
    } else {
        Interruption::None
    };
    let procedure = ProcedureInfo {
        personality: PersonalityAddr::direct(info.handler),
        lsda: info.lsda,
        start: info.start_ip,
    };
    let frame = LandingFrame {
        registers,
        interruption,
    };
    let mut context = UnwindContext::new(&frame, &procedure);
    if cursor.is_interrupted() {
        for (value, number) in context.registers.iter_mut().zip(0..=16) {
            *value = register(number);
        }
    }
    Ok(context)
}
