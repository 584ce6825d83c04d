//! Files, the environment and the clock, through the C library.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::ptr;

use unspool_compiled_table::CompiledTable;
use unspool_files::raw::FileStatus;
use unspool_unwind::local::store::FixedPath;

/// Opens standard error again, if that is a pipe or a character device: then writes fail instead of
/// blocking. `None` also if the kernel refuses. Async-signal-safe.
pub(crate) fn open_standard_error() -> Option<c_int> {
    let kind = FileStatus::from_descriptor(libc::STDERR_FILENO)?.kind();
    if !matches!(kind, libc::S_IFCHR | libc::S_IFIFO) {
        return None;
    }
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the path ends with a zero byte.
    let file = unsafe { libc::open(c"/proc/self/fd/2".as_ptr(), flags) };
    (file >= 0).then_some(file)
}

/// Whether writing to a descriptor neither destroys data nor answers a peer: a terminal or another
/// character device, a pipe, or a file in append mode. Async-signal-safe.
pub(crate) fn is_for_messages(descriptor: c_int) -> bool {
    match FileStatus::from_descriptor(descriptor).map(|status| status.kind()) {
        Some(libc::S_IFCHR | libc::S_IFIFO) => true,
        Some(libc::S_IFREG) => {
            // SAFETY: only a query.
            let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
            flags >= 0 && flags & libc::O_APPEND != 0
        }
        _ => false,
    }
}

/// Leaks a table, on a page of its own.
pub(crate) fn leak_table(table: CompiledTable<'static>) -> Option<&'static CompiledTable<'static>> {
    let at = pages(mem::size_of_val(&table))?.cast::<CompiledTable<'static>>();
    // SAFETY: fresh memory, large enough, and aligned to a page.
    unsafe { at.write(table) };
    // SAFETY: written just now; never unmapped, and without another user.
    Some(unsafe { &*at })
}

/// Leaks a copy of the bytes.
pub(crate) fn leak_copy(bytes: &[u8]) -> Option<&'static [u8]> {
    let at = pages(bytes.len())?.cast::<u8>();
    // SAFETY: fresh memory, large enough.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
    // SAFETY: written just now; never unmapped, and without another user.
    Some(unsafe { core::slice::from_raw_parts(at, bytes.len()) })
}

/// Leaks `count` zeros.
pub(crate) fn zeros(count: usize) -> Option<&'static mut [u64]> {
    let at = pages(count.checked_mul(mem::size_of::<u64>())?)?;
    // SAFETY: fresh memory, large enough, zeroed, aligned to a page; never unmapped, and without
    // another user.
    Some(unsafe { core::slice::from_raw_parts_mut(at.cast(), count) })
}

/// New pages of memory.
fn pages(size: usize) -> Option<*mut c_void> {
    // SAFETY: a new mapping, at no fixed address.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (at != libc::MAP_FAILED).then_some(at)
}

/// The folder for relative paths.
pub(crate) fn working_directory() -> Option<FixedPath> {
    let mut room = [0_u8; FixedPath::MAX_BYTES];
    // SAFETY: pointer and length are those of this function's buffer.
    let found = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
    let found = CStr::from_bytes_until_nul(&room)
        .ok()
        .filter(|_| !found.is_null())?;
    let mut path = FixedPath::new();
    path.push(found.to_bytes())?;
    Some(path)
}

/// The error of the thread's last failed C library call. Async-signal-safe.
pub(crate) fn error_number() -> c_int {
    // SAFETY: takes nothing, cannot fail.
    let number = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own variable.
    unsafe { *number }
}

/// The time since some fixed moment, in nanoseconds. Async-signal-safe.
pub(crate) fn nanoseconds() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to this function's value.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
