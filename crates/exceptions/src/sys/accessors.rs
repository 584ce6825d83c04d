//! What foreign functions ask of contexts.

use core::ffi::c_int;

use unspool_rows::RuntimeAddr;

use crate::abi::UnwWord;
use crate::context::UnwindContext;
use crate::facts;

/// `_Unwind_GetGR`: zero for an unknown register.
///
/// # Safety
///
/// `context` is an unwinder's, and has no other user meanwhile.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetGR"))]
pub unsafe extern "C" fn get_gr(context: &mut UnwindContext, register: c_int) -> UnwWord {
    // SAFETY: null, or the address of the value: in the context, or found by the frame's unwinder.
    unsafe { context.register(register).as_ref() }.map_or(0, |value| *value)
}

/// `_Unwind_SetGR`. It silently ignores a register that cannot be set.
///
/// # Safety
///
/// As [`get_gr`].
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_SetGR"))]
pub unsafe extern "C" fn set_gr(context: &mut UnwindContext, register: c_int, value: UnwWord) {
    // SAFETY: as in `get_gr`.
    if let Some(register) = unsafe { context.register(register).as_mut() } {
        *register = value;
    }
}

/// `_Unwind_SetIP`.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_SetIP"))]
pub extern "C" fn set_ip(context: &mut UnwindContext, ip: UnwWord) {
    context.ip = ip;
}

/// `_Unwind_GetIPInfo`: `is_exact` if the address is that of an instruction, not behind a call.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetIPInfo"))]
pub extern "C" fn get_ip_info(context: &UnwindContext, is_exact: &mut c_int) -> UnwWord {
    *is_exact = c_int::from(context.flags & UnwindContext::INTERRUPTED != 0);
    context.ip
}

/// `_Unwind_GetIP`.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetIP"))]
pub extern "C" fn get_ip(context: &UnwindContext) -> UnwWord {
    context.ip
}

/// `_Unwind_GetCFA`: the stack pointer of the frame: the CFA of the frame that it called.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetCFA"))]
pub extern "C" fn get_cfa(context: &UnwindContext) -> UnwWord {
    context.cfa
}

/// `_Unwind_GetBSP`: x86-64 has none.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetBSP"))]
pub extern "C" fn get_bsp(_context: &UnwindContext) -> UnwWord {
    0
}

/// `_Unwind_GetLanguageSpecificData`.
#[cfg_attr(
    feature = "c-names",
    unsafe(export_name = "_Unwind_GetLanguageSpecificData")
)]
pub extern "C" fn get_language_specific_data(context: &UnwindContext) -> UnwWord {
    context.lsda
}

/// `_Unwind_GetRegionStart`.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetRegionStart"))]
pub extern "C" fn get_region_start(context: &UnwindContext) -> UnwWord {
    context.procedure
}

/// `_Unwind_GetTextRelBase`: unused on x86-64.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetTextRelBase"))]
pub extern "C" fn get_text_rel_base(context: &UnwindContext) -> UnwWord {
    context.text_base
}

/// `_Unwind_GetDataRelBase`.
#[cfg_attr(feature = "c-names", unsafe(export_name = "_Unwind_GetDataRelBase"))]
pub extern "C" fn get_data_rel_base(context: &UnwindContext) -> UnwWord {
    context.data_base
}

/// `_Unwind_FindEnclosingFunction`: zero if no entry covers the address. That is a return address
/// for libgcc, and an instruction's for libunwind.
#[cfg_attr(
    feature = "c-names",
    unsafe(export_name = "_Unwind_FindEnclosingFunction")
)]
pub extern "C" fn find_enclosing_function(ip: UnwWord) -> UnwWord {
    let behind = u64::from(cfg!(feature = "shared-object"));
    facts::function_start(RuntimeAddr(ip.wrapping_sub(behind)))
}
