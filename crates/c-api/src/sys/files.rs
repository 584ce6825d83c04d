//! Files, the environment and the clock, through the C library.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::ptr;

use unspool_compiled_table::CompiledTable;
use unspool_unwind::local::store::FixedPath;

/// A file that is open for reading.
pub(crate) struct ReadOnlyFile(c_int);

/// The identity of a file, unique while it is open or mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceInode {
    device: libc::dev_t,
    inode: libc::ino_t,
}

impl DeviceInode {
    /// The file with these numbers.
    pub(crate) fn numbered(major: u32, minor: u32, inode: u64) -> DeviceInode {
        DeviceInode {
            device: libc::makedev(major, minor),
            inode,
        }
    }

    /// The file of a descriptor. Async-signal-safe.
    pub(crate) fn from_descriptor(descriptor: c_int) -> Option<DeviceInode> {
        let stat = status(descriptor)?;
        Some(DeviceInode {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

/// The kernel's status of a descriptor's file. Async-signal-safe.
fn status(descriptor: c_int) -> Option<libc::stat> {
    // SAFETY: plain numbers.
    let mut stat: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: `stat` is this function's; an invalid descriptor is a returned error.
    let failed = unsafe { libc::fstat(descriptor, &raw mut stat) };
    (failed == 0).then_some(stat)
}

/// Opens standard error again, if that is a pipe or a character device: then writes fail instead of
/// blocking. `None` also if the kernel refuses. Async-signal-safe.
pub(crate) fn open_standard_error() -> Option<c_int> {
    let kind = status(libc::STDERR_FILENO)?.st_mode & libc::S_IFMT;
    if !matches!(kind, libc::S_IFCHR | libc::S_IFIFO) {
        return None;
    }
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the path ends with a zero byte.
    let file = unsafe { libc::open(c"/proc/self/fd/2".as_ptr(), flags) };
    (file >= 0).then_some(file)
}

/// Opens a log for appending. `None` also if a user other than root may have put it there: another
/// user's file, a file with several names, or the target of another user's link. Async-signal-safe.
pub(crate) fn open_log(path: &CStr) -> Option<c_int> {
    // For a pipe without a reader, this does not wait for one.
    let flags = libc::O_WRONLY
        | libc::O_CREAT
        | libc::O_APPEND
        | libc::O_CLOEXEC
        | libc::O_NONBLOCK
        | libc::O_NOCTTY;
    let open = |flags| {
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
        (file >= 0).then_some(ReadOnlyFile(file))
    };
    let file = open(flags | libc::O_NOFOLLOW).or_else(|| {
        let link = open(libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC)?;
        is_of_user_or_root(&status(link.0)?)
            .then(|| open(flags))
            .flatten()
    })?;
    let stat = status(file.0)?;
    let is_ours = match stat.st_mode & libc::S_IFMT {
        libc::S_IFCHR => true,
        libc::S_IFREG => is_of_user_or_root(&stat) && stat.st_nlink == 1,
        _ => is_of_user_or_root(&stat),
    };
    is_ours.then(|| mem::ManuallyDrop::new(file).0)
}

fn is_of_user_or_root(stat: &libc::stat) -> bool {
    // SAFETY: takes nothing, cannot fail.
    stat.st_uid == 0 || stat.st_uid == unsafe { libc::geteuid() }
}

/// Whether writing to a descriptor neither destroys data nor answers a peer: a terminal or another
/// character device, a pipe, or a file in append mode. Async-signal-safe.
pub(crate) fn is_for_messages(descriptor: c_int) -> bool {
    let kind = status(descriptor).map(|stat| stat.st_mode & libc::S_IFMT);
    match kind {
        Some(libc::S_IFCHR | libc::S_IFIFO) => true,
        Some(libc::S_IFREG) => {
            // SAFETY: only a query.
            let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
            flags >= 0 && flags & libc::O_APPEND != 0
        }
        _ => false,
    }
}

impl ReadOnlyFile {
    /// Async-signal-safe.
    pub(crate) fn open(path: &CStr) -> Option<ReadOnlyFile> {
        // Opening a pipe would wait for its writer.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), flags) };
        (file >= 0).then_some(ReadOnlyFile(file))
    }

    /// The same for a path of fewer than 257 bytes, as modules have it.
    pub(crate) fn open_bytes(path: &[u8]) -> Option<ReadOnlyFile> {
        let mut terminated = [0_u8; 257];
        terminated.get_mut(..path.len())?.copy_from_slice(path);
        ReadOnlyFile::open(CStr::from_bytes_until_nul(&terminated).ok()?)
    }

    /// Reads bytes from an offset; returns the number of bytes. Async-signal-safe.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let offset = i64::try_from(offset).ok()?;
        // SAFETY: pointer and length are those of `into`.
        let length = unsafe { libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), offset) };
        usize::try_from(length).ok()
    }

    /// Fills the buffer. Async-signal-safe.
    pub(crate) fn read_exactly(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let length = self.read(offset, into)?;
        (length == into.len()).then_some(())
    }

    /// Continues reading after the last such call; returns the number of bytes. Async-signal-safe.
    pub(crate) fn read_next(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: pointer and length are those of `into`.
        let length = unsafe { libc::read(self.0, into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(length).ok()
    }

    /// Its identity.
    pub(crate) fn id(&self) -> Option<DeviceInode> {
        DeviceInode::from_descriptor(self.0)
    }
}

impl Drop for ReadOnlyFile {
    fn drop(&mut self) {
        // SAFETY: it is open, and has no other owner.
        unsafe { libc::close(self.0) };
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
