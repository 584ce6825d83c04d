//! The C functions of `<libunwind.h>`. Only the specifics of this implementation are documented
//! here.
//!
//! Arguments are references in place of C's pointers. By the interface's contract they are valid,
//! of the right type and not used by another thread, and an address space outlives its cursors.
//! Memory that C may not have initialised is `MaybeUninit`.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ops::{ControlFlow, Range};

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::abi::{
    self, Accessors, DynInfo, Error, FloatRegister, OpaqueCursor, ProcInfo, RegStatesCallback,
    RegisterNumber, SaveLocation, UnwWord,
};
use crate::client::Client;
use crate::cursor::{self, ClientCursor};
use crate::space::AddressSpace;
use crate::sys::{blob, callbacks, heap};
use crate::{image, remote_cfi, rule};

/// C's cursor has room for ours.
const _: () = assert!(
    size_of::<ClientCursor<'_>>() <= size_of::<OpaqueCursor>()
        && align_of::<ClientCursor<'_>>() <= align_of::<OpaqueCursor>()
);

const LITTLE_ENDIAN: c_int = 1234;

fn code(result: Result<c_int, Error>) -> c_int {
    let (Ok(code) | Err(Error(code))) = result;
    code
}

fn done(result: Result<(), Error>) -> c_int {
    code(result.map(|()| 0))
}

/// `unw_create_addr_space`: null for a byte order other than x86-64's, and without memory.
///
/// # Safety
///
/// `accessors` has the callbacks of version 1.6 at least.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_create_addr_space")
)]
pub unsafe extern "C" fn create_addr_space(
    accessors: *const Accessors,
    byte_order: c_int,
) -> Option<Box<AddressSpace>> {
    if !matches!(byte_order, 0 | LITTLE_ENDIAN) {
        return None;
    }
    // SAFETY: the caller's promise.
    let accessors = unsafe { callbacks::copied(accessors) };
    heap::boxed(AddressSpace::new(accessors).ok()?)
}

/// `unw_destroy_addr_space`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_destroy_addr_space")
)]
pub extern "C" fn destroy_addr_space(space: Option<Box<AddressSpace>>) {
    drop(space);
}

/// `unw_get_accessors`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_accessors")
)]
pub extern "C" fn get_accessors(space: &AddressSpace) -> &Accessors {
    &space.accessors
}

/// `unw_set_caching_policy`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_set_caching_policy")
)]
pub extern "C" fn set_caching_policy(space: &AddressSpace, policy: c_int) -> c_int {
    done(space.set_policy(policy))
}

/// `unw_set_cache_size`: has no effect, because caches have a fixed size. `flags` must be zero.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_set_cache_size")
)]
pub extern "C" fn set_cache_size(_space: &AddressSpace, _size: usize, flags: c_int) -> c_int {
    match flags {
        0 => 0,
        _ => Error::UNSPECIFIED.0,
    }
}

/// `unw_flush_cache`: forgets everything, for any range.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_flush_cache")
)]
pub extern "C" fn flush_cache(space: &AddressSpace, _low: UnwWord, _high: UnwWord) {
    space.flush();
}

/// `unw_set_iterate_phdr_function`: the function is not called, because modules of the own process
/// are found without a lock, by `_dl_find_object`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_set_iterate_phdr_function")
)]
pub extern "C" fn set_iterate_phdr_function(_space: &AddressSpace, _function: *const c_void) {}

/// `unw_init_remote`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_init_remote")
)]
pub extern "C" fn init_remote(
    cursor: &mut MaybeUninit<ClientCursor<'static>>,
    space: &'static AddressSpace,
    argument: *mut c_void,
) -> c_int {
    let client = Client { space, argument };
    done(client.top().map(|top| {
        cursor.write(ClientCursor::innermost(client, top));
    }))
}

/// `unw_step`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_step"))]
pub extern "C" fn step(cursor: &mut ClientCursor<'static>) -> c_int {
    cursor.step()
}

/// `unw_is_signal_frame`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_is_signal_frame")
)]
pub extern "C" fn is_signal_frame(cursor: &ClientCursor<'static>) -> c_int {
    c_int::from(cursor.is_interrupted())
}

