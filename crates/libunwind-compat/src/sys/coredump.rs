//! The C functions of `<libunwind-coredump.h>`: callbacks for a core file.
//!
//! Arguments are as in [`export`](super::export). All `argument`s come from [`create`]. Callbacks
//! that do nothing are those of [`ptrace`](super::ptrace) under another name.

use alloc::boxed::Box;
use core::ffi::{CStr, c_char, c_int, c_ulong, c_void};

use crate::abi::{Accessors, Error, OpaqueCursor, ProcInfo, RegisterNumber, UnwWord};
use crate::core_file::CoreFile;
use crate::space::AddressSpace;
use crate::sys::heap;
use crate::sys::name::put_name;
use crate::sys::os::map_file;
use crate::sys::ptrace::{REG_OFFSET, access_fpreg, get_dyn_info_list_addr, put_unwind_info};

/// All callbacks.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_accessors"))]
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

/// The core file made by [`create`].
///
/// # Safety
///
/// `argument` is null or from [`create`], and has no other user meanwhile.
unsafe fn core_file<'a>(argument: *mut c_void) -> Result<&'a mut CoreFile, Error> {
    // SAFETY: the caller's promise.
    unsafe { argument.cast::<CoreFile>().as_mut() }.ok_or(Error::INVALID)
}

/// `_UCD_create`: null if the file is not a core file, or without memory.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_create"))]
pub extern "C" fn create(path: CStrArgument<'_>) -> Option<Box<CoreFile>> {
    let file = map_file(path.get()).ok()?;
    heap::boxed(CoreFile::new(file).ok()?)
}

/// A string that ends with a zero byte.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct CStrArgument<'s>(&'s c_char);

impl<'s> CStrArgument<'s> {
    fn get(self) -> &'s CStr {
        // SAFETY: C passed it as a string.
        unsafe { CStr::from_ptr(self.0) }
    }
}

/// `_UCD_destroy`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_destroy"))]
pub extern "C" fn destroy(core: Option<Box<CoreFile>>) {
    drop(core);
}

/// `_UCD_get_num_threads`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UCD_get_num_threads")
)]
pub extern "C" fn get_num_threads(core: &CoreFile) -> c_int {
    c_int::try_from(core.threads()).unwrap_or(c_int::MAX)
}

/// `_UCD_select_thread`.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_select_thread"))]
pub extern "C" fn select_thread(core: &mut CoreFile, thread: c_int) {
    if let Ok(thread) = usize::try_from(thread) {
        core.select(thread);
    }
}

/// `_UCD_get_pid`: of the selected thread.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_get_pid"))]
pub extern "C" fn get_pid(core: &CoreFile) -> c_int {
    core.thread_id()
}

/// `_UCD_get_cursig`: of the selected thread.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_get_cursig"))]
pub extern "C" fn get_cursig(core: &CoreFile) -> c_int {
    core.signal()
}

/// `_UCD_add_backing_file_at_segment`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UCD_add_backing_file_at_segment")
)]
pub extern "C" fn add_backing_file_at_segment(
    core: &mut CoreFile,
    segment: c_int,
    path: CStrArgument<'_>,
) -> c_int {
    let segment = usize::try_from(segment).map_err(|_| Error::UNSPECIFIED);
    let added = segment.and_then(|segment| core.add_backing(segment, map_file(path.get())?));
    added.map_or(-1, |()| 0)
}

/// `_UCD_add_backing_file_at_vaddr`.
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UCD_add_backing_file_at_vaddr")
)]
pub extern "C" fn add_backing_file_at_vaddr(
    core: &mut CoreFile,
    vaddr: c_ulong,
    path: CStrArgument<'_>,
) -> c_int {
    let segment = core
        .segment_at(vaddr)
        .and_then(|segment| c_int::try_from(segment).ok());
    segment.map_or(-1, |segment| {
        add_backing_file_at_segment(core, segment, path)
    })
}

/// `_UCD_get_mapinfo`: libunwind calls it internally, on unpublished structures.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_get_mapinfo"))]
pub extern "C" fn get_mapinfo() -> c_int {
    Error::UNSPECIFIED.0
}

