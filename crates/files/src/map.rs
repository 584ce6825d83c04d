//! The contents of a file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::ops::Deref;

use crate::guard;
use crate::map_registry::MapSlot;
use crate::sys::lost_pages;
use crate::sys::raw::MAX_COPIED_BYTES;
use crate::trust::is_untrusted;

/// Smaller files are read, not mapped; in bytes. That is faster than a map, and the bytes cannot
/// change.
const MAP_FROM_BYTES: u64 = 64 << 10;

/// The bytes of a regular file, up to its size at the time of mapping.
///
/// A file of 64 KiB or more is mapped, others are read. A user who may write to a mapped file can
/// change the bytes at any time: two reads may differ. If the file is truncated, the lost pages
/// read as zeros and [`FileMap::check_intact`] fails, provided that [`guard::install`] was called
/// before. Without the guard, as in a library, a file that other users can change is read. A file
/// of the user or root is mapped, as the dynamic loader maps it: its owner can kill the process
/// anyway.
#[derive(Debug)]
pub struct FileMap(Content);

#[derive(Debug)]
enum Content {
    Read(Vec<u8>),
    Mapped {
        map: memmap2::Mmap,
        /// `None` without the guard.
        slot: Option<&'static MapSlot>,
    },
}

/// Part of a mapped file is gone: results computed from it are invalid. The source of an
/// [`io::Error`] of kind [`io::ErrorKind::UnexpectedEof`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it was truncated while it was read, or its device failed: try again when nobody writes to it"
)]
pub struct MapTruncated;

impl FileMap {
    /// Maps or reads all of a regular file, for example from [`crate::open`].
    ///
    /// # Errors
    ///
    /// The system refuses, or the file is too large: over a terabyte, or over 1 GiB if it must be
    /// read.
    pub fn new(file: &File) -> io::Result<FileMap> {
        let metadata = file.metadata()?;
        let size = metadata.len();
        let has_guard = guard::is_installed();
        if size < MAP_FROM_BYTES || (!has_guard && is_untrusted(&metadata)) {
            return read(file, size);
        }
        let map = lost_pages::map(file)?;
        let slot = if has_guard {
            let slot = MapSlot::acquire(map.as_ptr().addr(), map.len());
            Some(slot.ok_or(io::ErrorKind::FileTooLarge)?)
        } else {
            None
        };
        Ok(FileMap(Content::Mapped { map, slot }))
    }

    /// Whether the bytes are the file's, which others may change, and not this process's own.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Content::Mapped { .. })
    }

    /// Whether all bytes read so far were the file's. Must be called after the work on the bytes,
    /// and before its result is reported or stored.
    ///
    /// # Errors
    ///
    /// They were not: the file was truncated.
    pub fn check_intact(&self) -> Result<(), MapTruncated> {
        match &self.0 {
            Content::Mapped {
                slot: Some(slot), ..
            } if slot.is_lost() => Err(MapTruncated),
            _ => Ok(()),
        }
    }
}

impl From<Vec<u8>> for FileMap {
    fn from(bytes: Vec<u8>) -> FileMap {
        FileMap(Content::Read(bytes))
    }
}

/// Reads as many bytes as the file had, if it still has them.
fn read(mut file: &File, size: u64) -> io::Result<FileMap> {
    if size > MAX_COPIED_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Content::Read(bytes) => bytes,
            Content::Mapped { map, .. } => map,
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // This precedes unmapping: the memory may be reused at once.
        if let Content::Mapped {
            slot: Some(slot), ..
        } = &self.0
        {
            slot.release();
        }
    }
}
