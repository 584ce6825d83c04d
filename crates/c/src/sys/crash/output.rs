//! Where reports go. Async-signal-safe.

use core::ffi::c_int;

use crate::crash::text::Sink;
use crate::store::Path;

use super::at_load;

/// Where the report goes: the file that `UNSPOOL_CRASH_LOG` names, or else standard error.
pub(super) struct Output(c_int);

impl Output {
    pub(super) fn open() -> Output {
        let path = at_load().log.as_ref().and_then(Path::terminated);
        let Some(path) = path else {
            return Output(libc::STDERR_FILENO);
        };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
        Output(match file {
            0.. => file,
            _ => libc::STDERR_FILENO,
        })
    }
}

impl Sink for Output {
    fn write(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            // SAFETY: the bytes are there.
            let written = unsafe { libc::write(self.0, rest.as_ptr().cast(), rest.len()) };
            match usize::try_from(written) {
                Ok(1..) => {
                    let written = usize::try_from(written).unwrap_or(0);
                    rest = rest.get(written..).unwrap_or_default();
                }
                // Nobody reads it any more, or there is no room: there is nothing to be done.
                _ => return,
            }
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.0 != libc::STDERR_FILENO {
            // SAFETY: opened above, and nobody else has it.
            unsafe { libc::close(self.0) };
        }
    }
}
