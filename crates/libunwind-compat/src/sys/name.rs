//! Names for C callers.

use core::ffi::c_char;

use crate::abi::{Error, UnwWord};

/// Puts a name and a zero byte into a buffer, truncated to its size. Puts the offset from the
/// name's address into `offset` if that is not null.
///
/// # Safety
///
/// `buffer` has `length` bytes that can be written; `offset` can be written, or is null.
pub(super) unsafe fn put_name(
    name: &[u8],
    buffer: *mut c_char,
    length: usize,
    distance: u64,
    offset: *mut UnwWord,
) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    if let Some(offset) = unsafe { offset.as_mut() } {
        *offset = distance;
    }
    let room = length.checked_sub(1).ok_or(Error::NO_MEMORY)?;
    let kept = name.get(..room).unwrap_or(name);
    // SAFETY: at most `length - 1` bytes, to C's memory, which does not overlap the file's.
    unsafe { core::ptr::copy_nonoverlapping(kept.as_ptr(), buffer.cast(), kept.len()) };
    // SAFETY: at most `length - 1` bytes in.
    let end = unsafe { buffer.add(kept.len()) };
    // SAFETY: in the buffer.
    unsafe { end.write(0) };
    if kept.len() == name.len() {
        Ok(())
    } else {
        Err(Error::NO_MEMORY)
    }
}
