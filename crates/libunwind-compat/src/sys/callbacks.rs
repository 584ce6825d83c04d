//! Calls to the client.
//!
//! They are sound by the interface's contract: callbacks accept any number and any pointer of the
//! documented kind, and return.

use core::ffi::{c_char, c_int};

use crate::abi::{Error, ProcInfo, UnwWord};
use crate::client::Client;
use crate::cursor::ClientCursor;
use crate::space::AddressSpace;

const READ: c_int = 0;
const WRITE: c_int = 1;

impl Client<'_> {
    /// The address space for callbacks. They only pass it back to us, and we only make a shared
    /// reference from it: see `export`.
    fn handle(&self) -> *mut AddressSpace {
        core::ptr::from_ref(self.space).cast_mut()
    }
}

#[inline]
pub(crate) fn read_memory(client: &Client<'_>, addr: u64) -> Result<u64, Error> {
    let access = client.space.accessors.access_mem.ok_or(Error::INVALID)?;
    let mut word = 0;
    // SAFETY: the contract above; `word` can be written.
    let code = unsafe { access(client.handle(), addr, &raw mut word, READ, client.argument) };
    Error::check(code).map(|_| word)
}

pub(crate) fn write_memory(client: &Client<'_>, addr: u64, mut word: u64) -> Result<(), Error> {
    let access = client.space.accessors.access_mem.ok_or(Error::INVALID)?;
    // SAFETY: the contract above.
    let code = unsafe { access(client.handle(), addr, &raw mut word, WRITE, client.argument) };
    Error::check(code).map(drop)
}

pub(crate) fn read_register(client: &Client<'_>, number: u16) -> Result<u64, Error> {
    let access = client.space.accessors.access_reg.ok_or(Error::INVALID)?;
    let (mut word, number) = (0, c_int::from(number));
    // SAFETY: the contract above; `word` can be written.
    let code = unsafe {
        access(
            client.handle(),
            number,
            &raw mut word,
            READ,
            client.argument,
        )
    };
    Error::check(code).map(|_| word)
}

pub(crate) fn write_register(client: &Client<'_>, number: u16, mut word: u64) -> Result<(), Error> {
    let access = client.space.accessors.access_reg.ok_or(Error::INVALID)?;
    let number = c_int::from(number);
    // SAFETY: the contract above.
    let code = unsafe {
        access(
            client.handle(),
            number,
            &raw mut word,
            WRITE,
            client.argument,
        )
    };
    Error::check(code).map(drop)
}

pub(crate) fn find_proc_info(
    client: &Client<'_>,
    ip: u64,
    need_unwind_info: c_int,
) -> Result<ProcInfo, Error> {
    let find = client.space.accessors.find_proc_info;
    let find = find.ok_or(Error::INVALID)?;
    let mut info = ProcInfo::EMPTY;
    let (space, into) = (client.handle(), &raw mut info);
    // SAFETY: the contract above; `info` can be written.
    let code = unsafe { find(space, ip, into, need_unwind_info, client.argument) };
    Error::check(code).map(|_| info)
}

/// The address of the target's list of registered entries.
pub(crate) fn registered(client: &Client<'_>) -> Result<u64, Error> {
    let address = client.space.accessors.get_dyn_info_list_addr;
    let address = address.ok_or(Error::NO_INFO)?;
    let mut list = 0;
    // SAFETY: the contract above; `list` can be written.
    let code = unsafe { address(client.handle(), &raw mut list, client.argument) };
    Error::check(code).map(|_| list)
}

/// Continues the target in a frame.
pub(crate) fn resume(cursor: &mut ClientCursor<'static>) -> Result<c_int, Error> {
    let client = cursor.client();
    let resume = client.space.accessors.resume.ok_or(Error::INVALID)?;
    let cursor = core::ptr::from_mut(cursor).cast();
    // SAFETY: the contract above; every cursor comes from C, with an `OpaqueCursor`'s size.
    Error::check(unsafe { resume(client.handle(), cursor, client.argument) })
}

/// The name of a frame's procedure. A return address is looked up at its call.
///
/// # Safety
///
/// `buffer` has `length` bytes that can be written; `offset` can be written, or is null.
pub(crate) unsafe fn proc_name(
    cursor: &ClientCursor<'static>,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
) -> Result<c_int, Error> {
    let client = cursor.client();
    let name = client.space.accessors.get_proc_name.ok_or(Error::NO_INFO)?;
    let pc = cursor.code().lookup().0;
    // SAFETY: the contract above, and the caller's promise.
    let code = unsafe { name(client.handle(), pc, buffer, length, offset, client.argument) };
    // SAFETY: the caller's promise.
    if let (0, Some(offset)) = (code, unsafe { offset.as_mut() }) {
        *offset = offset.wrapping_add(cursor.ip().wrapping_sub(pc));
    }
    Error::check(code)
}
