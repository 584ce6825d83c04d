//! Files that this user keeps and finds again.
//!
//! Folders and files are checked after they are opened, and files are opened, renamed and removed
//! by the folder's descriptor. So the checks apply to what is used, whatever happens to paths.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, mkdirat, openat, readlinkat, renameat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::map::FileMap;
use crate::new_file::{NewFile, is_temporary, temporary_name};
use crate::sys::raw::USE_RESOLUTION_SECONDS;
use crate::trust::{is_our_owner, is_untrusted};

/// A file that a writer has not finished after this time was left behind by a killed one.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// A file or folder of a cache is not used, or could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct CacheError {
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    pub reason: CacheErrorReason,
}

/// Why a file of a cache is not used, or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheErrorReason {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Others could have written it.
    #[error(
        "not trusted: owned by user {owner}, mode {mode:03o}; it must belong to you or root (chown) \
         and be writable by nobody else (chmod go-w)"
    )]
    Untrusted {
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The cache would be made in the folder of this other user.
    #[error("no cache is made in a folder of user {0}; set XDG_CACHE_HOME to one of yours")]
    OthersFolder(u32),
    /// It is a folder, a pipe.
    #[error("not a regular file")]
    NotRegular,
    /// It is larger than the limit of the whole cache; both in bytes.
    #[error("a file of {size} bytes; the cache is limited to {limit}")]
    TooLarge {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}

impl CacheError {
    /// An error about a file or folder.
    #[must_use]
    pub fn new(path: &Path, reason: impl Into<CacheErrorReason>) -> CacheError {
        let (path, reason) = (path.to_path_buf(), reason.into());
        CacheError { path, reason }
    }

    fn is(&self, kinds: &[io::ErrorKind]) -> bool {
        matches!(&self.reason, CacheErrorReason::Io(error) if kinds.contains(&error.kind()))
    }
}

impl From<Errno> for CacheErrorReason {
    fn from(error: Errno) -> Self {
        CacheErrorReason::Io(error.into())
    }
}

/// Errors about files and folders that do not exist.
const MISSING: &[io::ErrorKind] = &[io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];

/// A regular file that nobody but the user and root can write to, in such a folder.
#[derive(Debug)]
pub struct TrustedFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
}

impl TrustedFile {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata that it had when it was opened.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its contents, mapped or read.
    ///
    /// # Errors
    ///
    /// As for [`FileMap::new`].
    pub fn map(&self) -> Result<FileMap, CacheError> {
        FileMap::new(&self.file).map_err(|error| CacheError::new(&self.path, error))
    }

    /// Its contents in memory, so that later changes to the file have no effect.
    ///
    /// # Errors
    ///
    /// The system's error, or [`CacheErrorReason::TooLarge`].
    pub fn read(&self, max_bytes: u64) -> Result<Vec<u8>, CacheError> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(max_bytes).read_to_end(&mut bytes);
        read.map_err(|error| CacheError::new(&self.path, error))?;
        match self.metadata.len() {
            size if size > max_bytes => {
                let limit = max_bytes;
                Err(CacheError::new(
                    &self.path,
                    CacheErrorReason::TooLarge { size, limit },
                ))
            }
            _ => Ok(bytes),
        }
    }

    /// Notes that it was used, in its modification time, to the day. File systems need not keep
    /// access times, and usually do not (`noatime`, `relatime`).
    pub fn note_use(&self) {
        let resolution = Duration::from_secs(USE_RESOLUTION_SECONDS.unsigned_abs());
        let noted = self.metadata.modified();
        if !noted.is_ok_and(|noted| noted.elapsed().is_ok_and(|age| age < resolution)) {
            // Fails for root's file in the user's cache, which then counts as unused.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }
}

/// Opens a regular file below a folder; `None` if there is none. The folder, those on the way from
/// it, and the file must belong to the user or root and be writable by nobody else. Folders above
/// are not checked. Links are followed: what they lead to is checked.
///
/// # Errors
///
/// [`CacheError`].
pub fn open_trusted(folder: &Path, path: &Path) -> Result<Option<TrustedFile>, CacheError> {
    let opened = || {
        let below = path.parent().unwrap_or(Path::new(""));
        let name = path.file_name().unwrap_or_default();
        TrustedFolder::open(folder, below)?.open_file(name)
    };
    match opened() {
        Err(error) if error.is(MISSING) => Ok(None),
        opened => opened.map(Some),
    }
}

/// A folder that this user keeps files in. Its files are trusted ([`open_trusted`]), are seen only
/// when they are whole, and together have a limit.
///
/// Only files with certain names count, are listed and removed; others are left alone. Files are
/// replaced by renaming another onto them, so processes that have mapped the old one keep it.
#[derive(Debug, Clone)]
pub struct CacheFolder {
    root: PathBuf,
    /// The folder below the root.
    below: PathBuf,
    is_entry: fn(&str) -> bool,
    max_bytes: Option<u64>,
}

/// A file of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// When it was used last, to the day: the time of its last modification.
    pub used: SystemTime,
}

