//! Files. Async-signal-safe, and not cancellation points: the C library's own `open`, `read` and
//! `close` are (pthreads(7)), its `syscall` is not.

use core::ffi::{CStr, c_int, c_long, c_void};
use core::{mem, ptr};

/// An open file or folder.
pub(in crate::local) struct RawFile(c_int);

/// The kernel's status of a file.
pub(in crate::local) struct FileStatus {
    pub(in crate::local) owner: u32,
    pub(in crate::local) mode: u32,
    pub(in crate::local) is_regular: bool,
    /// In bytes.
    pub(in crate::local) size: usize,
    /// When it was last written to, in seconds since 1970.
    pub(in crate::local) modified: i64,
}

impl From<&libc::stat> for FileStatus {
    fn from(stat: &libc::stat) -> Self {
        FileStatus {
            owner: stat.st_uid,
            mode: stat.st_mode & 0o777,
            is_regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
            size: usize::try_from(stat.st_size).unwrap_or(0),
            modified: stat.st_mtime,
        }
    }
}

impl RawFile {
    /// A folder, for its status and for opening files in it.
    pub(in crate::local) fn open_folder(path: &CStr) -> Option<RawFile> {
        RawFile::open(libc::AT_FDCWD, path, libc::O_PATH | libc::O_DIRECTORY)
    }

    /// The file with this name in this folder, for reading.
    pub(in crate::local) fn open_in(&self, name: &CStr) -> Option<RawFile> {
        // Opening a pipe would wait for its writer.
        RawFile::open(self.0, name, libc::O_RDONLY | libc::O_NONBLOCK)
    }

    fn open(folder: c_int, path: &CStr, flags: c_int) -> Option<RawFile> {
        let (folder, flags) = (c_long::from(folder), c_long::from(flags | libc::O_CLOEXEC));
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::syscall(libc::SYS_openat, folder, path.as_ptr(), flags) };
        let file = c_int::try_from(file).ok()?;
        (file >= 0).then_some(RawFile(file))
    }

    pub(in crate::local) fn status(&self) -> Option<FileStatus> {
        // SAFETY: plain numbers.
        let mut stat: libc::stat = unsafe { mem::zeroed() };
        // SAFETY: `stat` is this function's.
        let failed = unsafe { libc::fstat(self.0, &raw mut stat) };
        (failed == 0).then(|| FileStatus::from(&stat))
    }

    /// Its first bytes, mapped.
    pub(in crate::local) fn map(&self, length: usize) -> Option<FileMapping> {
        FileMapping::new(length, libc::PROT_READ, 0, self.0)
    }

    /// Its first bytes, in anonymous memory.
    pub(in crate::local) fn copy(&self, length: usize) -> Option<FileMapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let copy = FileMapping::new(length, protection, libc::MAP_ANONYMOUS, -1)?;
        let mut read = 0;
        while read < length {
            // SAFETY: inside of the mapping.
            let into = unsafe { copy.at.byte_add(read) };
            let file = c_long::from(self.0);
            // SAFETY: the buffer has this many bytes, and no other user.
            let more = unsafe { libc::syscall(libc::SYS_read, file, into, length - read) };
            match usize::try_from(more) {
                Ok(more @ 1..) => read += more,
                _ => return None,
            }
        }
        Some(copy)
    }

    /// Sets its time to the present. Fails for another user's file.
    pub(in crate::local) fn touch(&self) {
        // SAFETY: the file is open; a null pointer means the present time.
        unsafe { libc::futimens(self.0, ptr::null()) };
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // SAFETY: it is open, and has no other user.
        unsafe { libc::syscall(libc::SYS_close, c_long::from(self.0)) };
    }
}

/// Bytes of a file, mapped as long as this lives.
///
/// If a mapped file is truncated in place, the process ends (`SIGBUS`). Only a table's owner can do
/// that: the user or root. Tables are replaced by renaming.
#[derive(Debug)]
pub struct FileMapping {
    at: *mut c_void,
    length: usize,
}

impl FileMapping {
    fn new(length: usize, protection: c_int, flags: c_int, file: c_int) -> Option<FileMapping> {
        let anywhere = ptr::null_mut();
        let flags = flags | libc::MAP_PRIVATE;
        // SAFETY: a new mapping, at any address.
        let at = unsafe { libc::mmap(anywhere, length, protection, flags, file, 0) };
        (at != libc::MAP_FAILED).then_some(FileMapping { at, length })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with this length as long as `self` lives; users of the bytes treat them as
        // untrusted at every access.
        unsafe { core::slice::from_raw_parts(self.at.cast(), self.length) }
    }

    /// The bytes, mapped forever.
    #[must_use]
    pub fn keep(self) -> &'static [u8] {
        let mapping = mem::ManuallyDrop::new(self);
        // SAFETY: as in `bytes`, and never unmapped.
        unsafe { core::slice::from_raw_parts(mapping.at.cast(), mapping.length) }
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and there are no references left.
        unsafe { libc::munmap(self.at, self.length) };
    }
}

/// Runs `work` and restores `errno`.
pub(in crate::local) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: takes nothing, cannot fail.
    let number = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own variable.
    let before = unsafe { number.read() };
    let done = work();
    // SAFETY: as above.
    unsafe { number.write(before) };
    done
}

/// The effective user of this process.
pub(in crate::local) fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Seconds since 1970.
pub(in crate::local) fn now() -> i64 {
    // SAFETY: null: the time is only returned.
    unsafe { libc::time(ptr::null_mut()) }
}
