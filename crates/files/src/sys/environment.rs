//! What the caller of the program gave it.

use core::ffi::CStr;

/// Whether the program has more rights than its caller (`AT_SECURE`: setuid, setgid, file
/// capabilities).
#[must_use]
pub fn is_privileged() -> bool {
    // SAFETY: takes a number, and returns 0 for an unknown one.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// As [`variable`](crate::environment::variable), without the standard library. Not
/// async-signal-safe.
#[must_use]
pub fn variable_bytes(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a name that ends with a zero byte; a thread that changes the environment meanwhile
    // breaks all other readers, too.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if is_privileged() || value.is_null() {
        return None;
    }
    // SAFETY: the result of `getenv` ends with a zero byte, and stays as said above.
    let value = unsafe { CStr::from_ptr(value) }.to_bytes();
    (!value.is_empty()).then_some(value)
}