/// The files that were removed from a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovedFiles {
    /// Their number.
    pub count: usize,
    /// Their size in bytes.
    pub bytes: u64,
}

impl CacheFolder {
    /// A folder for files with names that `is_entry` accepts. The first file makes it, and the
    /// folder above it, for the user alone.
    #[must_use]
    pub fn new(path: PathBuf, is_entry: fn(&str) -> bool) -> CacheFolder {
        CacheFolder {
            root: path,
            below: PathBuf::new(),
            is_entry,
            max_bytes: None,
        }
    }

    /// Limits the size of all files. A new one makes room: the least recently used are removed.
    ///
    /// Several processes that write at the same time can exceed the limit by the files that the
    /// others are writing; the next one that writes a file corrects that.
    #[must_use]
    pub fn with_limit(self, max_bytes: u64) -> CacheFolder {
        CacheFolder {
            max_bytes: Some(max_bytes),
            ..self
        }
    }

    /// A folder in this one, for other files, without a limit.
    #[must_use]
    pub fn subfolder(&self, name: &str, is_entry: fn(&str) -> bool) -> CacheFolder {
        CacheFolder {
            root: self.root.clone(),
            below: self.below.join(name),
            is_entry,
            max_bytes: None,
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        // Joining an empty path would add a slash.
        let below = self.below.components();
        below.fold(self.root.clone(), |path, name| path.join(name))
    }

    /// Opens a file; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As for [`open_trusted`].
    pub fn open(&self, name: &str) -> Result<Option<TrustedFile>, CacheError> {
        open_trusted(&self.root, &self.below.join(name))
    }

    /// Writes a file. Also removes files that killed writers left over an hour ago.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or trusted, or the file cannot be written. If it alone is larger
    /// than the limit, no other is removed.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, CacheError> {
        let failed = |error| CacheError::new(&self.path().join(name), error);
        self.write_with(name, bytes.len() as u64, |file| {
            file.write_all(bytes).map_err(failed)
        })
    }

    /// The same, written by `fill`, which may read it, too. Room is made for `size` bytes.
    ///
    /// # Errors
    ///
    /// As for [`CacheFolder::write`], and those of `fill`.
    pub fn write_with<E: From<CacheError>>(
        &self,
        name: &str,
        size: u64,
        fill: impl FnOnce(&mut File) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let path = self.path().join(name);
        if let Some(limit) = self.max_bytes.filter(|limit| size > *limit) {
            return Err(CacheError::new(&path, CacheErrorReason::TooLarge { size, limit }).into());
        }
        let folder = self.create()?;
        self.remove_leftovers(&folder);
        self.make_room(&folder, &path, size);
        let failed = |error| CacheError::new(&path, error);
        let mode = Mode::from_raw_mode(0o600);
        let new = NewFile::create(folder.file.as_fd(), OsStr::new(name), mode);
        let mut new = new.map_err(failed)?;
        fill(&mut new.file)?;
        new.take_place().map_err(failed)?;
        Ok(path)
    }

