//! The bytes of a file: mapped, read, or handed in.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
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

impl Image {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Image::Mapped(map) => map,
            Image::Read(bytes) => bytes,
            Image::Shared(bytes) => bytes,
        }
    }

    /// Opens a regular file; a pipe or device is refused before it can block.
    pub(crate) fn open(path: &Path) -> Result<Image, ModuleError> {
        let io = |source: io::Error| ModuleError::Io {
            file: path.to_path_buf(),
            source: Arc::new(source),
        };
        let kind = fs::metadata(path).map_err(io)?.file_type();
        if !kind.is_file() {
            return Err(ModuleError::NotRegular {
                file: path.to_path_buf(),
                what: what_is(kind),
            });
        }
        let mut file = File::open(path).map_err(io)?;
        let size = file.metadata().map_err(io)?.len();
        if size >= MAP_FROM {
            return sys::map(&file).map(Image::Mapped).map_err(io);
        }
        let mut bytes = Vec::new();
        file.by_ref()
            .take(MAP_FROM)
            .read_to_end(&mut bytes)
            .map_err(io)?;
        Ok(Image::Read(bytes))
    }
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
