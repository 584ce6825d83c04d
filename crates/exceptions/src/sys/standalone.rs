//! Replacements for parts of Rust's standard library, which this library does not use.

use core::ffi::c_int;
use core::panic::PanicInfo;

use crate::abi::CONTINUE_UNWIND;

/// No code of this library panics, which a lint checks. Panics of `core` end here.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

/// The personality of Rust's frames: when a foreign function unwinds through them, they have
/// nothing to clean up.
// SAFETY: this library has no other definition, and does not export it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> c_int {
    CONTINUE_UNWIND
}
