//! System calls, through the C library.

use alloc::vec::Vec;
use core::ffi::{CStr, c_int, c_long, c_void};

use unspool_unwind::maps_text::unescaped;

use crate::abi::Error;

unsafe extern "C" {
    safe fn __errno_location() -> *mut c_int;
    safe fn getpid() -> c_int;
    fn lseek(file: c_int, offset: i64, whence: c_int) -> i64;
    fn mmap(
        at: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, length: usize) -> c_int;
    fn ptrace(request: c_int, ...) -> c_long;
    fn syscall(number: c_long, ...) -> c_long;
}

// The C library's functions of these names are cancellation points (pthreads(7)); its `syscall` is
// not.
const SYS_READ: c_long = 0;
const SYS_CLOSE: c_long = 3;
const SYS_PREAD64: c_long = 17;
const SYS_OPENAT: c_long = 257;
const AT_FDCWD: c_int = -100;

const O_RDONLY: c_int = 0;
/// A core file may name a pipe without a writer.
const O_NONBLOCK: c_int = 0o4000;
const O_CLOEXEC: c_int = 0o2_000_000;
const PROT_READ: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const SEEK_END: c_int = 2;

/// A file that is open for reading. Async-signal-safe, except [`ReadOnlyFile::read_to_end`], which
/// allocates.
#[derive(Debug)]
pub(crate) struct ReadOnlyFile(c_int);

impl ReadOnlyFile {
    pub(crate) fn open(path: &CStr) -> Result<ReadOnlyFile, Error> {
        let flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { syscall(SYS_OPENAT, AT_FDCWD, path.as_ptr(), flags) };
        match c_int::try_from(file) {
            Ok(file @ 0..) => Ok(ReadOnlyFile(file)),
            _ => Err(Error::NO_INFO),
        }
    }

    /// Continues reading after the last such call; returns the number of bytes.
    pub(crate) fn read(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: `into` has room for that many bytes.
        let length = unsafe { syscall(SYS_READ, self.0, into.as_mut_ptr(), into.len()) };
        usize::try_from(length).ok()
    }

    /// Reads from an offset; returns the number of bytes.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let (room, length) = (into.as_mut_ptr(), into.len());
        // SAFETY: `into` has room for that many bytes.
        let length = unsafe { syscall(SYS_PREAD64, self.0, room, length, offset) };
        usize::try_from(length).ok()
    }

    /// Appends the rest of the file to `bytes`.
    fn read_to_end(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let mut buffer = [0_u8; 4096];
        loop {
            let length = self.read(&mut buffer).ok_or(Error::NO_INFO)?;
            let got = buffer.get(..length).unwrap_or_default();
            if got.is_empty() {
                return Ok(());
            }
            bytes.try_reserve(got.len()).map_err(|_| Error::NO_MEMORY)?;
            bytes.extend_from_slice(got);
        }
    }
}

impl Drop for ReadOnlyFile {
    fn drop(&mut self) {
        // SAFETY: it is open, and has no other owner.
        unsafe { syscall(SYS_CLOSE, self.0) };
    }
}

/// Runs `work`, and restores `errno` after it.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let number = __errno_location();
    // SAFETY: it is this thread's.
    let before = unsafe { *number };
    let done = work();
    // SAFETY: as above.
    unsafe { *number = before };
    done
}

/// A file in memory. Reading it raises `SIGBUS` if it is truncated meanwhile; package managers and
/// linkers replace files instead.
#[derive(Debug)]
pub struct MappedFile {
    at: *mut c_void,
    length: usize,
}

