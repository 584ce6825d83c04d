//! Memory of a running process.

use std::io;

use unspool_rows::RuntimeAddr;

use crate::sys;

/// Reads memory of a running process, by the ID of any of its threads. Yields the number of bytes
/// up to the first unreadable page, which may be fewer than requested.
///
/// # Errors
///
/// There is no such process, it may not be read, or nothing can be read at the address
/// (`process_vm_readv(2)`).
pub fn read_memory(tid: u32, addr: RuntimeAddr, into: &mut [u8]) -> io::Result<usize> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let tid = i32::try_from(tid).map_err(invalid)?;
    let range = (usize::try_from(addr.0).map_err(invalid)?, into.len());
    sys::read_memory(tid, into, &[range])
}
