//! The targets of reports. Async-signal-safe, except [`OutputTargets::find`].
//!
//! A reader may be slow or stopped. Then only the bytes that fit within
//! [`Output::WRITE_TIMEOUT_NS`] are written.

use core::cell::Cell;
use core::ffi::c_int;

use unspool_files::FileId;
use unspool_files::environment::variable_bytes;
use unspool_files::raw::{FileStatus, RawFile};
use unspool_unwind::local::store::FixedPath;

use crate::crash::text::{Sink, TextBuffer};
use crate::sys::files;

/// The targets found when the library is loaded.
pub(super) struct OutputTargets {
    /// The file named by `UNSPOOL_CRASH_LOG`.
    log: Option<FixedPath>,
    /// The identity of standard error. A program may close it, and another file or connection of
    /// the program may get its number: then nothing is written there.
    standard_error: Option<FileId>,
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
            standard_error: id_of_standard_error(),
        }
    }

    /// The log, or else standard error if that is unchanged, or else the file for messages.
    pub(super) fn open(&self) -> Output {
        let log = self.log.as_ref().and_then(FixedPath::terminated);
        let log = log
            .and_then(RawFile::open_log)
            .map(RawFile::into_descriptor);
        let standard_error = || {
            let now = id_of_standard_error()?;
            let is_it =
                self.standard_error == Some(now) || files::is_for_messages(libc::STDERR_FILENO);
            is_it.then_some(libc::STDERR_FILENO)
        };
        // Writing to a shared pipe or terminal blocks when others have filled it.
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

fn id_of_standard_error() -> Option<FileId> {
    Some(FileStatus::from_descriptor(libc::STDERR_FILENO)?.id)
}

/// The path of the log, made absolute: the program may change its folder before it crashes.
fn log() -> Option<FixedPath> {
    let named = variable_bytes(c"UNSPOOL_CRASH_LOG")?;
    let mut path = FixedPath::new();
    if !named.starts_with(b"/") {
        path = files::working_directory()?;
        path.push(b"/")?;
    }
    path.push(named)?;
    Some(path)
}

/// An optional file for a report.
pub(super) struct Output {
    file: Option<c_int>,
    /// Whether it was opened for the report.
    is_own: bool,
    /// The remaining time for writing, in nanoseconds.
    remaining_ns: Cell<u64>,
}

// If `poll` reports it writable, this many bytes fit at once, even in a blocking pipe that cannot
// be opened again. Pipes shared with other programs cannot be made non-blocking.
const _: () = assert!(TextBuffer::BUFFER_BYTES <= libc::PIPE_BUF);

impl Output {
    /// The total time limit of writing, in nanoseconds.
    pub(super) const WRITE_TIMEOUT_NS: u64 = 5_000_000_000;

    /// Writes what fits before the timeout, and returns the number of bytes; `None` if the target
    /// has no reader.
    fn write_some(file: c_int, bytes: &[u8], time: u64) -> Option<usize> {
        let mut asked = libc::pollfd {
            fd: file,
            events: libc::POLLOUT,
            revents: 0,
        };
        let time = c_int::try_from(time.div_ceil(1_000_000)).unwrap_or(c_int::MAX);
        // SAFETY: one `pollfd`, which is this function's.
        match unsafe { libc::poll(&raw mut asked, 1, time) } {
            0 => return None,
            1 => {}
            // A signal after which the report continues.
            _ => return is_retryable().then_some(0),
        }
        // SAFETY: pointer and length are those of `bytes`.
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
            // SAFETY: opened by `open`, and without another owner.
            unsafe { libc::close(file) };
        }
    }
}
