//! Files without the standard library: in signal handlers, and in unwinders.
//!
//! Async-signal-safe, and no cancellation points: the C library's own `open`, `read` and `close`
//! are (pthreads(7)), its `syscall` is not. `errno` changes, except within [`keeping_errno`].

use core::ffi::{CStr, c_int, c_long, c_void};
use core::{mem, ptr};

use crate::file_id::FileId;
use crate::trust::{is_our_owner, is_trusted};

/// Files are opened for reading with these flags. Opening a pipe would wait for its writer.
const READ: c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The size of the largest file to read if it cannot be mapped, in bytes. Holes of a sparse file
/// take memory, too.
pub(crate) const MAX_COPIED_BYTES: u64 = 1 << 30;

/// The resolution of the time of last use, in seconds.
pub(crate) const USE_RESOLUTION_SECONDS: i64 = 24 * 60 * 60;

/// How often a path in another root is tried. `openat2` fails with `EAGAIN` if anything is renamed or
/// mounted while it follows `..` (openat2(2)).
pub(crate) const OPEN_ATTEMPTS: usize = 64;

/// An open file or folder.
#[derive(Debug)]
pub struct RawFile(c_int);

/// The kernel's status of a file.
#[derive(Debug, Clone, Copy)]
pub struct FileStatus {
    /// Its owner.
    pub owner: u32,
    /// Its type and permissions.
    pub mode: u32,
    /// Whether it has one name only.
    pub is_unique: bool,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written to, in seconds since 1970.
    pub modified: i64,
    /// Which file it is.
    pub id: FileId,
}

impl FileStatus {
    /// The status of a descriptor's file; `None` if it is not open.
    #[must_use]
    pub fn from_descriptor(descriptor: c_int) -> Option<FileStatus> {
        // SAFETY: plain numbers.
        let mut stat: libc::stat = unsafe { mem::zeroed() };
        // SAFETY: `stat` is this function's; an invalid descriptor is a returned error.
        let failed = unsafe { libc::fstat(descriptor, &raw mut stat) };
        (failed == 0).then(|| FileStatus {
            owner: stat.st_uid,
            mode: stat.st_mode,
            is_unique: stat.st_nlink == 1,
            size: stat.st_size.try_into().unwrap_or(0),
            modified: stat.st_mtime,
            id: FileId {
                device: stat.st_dev,
                inode: stat.st_ino,
            },
        })
    }

    /// The type in its mode: one of `S_IFMT`'s.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    fn is_trusted(&self) -> bool {
        is_trusted(self.owner, self.mode)
    }
}

impl RawFile {
    /// Opens a regular file for reading; a device is not opened, and a pipe not waited for.
    #[must_use]
    pub fn open(path: &CStr) -> Option<RawFile> {
        RawFile::regular(|flags| RawFile::open_at(libc::AT_FDCWD, path, flags))
    }

    /// The same for a path below another root. Links cannot lead out of it.
    #[must_use]
    pub fn open_in_root(root: &CStr, path: &CStr) -> Option<RawFile> {
        let root = RawFile::open_at(libc::AT_FDCWD, root, libc::O_PATH | libc::O_DIRECTORY)?;
        RawFile::regular(|flags| root.open_below(path, flags))
    }

    /// Opens a regular file in a folder, if nobody but the user and root can write to either.
    #[must_use]
    pub fn open_trusted(folder: &CStr, name: &CStr) -> Option<RawFile> {
        // Both are checked after they are opened. So the checks apply to this folder, which
        // contains the file, and to the file that is read, whatever happens to their names.
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let folder = RawFile::open_at(libc::AT_FDCWD, folder, flags)?;
        folder.status().filter(FileStatus::is_trusted)?;
        let file = RawFile::open_at(folder.0, name, READ)?;
        let status = file.status().filter(FileStatus::is_trusted)?;
        (status.kind() == libc::S_IFREG).then_some(file)
    }

    /// Opens a log for appending. `None` also if a user other than root may have put it there:
    /// another user's file, a file with several names, or the target of another user's link.
    #[must_use]
    pub fn open_log(path: &CStr) -> Option<RawFile> {
        // For a pipe without a reader, this does not wait for one.
        let flags =
            libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOCTTY;
        let open = |flags| RawFile::open_at(libc::AT_FDCWD, path, flags);
        let file = open(flags | libc::O_NOFOLLOW).or_else(|| {
            let link = open(libc::O_PATH | libc::O_NOFOLLOW)?;
            is_our_owner(link.status()?.owner).then(|| open(flags))?
        })?;
        let status = file.status()?;
        let is_ours = match status.kind() {
            libc::S_IFCHR => true,
            libc::S_IFREG => is_our_owner(status.owner) && status.is_unique,
            _ => is_our_owner(status.owner),
        };
        is_ours.then_some(file)
    }