/// `unw_get_reg`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_get_reg"))]
pub extern "C" fn get_reg(
    cursor: &ClientCursor<'static>,
    register: RegisterNumber,
    value: &mut MaybeUninit<UnwWord>,
) -> c_int {
    done(cursor.get(register).map(|got| {
        value.write(got);
    }))
}

/// `unw_set_reg`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_set_reg"))]
pub extern "C" fn set_reg(
    cursor: &mut ClientCursor<'static>,
    register: RegisterNumber,
    value: UnwWord,
) -> c_int {
    done(cursor.set(register, value))
}

/// `unw_get_fpreg`: libunwind has none on x86-64.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_get_fpreg"))]
pub extern "C" fn get_fpreg(
    _cursor: &ClientCursor<'static>,
    _register: RegisterNumber,
    _value: &mut MaybeUninit<FloatRegister>,
) -> c_int {
    Error::BAD_REGISTER.0
}

/// `unw_set_fpreg`: as [`get_fpreg`]. The value, a `long double`, is on the stack, and is not read.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_set_fpreg"))]
pub extern "C" fn set_fpreg(
    _cursor: &mut ClientCursor<'static>,
    _register: RegisterNumber,
) -> c_int {
    Error::BAD_REGISTER.0
}

/// `unw_is_fpreg`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_is_fpreg"))]
pub extern "C" fn is_fpreg(_register: RegisterNumber) -> c_int {
    0
}

/// `unw_get_save_loc`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_save_loc")
)]
pub extern "C" fn get_save_loc(
    cursor: &mut ClientCursor<'static>,
    register: RegisterNumber,
    location: &mut MaybeUninit<SaveLocation>,
) -> c_int {
    location.write(cursor.save_location(register));
    0
}

/// `unw_resume`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_resume"))]
pub extern "C" fn resume(cursor: &mut ClientCursor<'static>) -> c_int {
    cursor.use_rules();
    code(cursor.establish().and_then(|()| callbacks::resume(cursor)))
}

/// `unw_get_proc_info`: a frame without an entry counts as a procedure of one byte.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_proc_info")
)]
pub extern "C" fn get_proc_info(
    cursor: &ClientCursor<'static>,
    info: &mut MaybeUninit<ProcInfo>,
) -> c_int {
    let pc = cursor.code().lookup().0;
    let found = cursor.client().find_procedure(pc);
    info.write(found.unwrap_or(ProcInfo {
        start_ip: cursor.ip(),
        end_ip: cursor.ip().wrapping_add(1),
        ..ProcInfo::EMPTY
    }));
    0
}

/// `unw_get_proc_info_by_ip`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_proc_info_by_ip")
)]
pub extern "C" fn get_proc_info_by_ip(
    space: &AddressSpace,
    ip: UnwWord,
    info: &mut MaybeUninit<ProcInfo>,
    argument: *mut c_void,
) -> c_int {
    let client = Client { space, argument };
    done(client.find_procedure(ip).map(|found| {
        info.write(found);
    }))
}

/// `unw_get_proc_info_in_range`: the procedure of an address in `start..end`, by the
/// `.eh_frame_hdr` of that code. `info` is only written.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_proc_info_in_range")
)]
pub extern "C" fn get_proc_info_in_range(
    start: UnwWord,
    end: UnwWord,
    eh_frame_hdr: UnwWord,
    _eh_frame_hdr_bytes: UnwWord,
    _exidx: UnwWord,
    _exidx_bytes: UnwWord,
    space: &AddressSpace,
    ip: UnwWord,
    info: &mut MaybeUninit<ProcInfo>,
    need_unwind_info: c_int,
    argument: *mut c_void,
) -> c_int {
    let memory = Client { space, argument }.memory();
    let table = image::search_table(&memory, eh_frame_hdr, start..end);
    let found = table.and_then(|table| remote_cfi::search(&memory, &table, ip));
    done(found.map(|found| {
        info.write(as_wanted(found, need_unwind_info));
    }))
}

