//! A client for tests, with a range of words as its target.

use alloc::boxed::Box;
use core::ffi::{c_int, c_void};
use std::sync::Mutex;

use crate::abi::{Accessors, DynInfo, Error, ProcInfo, RegisterNumber, UnwWord};
use crate::client::Client;
use crate::remote_cfi;
use crate::space::AddressSpace;

/// A target.
pub(crate) struct FakeTarget {
    /// The address of the first word.
    pub(crate) start: u64,
    /// Memory; nothing else is readable.
    pub(crate) words: Mutex<std::vec::Vec<u64>>,
    /// The registers of the innermost frame.
    pub(crate) registers: Mutex<[u64; 17]>,
    /// Its unwind table.
    pub(crate) table: DynInfo,
}

impl FakeTarget {
    /// The client's argument for a cursor.
    pub(crate) fn argument(&self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// An address space of such targets. It is never freed.
pub(crate) fn space() -> &'static AddressSpace {
    let space = AddressSpace::new(Accessors {
        find_proc_info: Some(find_proc_info),
        access_mem: Some(access_mem),
        access_reg: Some(access_reg),
        ..Accessors::NONE
    });
    Box::leak(Box::new(space.unwrap()))
}

unsafe extern "C" fn find_proc_info(
    space: *mut AddressSpace,
    ip: UnwWord,
    info: *mut ProcInfo,
    _need_unwind_info: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: `FakeTarget::argument` made it, and the test keeps the target.
    let target = unsafe { &*argument.cast::<FakeTarget>() };
    // SAFETY: the library passes the address space of the call.
    let space = unsafe { &*space };
    // SAFETY: the library passes a structure of its own.
    let info = unsafe { &mut *info };
    let client = Client { space, argument };
    let found = remote_cfi::search(&client.memory(), &target.table, ip);
    Error::code_of(found.map(|found| *info = found))
}

unsafe extern "C" fn access_mem(
    _: *mut AddressSpace,
    addr: UnwWord,
    value: *mut UnwWord,
    write: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: `FakeTarget::argument` made it, and the test keeps the target.
    let target = unsafe { &*argument.cast::<FakeTarget>() };
    // SAFETY: the library passes a word of its own.
    let value = unsafe { &mut *value };
    assert_eq!(addr % 8, 0, "{addr:#x} is not aligned");
    let mut words = target.words.lock().unwrap();
    let at = addr.checked_sub(target.start).map(|bytes| bytes / 8);
    let at = at.and_then(|at| usize::try_from(at).ok());
    match at.and_then(|at| words.get_mut(at)) {
        Some(word) if write == 0 => *value = *word,
        Some(word) => *word = *value,
        None => return Error::INVALID.0,
    }
    0
}

unsafe extern "C" fn access_reg(
    _: *mut AddressSpace,
    register: RegisterNumber,
    value: *mut UnwWord,
    write: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: `FakeTarget::argument` made it, and the test keeps the target.
    let target = unsafe { &*argument.cast::<FakeTarget>() };
    // SAFETY: the library passes a word of its own.
    let value = unsafe { &mut *value };
    let register = usize::try_from(register).unwrap();
    let register = &mut target.registers.lock().unwrap()[register];
    match write {
        0 => *value = *register,
        _ => *register = *value,
    }
    0
}
