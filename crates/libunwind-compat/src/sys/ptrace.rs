//! The C functions of `<libunwind-ptrace.h>`: callbacks for a process that the caller traces.
//!
//! Arguments are as in [`export`](super::export). All `argument`s come from [`create`].

use alloc::boxed::Box;
use core::ffi::{c_char, c_int, c_void};

use crate::abi::{
    Accessors, Error, FloatRegister, OpaqueCursor, ProcInfo, RegisterNumber, UnwWord,
};
use crate::ptrace_target::PtraceTarget;
use crate::space::AddressSpace;
use crate::sys::name::put_name;
use crate::sys::{heap, os};

const REGISTERS: usize = 17;

/// The offsets of registers in `struct user` (sys/user.h), in bytes.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_reg_offset"))]
pub static REG_OFFSET: [c_int; REGISTERS] = [
    80, 96, 88, 40, 104, 112, 32, 152, 72, 64, 56, 48, 24, 16, 8, 0, 128,
];

/// All callbacks.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_accessors"))]
pub static ACCESSORS: Accessors = Accessors {
    find_proc_info: Some(find_proc_info),
    put_unwind_info: Some(put_unwind_info),
    get_dyn_info_list_addr: Some(get_dyn_info_list_addr),
    access_mem: Some(access_mem),
    access_reg: Some(access_reg),
    access_fpreg: Some(access_fpreg),
    resume: Some(resume),
    get_proc_name: Some(get_proc_name),
    get_elf_filename: Some(get_elf_filename),
    ..Accessors::NONE
};

/// The target made by [`create`].
///
/// # Safety
///
/// `argument` is null or from [`create`], and has no other user meanwhile.
unsafe fn ptrace_target<'a>(argument: *mut c_void) -> Result<&'a mut PtraceTarget, Error> {
    // SAFETY: the caller's promise.
    unsafe { argument.cast::<PtraceTarget>().as_mut() }.ok_or(Error::INVALID)
}

/// `_UPT_create`: null without memory.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_create"))]
pub extern "C" fn create(pid: c_int) -> Option<Box<PtraceTarget>> {
    heap::boxed(PtraceTarget::new(pid))
}

/// `_UPT_destroy`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_destroy"))]
pub extern "C" fn destroy(traced: Option<Box<PtraceTarget>>) {
    drop(traced);
}

/// `_UPT_find_proc_info`.
///
/// # Safety
///
/// `info` can be written; `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_find_proc_info"))]
pub unsafe extern "C" fn find_proc_info(
    _space: *mut AddressSpace,
    ip: UnwWord,
    info: *mut ProcInfo,
    _need_unwind_info: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { ptrace_target(argument) }.and_then(|traced| traced.find_proc_info(ip));
    Error::code_of(found.map(|found| {
        // SAFETY: the caller's promise.
        unsafe { info.write(found) };
    }))
}

/// `_UPT_put_unwind_info`: does nothing, since nothing was allocated.
///
/// # Safety
///
/// None is needed.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UPT_put_unwind_info")
)]
pub unsafe extern "C" fn put_unwind_info(
    _space: *mut AddressSpace,
    _info: *mut ProcInfo,
    _argument: *mut c_void,
) {
}

/// `_UPT_get_dyn_info_list_addr`: always without a list.
///
/// # Safety
///
/// None is needed.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UPT_get_dyn_info_list_addr")
)]
pub unsafe extern "C" fn get_dyn_info_list_addr(
    _space: *mut AddressSpace,
    _address: *mut UnwWord,
    _argument: *mut c_void,
) -> c_int {
    Error::NO_INFO.0
}

/// `_UPT_access_mem`.
///
/// # Safety
///
/// `value` can be read and written; `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_access_mem"))]
pub unsafe extern "C" fn access_mem(
    _space: *mut AddressSpace,
    addr: UnwWord,
    value: *mut UnwWord,
    write: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let traced = unsafe { ptrace_target(argument) };
    Error::code_of(traced.and_then(|traced| match write {
        0 => os::peek(traced.pid(), addr).map(|word| {
            // SAFETY: the caller's promise.
            unsafe { value.write(word) };
        }),
        // SAFETY: the caller's promise.
        _ => os::poke(traced.pid(), addr, unsafe { value.read() }),
    }))
}

/// `_UPT_access_reg`.
///
/// # Safety
///
/// `value` can be read and written; `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_access_reg"))]
pub unsafe extern "C" fn access_reg(
    _space: *mut AddressSpace,
    register: RegisterNumber,
    value: *mut UnwWord,
    write: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let traced = unsafe { ptrace_target(argument) };
    let number = usize::try_from(register).ok();
    let offset = number.and_then(|number| REG_OFFSET.get(number));
    let offset = offset.and_then(|offset| u64::try_from(*offset).ok());
    let offset = offset.ok_or(Error::BAD_REGISTER);
    let both = traced.and_then(|traced| Ok((traced.pid(), offset?)));
    Error::code_of(both.and_then(|(pid, offset)| match write {
        0 => os::peek_user(pid, offset).map(|word| {
            // SAFETY: the caller's promise.
            unsafe { value.write(word) };
        }),
        // SAFETY: the caller's promise.
        _ => os::poke_user(pid, offset, unsafe { value.read() }),
    }))
}

/// `_UPT_access_fpreg`: libunwind has none on x86-64.
///
/// # Safety
///
/// None is needed.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_access_fpreg"))]
pub unsafe extern "C" fn access_fpreg(
    _space: *mut AddressSpace,
    _register: RegisterNumber,
    _value: *mut FloatRegister,
    _write: c_int,
    _argument: *mut c_void,
) -> c_int {
    Error::BAD_REGISTER.0
}

/// `_UPT_resume`.
///
/// # Safety
///
/// `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_resume"))]
pub unsafe extern "C" fn resume(
    _space: *mut AddressSpace,
    _cursor: *mut OpaqueCursor,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    Error::code_of(unsafe { ptrace_target(argument) }.and_then(|traced| os::resume(traced.pid())))
}

/// `_UPT_get_proc_name`: [`Error::NO_MEMORY`] for a truncated name.
///
/// # Safety
///
/// `buffer` has `length` bytes that can be written; `offset` can be written, or is null;
/// `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UPT_get_proc_name"))]
pub unsafe extern "C" fn get_proc_name(
    _space: *mut AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let traced = unsafe { ptrace_target(argument) };
    Error::code_of(traced.and_then(|traced| {
        traced.function(ip, |name, distance| {
            // SAFETY: the caller's promise.
            unsafe { put_name(name, buffer, length, distance, offset) }
        })
    }))
}

/// `_UPT_get_elf_filename`: [`Error::NO_MEMORY`] for a truncated path.
///
/// # Safety
///
/// As [`get_proc_name`].
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UPT_get_elf_filename")
)]
pub unsafe extern "C" fn get_elf_filename(
    _space: *mut AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let traced = unsafe { ptrace_target(argument) };
    Error::code_of(traced.and_then(|traced| {
        traced.file(ip, |path, distance| {
            // SAFETY: the caller's promise.
            unsafe { put_name(path, buffer, length, distance, offset) }
        })
    }))
}
