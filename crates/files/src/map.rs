//! The content of a file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::ops::Deref;

use crate::map_registry::MapSlot;
use crate::open::is_untrusted;
use crate::{guard, sys};

/// Smaller files are read, in bytes: that is cheaper than a map, and nobody can change what was read.
const MAP_FROM_BYTES: u64 = 64 << 10;

/// No larger file is read where it cannot be mapped, in bytes. Holes of a file take memory, too.
const MAX_READ_BYTES: u64 = 1 << 30;

/// The bytes of a regular file, as many as it has when it is mapped.
///
/// A file of 64 KiB or more is mapped, others are read. Whoever may write to a mapped file can
/// change the bytes at any time: what is read twice may differ. If the file is truncated, the lost pages read as zeros
/// and [`FileMap::check_intact`] fails, given that [`guard::install`] was called before. Without the guard, as in a library of somebody
/// else's program, a file that strangers can change ([`is_untrusted`]) is read; one of the user or root is
/// mapped, as the dynamic loader maps it: who truncates it can end the process in any case.
#[derive(Debug)]
pub struct FileMap(Content);

#[derive(Debug)]
enum Content {
    Read(Vec<u8>),
    Mapped {
        map: memmap2::Mmap,
        /// None without the guard.
        slot: Option<&'static MapSlot>,
    },
}

/// Part of a mapped file is gone: what was computed from it is worth nothing. The source of an [`io::Error`] of kind
/// [`io::ErrorKind::UnexpectedEof`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it was truncated while it was read, or its device failed: try again when nobody writes to it"
)]
pub struct MapTruncated;

impl FileMap {
    /// Maps or reads all of a regular file, such as [`crate::open`] yields, from its beginning.
    ///
    /// # Errors
    ///
    /// The system refuses, or the file is too large: over a terabyte, or over 1 GiB where it has to be read.
    pub fn new(file: &File) -> io::Result<FileMap> {
        let metadata = file.metadata()?;
        let size = metadata.len();
        let has_guard = guard::is_installed();
        if size < MAP_FROM_BYTES || (!has_guard && is_untrusted(&metadata)) {
            return read(file, size);
        }
        let map = sys::map(file)?;
        let slot = match has_guard {
            true => {
                let slot = MapSlot::claim(map.as_ptr().addr(), map.len());
                Some(slot.ok_or(io::ErrorKind::FileTooLarge)?)
            }
            false => None,
        };
        Ok(FileMap(Content::Mapped { map, slot }))
    }

    /// Whether the bytes are those of the file, which others may change, and not this process's own.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Content::Mapped { .. })
    }

    /// Whether all bytes that were read so far were those of the file. To be asked after work on the bytes is done
    /// and before its result is reported or kept.
    ///
    /// # Errors
    ///
    /// Some were not: the file was truncated.
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
    if size > MAX_READ_BYTES {
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
        // Before the memory is unmapped: it may be somebody else's at once.
        if let Content::Mapped {
            slot: Some(slot), ..
        } = &self.0
        {
            slot.release();
        }
    }
}
