//! Functions of libgcc's unwinder, where that is loaded, too.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;

/// A function of libgcc, which is looked up when it is first asked for.
pub(super) struct Function<F> {
    name: &'static CStr,
    /// Null until it is known.
    found: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

impl<F: Copy> Function<F> {
    /// # Safety
    ///
    /// `F` is the type of a pointer to the function of this name.
    pub(super) const unsafe fn new(name: &'static CStr) -> Self {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) }
        Function {
            name,
            found: AtomicPtr::new(ptr::null_mut()),
            kind: PhantomData,
        }
    }

    /// The function, if libgcc is loaded. Then it stays so.
    pub(super) fn get(&self) -> Option<F> {
        let function = found_once(&self.found, || {
            let library = library()?;
            // SAFETY: a library that is loaded; the name ends with a zero byte.
            Some(unsafe { dlsym(library, self.name.as_ptr()) })
        })?;
        // SAFETY: the address of the function, of which `new` was told the type, and the size is that
        // of an address.
        Some(unsafe { mem::transmute_copy::<*mut c_void, F>(&function) })
    }
}

/// libgcc, if it is loaded.
fn library() -> Option<*mut c_void> {
    static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    found_once(&LIBRARY, || {
        let name = c"libgcc_s.so.1".as_ptr();
        // SAFETY: loads nothing.
        Some(unsafe { dlopen(name, RTLD_LAZY | RTLD_NOLOAD) })
    })
}

/// What is kept, or else what `find` finds, to be kept. Null is nothing.
fn found_once(
    kept: &AtomicPtr<c_void>,
    find: impl FnOnce() -> Option<*mut c_void>,
) -> Option<*mut c_void> {
    let known = kept.load(Ordering::Relaxed);
    if !known.is_null() {
        return Some(known);
    }
    let found = find().filter(|found| !found.is_null())?;
    kept.store(found, Ordering::Relaxed);
    Some(found)
}
