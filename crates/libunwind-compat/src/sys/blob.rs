//! A row as the opaque bytes that clients pass from `unw_reg_states_iterate` to
//! `unw_apply_reg_state`: the length in four bytes, and the encoded row.

use alloc::vec::Vec;
use core::ffi::c_void;

use crate::abi::Error;

pub(super) struct Blob(Vec<u8>);

const HEADER: usize = 4;

impl Blob {
    pub(super) fn new(row: &[u8]) -> Result<Blob, Error> {
        let len = u32::try_from(row.len()).map_err(|_| Error::INVALID)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(HEADER + row.len())
            .map_err(|_| Error::NO_MEMORY)?;
        bytes.extend_from_slice(&len.to_ne_bytes());
        bytes.extend_from_slice(row);
        Ok(Blob(bytes))
    }

    pub(super) fn pointer(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    pub(super) fn size(&self) -> usize {
        self.0.len()
    }
}

/// The encoded row.
///
/// # Safety
///
/// `data` points to the bytes of a [`Blob`], valid while the row is used.
pub(super) unsafe fn row<'a>(data: *const c_void) -> &'a [u8] {
    // SAFETY: a blob begins with its header.
    let len = unsafe { data.cast::<[u8; HEADER]>().read() };
    let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(0);
    // SAFETY: the header is within the blob.
    let row = unsafe { data.cast::<u8>().add(HEADER) };
    // SAFETY: the header has the number of bytes that follow.
    unsafe { core::slice::from_raw_parts(row, len) }
}
