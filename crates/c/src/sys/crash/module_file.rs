//! Files of modules. Async-signal-safe.

use core::ffi::{CStr, c_int};

use crate::sys::files::FileId;

/// The file of a module, open for reading.
pub(crate) struct ModuleFile(c_int);

impl ModuleFile {
    pub(crate) fn open(path: &[u8]) -> Option<ModuleFile> {
        let mut terminated = [0_u8; 257];
        terminated.get_mut(..path.len())?.copy_from_slice(path);
        let path = CStr::from_bytes_until_nul(&terminated).ok()?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags) };
        (file >= 0).then_some(ModuleFile(file))
    }

    /// Reads bytes from an offset on; yields how many there were.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let offset = i64::try_from(offset).ok()?;
        // SAFETY: the room is the caller's.
        let length = unsafe { libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), offset) };
        usize::try_from(length).ok()
    }

    /// Reads bytes from where the last such call has come to; yields how many there were.
    pub(crate) fn read_on(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: the room is the caller's.
        let length = unsafe { libc::read(self.0, into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(length).ok()
    }

    /// What tells it from others.
    pub(crate) fn id(&self) -> Option<FileId> {
        FileId::of(self.0)
    }

    /// Reads as many bytes as there is room for.
    pub(crate) fn read_exactly(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let length = self.read(offset, into)?;
        (length == into.len()).then_some(())
    }
}

impl Drop for ModuleFile {
    fn drop(&mut self) {
        // SAFETY: opened above, and nobody else has it.
        unsafe { libc::close(self.0) };
    }
}
