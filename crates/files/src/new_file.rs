//! Files that take their place when they are whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

/// Creates a file that does not exist yet, open for reading and writing.
pub(crate) fn create_new(folder: impl AsFd, name: &OsStr, mode: Mode) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, mode)?.into())
}

/// The name of a file beside its place. Other users cannot guess it.
pub(crate) fn temporary_name(name: &OsStr) -> OsString {
    let random = RandomState::new().hash_one(std::process::id());
    let mut temporary = name.to_owned();
    temporary.push(format!(".{random:016x}.tmp"));
    temporary
}

/// Whether [`temporary_name`] could have made this name of one of these, or an earlier version of
/// unspool could have.
pub(crate) fn is_temporary(name: &str, is_wanted: impl Fn(&str) -> bool) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let ending = name.strip_suffix(".tmp");
    let Some((before, last)) = ending.unwrap_or(name).rsplit_once('.') else {
        return false;
    };
    let is_random = last.len() == 16 && last.bytes().all(|byte| byte.is_ascii_hexdigit());
    let numbered = before
        .rsplit_once('.')
        .filter(|(_, first)| is_number(first));
    is_random && ending.is_some() && is_wanted(before)
        || numbered.is_some_and(|(name, _)| is_number(last) && is_wanted(name))
}

/// A file under a temporary name. Removed on drop, unless it took its place.
pub(crate) struct NewFile<'f> {
    folder: BorrowedFd<'f>,
    place: &'f OsStr,
    name: OsString,
    pub(crate) file: File,
}

impl<'f> NewFile<'f> {
    /// Creates a file beside its place in a folder.
    pub(crate) fn create(
        folder: BorrowedFd<'f>,
        place: &'f OsStr,
        mode: Mode,
    ) -> io::Result<NewFile<'f>> {
        let name = temporary_name(place);
        let file = create_new(folder, &name, mode)?;
        Ok(NewFile {
            folder,
            place,
            name,
            file,
        })
    }

    /// Renames it to its place.
    pub(crate) fn take_place(&self) -> io::Result<()> {
        Ok(renameat(self.folder, &self.name, self.folder, self.place)?)
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // It is gone if it was renamed.
        let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_that_are_being_written() {
        let is_ours = |name: &str| is_temporary(name, |wanted| wanted == "a.so" || wanted == "0ff");
        let made = temporary_name(OsStr::new("a.so"));
        assert!(is_ours(made.to_str().unwrap()), "{made:?}");
        for earlier in ["a.so.17.0.tmp", "0ff.4000000.12.tmp", "0ff.17.3"] {
            assert!(is_ours(earlier), "{earlier}");
        }
        let others = [
            "",
            "a.so",
            "0ff",
            "notes.tmp",
            "a.so.tmp",
            "b.so.17.0.tmp",
            "a.so.17.tmp",
            "a.so.1x.0.tmp",
            "a.so..0.tmp",
            "a.so.0123456789abcdef",
            "b.so.0123456789abcdef.tmp",
            "a.so.0123456789abcdeg.tmp",
            "a.so.0123456789abcde.tmp",
            "a.so.17.0.tmps",
        ];
        for name in others {
            assert!(!is_ours(name), "{name}");
        }
    }
}