/// `unw_get_proc_name_by_ip`.
///
/// # Safety
///
/// As [`get_proc_name`].
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_proc_name_by_ip")
)]
pub unsafe extern "C" fn get_proc_name_by_ip(
    space: &AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    argument: *mut c_void,
) -> c_int {
    let client = Client { space, argument };
    let callback = space.accessors.get_proc_name;
    // SAFETY: the caller's promise.
    code(unsafe { callbacks::name(&client, callback, ip, buffer, length, offset) })
}

/// `unw_get_elf_filename`.
///
/// # Safety
///
/// As [`get_proc_name`].
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_elf_filename")
)]
pub unsafe extern "C" fn get_elf_filename(
    cursor: &ClientCursor<'static>,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
) -> c_int {
    let callback = cursor.client().space.accessors.get_elf_filename;
    // SAFETY: the caller's promise.
    code(unsafe { callbacks::name_at_frame(cursor, callback, buffer, length, offset) })
}

/// `unw_get_elf_filename_by_ip`.
///
/// # Safety
///
/// As [`get_proc_name`].
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_elf_filename_by_ip")
)]
pub unsafe extern "C" fn get_elf_filename_by_ip(
    space: &AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    argument: *mut c_void,
) -> c_int {
    let client = Client { space, argument };
    let callback = space.accessors.get_elf_filename;
    // SAFETY: the caller's promise.
    code(unsafe { callbacks::name(&client, callback, ip, buffer, length, offset) })
}

/// `unw_get_proc_name`.
///
/// # Safety
///
/// `buffer` has `length` bytes that can be written; `offset` can be written, or is null.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_proc_name")
)]
pub unsafe extern "C" fn get_proc_name(
    cursor: &ClientCursor<'static>,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
) -> c_int {
    let callback = cursor.client().space.accessors.get_proc_name;
    // SAFETY: the caller's promise.
    code(unsafe { callbacks::name_at_frame(cursor, callback, buffer, length, offset) })
}

/// `unw_reg_states_iterate`: the data for `callback` is a row in the form that [`apply_reg_state`]
/// takes.
///
/// # Safety
///
/// `callback` is a function of its type.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_reg_states_iterate")
)]
pub unsafe extern "C" fn reg_states_iterate(
    cursor: &ClientCursor<'static>,
    callback: RegStatesCallback,
    token: *mut c_void,
) -> c_int {
    let states = match states(cursor) {
        Ok(states) => states,
        Err(Error(code)) => return code,
    };
    let mut last = 0;
    for (mut data, addresses) in states {
        let Range { start, end } = addresses;
        // SAFETY: the caller's promise; `data` outlives the call.
        last = unsafe { callback(token, data.pointer(), data.size(), start, end) };
        if last < 0 {
            break;
        }
    }
    last
}

/// All rows of a frame's procedure, collected first: the callback may ask the address space for
/// another procedure, and that invalidates the entry found before.
fn states(cursor: &ClientCursor<'static>) -> Result<Vec<(blob::Blob, Range<UnwWord>)>, Error> {
    let client = cursor.client();
    let info = client.find_proc_info(cursor.code().lookup().0)?;
    let mut states = Vec::new();
    remote_cfi::rows(&client.memory(), &info, |at| {
        let data = blob::Blob::new(&rule::encoded(at.row)?)?;
        states.try_reserve(1).map_err(|_| Error::NO_MEMORY)?;
        states.push((data, at.start..at.end));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(states)
}

/// `unw_apply_reg_state`.
///
/// # Safety
///
/// `data` is from the callback of [`reg_states_iterate`], or a copy.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_apply_reg_state")
)]
pub unsafe extern "C" fn apply_reg_state(
    cursor: &mut ClientCursor<'static>,
    data: *const c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let row = unsafe { blob::row(data) };
    cursor.use_rules();
    cursor::answer(cursor.step_encoded(row))
}

/// `_Ux86_64_dwarf_search_unwind_table`: the entry of an address by a search table in the target.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_dwarf_search_unwind_table")
)]
pub extern "C" fn dwarf_search_unwind_table(
    space: &AddressSpace,
    ip: UnwWord,
    table: &DynInfo,
    info: &mut ProcInfo,
    need_unwind_info: c_int,
    argument: *mut c_void,
) -> c_int {
    let client = Client { space, argument };
    let found = remote_cfi::search(&client.memory(), table, ip);
    done(found.map(|found| *info = as_wanted(found, need_unwind_info)))
}