    /// Makes a link to a file of the folder.
    ///
    /// # Errors
    ///
    /// As for [`CacheFolder::write`].
    pub fn link(&self, name: &str, target: &str) -> Result<(), CacheError> {
        let folder = self.create()?.file;
        let found = readlinkat(&folder, name, Vec::new());
        if found.is_ok_and(|found| found.as_bytes() == target.as_bytes()) {
            return Ok(());
        }
        let temporary = temporary_name(OsStr::new(name));
        let linked = symlinkat(target, &folder, &temporary)
            .and_then(|()| renameat(&folder, &temporary, &folder, name));
        linked.map_err(|error| {
            let _ = unlinkat(&folder, &temporary, AtFlags::empty()); // nothing more can be done
            CacheError::new(&self.path().join(name), error)
        })
    }

    /// Checks whether files can be written, by writing. Makes the folder if it is missing.
    ///
    /// # Errors
    ///
    /// As for [`CacheFolder::write`].
    pub fn check_writable(&self) -> Result<(), CacheError> {
        let folder = self.create()?;
        let mode = Mode::from_raw_mode(0o600);
        let written = NewFile::create(folder.file.as_fd(), OsStr::new("check"), mode);
        written.map(drop).map_err(|error| folder.failed(error))
    }

    /// The files, by name; no links.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or trusted.
    pub fn entries(&self) -> Result<Vec<CacheEntry>, CacheError> {
        let folder = self.existing()?;
        folder.map_or(Ok(Vec::new()), |folder| self.entries_in(&folder))
    }

    /// Removes all files, links, and files that killed writers left over an hour ago. Counts the
    /// files. A file that another process removes meanwhile is removed.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or trusted, or a file cannot be removed.
    pub fn remove_all(&self) -> Result<RemovedFiles, CacheError> {
        let mut removed = RemovedFiles::default();
        let Some(folder) = self.existing()? else {
            return Ok(removed);
        };
        for entry in self.entries_in(&folder)? {
            if folder.remove(&entry.path)? {
                removed.count += 1;
                removed.bytes = removed.bytes.saturating_add(entry.size);
            }
        }
        for (name, _) in self.list(&folder)?.into_iter().filter(is_link) {
            let _ = folder.remove(name.as_ref());
        }
        self.remove_leftovers(&folder);
        Ok(removed)
    }

    /// Removes all files that nobody has read for some time, by their access times, from the folders
    /// in this one with certain names: whatever the files' names are. Also removes the folders that
    /// are empty then. What cannot be removed stays.
    pub fn remove_unread(&self, age: Duration, is_wanted: impl Fn(&str) -> bool) {
        let Ok(Some(parent)) = self.existing() else {
            return;
        };
        let is_folder = |(_, stat): &(String, Stat)| kind(stat) == FileType::Directory;
        let listed = parent.entries(is_wanted).unwrap_or_default();
        for (name, _) in listed.into_iter().filter(is_folder) {
            let Ok(folder) = parent.subfolder(name.as_ref()) else {
                continue;
            };
            for (name, stat) in folder.list(|_| true).unwrap_or_default() {
                if is_older(time(stat.st_atime, stat.st_atime_nsec), age) {
                    let _ = folder.remove(name.as_ref());
                }
            }
            let _ = unlinkat(&parent.file, &name, AtFlags::REMOVEDIR);
        }
    }

    /// The files and links, without those that are being written.
    fn list(&self, folder: &TrustedFolder) -> Result<Vec<(String, Stat)>, CacheError> {
        folder.list(|name| (self.is_entry)(name) && !is_temporary(name, self.is_entry))
    }