    /// Opens a file with [`READ`] if it is regular.
    fn regular(open: impl Fn(c_int) -> Option<RawFile>) -> Option<RawFile> {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        let found = open(libc::O_PATH)?;
        let before = found.status()?;
        (before.kind() == libc::S_IFREG).then_some(())?;
        let mut digits = [0; MAX_DIGITS];
        let digits = decimal(found.0.try_into().ok()?, &mut digits);
        let mut path = [0; PREFIX.len() + MAX_DIGITS + 1];
        for (slot, byte) in path.iter_mut().zip(PREFIX.iter().chain(digits)) {
            *slot = *byte;
        }
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        // By its descriptor it is the same file. Whoever can change what its own path leads to can
        // also make this fail. So that path is opened again only in a process without `/proc`.
        let file = RawFile::open_at(libc::AT_FDCWD, path, READ)
            .or_else(|| if is_link(path) { None } else { open(READ) })?;
        (file.status()?.id == before.id).then_some(file)
    }

    fn open_at(folder: c_int, path: &CStr, flags: c_int) -> Option<RawFile> {
        let (folder, flags) = (c_long::from(folder), c_long::from(flags | libc::O_CLOEXEC));
        let mode: c_long = 0o600;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::syscall(libc::SYS_openat, folder, path.as_ptr(), flags, mode) };
        RawFile::from_result(file)
    }

    /// Opens a path below this folder, a root. Without `openat2` (Linux 5.6, and filters of system
    /// calls), only if this is the process's own root: then its links lead where they should.
    fn open_below(&self, path: &CStr, flags: c_int) -> Option<RawFile> {
        self.open_confined(path, flags)
            .or_else(|| self.open_below_own_root(path, flags))
    }

    fn open_below_own_root(&self, path: &CStr, flags: c_int) -> Option<RawFile> {
        let own = RawFile::open_at(libc::AT_FDCWD, c"/", libc::O_PATH | libc::O_DIRECTORY)?;
        (own.status()?.id == self.status()?.id).then_some(())?;
        let slashes = path.to_bytes().iter().take_while(|byte| **byte == b'/');
        let inside = path.to_bytes_with_nul().get(slashes.count()..)?;
        RawFile::open_at(self.0, CStr::from_bytes_with_nul(inside).ok()?, flags)
    }

    fn open_confined(&self, path: &CStr, flags: c_int) -> Option<RawFile> {
        // SAFETY: plain numbers.
        let mut how: libc::open_how = unsafe { mem::zeroed() };
        how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
        how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
        let (root, size) = (c_long::from(self.0), mem::size_of_val(&how));
        let (path, how) = (path.as_ptr(), &raw const how);
        let mut attempts = (0..OPEN_ATTEMPTS).map(|_| {
            // SAFETY: the path ends with a zero byte, and the structure has this size.
            unsafe { libc::syscall(libc::SYS_openat2, root, path, how, size) }
        });
        let is_over = |file: &c_long| {
            // SAFETY: always this thread's.
            let error = unsafe { libc::__errno_location() };
            // SAFETY: the C library's own number.
            *file >= 0 || unsafe { *error } != libc::EAGAIN
        };
        RawFile::from_result(attempts.find(is_over)?)
    }

    fn from_result(file: c_long) -> Option<RawFile> {
        let file = c_int::try_from(file).ok()?;
        (file >= 0).then_some(RawFile(file))
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> Option<FileStatus> {
        FileStatus::from_descriptor(self.0)
    }

    /// Its descriptor, to be closed by the caller.
    #[must_use]
    pub fn into_descriptor(self) -> c_int {
        mem::ManuallyDrop::new(self).0
    }

    /// Continues reading after the last such call; returns the number of bytes.
    #[must_use]
    pub fn read(&self, into: &mut [u8]) -> Option<usize> {
        let (file, room) = (c_long::from(self.0), into.as_mut_ptr());
        // SAFETY: pointer and length are those of `into`.
        let length = unsafe { libc::syscall(libc::SYS_read, file, room, into.len()) };
        usize::try_from(length).ok()
    }

    /// Reads bytes from an offset; returns their number.
    #[must_use]
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let (file, room) = (c_long::from(self.0), into.as_mut_ptr());
        // SAFETY: pointer and length are those of `into`.
        let length = unsafe { libc::syscall(libc::SYS_pread64, file, room, into.len(), offset) };
        usize::try_from(length).ok()
    }

    /// Fills the buffer from an offset.
    #[must_use]
    pub fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        (self.read_at(offset, into)? == into.len()).then_some(())
    }

    /// The whole file: mapped if nobody but the user and root can change it, else copied, since
    /// truncation of a mapped file ends the process. `None` also for an empty file, and for one of
    /// over 1 GiB that others can change.
    #[must_use]
    pub fn map_or_copy(&self) -> Option<RawMap> {
        let status = self.status()?;
        if status.is_trusted() {
            self.map()
        } else if status.size <= MAX_COPIED_BYTES {
            self.copy()
        } else {
            None
        }
    }

    /// Maps the whole file; `None` also for an empty one.
    #[must_use]
    pub fn map(&self) -> Option<RawMap> {
        let length = self.status()?.size.try_into().ok()?;
        RawMap::new(length, libc::PROT_READ, 0, self.0)
    }

    /// The whole file, copied to anonymous memory: later changes to it have no effect.
    #[must_use]
    pub fn copy(&self) -> Option<RawMap> {
        let length = self.status()?.size.try_into().ok()?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let copy = RawMap::new(length, protection, libc::MAP_ANONYMOUS, -1)?;
        // SAFETY: a new mapping of this length, without another user.
        let bytes = unsafe { core::slice::from_raw_parts_mut(copy.at.cast::<u8>(), length) };
        let mut read = 0;
        while read < length {
            read += self.read(bytes.get_mut(read..)?).filter(|more| *more > 0)?;
        }
        Some(copy)
    }

    /// Notes that a file of a cache was used, in its modification time: the least recently used is
    /// removed first. Does nothing for another user's file.
    pub fn note_use(&self) {
        let is_recent = self
            .status()
            .is_some_and(|status| now().saturating_sub(status.modified) < USE_RESOLUTION_SECONDS);
        if !is_recent {
            // SAFETY: the file is open; a null pointer means the present time.
            unsafe { libc::futimens(self.0, ptr::null()) };
        }
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        // SAFETY: it is open, and has no other owner.
        unsafe { libc::syscall(libc::SYS_close, c_long::from(self.0)) };
    }
}