/// `_UCD_get_threadinfo`: libunwind calls it internally, on unpublished structures.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_get_threadinfo"))]
pub extern "C" fn get_threadinfo() -> c_int {
    Error::UNSPECIFIED.0
}

/// `_UCD_find_proc_info`.
///
/// # Safety
///
/// `info` can be written; `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_find_proc_info"))]
pub unsafe extern "C" fn find_proc_info(
    _space: *mut AddressSpace,
    ip: UnwWord,
    info: *mut ProcInfo,
    _need_unwind_info: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let found = unsafe { core_file(argument) }.and_then(|core| core.find_proc_info(ip));
    Error::code_of(found.map(|found| {
        // SAFETY: the caller's promise.
        unsafe { info.write(found) };
    }))
}

/// `_UCD_access_mem`: for reading.
///
/// # Safety
///
/// `value` can be written; `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_access_mem"))]
pub unsafe extern "C" fn access_mem(
    _space: *mut AddressSpace,
    addr: UnwWord,
    value: *mut UnwWord,
    write: c_int,
    argument: *mut c_void,
) -> c_int {
    if write != 0 {
        return Error::INVALID.0;
    }
    // SAFETY: the caller's promise.
    let read = unsafe { core_file(argument) }.and_then(|core| core.word(addr));
    Error::code_of(read.map(|word| {
        // SAFETY: the caller's promise.
        unsafe { value.write(word) };
    }))
}

/// `_UCD_access_reg`: for reading.
///
/// # Safety
///
/// `value` can be written; `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_access_reg"))]
pub unsafe extern "C" fn access_reg(
    _space: *mut AddressSpace,
    register: RegisterNumber,
    value: *mut UnwWord,
    write: c_int,
    argument: *mut c_void,
) -> c_int {
    if write != 0 {
        return Error::INVALID.0;
    }
    let number = usize::try_from(register).ok();
    let offset = number.and_then(|number| REG_OFFSET.get(number));
    let offset = offset.and_then(|offset| usize::try_from(*offset).ok());
    let offset = offset.ok_or(Error::BAD_REGISTER);
    // SAFETY: the caller's promise.
    let read = unsafe { core_file(argument) }.and_then(|core| core.register(offset?));
    Error::code_of(read.map(|word| {
        // SAFETY: the caller's promise.
        unsafe { value.write(word) };
    }))
}

/// `_UCD_resume`: a core file cannot continue.
///
/// # Safety
///
/// None is needed.
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_resume"))]
pub unsafe extern "C" fn resume(
    _space: *mut AddressSpace,
    _cursor: *mut OpaqueCursor,
    _argument: *mut c_void,
) -> c_int {
    Error::INVALID.0
}

/// `_UCD_get_proc_name`: [`Error::NO_MEMORY`] for a truncated name.
///
/// # Safety
///
/// `buffer` has `length` bytes that can be written; `offset` can be written, or is null;
/// `argument` is from [`create`].
#[cfg_attr(feature = "shared-object", unsafe(export_name = "_UCD_get_proc_name"))]
pub unsafe extern "C" fn get_proc_name(
    _space: *mut AddressSpace,
    ip: UnwWord,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let core = unsafe { core_file(argument) };
    Error::code_of(core.and_then(|core| {
        core.function(ip, |name, distance| {
            // SAFETY: the caller's promise.
            unsafe { put_name(name, buffer, length, distance, offset) }
        })
    }))
}

/// `_UCD_get_elf_filename`: [`Error::NO_MEMORY`] for a truncated path.
///
/// # Safety
///
/// As [`get_proc_name`].
#[cfg_attr(
    feature = "shared-object",
    unsafe(export_name = "_UCD_get_elf_filename")
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
    let core = unsafe { core_file(argument) };
    Error::code_of(core.and_then(|core| {
        core.file_name(ip, |path, distance| {
            // SAFETY: the caller's promise.
            unsafe { put_name(path, buffer, length, distance, offset) }
        })
    }))
}
