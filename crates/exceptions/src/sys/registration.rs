//! The functions by which programs register generated code, and by which unwinders find it.

use core::ffi::c_void;
use core::ptr;

use unspool_rows::RuntimeAddr;
use unspool_unwind::local::{self, OwnUnwindTable};

use crate::sys::registered::{ReadTime, Registered, RegisteredFdes};

/// The process's generated code.
pub(crate) static GENERATED: RegisteredFdes = RegisteredFdes::new();

/// `__register_frame`: a section, or a single FDE.
///
/// # Safety
///
/// It is valid until `__deregister_frame`.
#[unsafe(export_name = "__register_frame")]
pub unsafe extern "C" fn register_frame(section: *const c_void) {
    // SAFETY: the caller's promise.
    unsafe { GENERATED.register(Registered::SectionOrFde(address(section)), 0, ReadTime::Now) };
}

/// `__register_frame_info`. The object is the program's memory for the registry of libgcc; ours
/// only returns its address.
///
/// # Safety
///
/// As [`register_frame`].
#[unsafe(export_name = "__register_frame_info")]
pub unsafe extern "C" fn register_frame_info(section: *const c_void, object: *mut c_void) {
    let registered = Registered::Section(address(section));
    // SAFETY: the caller's promise.
    unsafe { GENERATED.register(registered, address(object), ReadTime::LookUp) };
}

/// `__register_frame_info_bases`. Pointers relative to the bases do not occur on x86-64.
///
/// # Safety
///
/// As [`register_frame`].
#[unsafe(export_name = "__register_frame_info_bases")]
pub unsafe extern "C" fn register_frame_info_bases(
    section: *const c_void,
    object: *mut c_void,
    _text_base: *mut c_void,
    _data_base: *mut c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { register_frame_info(section, object) };
}

/// `__register_frame_table`: a list of sections that ends with a null pointer.
///
/// # Safety
///
/// As [`register_frame`].
#[unsafe(export_name = "__register_frame_table")]
pub unsafe extern "C" fn register_frame_table(list: *const u64) {
    // SAFETY: the caller's promise.
    unsafe { GENERATED.register(Registered::List(address(list)), 0, ReadTime::Now) };
}

/// `__register_frame_info_table`.
///
/// # Safety
///
/// As [`register_frame`].
#[unsafe(export_name = "__register_frame_info_table")]
pub unsafe extern "C" fn register_frame_info_table(list: *const u64, object: *mut c_void) {
    let registered = Registered::List(address(list));
    // SAFETY: the caller's promise.
    unsafe { GENERATED.register(registered, address(object), ReadTime::LookUp) };
}

/// `__register_frame_info_table_bases`.
///
/// # Safety
///
/// As [`register_frame`].
#[unsafe(export_name = "__register_frame_info_table_bases")]
pub unsafe extern "C" fn register_frame_info_table_bases(
    list: *const u64,
    object: *mut c_void,
    _text_base: *mut c_void,
    _data_base: *mut c_void,
) {
    // SAFETY: the caller's promise.
    unsafe { register_frame_info_table(list, object) };
}

/// `__deregister_frame`.
#[unsafe(export_name = "__deregister_frame")]
pub extern "C" fn deregister_frame(section: *const c_void) {
    GENERATED.deregister(address(section));
}

/// `__deregister_frame_info`: the object of the registration, or null.
#[unsafe(export_name = "__deregister_frame_info")]
pub extern "C" fn deregister_frame_info(section: *const c_void) -> *mut c_void {
    let object = GENERATED.deregister(address(section));
    ptr::with_exposed_provenance_mut(usize::try_from(object).unwrap_or(0))
}

/// `__deregister_frame_info_bases`: the same.
#[unsafe(export_name = "__deregister_frame_info_bases")]
pub extern "C" fn deregister_frame_info_bases(section: *const c_void) -> *mut c_void {
    deregister_frame_info(section)
}

/// `struct dwarf_eh_bases` (gcc's libgcc/unwind-dw2-fde.h).
#[repr(C)]
#[derive(Debug)]
pub struct EhBases {
    text: *const c_void,
    data: *const c_void,
    function: *const c_void,
}

/// `_Unwind_Find_FDE`: the FDE that covers an address, or null, and the start of its function.
/// libgcc's own walks ask it, too: those that glibc begins for `pthread_exit` and
/// `pthread_cancel`.
#[unsafe(export_name = "_Unwind_Find_FDE")]
pub extern "C" fn find_fde(pc: *const c_void, bases: &mut EhBases) -> *const c_void {
    let pc = RuntimeAddr(address(pc));
    let Some((fde, function)) = in_module(pc).or_else(|| GENERATED.fde_and_start(pc.0)) else {
        return ptr::null();
    };
    *bases = EhBases {
        text: ptr::null(),
        data: ptr::null(),
        function: pointer(function),
    };
    pointer(fde)
}

fn in_module(pc: RuntimeAddr) -> Option<(u64, u64)> {
    let by_table = |OwnUnwindTable { lookup, bias, .. }: OwnUnwindTable<'_>| {
        let (_, fde) = lookup.entry(bias.to_vaddr(pc)).ok()??;
        let section = bias.to_runtime(lookup.section().address);
        let start = bias.to_runtime(fde.start);
        Some((section.0.wrapping_add(fde.offset), start.0))
    };
    local::modules().with_unwind_table(pc, by_table)?
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn pointer(addr: u64) -> *const c_void {
    ptr::with_exposed_provenance(usize::try_from(addr).unwrap_or(0))
}
