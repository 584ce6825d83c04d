//! Calls of the C library and the kernel.
#![expect(
    unsafe_code,
    reason = "system calls, signals; a memory map is only as stable as its file"
)]

pub(crate) mod environment;
#[cfg(feature = "std")]
pub(crate) mod lost_pages;
#[cfg(feature = "std")]
pub(crate) mod mount;
pub mod raw;
