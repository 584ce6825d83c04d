//! Any text as a mangled name: reading it ends, the readable name is bounded, and one without substitutions
//! and templates is the same as libstdc++'s demangler makes it, if both read it. Real names are compared by
//! `cargo xtask demangle`.
#![no_main]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libfuzzer_sys::fuzz_target;
use unspool_demangle::{MAX_NAME_BYTES, SignatureDetail, cxx};

unsafe extern "C" {
    fn __cxa_demangle(
        name: *const c_char,
        buffer: *mut c_char,
        length: *mut usize,
        status: *mut c_int,
    ) -> *mut c_char;
    fn free(memory: *mut c_void);
}

/// A name as libstdc++ demangles it.
fn demangle_with_libstdcxx(name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    let mut status = 0;
    let null = std::ptr::null_mut;
    // SAFETY: the name ends with a zero; without a buffer the result is allocated by malloc.
    let text =
        unsafe { __cxa_demangle(name.as_ptr(), null(), std::ptr::null_mut(), &raw mut status) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the result ends with a zero.
    let readable = unsafe { CStr::from_ptr(text) }
        .to_str()
        .ok()
        .map(str::to_owned);
    // SAFETY: it is of malloc, and not used any more.
    unsafe { free(text.cast()) };
    readable
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let name = format!("_Z{text}");
    let whole = cxx(&name, SignatureDetail::Whole);
    for signature in [
        SignatureDetail::WithoutReturnType,
        SignatureDetail::NameOnly,
    ] {
        // Less of a name that can be read can be read.
        assert!(whole.is_none() || cxx(&name, signature).is_some());
    }
    // Plain nested names of functions with builtin types and pointers.
    let is_plain = text
        .bytes()
        .all(|byte| b"N0123456789EPRKabcdfhijlmstvwxyKC1D2".contains(&byte));
    if let (true, Some(ours), Some(theirs)) = (is_plain, &whole, demangle_with_libstdcxx(&name)) {
        assert_eq!(*ours, theirs, "{name}");
    }
    assert!(whole.is_none_or(|readable| readable.len() <= MAX_NAME_BYTES));
});
