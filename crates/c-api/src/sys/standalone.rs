//! What Rust's standard library brings, for a library that goes without it.

use core::ffi::c_int;
use core::panic::PanicInfo;

/// No code of this library panics; a lint sees to it. What is left in `core` ends here.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: takes nothing.
    unsafe { libc::abort() }
}

/// `_URC_CONTINUE_UNWIND`.
const CONTINUE_UNWIND: c_int = 8;

/// The personality of Rust's frames: none of ours has anything to clean up.
// SAFETY: nobody else defines it in this library, and it is not exported.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> c_int {
    CONTINUE_UNWIND
}
