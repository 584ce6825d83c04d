//! Names of the functions and files of the own process.
//!
//! Async-signal-safe: files are read through borrowed memory, at most 4 KiB at a time. Nothing is
//! allocated, locked or mapped. There is no cancellation point here, and `errno` is preserved.

use unspool_files::raw::{RawFile, keeping_errno};
use unspool_rows::memory::UnreadableReason;
use unspool_rows::{Memory, RuntimeAddr, Unreadable};
use unspool_unwind::local::{self, BufferPool, PooledBuffer, pool};
use unspool_unwind::maps_text::{MapsLine, unescaped};

use crate::abi::Error;
use crate::image::{self, LoadedHeaders};
use crate::maps::MappingSearch;
use crate::sys::os;

/// The buffers of a look-up.
#[derive(Debug)]
pub(crate) struct NameBuffers {
    path: [u8; NameBuffers::PATH],
    text: [u8; NameBuffers::TEXT],
}

static BUFFERS: BufferPool<NameBuffers> = BufferPool::new();

impl PooledBuffer for NameBuffers {
    const EMPTY: NameBuffers = NameBuffers {
        path: [0; NameBuffers::PATH],
        text: [0; NameBuffers::TEXT],
    };
    const IS_STORED: bool = true;
}

impl NameBuffers {
    /// `PATH_MAX`, including the terminating zero byte.
    const PATH: usize = 4096;

    /// The maximum length of a line of `/proc/PID/maps`: the fields before the path, and a path.
    const TEXT: usize = NameBuffers::PATH + 128;
}

/// Passes the name of the function at an address to `found`, and the offset of the address in the
/// function, in bytes.
///
/// # Errors
///
/// [`Error::NO_INFO`] if there is none, [`Error::NO_MEMORY`] if it is too long, and errors of
/// `found`.
pub(crate) fn function<T>(
    ip: u64,
    found: impl FnOnce(&[u8], u64) -> Result<T, Error>,
) -> Result<T, Error> {
    with_buffers(|NameBuffers { path, text }| {
        let name = keeping_errno(|| find_name(ip, path, text));
        let (name, distance, is_whole) = name.ok_or(Error::NO_INFO)?;
        let shown = found(name, distance)?;
        is_whole.then_some(shown).ok_or(Error::NO_MEMORY)
    })
}

/// Passes the path of the file mapped at an address to `found`, and the offset of the address in
/// the file, in bytes.
///
/// # Errors
///
/// [`Error::NO_INFO`] if there is none, and errors of `found`.
pub(crate) fn file<T>(
    ip: u64,
    found: impl FnOnce(&[u8], u64) -> Result<T, Error>,
) -> Result<T, Error> {
    with_buffers(|NameBuffers { path, text }| {
        let file = keeping_errno(|| find_file(ip, path, text)).ok_or(Error::NO_INFO)?;
        found(os::terminated(path)?.to_bytes(), file.offset)
    })
}

fn with_buffers<T>(look_up: impl FnOnce(&mut NameBuffers) -> T) -> T {
    BUFFERS.with(|buffers| match buffers {
        Some(buffers) => look_up(buffers),
        None => pool::with_own(look_up),
    })
}

/// The name, the offset of the address in its function, and whether the whole name fitted.
fn find_name<'s>(ip: u64, path: &mut [u8], text: &'s mut [u8]) -> Option<(&'s [u8], u64, bool)> {
    let base = find_file(ip, path, text)?.base.ok()?;
    let file = FileMemory(RawFile::open(os::terminated(path).ok()?)?);
    let image = LoadedHeaders::read(&file, 0).ok()?;
    if !is_of_module(&file, &image, ip) {
        return None;
    }
    let bias = image.bias.wrapping_add(base);
    let (name_at, distance) = image::find_function(&file, ip.wrapping_sub(bias), text)?;
    let length = file.0.read_at(name_at, text)?;
    let read = text.get(..length)?;
    let end = read.iter().position(|byte| *byte == 0);
    let name = read.get(..end.unwrap_or(length))?;
    Some((name, distance, end.is_some()))
}

/// Where the file that is mapped at an address is.
struct MappedFile {
    /// The address of its first byte, if that is mapped.
    base: Result<u64, Error>,
    /// The file offset of the address that was looked up, in bytes.
    offset: u64,
}

/// Puts the path of the file mapped at an address into `path`, with a terminating zero byte.
fn find_file(ip: u64, path: &mut [u8], text: &mut [u8]) -> Option<MappedFile> {
    let maps = RawFile::open(c"/proc/thread-self/maps")?;
    let mut search = MappingSearch::new(RuntimeAddr(ip));
    let mut used = 0;
    loop {
        let more = maps.read(text.get_mut(used..)?).filter(|more| *more > 0)?;
        used += more;
        let read = text.get(..used)?;
        let whole = read.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |end| end + 1);
        let mut lines = read.get(..whole)?.split(|byte| *byte == b'\n');
        let found = lines.find_map(|line| {
            let line = MapsLine::parse(line)?;
            search.next(&line).map(|base| (base, line))
        });
        if let Some((base, line)) = found {
            let mut slots = path.iter_mut();
            for byte in unescaped(line.name).chain([0]) {
                *slots.next()? = byte;
            }
            let offset = line.file_offset(RuntimeAddr(ip));
            return (!line.name.is_empty()).then_some(MappedFile { base, offset });
        }
        text.copy_within(whole..used, 0);
        used -= whole;
    }
}

/// Whether the module at an address was loaded from this file: by the build ID, if it has one.
/// Packages are upgraded while programs run, and the symbols of another build would give wrong
/// names.
fn is_of_module(file: &FileMemory, headers: &LoadedHeaders, ip: u64) -> bool {
    let Some(module) = local::modules().loaded(RuntimeAddr(ip)) else {
        // The loader has not loaded it, so this cannot be checked.
        return true;
    };
    let expected = module.build_id;
    let mut bytes = [0; 32];
    let has_it = headers.build_id(file, 0).and_then(|(at, length)| {
        let bytes = bytes.get_mut(..usize::try_from(length).ok()?)?;
        file.read(RuntimeAddr(at), bytes).ok()?;
        Some(*bytes == *expected)
    });
    expected.is_empty() || has_it == Some(true)
}

/// The contents of a file, as memory with its offsets as addresses.
struct FileMemory(RawFile);

impl Memory for FileMemory {
    fn read(&self, addr: RuntimeAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let reason = UnreadableReason::Refused;
        match self.0.read_at(addr.0, into) {
            Some(length) if length == into.len() => Ok(()),
            _ => Err(Unreadable { addr, reason }),
        }
    }
}
