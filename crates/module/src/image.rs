//! The bytes of a file: mapped, read, or handed in.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::ModuleError;
use crate::sys;

/// Files below this size are read: cheaper than a map, and safe from truncation.
const MAP_FROM: u64 = 64 * 1024;

/// The bytes of one file. Shared by everything that keeps offsets into it.
#[derive(Debug)]
pub(crate) enum Image {
    Mapped(Mmap),
    Read(Vec<u8>),
    Shared(Arc<[u8]>),
}

/// What the file system said of a file when it was opened: what changes when the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    /// The device that the file is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// When its bytes were written last: nanoseconds since 1970.
    pub modified: i128,
    /// When its bytes or its inode changed last, which no user can set: nanoseconds since 1970.
    pub changed: i128,
}

impl FileState {
    fn of(metadata: &fs::Metadata) -> Self {
        let nanoseconds =
            |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Image {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Image::Mapped(map) => map,
            Image::Read(bytes) => bytes,
            Image::Shared(bytes) => bytes,
        }
    }

    /// Opens a regular file; a pipe or device is refused before it can block.
    pub(crate) fn open(path: &Path) -> Result<(Image, FileState), ModuleError> {
        let metadata = fs::metadata(path).map_err(|source| io_error(path, source))?;
        check_regular(&metadata, path)?;
        let file = File::open(path).map_err(|source| io_error(path, source))?;
        Image::of_file(&file, path)
    }

    /// The bytes of a regular file that is open; `path` stands for it in errors.
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<(Image, FileState), ModuleError> {
        let io = |source| io_error(path, source);
        let metadata = file.metadata().map_err(io)?;
        check_regular(&metadata, path)?;
        let state = FileState::of(&metadata);
        if state.size >= MAP_FROM {
            let map = sys::map(file).map_err(io)?;
            return Ok((Image::Mapped(map), state));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(state.size).unwrap_or(0));
        let mut file = file;
        file.rewind().map_err(io)?;
        file.take(MAP_FROM).read_to_end(&mut bytes).map_err(io)?;
        Ok((Image::Read(bytes), state))
    }
}

fn io_error(path: &Path, source: io::Error) -> ModuleError {
    ModuleError::Io {
        file: path.to_path_buf(),
        source: Arc::new(source),
    }
}

fn check_regular(metadata: &fs::Metadata, path: &Path) -> Result<(), ModuleError> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(ModuleError::NotRegular {
        file: path.to_path_buf(),
        what: what_is(metadata.file_type()),
    })
}

fn what_is(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}
