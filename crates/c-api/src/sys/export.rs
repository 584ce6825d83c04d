//! The functions of `unspool.h`, documented there.

use core::arch::asm;
use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;

use unspool_rows::RuntimeAddr;
use unspool_unwind::call_with_caller_registers;
use unspool_unwind::local::caller_registers::{CallerRegisters, continue_at};
use unspool_unwind::local::{self, OwnCursor, OwnRegisterLocation, rules};
use unspool_unwind::{InnermostFrame, OutOfMemory, RuleCacheSize, RuleCacheSizeError, WalkResult};

use crate::arguments;
use crate::codes;
use crate::store;
use crate::sys::context::{self, CallerContext};

/// `unspool_walk`.
#[repr(C)]
pub struct CWalk {
    frames: usize,
    guesses: usize,
    end: c_int,
}

/// `unspool_cursor`, aligned like `long double`.
#[repr(C, align(16))]
pub struct CCursor {
    words: [MaybeUninit<u64>; CCursor::WORDS],
}

impl CCursor {
    const WORDS: usize = 192;
}

const _: () = assert!(size_of::<OwnCursor>() <= size_of::<CCursor>());
const _: () = assert!(align_of::<OwnCursor>() <= align_of::<CCursor>());

/// `unspool_argument`.
#[repr(C)]
pub struct CArgument {
    name: *const u8,
    name_length: usize,
    type_name: *const u8,
    type_length: usize,
    bytes: usize,
    kind: c_int,
    certainty: c_int,
    callers: usize,
    value: u64,
}

/// `unspool_module`.
#[repr(C)]
pub struct CModule {
    start: *const c_void,
    end: *const c_void,
    bias: u64,
    build_id: *const u8,
    build_id_length: usize,
    has_table: c_int,
}

/// `unspool_version`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// `unspool_prepare`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_prepare() -> c_int {
    local::prepare();
    c_int::try_from(store::find_tables()).unwrap_or(c_int::MAX)
}

/// `unspool_resize_rules`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_resize_rules(bytes: usize) -> c_int {
    match RuleCacheSize::from_bytes(bytes).map(rules::resize) {
        Ok(Ok(())) => 0,
        Ok(Err(OutOfMemory)) => libc::ENOMEM,
        Err(RuleCacheSizeError) => libc::EINVAL,
    }
}

/// `unspool_prepare_thread`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_prepare_thread() -> c_int {
    match local::prepare_thread() {
        Ok(()) => 0,
        Err(error) => error.0,
    }
}

/// `unspool_backtrace`.
///
/// # Safety
///
/// `addresses` is null or has room for `count` pointers; `walk` is null or valid for writes.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn unspool_backtrace(
    addresses: *mut RuntimeAddr,
    count: usize,
    walk: *mut CWalk,
) -> usize {
    call_with_caller_registers!("rcx", backtrace)
}

unsafe extern "C" fn backtrace(
    addresses: *mut RuntimeAddr,
    count: usize,
    walk: *mut CWalk,
    caller: &CallerRegisters,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { backtrace_from(&CallerContext(caller), addresses, count, walk) }
}

/// `unspool_backtrace_from`.
///
/// # Safety
///
/// As for [`unspool_backtrace`]; `ucontext` is a handler's that has not returned.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_backtrace_from(
    ucontext: *const c_void,
    addresses: *mut RuntimeAddr,
    count: usize,
    walk: *mut CWalk,
) -> usize {
    // SAFETY: the caller's promise.
    let context = unsafe { context::context(ucontext) };
    let top = local::SignalRegisters::from(context);
    // SAFETY: the caller's promise.
    unsafe { backtrace_from(&top, addresses, count, walk) }
}

/// # Safety
///
/// As for [`unspool_backtrace`].
unsafe fn backtrace_from(
    top: &impl InnermostFrame,
    addresses: *mut RuntimeAddr,
    count: usize,
    walk: *mut CWalk,
) -> usize {
    // SAFETY: the caller's promise.
    let addresses = unsafe { room(addresses, count) };
    let found = local::walk_from(top, addresses);
    if !walk.is_null() {
        // SAFETY: the caller's promise.
        unsafe { walk.write(CWalk::from(found)) };
    }
    found.frames
}

/// A caller's buffer for addresses: empty if the pointer is null, or if the size exceeds all
/// memory.
///
/// # Safety
///
/// Otherwise the memory is valid, and has no other user.
unsafe fn room<'r>(addresses: *mut RuntimeAddr, count: usize) -> &'r mut [RuntimeAddr] {
    let size = count.checked_mul(size_of::<RuntimeAddr>());
    let is_possible = size.is_some_and(|size| isize::try_from(size).is_ok());
    if addresses.is_null() || !is_possible {
        return &mut [];
    }
    // SAFETY: it does nothing. To the compiler it may have written to the memory, which C need not
    // have initialised: from here on the numbers there have arbitrary but fixed values.
    unsafe { asm!("/* {} */", in(reg) addresses, options(nostack, preserves_flags)) };
    // SAFETY: the caller's promise; an address has the representation of a pointer, and all bytes
    // are valid.
    unsafe { core::slice::from_raw_parts_mut(addresses, count) }
}

