//! Maps files, and handles the loss of their pages.
use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::map_registry;

/// Maps all of a file, read-only and private.
pub(crate) fn map(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the map is read-only and only seen as `&[u8]`. Its readers check every bound and do
    // not rely on earlier reads, so a concurrent change gives a wrong result, but no invalid
    // reference. `on_sigbus` handles truncation, or the file belongs to the user or root
    // (`FileMap::new`).
    unsafe { memmap2::Mmap::map(file) }
}

/// The previous action of the signal.
static PREVIOUS_ACTION: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

/// Installs [`on_sigbus`], and unblocks the signal in this thread.
pub(crate) fn handle_lost_pages() -> io::Result<()> {
    // SAFETY: the call takes a number only.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_BYTES.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: this only queries; the call writes the action.
    done(unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the action was written.
    let _ = PREVIOUS_ACTION.set(unsafe { before.assume_init() });
    // SAFETY: all zeros are a valid action: the default, no flags, an empty set.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is initialized, and its handler is async-signal-safe and has the signature
    // for `SA_SIGINFO`.
    done(unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) })?;
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes an empty set.
    done(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: the set is initialized, and the number is a signal's.
    done(unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGBUS) })?;
    // SAFETY: the set is initialized. A fault while its signal is blocked would end the process.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn done(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Async-signal-safe.
extern "C" fn on_sigbus(_: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes the signal's description.
    let info = unsafe { &*info };
    let is_fault = info.si_code > 0;
    // SAFETY: a field of the description; if no fault is described, the number is not used.
    let address = unsafe { info.si_addr() };
    if is_fault && replace_lost(address.addr()) {
        return;
    }
    // The instruction is executed again and faults again, now as if there were no guard.
    if let Some(before) = PREVIOUS_ACTION.get() {
        // SAFETY: the previous action.
        unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
    }
    if !is_fault {
        // SAFETY: the call takes a number only. The signal is blocked here, and is delivered when
        // the handler has returned.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

/// Whether the address was in a mapped file, which reads as zeros from its page on now.
fn replace_lost(address: usize) -> bool {
    let Some((slot, range)) = map_registry::find(address) else {
        return false;
    };
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    let start = address - address % page;
    let end = range.end.next_multiple_of(page);
    // This comes first, before zeros are visible.
    slot.mark_lost();
    // SAFETY: the location of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid for this thread's lifetime.
    let kept = unsafe { *errno };
    // SAFETY: the range belongs to one `FileMap`, which the faulting thread has borrowed: it cannot
    // be unmapped meanwhile. Its readers accept any bytes.
    let at = unsafe {
        libc::mmap(
            ptr::with_exposed_provenance_mut(start),
            end - start,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *errno = kept };
    at != libc::MAP_FAILED
}
