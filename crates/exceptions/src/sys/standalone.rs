//! Replacements for parts of Rust's standard library, which this library does not use, and its
//! initializer.

use core::ffi::c_int;
use core::panic::PanicInfo;

use unspool_unwind::local;

use crate::abi::CONTINUE_UNWIND;
use crate::generated_code;
use crate::sys::registration::GENERATED;

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

/// Runs on loading: finds the modules that are never unloaded, so that no unwind has to check for
/// them. Takes the loader's lock, which the loader has then.
#[unsafe(export_name = "unspool_eh_load")]
extern "C" fn on_load() {
    local::modules().prepare();
    generated_code::set_registry(&GENERATED);
}