impl From<WalkResult> for CWalk {
    fn from(walk: WalkResult) -> Self {
        CWalk {
            frames: walk.frames,
            guesses: walk.guesses,
            end: codes::end(Some(walk.end)),
        }
    }
}

/// `unspool_cursor_here`.
///
/// # Safety
///
/// `cursor` is valid for writes.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn unspool_cursor_here(cursor: *mut CCursor) {
    call_with_caller_registers!("rsi", cursor_here)
}

unsafe extern "C" fn cursor_here(cursor: *mut CCursor, caller: &CallerRegisters) {
    let frame = CallerContext(caller).cursor();
    // SAFETY: the caller's promise; an `OwnCursor` fits.
    unsafe { cursor.cast::<OwnCursor>().write(frame) };
}

/// `unspool_cursor_from`.
///
/// # Safety
///
/// `cursor` is valid for writes; `ucontext` is a handler's that has not returned.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_cursor_from(cursor: *mut CCursor, ucontext: *const c_void) {
    // SAFETY: the caller's promise.
    let context = unsafe { context::context(ucontext) };
    // SAFETY: the caller's promise; an `OwnCursor` fits.
    unsafe { cursor.cast::<OwnCursor>().write(OwnCursor::from(context)) };
}

/// The frame of a cursor.
///
/// # Safety
///
/// The cursor was filled in, and has no other user now.
unsafe fn frame<'c>(cursor: *mut CCursor) -> &'c mut OwnCursor {
    // SAFETY: the caller's promise.
    unsafe { &mut *cursor.cast::<OwnCursor>() }
}

/// The frame of a cursor, for reading.
///
/// # Safety
///
/// The cursor was filled in, and is not being changed.
unsafe fn shown<'c>(cursor: *const CCursor) -> &'c OwnCursor {
    // SAFETY: the caller's promise.
    unsafe { &*cursor.cast::<OwnCursor>() }
}

/// `unspool_step`.
///
/// # Safety
///
/// The cursor was filled in; the frames that it walks have not returned.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_step(cursor: *mut CCursor) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { frame(cursor) }.step())
}

/// `unspool_address`.
///
/// # Safety
///
/// The cursor was filled in.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_address(cursor: *const CCursor) -> *mut c_void {
    // SAFETY: the caller's promise.
    pointer(unsafe { shown(cursor) }.code().address().0)
}

/// `unspool_is_return_address`.
///
/// # Safety
///
/// The cursor was filled in.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_is_return_address(cursor: *const CCursor) -> c_int {
    // SAFETY: the caller's promise.
    let code = unsafe { shown(cursor) }.code();
    c_int::from(matches!(code, unspool_rows::CodeAddr::Return(_)))
}

/// `unspool_is_signal_frame`.
///
/// # Safety
///
/// The cursor was filled in; its frame has not returned.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_is_signal_frame(cursor: *const CCursor) -> c_int {
    // SAFETY: the caller's promise.
    c_int::from(unsafe { shown(cursor) }.is_signal_frame())
}

/// Writes a known value and returns 0; returns -1 if it is unknown.
///
/// # Safety
///
/// The pointer is null or valid for writes.
unsafe fn answer(value: Option<u64>, into: *mut u64) -> c_int {
    let Some(value) = value else {
        return -1;
    };
    if !into.is_null() {
        // SAFETY: the caller's promise.
        unsafe { into.write(value) };
    }
    0
}

/// `unspool_get_register`.
///
/// # Safety
///
/// The cursor was filled in; `value` is null or valid for writes.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_get_register(
    cursor: *const CCursor,
    number: c_int,
    value: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let shown = unsafe { shown(cursor) };
    let known = numbered(number).and_then(|number| shown.register(number));
    // SAFETY: the caller's promise.
    unsafe { answer(known, value) }
}

fn numbered(number: c_int) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number < 17)
}

/// `unspool_set_register`.
///
/// # Safety
///
/// The cursor was filled in; its frame has not returned, and the value is valid for it.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_set_register(
    cursor: *mut CCursor,
    number: c_int,
    value: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let frame = unsafe { frame(cursor) };
    let Some(number) = numbered(number) else {
        return -1;
    };
    let (OwnRegisterLocation::Memory(addr), Some(_)) =
        (frame.register_location(number), frame.register(number))
    else {
        return -1;
    };
    // SAFETY: the frame's register is saved there, and was read as a word.
    unsafe { pointer(addr.0).cast::<u64>().write_unaligned(value) };
    frame.note(number, value);
    0
}

