//! The bytes of a file: mapped, read, or passed in.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use unspool_files::{FileMap, is_untrusted};

use crate::error::ModuleError;
use crate::sys;

/// The bytes of one file, shared by all that keep offsets into it.
#[derive(Debug)]
pub(crate) enum ImageBytes {
    File(FileMap),
    Shared(Arc<[u8]>),
}

/// The file system's state of a file when it was opened. It changes when the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    /// The device that the file is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// When its bytes were last written, in nanoseconds since 1970.
    pub modified: i128,
    /// When its bytes or its inode last changed, in nanoseconds since 1970. A user who may write to
    /// the file can change its bytes without changing this, by a shared mapping.
    pub changed: i128,
}

/// The state and trust of a file when it was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileOrigin {
    pub(crate) state: FileState,
    /// Whether only root and this user could write to it: one of them owns it, nobody else has the
    /// permission, and its mount honours set-user-ID bits. A user who controls such a mount
    /// controls what it reports, and could become the owner of its files. Mounts that users control
    /// (FUSE, removable media) are `nosuid`.
    pub(crate) is_trusted: bool,
    /// Whether changed contents would change the state.
    pub(crate) is_settled: bool,
}

const SECOND: i128 = 1_000_000_000;

/// A file that changed this recently could change again within one timestamp, in nanoseconds: two
/// ticks of the slowest kernels' clock.
const SETTLE_TIME_NS: i128 = SECOND / 50;

impl FileState {
    /// Reads the file system's state of a file.
    #[must_use]
    pub fn new(metadata: &fs::Metadata) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * SECOND + i128::from(rest);
        FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl FileState {
    /// Whether changed contents would change the state. They would not if the file changed just
    /// now, or if times are in whole seconds, as in some file system images. If one image is
    /// mounted in place of another, times, inodes and sizes may all be equal.
    fn is_settled(&self, now: i128) -> bool {
        let changed = self.changed.max(self.modified);
        now - changed > SETTLE_TIME_NS && self.changed % SECOND != 0
    }

    /// The whole state, as bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let numbers = [self.device, self.inode, self.size].map(u64::to_le_bytes);
        let times = [self.modified, self.changed].map(i128::to_le_bytes);
        [numbers.as_flattened(), times.as_flattened()].concat()
    }
}

impl FileOrigin {
    fn new(file: &File, metadata: &fs::Metadata) -> FileOrigin {
        let state = FileState::new(metadata);
        FileOrigin {
            state,
            is_trusted: !is_untrusted(metadata) && sys::honours_setuid(file),
            is_settled: state.is_settled(now()),
        }
    }
}

/// Nanoseconds since 1970.
fn now() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().and_then(|now| i128::try_from(now.as_nanos()).ok());
    now.unwrap_or_default()
}

impl ImageBytes {
    /// Whether nobody can change the bytes: they are in this process's own memory.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            ImageBytes::File(map) => !map.is_mapped(),
            ImageBytes::Shared(_) => true,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            ImageBytes::File(map) => map,
            ImageBytes::Shared(bytes) => bytes,
        }
    }

    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> Result<(ImageBytes, FileOrigin), ModuleError> {
        let file = unspool_files::open(path).map_err(|error| io_error(path, error))?;
        ImageBytes::from_file(&file, path)
    }

    /// The bytes of a regular file that is open; `path` stands for it in errors.
    pub(crate) fn from_file(
        file: &File,
        path: &Path,
    ) -> Result<(ImageBytes, FileOrigin), ModuleError> {
        let opened = || {
            // This precedes reading the file, so any later write gets another time.
            let origin = FileOrigin::new(file, &file.metadata()?);
            io::Result::Ok((ImageBytes::File(FileMap::new(file)?), origin))
        };
        opened().map_err(|error| io_error(path, error))
    }

    /// Checks that the bytes read so far are those that the file had when it was opened, by its
    /// state. Bytes in this process's own memory always are.
    pub(crate) fn check(&self, path: &Path, state: Option<FileState>) -> Result<(), ModuleError> {
        let map = match self {
            ImageBytes::File(map) if map.is_mapped() => map,
            _ => return Ok(()),
        };
        let now = fs::metadata(path).map(|metadata| FileState::new(&metadata));
        // The path can lead to another file by now; that does not matter.
        let is_written = |now: FileState, state: FileState| {
            (now.device, now.inode) == (state.device, state.inode) && now != state
        };
        let is_written = matches!((now, state), (Ok(now), Some(state)) if is_written(now, state));
        match map.check_intact().is_err() || is_written {
            true => Err(ModuleError::Changed {
                file: path.to_path_buf(),
            }),
            false => Ok(()),
        }
    }
}

impl From<Vec<u8>> for ImageBytes {
    fn from(bytes: Vec<u8>) -> ImageBytes {
        ImageBytes::File(bytes.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: FileState = FileState {
        device: 0xfe01,
        inode: 0x1234_5678,
        size: 1 << 20,
        modified: 1_700_000_000_000_000_000,
        changed: 1_700_000_000_123_456_789,
    };

    #[test]
    fn a_state_tells_contents_apart_if_it_is_settled() {
        let after = |nanoseconds| STATE.changed + nanoseconds;
        assert!(STATE.is_settled(after(SETTLE_TIME_NS + 1)));
        assert!(!STATE.is_settled(after(SETTLE_TIME_NS)), "changed just now");
        assert!(!STATE.is_settled(after(-1)), "changed in the future");
        assert!(!STATE.is_settled(0), "no clock");
        let written = FileState {
            modified: STATE.changed + 10,
            ..STATE
        };
        assert!(
            !written.is_settled(after(SETTLE_TIME_NS + 10)),
            "either time counts"
        );
        assert!(written.is_settled(after(SETTLE_TIME_NS + 11)));
        let coarse = FileState {
            changed: STATE.modified,
            ..STATE
        };
        assert!(
            !coarse.is_settled(after(SETTLE_TIME_NS + 1)),
            "whole seconds"
        );
    }

    #[test]
    fn states_that_differ_have_other_bytes() {
        let with = |change: fn(&mut FileState)| {
            let mut state = STATE;
            change(&mut state);
            state
        };
        let others = [
            with(|state| state.device += 1),
            with(|state| state.inode += 1),
            with(|state| state.size += 1),
            with(|state| state.modified += 1),
            with(|state| state.changed = -state.changed),
        ];
        for other in others {
            assert_ne!(other.bytes(), STATE.bytes(), "{other:?}");
        }
    }

    #[test]
    fn only_what_nobody_else_can_write_to_is_trusted() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let is_trusted = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = File::open(&path).unwrap();
            FileOrigin::new(&file, &file.metadata().unwrap()).is_trusted
        };
        // If the temporary folder is mounted `nosuid`, no file in it is trusted.
        let honours = sys::honours_setuid(&File::open(&path).unwrap());
        assert_eq!(is_trusted(0o755), honours);
        assert!(!is_trusted(0o775));
        assert!(!is_trusted(0o757));
    }
}
