//! Frames for walks, and the C library's result for them.
#![allow(
    dead_code,
    reason = "used by several test files, none of which uses all of it"
)]

use std::ffi::{c_int, c_void};
use std::hint::black_box;

unsafe extern "C" {
    fn backtrace(addresses: *mut *mut c_void, size: c_int) -> c_int;
}

/// glibc's result: return addresses, the first in the caller.
#[inline(never)]
pub(crate) fn by_glibc() -> Vec<u64> {
    let mut addresses = [std::ptr::null_mut(); 600];
    // SAFETY: the buffer has room for this many.
    let count = unsafe { backtrace(addresses.as_mut_ptr(), 600) };
    let found = addresses.iter().take(usize::try_from(count).unwrap_or(0));
    found.skip(1).map(|address| address.addr() as u64).collect()
}

/// Calls `body` below `depth` frames, from two call sites.
#[inline(never)]
pub(crate) fn below(depth: usize, body: &mut dyn FnMut()) {
    let locals = black_box([depth; 5]);
    if depth == 0 {
        body();
    } else if depth.is_multiple_of(3) {
        below(black_box(depth - 1), body);
    } else {
        below(black_box(depth - 1), body);
        black_box(&locals);
    }
    black_box(&locals);
}
