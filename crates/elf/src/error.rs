//! Why an ELF file, or one part of it, could not be read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use unspool_files::{CacheError, NotRegularFile};

use crate::build_id::BuildId;

/// Why an ELF file, or one part of it, could not be read.
///
/// Every variant names the file. Offsets are in bytes from the start of that file unless a variant
/// says otherwise. The file keeps its errors (a section is read once), so they can be cloned.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// The operating system could not open, read or map the file.
    #[error("cannot read {}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The path names a folder, a device, a pipe or a socket.
    #[error("{}: {what}", file.display())]
    NotRegular {
        /// The path.
        file: PathBuf,
        /// The kind of file, and what helps.
        what: NotRegularFile,
    },
    /// The file has a part of another file's debug information, and may be written by users who
    /// cannot write to that.
    #[error("{}: not used: users can write to it who cannot write to the file that names it: give it the same owner and mode", file.display())]
    Untrusted {
        /// The file.
        file: PathBuf,
    },
    /// A copy in a cache is not used.
    #[error(transparent)]
    Cache(Arc<CacheError>),
    /// The file was truncated or written to while it was in use. The data read may be of either
    /// version, or of neither.
    #[error("{}: it was truncated or written to while it was read: try again when nobody writes to it", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// The file has no bytes.
    #[error("{}: the file is empty", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// The file does not start with the ELF magic number.
    #[error("{}: not an ELF file: it starts with {}", file.display(), start.escape_ascii())]
    NotElf {
        /// The file.
        file: PathBuf,
        /// Its first bytes, at most 8.
        start: Vec<u8>,
    },
    /// The file is a linker script. Some development packages install one as `lib….so`.
    #[error("{}: a linker script, not an ELF file", file.display())]
    LinkerScript {
        /// The file.
        file: PathBuf,
    },
    /// A field has a value that no known ELF file has.
    #[error("{}: {what} at offset {offset:#x} is {value:#x}, which is not supported", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The field.
        what: &'static str,
        /// Where the field is.
        offset: u64,
        /// Its value.
        value: u64,
    },
    /// A structure runs past the end of the file: the file was cut short, or an offset is wrong.
    #[error(
        "{}: {what} at offset {offset:#x} ({length:#x} bytes) runs past the end of the file at {end:#x}: \
         there are {end} bytes of at least {}; is it an incomplete download or copy?",
        file.display(), offset.saturating_add(*length)
    )]
    Truncated {
        /// The file.
        file: PathBuf,
        /// The structure.
        what: String,
        /// Where it starts.
        offset: u64,
        /// The expected size in bytes.
        length: u64,
        /// The size of the file in bytes.
        end: u64,
    },
    /// A structure contradicts itself or another one.
    #[error("{}: {what} at offset {offset:#x} is wrong ({value:#x}): {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The structure.
        what: String,
        /// Where it is.
        offset: u64,
        /// The offending value.
        value: u64,
        /// The fault.
        reason: String,
    },
    /// An archive or a compressed file could not be taken apart.
    #[error("{}: it cannot be unpacked: {reason}", file.display())]
    Unpack {
        /// The file.
        file: PathBuf,
        /// The decoder's reason.
        reason: String,
    },
    /// An archive cannot be written with another member.
    #[error("{}: archive member at offset {offset:#x}: {reason}", file.display())]
    Member {
        /// The archive.
        file: PathBuf,
        /// Where the member's header is, in bytes.
        offset: u64,
        /// The reason, and what helps.
        reason: &'static str,
    },
    /// A compressed section or embedded file could not be decompressed.
    #[error("{}: section {section} at offset {offset:#x} cannot be decompressed: {reason}", file.display())]
    Compressed {
        /// The file.
        file: PathBuf,
        /// The section.
        section: String,
        /// Where its compressed bytes start.
        offset: u64,
        /// The decoder's reason.
        reason: String,
    },
    /// Decompressing would take an implausible amount of memory.
    #[error(
        "{}: section {section} at offset {offset:#x} claims {size} bytes decompressed from {stored}; \
         at most {limit} are allowed",
        file.display()
    )]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The section.
        section: String,
        /// Where its compressed bytes start.
        offset: u64,
        /// The compressed size in bytes.
        stored: u64,
        /// The decompressed size in bytes.
        size: u64,
        /// The maximum, in bytes.
        limit: u64,
    },
    /// The debug information could not be read.
    #[error("{}: debug information for address {address:#x}: {reason}", file.display())]
    Dwarf {
        /// The file with the debug information.
        file: PathBuf,
        /// The link-time address looked up.
        address: u64,
        /// The reader's reason.
        reason: String,
    },
    /// A debug file belongs to another build.
    #[error("{} has build ID {found}, but {expected} is wanted", file.display())]
    WrongBuild {
        /// The debug file that was rejected.
        file: PathBuf,
        /// The build ID looked for.
        expected: Box<BuildId>,
        /// The build ID it has.
        found: Box<BuildId>,
    },
    /// A debug file is not the one that the debug link was made for.
    #[error("{} has CRC-32 {found:#010x}, but the debug link says {expected:#010x}", file.display())]
    WrongChecksum {
        /// The debug file that was rejected.
        file: PathBuf,
        /// The checksum in the `.gnu_debuglink` section.
        expected: u32,
        /// The checksum of the file.
        found: u32,
    },
}

impl ModuleError {
    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        const MISSING: [io::ErrorKind; 2] = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        matches!(self, ModuleError::Io { source, .. } if MISSING.contains(&source.kind()))
    }
}