    fn entries_in(&self, folder: &TrustedFolder) -> Result<Vec<CacheEntry>, CacheError> {
        let listed = self.list(folder)?.into_iter();
        let entries = listed.filter(|listed| !is_link(listed));
        let mut entries: Vec<_> = entries
            .map(|(name, stat)| CacheEntry {
                path: folder.path.join(name),
                size: stat.st_size.try_into().unwrap_or(0),
                used: time(stat.st_mtime, stat.st_mtime_nsec),
            })
            .collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn remove_leftovers(&self, folder: &TrustedFolder) {
        let is_leftover = |name: &str| is_temporary(name, self.is_entry);
        for (name, stat) in folder.list(is_leftover).unwrap_or_default() {
            if is_older(time(stat.st_mtime, stat.st_mtime_nsec), LEFTOVER_AGE) {
                let _ = folder.remove(name.as_ref());
            }
        }
    }

    /// Makes room for a new file, and removes links that lead nowhere then. A file that cannot be
    /// removed stays.
    fn make_room(&self, folder: &TrustedFolder, new: &Path, bytes: u64) {
        let Some(limit) = self.max_bytes else {
            return;
        };
        let mut entries = self.entries_in(folder).unwrap_or_default();
        entries.retain(|entry| entry.path != new); // the new one takes its place
        entries.sort_by_key(|entry| entry.used);
        let sizes = entries.iter().map(|entry| entry.size);
        let mut total = sizes.fold(bytes, u64::saturating_add);
        for entry in entries {
            if total <= limit {
                break;
            }
            if folder.remove(&entry.path).is_ok() {
                total = total.saturating_sub(entry.size);
            }
        }
        let links = self.list(folder).unwrap_or_default();
        for (name, _) in links.into_iter().filter(is_link) {
            let target = statat(&folder.file, &name, AtFlags::empty());
            if target.is_err_and(|error| error == Errno::NOENT) {
                let _ = folder.remove(name.as_ref());
            }
        }
    }

    /// The folder if it exists.
    fn existing(&self) -> Result<Option<TrustedFolder>, CacheError> {
        match TrustedFolder::open(&self.root, &self.below) {
            Err(error) if error.is(&[io::ErrorKind::NotFound]) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Makes the folder and those between it and the folder above the root, for the user alone.
    /// Folders above are not made: a home must exist.
    fn create(&self) -> Result<TrustedFolder, CacheError> {
        let mut folder = self.create_root()?;
        for name in self.below.components() {
            make_folder(&folder.file, name.as_ref(), &folder.path.join(name))?;
            folder = folder.subfolder(name.as_ref())?;
        }
        Ok(folder)
    }

    fn create_root(&self) -> Result<TrustedFolder, CacheError> {
        let open = || TrustedFolder::open(&self.root, Path::new(""));
        match open() {
            Err(error) if error.is(MISSING) => {}
            opened => return opened,
        }
        // Root may have a user's home, which `sudo` can keep. A folder of root's there would be in
        // the user's way.
        let mut above = self.root.ancestors().skip(1);
        let existing =
            above.find_map(|path| Some((path, statat(CWD, path, AtFlags::empty()).ok()?.st_uid)));
        if let Some((path, owner)) = existing.filter(|(_, owner)| !is_our_owner(*owner)) {
            return Err(CacheError::new(path, CacheErrorReason::OthersFolder(owner)));
        }
        for path in self.root.parent().into_iter().chain([&*self.root]) {
            make_folder(CWD, path, path)?;
        }
        // Another process may have been faster, or the name is taken by something else.
        open().map_err(|error| {
            if error.is(MISSING) {
                CacheError::new(&self.root, io::Error::from(io::ErrorKind::NotADirectory))
            } else {
                error
            }
        })
    }
}

/// An open folder that nobody but the user and root can write to.
struct TrustedFolder {
    path: PathBuf,
    file: File,
}

impl TrustedFolder {
    /// Opens `root` and each folder on the way below it.
    fn open(root: &Path, below: &Path) -> Result<TrustedFolder, CacheError> {
        let root = TrustedFolder::open_at(CWD, root, root.to_path_buf());
        below.components().fold(root, |folder, name| {
            folder.and_then(|folder| folder.subfolder(name.as_ref()))
        })
    }

    fn subfolder(&self, name: &Path) -> Result<TrustedFolder, CacheError> {
        TrustedFolder::open_at(&self.file, name, self.path.join(name))
    }

    fn open_at(at: impl AsFd, name: &Path, path: PathBuf) -> Result<TrustedFolder, CacheError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The folder's own `.` cannot be reached without permission to search the folder. So the
        // error is about the folder, not about a file in it.
        match openat(at, name.join("."), flags, Mode::empty()) {
            Ok(opened) => {
                let file = File::from(opened);
                check_trust(&path, &file)?;
                Ok(TrustedFolder { path, file })
            }
            Err(error) => Err(CacheError::new(&path, error)),
        }
    }

    fn open_file(&self, name: &OsStr) -> Result<TrustedFile, CacheError> {
        let path = self.path.join(name);
        // Opening a pipe would wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(&self.file, name, flags, Mode::empty());
        let file = File::from(opened.map_err(|error| CacheError::new(&path, error))?);
        let metadata = check_trust(&path, &file)?;
        if metadata.is_file() {
            Ok(TrustedFile {
                path,
                file,
                metadata,
            })
        } else {
            Err(CacheError::new(&path, CacheErrorReason::NotRegular))
        }
    }

    /// The entries with such names, except folders; links are not followed.
    fn list(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Stat)>, CacheError> {
        let mut listed = self.entries(is_wanted)?;
        listed.retain(|(_, stat)| kind(stat) != FileType::Directory);
        Ok(listed)
    }

    /// The same with folders.
    fn entries(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Stat)>, CacheError> {
        let mut listed = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = openat(&self.file, ".", flags, Mode::empty()).and_then(Dir::new);
        for entry in entries.map_err(|error| self.failed(error))? {
            let entry = entry.map_err(|error| self.failed(error))?;
            let name = entry
                .file_name()
                .to_str()
                .ok()
                .filter(|name| is_wanted(name));
            // It may be removed meanwhile.
            let stat = name.map(|name| statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW));
            if let (Some(name), Some(Ok(stat))) = (name, stat) {
                listed.push((name.to_owned(), stat));
            }
        }
        Ok(listed)
    }

    /// Removes a file or link of the folder; yields whether it existed.
    fn remove(&self, path: &Path) -> Result<bool, CacheError> {
        match unlinkat(
            &self.file,
            path.file_name().unwrap_or_default(),
            AtFlags::empty(),
        ) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(CacheError::new(path, error)),
        }
    }