impl MappedFile {
    /// Maps a file.
    ///
    /// # Errors
    ///
    /// [`Error::NO_INFO`] if it cannot be read.
    pub fn open(path: &CStr) -> Result<MappedFile, Error> {
        let file = ReadOnlyFile::open(path)?;
        // SAFETY: takes numbers.
        let length = unsafe { lseek(file.0, 0, SEEK_END) };
        let length = usize::try_from(length).map_err(|_| Error::NO_INFO)?;
        let anywhere = core::ptr::null_mut();
        // SAFETY: a new mapping, at no fixed address.
        let at = unsafe { mmap(anywhere, length, PROT_READ, MAP_PRIVATE, file.0, 0) };
        match at.addr() {
            usize::MAX => Err(Error::NO_INFO),
            _ => Ok(MappedFile { at, length }),
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as the value lives, read-only and private; no use of the bytes
        // relies on the result of an earlier read.
        unsafe { core::slice::from_raw_parts(self.at.cast(), self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: it is ours, and no reference outlives the value.
        unsafe { munmap(self.at, self.length) };
    }
}

/// A path, concatenated from parts.
fn path(parts: &[&[u8]]) -> Result<Vec<u8>, Error> {
    let mut path = Vec::new();
    for part in parts.iter().chain([&&b"\0"[..]]) {
        path.try_reserve(part.len()).map_err(|_| Error::NO_MEMORY)?;
        path.extend_from_slice(part);
    }
    Ok(path)
}

pub(crate) fn terminated(path: &[u8]) -> Result<&CStr, Error> {
    CStr::from_bytes_until_nul(path).map_err(|_| Error::INVALID)
}

/// The digits of a non-negative number.
fn decimal(number: i32) -> ([u8; 10], usize) {
    let mut digits = [b'0'; 10];
    let mut rest = number.unsigned_abs();
    let mut start = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b"0123456789"
            .get(usize::try_from(rest % 10).unwrap_or(0))
            .copied()
            .unwrap_or(b'0');
        rest /= 10;
        start = at;
        if rest == 0 {
            break;
        }
    }
    (digits, start)
}

/// The own process ID.
pub(crate) fn own_pid() -> i32 {
    getpid()
}

/// The contents of `/proc/PID/maps`.
pub(crate) fn maps(pid: i32) -> Result<Vec<u8>, Error> {
    let (digits, start) = decimal(pid);
    let pid = digits.get(start..).unwrap_or_default();
    let path = path(&[b"/proc/", pid, b"/maps"])?;
    let mut text = Vec::new();
    ReadOnlyFile::open(terminated(&path)?)?.read_to_end(&mut text)?;
    Ok(text)
}

/// The file with this name in a process's maps, in the process's view of the file system.
pub(crate) fn map_of_process(pid: i32, name: &[u8]) -> Result<MappedFile, Error> {
    let (digits, start) = decimal(pid);
    let pid = digits.get(start..).unwrap_or_default();
    let mut path = path(&[b"/proc/", pid, b"/root", name])?;
    // Reuses the room of the name.
    path.truncate(path.len() - 1 - name.len());
    path.extend(unescaped(name).chain([0]));
    MappedFile::open(terminated(&path)?)
}

/// The file of this name.
pub(crate) fn map_named(name: &[u8]) -> Result<MappedFile, Error> {
    let path = path(&[name])?;
    MappedFile::open(terminated(&path)?)
}

const PTRACE_PEEKDATA: c_int = 2;
const PTRACE_PEEKUSER: c_int = 3;
const PTRACE_POKEDATA: c_int = 5;
const PTRACE_POKEUSER: c_int = 6;
const PTRACE_CONT: c_int = 7;

/// An address that is unique to this thread while it runs. Async-signal-safe.
pub(super) fn thread_address() -> u64 {
    __errno_location().addr() as u64
}

/// A ptrace request with two words. The C library returns the word read, or sets errno.
fn request(request: c_int, pid: i32, addr: u64, data: u64) -> Result<u64, Error> {
    let errno = __errno_location();
    // SAFETY: it is this thread's.
    unsafe { *errno = 0 };
    // SAFETY: these requests only read or write the other process, and return words.
    let word = unsafe { ptrace(request, pid, addr, data) };
    // SAFETY: it is this thread's.
    match unsafe { *errno } {
        0 => Ok(i64::cast_unsigned(word)),
        _ => Err(Error::INVALID),
    }
}

/// A word of a traced process's memory.
pub(crate) fn peek(pid: i32, addr: u64) -> Result<u64, Error> {
    request(PTRACE_PEEKDATA, pid, addr, 0)
}

/// Writes a word of a traced process's memory.
pub(crate) fn poke(pid: i32, addr: u64, word: u64) -> Result<(), Error> {
    request(PTRACE_POKEDATA, pid, addr, word).map(drop)
}

/// A word of a traced process's `struct user`.
pub(crate) fn peek_user(pid: i32, offset: u64) -> Result<u64, Error> {
    request(PTRACE_PEEKUSER, pid, offset, 0)
}

/// Writes a word of a traced process's `struct user`.
pub(crate) fn poke_user(pid: i32, offset: u64, word: u64) -> Result<(), Error> {
    request(PTRACE_POKEUSER, pid, offset, word).map(drop)
}

/// Continues a traced process.
pub(crate) fn resume(pid: i32) -> Result<(), Error> {
    request(PTRACE_CONT, pid, 0, 0).map(drop)
}
