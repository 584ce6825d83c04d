//! Calls to the client.
//!
//! They are sound by the interface's contract: callbacks accept any number and any pointer of the
//! documented kind, and return.

use core::ffi::{c_char, c_int};

use unspool_rows::{Memory as _, RuntimeAddr};
use unspool_unwind::local::OwnMemory;

use crate::abi::{Accessors, Error, NameCallback, ProcInfo, UnwWord};
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

/// The name of something at an address.
///
/// # Safety
///
/// `buffer` has `length` bytes that can be written; `offset` can be written, or is null.
pub(crate) unsafe fn name(
    client: &Client<'_>,
    callback: Option<NameCallback>,
    ip: u64,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
) -> Result<c_int, Error> {
    let name = callback.ok_or(Error::NO_INFO)?;
    // SAFETY: the contract above, and the caller's promise.
    Error::check(unsafe { name(client.handle(), ip, buffer, length, offset, client.argument) })
}

/// The name of something at a frame's address. A return address is looked up at its call.
///
/// # Safety
///
/// As [`name`].
pub(crate) unsafe fn name_at_frame(
    cursor: &ClientCursor<'static>,
    callback: Option<NameCallback>,
    buffer: *mut c_char,
    length: usize,
    offset: *mut UnwWord,
) -> Result<c_int, Error> {
    let pc = cursor.code().lookup().0;
    // SAFETY: the caller's promise.
    let found = unsafe { name(&cursor.client(), callback, pc, buffer, length, offset) };
    // SAFETY: the caller's promise.
    if let (Ok(0), Some(offset)) = (found, unsafe { offset.as_mut() }) {
        *offset = offset.wrapping_add(cursor.ip().wrapping_sub(pc));
    }
    found
}

/// A copy of a client's callbacks.
///
/// Clients of version 1.6 have fewer, and nothing says which those are. The later callbacks are
/// then what follows in their memory, if that can be read. Only functions that version 1.6 does not
/// have call them.
///
/// # Safety
///
/// `accessors` has those of version 1.6 at least.
pub(crate) unsafe fn copied(accessors: *const Accessors) -> Accessors {
    const LATER: usize = size_of::<Accessors>() - Accessors::SIZE_IN_1_6;
    let mut copy = Accessors::NONE;
    let into = (&raw mut copy).cast::<u8>();
    // SAFETY: the caller's promise.
    unsafe { into.copy_from_nonoverlapping(accessors.cast(), Accessors::SIZE_IN_1_6) };
    let mut later = [0; LATER];
    let address = accessors.wrapping_byte_add(Accessors::SIZE_IN_1_6);
    let address = RuntimeAddr(address.expose_provenance() as u64);
    if OwnMemory::with_modules().read(address, &mut later).is_ok() {
        // SAFETY: within `copy`.
        let into = unsafe { into.add(Accessors::SIZE_IN_1_6) };
        // SAFETY: the rest of `copy`, whose callbacks may have any value.
        unsafe { into.copy_from_nonoverlapping(later.as_ptr(), LATER) };
    }
    copy
}