/// A procedure, with unwind information if that is needed.
fn as_wanted(found: ProcInfo, need_unwind_info: c_int) -> ProcInfo {
    if need_unwind_info != 0 {
        return found;
    }
    ProcInfo {
        unwind_info: core::ptr::null_mut(),
        unwind_info_size: 0,
        ..found
    }
}

/// `unw_regname`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_regname"))]
pub extern "C" fn regname(register: RegisterNumber) -> *const c_char {
    let name = usize::try_from(register).ok();
    let name = name.and_then(|register| REGISTER_NAMES.get(register));
    name.copied().unwrap_or(c"???").as_ptr()
}

const REGISTER_NAMES: [&CStr; 17] = [
    c"RAX", c"RDX", c"RCX", c"RBX", c"RSI", c"RDI", c"RBP", c"RSP", c"R8", c"R9", c"R10", c"R11",
    c"R12", c"R13", c"R14", c"R15", c"RIP",
];

/// `unw_strerror`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_Ux86_64_strerror"))]
pub extern "C" fn strerror(error: c_int) -> *const c_char {
    let text = match Error(error) {
        Error(0) => c"no error",
        Error::UNSPECIFIED => c"unspecified (general) error",
        Error::NO_MEMORY => c"out of memory",
        Error::BAD_REGISTER => c"bad register number",
        Error::READ_ONLY_REGISTER => c"attempt to write read-only register",
        Error::STOP => c"stop unwinding",
        Error::INVALID_IP => c"invalid IP",
        Error::BAD_FRAME => c"bad frame",
        Error::INVALID => c"unsupported operation or bad value",
        Error::BAD_VERSION => c"unwind info has unsupported version",
        Error::NO_INFO => c"no unwind info found",
        _ => c"invalid error code",
    };
    text.as_ptr()
}

// Not implemented. They exist because programs that do not need them link to them.

/// `_Ux86_64_dwarf_find_unwind_table`: used only by libunwind-ptrace and libunwind-coredump; not
/// implemented.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_dwarf_find_unwind_table")
)]
pub extern "C" fn dwarf_find_unwind_table() -> c_int {
    abi::Error::NO_INFO.0
}

/// `_Ux86_64_get_elf_image`: used only by libunwind-ptrace and libunwind-coredump; not implemented.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_elf_image")
)]
pub extern "C" fn get_elf_image() -> c_int {
    abi::Error::UNSPECIFIED.0
}

/// `_Ux86_64_get_exe_image_path`: not implemented.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_Ux86_64_get_exe_image_path")
)]
pub extern "C" fn get_exe_image_path() {}

/// `_ReadULEB`: a number in LEB128; `at` then points behind it.
///
/// # Safety
///
/// The number can be read.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_ReadULEB"))]
pub unsafe extern "C" fn read_uleb(at: &mut *const u8) -> UnwWord {
    // SAFETY: the caller's promise.
    unsafe { read_leb(at) }.0
}

/// `_ReadSLEB`: the same for a signed number.
///
/// # Safety
///
/// The number can be read.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_ReadSLEB"))]
pub unsafe extern "C" fn read_sleb(at: &mut *const u8) -> i64 {
    // SAFETY: the caller's promise.
    let (value, unused) = unsafe { read_leb(at) };
    (value << unused).cast_signed() >> unused
}

/// The unsigned number, and the number of its highest bits that were not encoded.
///
/// # Safety
///
/// The number can be read.
unsafe fn read_leb(at: &mut *const u8) -> (UnwWord, u32) {
    let (mut value, mut shift) = (0, 0_u32);
    loop {
        // SAFETY: the caller's promise.
        let byte = unsafe { at.read() };
        // SAFETY: within the number, or one past its end.
        *at = unsafe { at.add(1) };
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift = shift.saturating_add(7);
        if byte & 0x80 == 0 {
            return (value, u64::BITS.saturating_sub(shift));
        }
    }
}
