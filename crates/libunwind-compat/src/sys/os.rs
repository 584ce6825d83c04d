//! System calls, through the C library.

use alloc::vec::Vec;
use core::ffi::{CStr, c_int, c_long};

use unspool_files::raw::{MAX_DIGITS, RawFile, RawMap, decimal};
use unspool_unwind::maps_text::unescaped;

use crate::abi::Error;

unsafe extern "C" {
    safe fn __errno_location() -> *mut c_int;
    fn ptrace(request: c_int, ...) -> c_long;
}

/// Appends the rest of a file to `bytes`.
fn read_to_end(file: &RawFile, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let mut buffer = [0_u8; 4096];
    loop {
        let length = file.read(&mut buffer).ok_or(Error::NO_INFO)?;
        let got = buffer.get(..length).unwrap_or_default();
        if got.is_empty() {
            return Ok(());
        }
        bytes.try_reserve(got.len()).map_err(|_| Error::NO_MEMORY)?;
        bytes.extend_from_slice(got);
    }
}

/// Maps a regular file, or copies it if other users can change it.
///
/// # Errors
///
/// [`Error::NO_INFO`] if it cannot be read, or is over 1 GiB and other users can change it.
pub fn map_file(path: &CStr) -> Result<RawMap, Error> {
    let file = RawFile::open(path);
    file.and_then(|file| file.map_or_copy())
        .ok_or(Error::NO_INFO)
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

/// `/proc/PID` and an ending.
fn process_path(pid: i32, ending: &[u8]) -> Result<Vec<u8>, Error> {
    let mut digits = [0; MAX_DIGITS];
    path(&[b"/proc/", decimal(pid.unsigned_abs(), &mut digits), ending])
}

/// The contents of `/proc/PID/maps`.
pub(crate) fn maps(pid: i32) -> Result<Vec<u8>, Error> {
    let path = process_path(pid, b"/maps")?;
    let mut text = Vec::new();
    let file = RawFile::open(terminated(&path)?).ok_or(Error::NO_INFO)?;
    read_to_end(&file, &mut text)?;
    Ok(text)
}

/// The path that a name in a process's maps stands for, with a terminating zero byte.
pub(crate) fn path_of_mapping(name: &[u8]) -> Result<Vec<u8>, Error> {
    let mut path = path(&[name])?;
    // Reuses the room of the name.
    path.clear();
    path.extend(unescaped(name).chain([0]));
    Ok(path)
}

/// The file with this name in a process's maps, in the process's view of the file system.
pub(crate) fn map_of_process(pid: i32, name: &[u8]) -> Result<RawMap, Error> {
    let root = process_path(pid, b"/root")?;
    let path = path_of_mapping(name)?;
    let file = RawFile::open_in_root(terminated(&root)?, terminated(&path)?);
    file.and_then(|file| file.map_or_copy())
        .ok_or(Error::NO_INFO)
}

/// The file of this name.
pub(crate) fn map_named(name: &[u8]) -> Result<RawMap, Error> {
    let path = path(&[name])?;
    map_file(terminated(&path)?)
}

const PTRACE_PEEKDATA: c_int = 2;
const PTRACE_PEEKUSER: c_int = 3;
const PTRACE_POKEDATA: c_int = 5;
const PTRACE_POKEUSER: c_int = 6;
const PTRACE_CONT: c_int = 7;

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
