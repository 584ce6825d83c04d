//! Replacements for parts of Rust's standard library, which this library does not use.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_int, c_void};
use core::panic::PanicInfo;

unsafe extern "C" {
    safe fn abort() -> !;
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void;
    fn calloc(count: usize, size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
    fn malloc(size: usize) -> *mut c_void;
    fn realloc(memory: *mut c_void, size: usize) -> *mut c_void;
}

/// No code of this library panics, which a lint checks. Panics of `core` end here.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    abort()
}

/// `_URC_CONTINUE_UNWIND`.
const CONTINUE_UNWIND: c_int = 8;

/// The personality of Rust's frames: when a client's function unwinds through them, they have
/// nothing to clean up.
// SAFETY: this library has no other definition, and does not export it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> c_int {
    CONTINUE_UNWIND
}

struct Malloc;

/// malloc's alignment on 64-bit machines.
const MALLOC_ALIGN: usize = 16;

#[global_allocator]
static MALLOC: Malloc = Malloc;

// SAFETY: memory is malloc's, which does not unwind; it is aligned to `MALLOC_ALIGN`, or as
// requested from `aligned_alloc`.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.align() {
            // SAFETY: takes any size.
            ..=MALLOC_ALIGN => unsafe { malloc(layout.size()) }.cast(),
            // SAFETY: `Layout` has alignments that are powers of two, and rounded-up sizes do not
            // overflow.
            align => unsafe { aligned_alloc(align, layout.pad_to_align().size()) }.cast(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match layout.align() {
            // SAFETY: takes any size.
            ..=MALLOC_ALIGN => unsafe { calloc(1, layout.size()) }.cast(),
            // No value here has such an alignment.
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the memory is from one of the functions above, all of malloc's family.
        unsafe { free(memory.cast()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match layout.align() {
            // SAFETY: the memory is from one of the functions above.
            ..=MALLOC_ALIGN => unsafe { realloc(memory.cast(), size) }.cast(),
            _ => core::ptr::null_mut(),
        }
    }
}
