//! Where reports go. Async-signal-safe, but for [`OutputTargets::find`].
//!
//! Whoever reads there may be slow, or have stopped: then so much is written as there is room for
//! in [`Output::WRITE_TIMEOUT_NS`].

use core::cell::Cell;
use core::ffi::c_int;

use unspool_unwind::local::store::{FixedPath, variable};

use crate::crash::text::{Sink, TextBuffer};
use crate::sys::files::{self, DeviceInode};

/// What is found out when the library is loaded.
pub(super) struct OutputTargets {
    /// The file that `UNSPOOL_CRASH_LOG` names.
    log: Option<FixedPath>,
    /// What standard error is. A program may close it, and open a file of its own, or take a
    /// connection, that then has its number: nothing is written there.
    standard_error: Option<DeviceInode>,
}

impl OutputTargets {
    pub(super) const NONE: OutputTargets = OutputTargets {
        log: None,
        standard_error: None,
    };

    /// Not async-signal-safe: reads the environment.
    pub(super) fn find() -> OutputTargets {
        OutputTargets {
            log: log(),
            standard_error: DeviceInode::of_descriptor(libc::STDERR_FILENO),
        }
    }

    /// The log, or else standard error if that is still what it was, or else what messages go to.
    pub(super) fn open(&self) -> Output {
        let log = self.log.as_ref().and_then(FixedPath::terminated);
        let log = log.and_then(files::open_log);
        let standard_error = || {
            let now = DeviceInode::of_descriptor(libc::STDERR_FILENO)?;
            let is_it =
                self.standard_error == Some(now) || files::is_for_messages(libc::STDERR_FILENO);
            is_it.then_some(libc::STDERR_FILENO)
        };
        // Who writes to a pipe or a terminal of others waits where these have filled it meanwhile.
        let shared = log.is_none().then(standard_error).flatten();
        let own = log.or_else(|| shared.and_then(|_| files::open_standard_error()));
        let (file, is_own) = (own.or(shared), own.is_some());
        Output {
            file,
            is_own,
            remaining_ns: Cell::new(Output::WRITE_TIMEOUT_NS),
        }
    }
}

/// The path of the log. The program may go to another folder before it crashes.
fn log() -> Option<FixedPath> {
    let named = variable(c"UNSPOOL_CRASH_LOG").filter(|named| !named.is_empty())?;
    let mut path = FixedPath::new();
    if !named.starts_with(b"/") {
        path = files::working_directory()?;
        path.push(b"/")?;
    }
    path.push(named)?;
    Some(path)
}

/// A file, or nothing, that a report goes to.
pub(super) struct Output {
    file: Option<c_int>,
    /// Whether it was opened for the report.
    is_own: bool,
    /// How long writing may still take, in nanoseconds.
    remaining_ns: Cell<u64>,
}

// What `poll` calls writable takes so much at once, be it a pipe that cannot be opened again and is not set
// to fail: what is shared with other programs cannot be set so.
const _: () = assert!(TextBuffer::BUFFER_BYTES <= libc::PIPE_BUF);

impl Output {
    /// How long all writing may take, in nanoseconds.
    pub(super) const WRITE_TIMEOUT_NS: u64 = 5_000_000_000;

    /// Writes what there is room for before the time is over, and yields how much that was; `None` where
    /// there is nobody to write to.
    fn write_some(file: c_int, bytes: &[u8], time: u64) -> Option<usize> {
        let mut asked = libc::pollfd {
            fd: file,
            events: libc::POLLOUT,
            revents: 0,
        };
        let time = c_int::try_from(time.div_ceil(1_000_000)).unwrap_or(c_int::MAX);
        // SAFETY: one question, which is this function's.
        match unsafe { libc::poll(&raw mut asked, 1, time) } {
            0 => return None,
            1 => {}
            // A signal that the report goes on after.
            _ => return is_retryable().then_some(0),
        }
        // SAFETY: the bytes are there.
        let written = unsafe { libc::write(file, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => None,
            Ok(written) => Some(written),
            Err(_) => is_retryable().then_some(0),
        }
    }
}

fn is_retryable() -> bool {
    matches!(files::error_number(), libc::EINTR | libc::EAGAIN)
}

impl Sink for Output {
    fn write(&self, bytes: &[u8]) {
        let Some(file) = self.file else {
            return;
        };
        let started = files::nanoseconds();
        let mut left = self.remaining_ns.get();
        let mut rest = bytes;
        while !rest.is_empty() && left > 0 {
            let written = Output::write_some(file, rest, left);
            rest = written
                .and_then(|written| rest.get(written..))
                .unwrap_or_default();
            let taken = files::nanoseconds().saturating_sub(started);
            left = match written {
                Some(_) => self.remaining_ns.get().saturating_sub(taken),
                None => 0,
            };
        }
        self.remaining_ns.set(left);
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(file) = self.file.filter(|_| self.is_own) {
            // SAFETY: opened by `open`, and nobody else has it.
            unsafe { libc::close(file) };
        }
    }
}