    fn failed(&self, reason: impl Into<CacheErrorReason>) -> CacheError {
        CacheError::new(&self.path, reason)
    }
}

/// Refuses files that somebody else could have written.
fn check_trust(path: &Path, file: &File) -> Result<Metadata, CacheError> {
    let metadata = file.metadata();
    let metadata = metadata.map_err(|error| CacheError::new(path, error))?;
    if is_untrusted(&metadata) {
        let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
        let reason = CacheErrorReason::Untrusted { owner, mode };
        return Err(CacheError::new(path, reason));
    }
    Ok(metadata)
}

fn make_folder(at: impl AsFd, name: &Path, path: &Path) -> Result<(), CacheError> {
    match mkdirat(at, name, Mode::from_raw_mode(0o700)) {
        Err(error) if error != Errno::EXIST => Err(CacheError::new(path, error)),
        _ => Ok(()),
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_link((_, stat): &(String, Stat)) -> bool {
    kind(stat) == FileType::Symlink
}

fn time(seconds: i64, nanoseconds: impl TryInto<u32>) -> SystemTime {
    let nanoseconds = nanoseconds.try_into().unwrap_or(0);
    let since = Duration::new(seconds.try_into().unwrap_or(0), nanoseconds);
    SystemTime::UNIX_EPOCH + since
}

fn is_older(time: SystemTime, age: Duration) -> bool {
    time.elapsed().is_ok_and(|elapsed| elapsed > age)
}
