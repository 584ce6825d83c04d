//! Surviving the loss of mapped files.
//!
//! Reading a mapped page that its file no longer has raises `SIGBUS`: anybody who may write to a file can
//! so end a process that has it mapped. The guard is a handler for that signal. It puts pages of zeros in the place of
//! what is lost, from the fault to the end of the map, and notes that; [`crate::FileMap::check`] then fails.
//!
//! A handler belongs to the whole process. Commands install it; libraries do not, since the process is
//! somebody else's. [`crate::FileMap`] says what it does without.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Handles `SIGBUS` from now on, and unblocks it in this thread and in those that it begins.
///
/// A fault outside of any [`crate::FileMap`], and a signal that was sent, go to the handler that was there before, for good. The
/// handler runs on the alternate stack of the thread if it has one. It makes one system call, `mmap`, and takes no lock.
/// To be called before other threads are begun.
///
/// # Errors
///
/// The system refuses a handler.
pub fn install() -> io::Result<()> {
    if !IS_INSTALLED.load(Ordering::Acquire) {
        sys::handle_lost_pages()?;
        IS_INSTALLED.store(true, Ordering::Release);
    }
    Ok(())
}

pub(crate) fn is_installed() -> bool {
    IS_INSTALLED.load(Ordering::Acquire)
}
