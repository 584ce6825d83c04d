//! What the file system says of a file.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::file_id::FileId;
use crate::sys::mount::honours_setuid;
use crate::trust::{FileWriters, is_untrusted};

/// The file system's state of a file when it was opened. It changes when the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    /// Which file it is.
    pub id: FileId,
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
pub struct FileOrigin {
    /// Its state.
    pub state: FileState,
    /// Who could write to it.
    pub writers: FileWriters,
    /// Whether only root and this user could write to it: one of them owns it, nobody else has the
    /// permission, and its mount honours set-user-ID bits. A user who controls such a mount
    /// controls what it reports, and could become the owner of its files. Mounts that users control
    /// (FUSE, removable media) are `nosuid`.
    pub is_trusted: bool,
    /// Whether changed contents would change the state.
    pub is_settled: bool,
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
            id: FileId::new(metadata),
            size: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether changed contents would change the state. They would not if the file changed just
    /// now, or if times are in whole seconds, as in some file system images. If one image is
    /// mounted in place of another, times, inodes and sizes may all be equal.
    fn is_settled(&self, now: i128) -> bool {
        let changed = self.changed.max(self.modified);
        now - changed > SETTLE_TIME_NS && self.changed % SECOND != 0
    }

    /// The whole state, as bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let numbers = [self.id.device, self.id.inode, self.size].map(u64::to_le_bytes);
        let times = [self.modified, self.changed].map(i128::to_le_bytes);
        [numbers.as_flattened(), times.as_flattened()].concat()
    }
}

impl FileOrigin {
    /// Asks the file system about an open file.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn new(file: &File) -> io::Result<FileOrigin> {
        let metadata = file.metadata()?;
        let state = FileState::new(&metadata);
        Ok(FileOrigin {
            state,
            writers: FileWriters::new(&metadata),
            is_trusted: !is_untrusted(&metadata) && honours_setuid(file),
            is_settled: state.is_settled(now()),
        })
    }
}

/// Nanoseconds since 1970.
fn now() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().and_then(|now| i128::try_from(now.as_nanos()).ok());
    now.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: FileState = FileState {
        id: FileId {
            device: 0xfe01,
            inode: 0x1234_5678,
        },
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
            with(|state| state.id.device += 1),
            with(|state| state.id.inode += 1),
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
            FileOrigin::new(&file).unwrap().is_trusted
        };
        // If the temporary folder is mounted `nosuid`, no file in it is trusted.
        let honours = honours_setuid(&File::open(&path).unwrap());
        assert_eq!(is_trusted(0o755), honours);
        assert!(!is_trusted(0o775));
        assert!(!is_trusted(0o757));
    }
}
