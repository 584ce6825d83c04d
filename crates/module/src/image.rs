//! The bytes of a file: mapped, read, or handed in.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use unspool_files::Map;

use crate::error::ModuleError;

/// The bytes of one file. Shared by everything that keeps offsets into it.
#[derive(Debug)]
pub(crate) enum Image {
    File(Map),
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
            Image::File(map) => map,
            Image::Shared(bytes) => bytes,
        }
    }

    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> Result<(Image, FileState), ModuleError> {
        let file = unspool_files::open(path).map_err(|error| io_error(path, error))?;
        Image::of_file(&file, path)
    }

    /// The bytes of a regular file that is open; `path` stands for it in errors.
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<(Image, FileState), ModuleError> {
        let opened = || {
            let state = FileState::of(&file.metadata()?);
            io::Result::Ok((Image::File(Map::new(file)?), state))
        };
        opened().map_err(|error| io_error(path, error))
    }

    /// Whether the bytes that were read so far are those that the file had when it was opened, as far as its state tells.
    pub(crate) fn check(&self, path: &Path, state: Option<FileState>) -> Result<(), ModuleError> {
        let Image::File(map) = self else {
            return Ok(());
        };
        let now = fs::metadata(path).map(|metadata| FileState::of(&metadata));
        // What the path leads to can be another file by now, which says nothing.
        let is_written = |now: FileState, state: FileState| {
            (now.device, now.inode) == (state.device, state.inode) && now != state
        };
        let is_written = matches!((now, state), (Ok(now), Some(state)) if is_written(now, state));
        match map.check().is_err() || is_written {
            true => Err(ModuleError::Changed {
                file: path.to_path_buf(),
            }),
            false => Ok(()),
        }
    }
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Image {
        Image::File(bytes.into())
    }
}

fn io_error(path: &Path, source: io::Error) -> ModuleError {
    let file = path.to_path_buf();
    let what = source.get_ref().and_then(|inner| inner.downcast_ref());
    match what {
        Some(what) => ModuleError::NotRegular { file, what: *what },
        None => ModuleError::Io {
            file,
            source: Arc::new(source),
        },
    }
}
