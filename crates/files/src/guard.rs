//! Survives the truncation of mapped files.
//!
//! Reading a mapped page that its file no longer has raises `SIGBUS`. So any user who may write to
//! a file can kill a process that has it mapped. The guard is a handler for that signal. It maps
//! zero pages in place of the lost ones, from the fault to the end of the map, and records that;
//! [`crate::FileMap::check_intact`] then fails.
//!
//! A handler belongs to the whole process. Commands install it; libraries do not, since the process
//! is not theirs. [`crate::FileMap`] describes its behaviour without the guard.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sys::lost_pages;

static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// Handles `SIGBUS` from now on, and unblocks it in this thread and in those that it creates.
///
/// A fault outside of any [`crate::FileMap`], or a `SIGBUS` sent by a process, restores the
/// previous handler permanently. The handler runs on the alternate stack of the thread if it has
/// one. It makes one system call, `mmap`, and takes no lock. Must be called before other threads
/// are created.
///
/// # Errors
///
/// The system refuses a handler.
pub fn install() -> io::Result<()> {
    if !IS_INSTALLED.load(Ordering::Acquire) {
        lost_pages::handle_lost_pages()?;
        IS_INSTALLED.store(true, Ordering::Release);
    }
    Ok(())
}

pub(crate) fn is_installed() -> bool {
    IS_INSTALLED.load(Ordering::Acquire)
}
