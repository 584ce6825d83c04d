//! Loading libraries, and calling personality routines.
#![expect(unsafe_code, reason = "the loader's and languages' functions are C's")]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use unspool_exceptions::abi::{Actions, Exception, Personality, ReasonCode, VERSION};
use unspool_exceptions::context::UnwindContext;
use unspool_exceptions::facts::PersonalityAddr;

/// Loads a library, for as long as the process runs.
pub(crate) fn load(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the library is a compiler's or the system's; its initializers need nothing.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY) };
    if handle.is_null() {
        // SAFETY: takes nothing.
        let text = unsafe { libc::dlerror() };
        // SAFETY: the text of the failure, which stays until the next call.
        let text = unsafe { CStr::from_ptr(text) };
        panic!("{}: {}", path.display(), text.to_string_lossy());
    }
}

/// Calls a frame's personality routine for an exception of this class.
pub(crate) fn personality(
    address: PersonalityAddr,
    actions: Actions,
    exception: &mut Exception,
    context: &mut UnwindContext,
) -> ReasonCode {
    let routine = match address.pointer() {
        Some(pointer) => {
            let pointer =
                std::ptr::with_exposed_provenance::<usize>(usize::try_from(pointer).unwrap());
            // SAFETY: an entry of a loaded module names it.
            unsafe { pointer.read() }
        }
        None => usize::try_from(address.word()).unwrap(),
    };
    // SAFETY: a function of this type, as unwind tables name it.
    let routine = unsafe { std::mem::transmute::<usize, Personality>(routine) };
    // SAFETY: the call site has no action: nothing but the context is used.
    unsafe { routine(VERSION, actions, exception.class, exception, context) }
}