/// `unspool_save_location`.
///
/// # Safety
///
/// The cursor was filled in; `address` is null or valid for writes.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_save_location(
    cursor: *const CCursor,
    number: c_int,
    address: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let shown = unsafe { shown(cursor) };
    match numbered(number).map_or(OwnRegisterLocation::Unrecoverable, |number| {
        shown.register_location(number)
    }) {
        OwnRegisterLocation::Unrecoverable => 0,
        OwnRegisterLocation::Memory(at) => {
            if !address.is_null() {
                // SAFETY: the caller's promise.
                unsafe { address.write(pointer(at.0)) };
            }
            1
        }
        OwnRegisterLocation::SameRegister => 2,
        OwnRegisterLocation::Value => 3,
    }
}

/// `unspool_get_cfa`.
///
/// # Safety
///
/// The cursor was filled in, its frame has not returned; `value` is null or valid for writes.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_get_cfa(cursor: *const CCursor, value: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    let cfa = unsafe { shown(cursor) }.cfa();
    // SAFETY: the caller's promise.
    unsafe { answer(cfa.map(|cfa| cfa.0), value) }
}

/// `unspool_evidence_of`.
///
/// # Safety
///
/// The cursor was filled in.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_evidence_of(cursor: *const CCursor) -> c_int {
    // SAFETY: the caller's promise.
    codes::evidence(unsafe { shown(cursor) }.evidence())
}

/// `unspool_end_of`.
///
/// # Safety
///
/// The cursor was filled in.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_end_of(cursor: *const CCursor) -> c_int {
    // SAFETY: the caller's promise.
    codes::end(unsafe { shown(cursor) }.end())
}

/// `unspool_evidence_text`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_evidence_text(evidence: c_int) -> *const c_char {
    codes::evidence_text(evidence).as_ptr()
}

/// `unspool_end_text`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub extern "C" fn unspool_end_text(end: c_int) -> *const c_char {
    codes::end_text(end).as_ptr()
}

/// `unspool_resume`.
///
/// # Safety
///
/// The cursor was filled in; its frame has not returned, and the frames further in can be
/// abandoned.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_resume(cursor: *const CCursor, result: u64) -> c_int {
    // SAFETY: the caller's promise.
    match context::caller_registers(unsafe { shown(cursor) }) {
        // SAFETY: the caller's promise.
        Some(registers) => unsafe { continue_at(&registers, result, 0) },
        None => -1,
    }
}

/// `unspool_module_of`.
///
/// # Safety
///
/// `module` is null or valid for writes.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_module_of(address: *const c_void, module: *mut CModule) -> c_int {
    let Some(found) = local::modules().loaded(RuntimeAddr(address.addr() as u64)) else {
        return -1;
    };
    let about = CModule {
        start: pointer(found.start.0),
        end: pointer(found.end.0),
        bias: found.bias.0,
        build_id: found.build_id.as_ptr(),
        build_id_length: found.build_id.len(),
        has_table: c_int::from(found.has_table),
    };
    if !module.is_null() {
        // SAFETY: the caller's promise.
        unsafe { module.write(about) };
    }
    0
}

fn pointer(addr: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
}

/// `unspool_arguments`.
///
/// # Safety
///
/// The cursor was filled in; the frames that it walks have not returned; `into` is null or has room
/// for `count`.
#[cfg_attr(feature = "shared-object", unsafe(no_mangle))]
pub unsafe extern "C" fn unspool_arguments(
    cursor: *const CCursor,
    into: *mut CArgument,
    count: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let shown = unsafe { shown(cursor) };
    let room = if into.is_null() { 0 } else { count };
    let unproven = arguments::unproven_rules_within(shown);
    let mut all =
        (0..).map_while(|index| Some((index, arguments::argument_at(shown, unproven, index)?)));
    let mut known = 0;
    for (index, found) in &mut all {
        known = index + 1;
        if index < room {
            // SAFETY: the caller's promise: there is room for more than `index` of them.
            unsafe { into.wrapping_add(index).write(CArgument::from(found)) };
        }
    }
    known
}

impl From<arguments::ArgumentResult> for CArgument {
    fn from(result: arguments::ArgumentResult) -> Self {
        let parameter = result.parameter;
        CArgument {
            name: parameter.name.as_ptr(),
            name_length: parameter.name.len(),
            type_name: parameter.type_name.as_ptr(),
            type_length: parameter.type_name.len(),
            bytes: usize::try_from(parameter.bytes).unwrap_or(usize::MAX),
            kind: codes::display_kind_code(parameter.display_kind),
            certainty: codes::certainty(result.certainty),
            callers: result.caller_depth,
            value: result.value,
        }
    }
}
