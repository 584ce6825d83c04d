//! Which file it is.

/// Identifies a file: its device, and its inode there. Valid while the file is open or mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device that the file is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
}

impl FileId {
    /// The file with these numbers, as `/proc/PID/maps` lists them.
    #[must_use]
    pub fn from_numbers(major: u32, minor: u32, inode: u64) -> FileId {
        FileId {
            device: libc::makedev(major, minor),
            inode,
        }
    }

    /// The file with this metadata.
    #[cfg(feature = "std")]
    #[must_use]
    pub fn new(metadata: &std::fs::Metadata) -> FileId {
        use std::os::unix::fs::MetadataExt as _;
        FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}
