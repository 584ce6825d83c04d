//! Who may have written a file: the one rule.

#[cfg(feature = "std")]
use std::fs::Metadata;
#[cfg(feature = "std")]
use std::os::unix::fs::MetadataExt as _;

use crate::sys::raw::effective_user;

/// The permissions of a group and of everybody to write.
const OTHERS_WRITE: u32 = GROUP_WRITES | 0o002;
const GROUP_WRITES: u32 = 0o020;

/// Whether the owner of a file or a folder is this process's effective user, or root.
/// Async-signal-safe.
#[must_use]
pub(crate) fn is_our_owner(owner: u32) -> bool {
    is_owned_by(effective_user(), owner)
}

/// Whether only this process's effective user and root can change a file or a folder with this
/// owner and these permissions. Async-signal-safe.
#[must_use]
pub(crate) fn is_trusted(owner: u32, mode: u32) -> bool {
    is_trusted_by(effective_user(), owner, mode)
}

/// Whether the owner of a file is a user, or root.
#[must_use]
pub const fn is_owned_by(user: u32, owner: u32) -> bool {
    owner == 0 || owner == user
}

const fn is_trusted_by(user: u32, owner: u32, mode: u32) -> bool {
    is_owned_by(user, owner) && mode & OTHERS_WRITE == 0
}

/// Whether other users can change a file or a folder: its owner is neither the user nor root, or
/// others may write to it.
#[cfg(feature = "std")]
#[must_use]
pub(crate) fn is_untrusted(metadata: &Metadata) -> bool {
    !is_trusted(metadata.uid(), metadata.mode())
}

/// Who can write to a file.
#[cfg(feature = "std")]
#[derive(Debug, Clone, Copy)]
pub struct FileWriters {
    owner: u32,
    group: u32,
    mode: u32,
}

#[cfg(feature = "std")]
impl FileWriters {
    /// Those of a file.
    #[must_use]
    pub fn new(metadata: &Metadata) -> FileWriters {
        FileWriters {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode(),
        }
    }

    /// Whether all of them are this process's effective user, root, or writers of the other file.
    #[must_use]
    pub fn are_among(&self, other: &FileWriters) -> bool {
        self.are_among_or(effective_user(), other)
    }

    /// Whether both files have one owner.
    #[must_use]
    pub fn has_owner_of(&self, other: &FileWriters) -> bool {
        self.owner == other.owner
    }

    fn are_among_or(&self, user: u32, other: &FileWriters) -> bool {
        let both = self.mode & other.mode & OTHERS_WRITE;
        let is_group_same = self.group == other.group || both & GROUP_WRITES == 0;
        (is_owned_by(user, self.owner) || self.owner == other.owner)
            && both == self.mode & OTHERS_WRITE
            && is_group_same
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn the_user_and_root_are_trusted_and_nobody_else() {
        for (user, owner, mode, expected) in [
            (1000, 1000, 0o644, true),
            (1000, 0, 0o100_755, true),
            (1000, 1001, 0o600, false),
            (1000, 1000, 0o664, false),
            (1000, 1000, 0o646, false),
            (1000, 0, 0o1777, false),
            (0, 0, 0o700, true),
            (0, 1000, 0o700, false),
        ] {
            let trusted = is_trusted_by(user, owner, mode);
            assert_eq!(trusted, expected, "{user} {owner} {mode:o}");
        }
        assert!(is_our_owner(0) && is_our_owner(effective_user()));
        assert!(!is_our_owner(effective_user() + 1));
    }

    #[test]
    fn writers_of_one_file_are_among_those_of_another() {
        let writers = |owner, group, mode| FileWriters { owner, group, mode };
        let is_among = |one: FileWriters, other| one.are_among_or(1000, &other);
        let (own, foreign) = (writers(1000, 1000, 0o755), writers(1001, 1001, 0o755));
        assert!(is_among(own, foreign) && is_among(writers(0, 0, 0o644), foreign));
        assert!(is_among(foreign, foreign));
        assert!(!is_among(foreign, own));
        // By their group, and by everybody.
        let shared = writers(1000, 1000, 0o775);
        assert!(is_among(writers(1000, 1000, 0o664), shared));
        assert!(!is_among(writers(1000, 1000, 0o664), own));
        assert!(own.has_owner_of(&shared) && !own.has_owner_of(&foreign));
        assert!(!is_among(writers(1000, 50, 0o664), shared));
        assert!(!is_among(writers(1000, 1000, 0o666), shared));
        assert!(is_among(
            writers(1000, 50, 0o606),
            writers(1000, 1000, 0o777)
        ));
    }
}