/// The bytes of a file, mapped as long as this lives.
///
/// If a mapped file is truncated in place, the process ends (`SIGBUS`). Package managers, linkers
/// and unspool replace files by renaming instead.
#[derive(Debug)]
pub struct RawMap {
    at: *mut c_void,
    length: usize,
}

impl RawMap {
    fn new(length: usize, protection: c_int, flags: c_int, file: c_int) -> Option<RawMap> {
        let anywhere = ptr::null_mut();
        let flags = flags | libc::MAP_PRIVATE;
        // SAFETY: a new mapping, at any address.
        let at = unsafe { libc::mmap(anywhere, length, protection, flags, file, 0) };
        (at != libc::MAP_FAILED).then_some(RawMap { at, length })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with this length as long as `self` lives; no use of the bytes relies on
        // the result of an earlier read.
        unsafe { core::slice::from_raw_parts(self.at.cast(), self.length) }
    }

    /// The bytes, mapped forever.
    #[must_use]
    pub fn keep(self) -> &'static [u8] {
        let map = mem::ManuallyDrop::new(self);
        // SAFETY: as in `bytes`, and never unmapped.
        unsafe { core::slice::from_raw_parts(map.at.cast(), map.length) }
    }
}

impl Drop for RawMap {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and there are no references left.
        unsafe { libc::munmap(self.at, self.length) };
    }
}

/// Whether a path is a link. Does not follow it.
fn is_link(path: &CStr) -> bool {
    let (folder, mut target) = (c_long::from(libc::AT_FDCWD), [0_u8; 1]);
    let (path, into) = (path.as_ptr(), target.as_mut_ptr());
    // SAFETY: the path ends with a zero byte; pointer and length are those of `target`.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, folder, path, into, target.len()) };
    length >= 0
}

/// Runs `work` and restores `errno`.
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: takes nothing, cannot fail.
    let number = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own variable.
    let before = unsafe { number.read() };
    let done = work();
    // SAFETY: as above.
    unsafe { number.write(before) };
    done
}

/// The most digits of a number for [`decimal`].
pub const MAX_DIGITS: usize = 10;

/// The digits of a number.
pub fn decimal(number: u32, digits: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut rest = number;
    let mut start = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        (start, rest) = (at, rest / 10);
        if rest == 0 {
            break;
        }
    }
    digits.get(start..).unwrap_or_default()
}

/// The effective user of this process.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Seconds since 1970.
fn now() -> i64 {
    // SAFETY: null: the time is only returned.
    unsafe { libc::time(ptr::null_mut()) }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn without_openat2_only_the_own_root_is_used() {
        let own = std::env::current_exe().unwrap();
        let path = std::ffi::CString::new(own.to_str().unwrap()).unwrap();
        let root = RawFile::open_at(libc::AT_FDCWD, c"/proc/self/root/", libc::O_PATH).unwrap();
        let opened = root.open_below_own_root(&path, READ).unwrap();
        let expected = std::fs::metadata(&own).unwrap();
        assert_eq!(opened.status().unwrap().id, FileId::new(&expected));
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("file"), "").unwrap();
        let other = std::fs::File::open(other.path()).unwrap();
        let other = mem::ManuallyDrop::new(RawFile(other.as_raw_fd()));
        assert!(other.open_confined(c"/file", READ).is_some());
        assert!(other.open_below_own_root(c"/file", READ).is_none());
    }
}
