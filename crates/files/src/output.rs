//! Writes files.
//!
//! A path is resolved component by component, by descriptors, so that checks and use refer to the
//! same file. The kernel's rules for sticky folders (`protected_symlinks`, `protected_regular` and
//! `protected_fifos` of `proc_sys_fs(5)`) apply whether they are enabled or not. In a sticky folder
//! that others may write to, for example `/tmp`, another user's file is never followed, written to
//! or replaced. "Another user" means neither the user nor root.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_setfl, fstat, fstatfs,
    mkdirat, openat, readlinkat, renameat, unlinkat,
};
use rustix::io::Errno;

use crate::FileId;
use crate::new_file::{NewFile, create_new, temporary_name};
use crate::trust::is_our_owner;

/// Another user's file is in the way in a sticky folder. The source of an [`io::Error`] of kind
/// [`io::ErrorKind::PermissionDenied`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} is of user {owner} in a folder that everybody may write to: remove it, or write elsewhere"
)]
pub(crate) struct ForeignFile {
    /// Its name in the folder.
    pub(crate) name: String,
    /// Its owner.
    pub(crate) owner: u32,
}

/// A pipe has no reader. The source of an [`io::Error`] of kind [`io::ErrorKind::NotConnected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a pipe that nobody reads: start its reader first")]
pub(crate) struct PipeWithoutReader;

/// The most links to follow in a path: the kernel's limit (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// The target of a path: a folder and a name.
#[derive(Debug)]
struct ResolvedPath {
    folder: OwnedFd,
    name: OsString,
    kind: EntryKind,
}

/// The kind of an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Nothing,
    File,
    /// A link that was not to be followed.
    Link,
    /// A pipe, a device, a socket.
    Special,
    /// A link of `/proc` to an open file of a process, which has no path: for example,
    /// `/dev/stdout`.
    ProcLink,
}

/// Whether a link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Follow,
    Keep,
}

fn resolve(path: &Path, last: LastLink) -> io::Result<ResolvedPath> {
    let mut folder = open_folder(CWD, OsStr::new(if path.is_absolute() { "/" } else { "." }))?;
    let mut rest = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let is_last = rest.is_empty();
        let opened = openat(
            &folder,
            &name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let opened = match opened {
            Err(Errno::NOENT) if is_last => {
                return Ok(ResolvedPath {
                    folder,
                    name,
                    kind: EntryKind::Nothing,
                });
            }
            opened => opened?,
        };
        let stat = fstat(&opened)?;
        check_owner(&folder, &name, &stat)?;
        let found = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if is_last && last == LastLink::Keep => EntryKind::Link,
            FileType::Symlink if is_on_proc(&opened)? => {
                if is_last {
                    EntryKind::ProcLink
                } else {
                    folder = open_folder(&folder, &name)?;
                    continue;
                }
            }
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&opened, "", Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    folder = open_folder(CWD, OsStr::new("/"))?;
                }
                rest.append(&mut names(target));
                continue;
            }
            FileType::Directory => {
                folder = opened;
                continue;
            }
            _ if !is_last => return Err(Errno::NOTDIR.into()),
            FileType::RegularFile => EntryKind::File,
            _ => EntryKind::Special,
        };
        return Ok(ResolvedPath {
            folder,
            name,
            kind: found,
        });
    }
    Err(Errno::ISDIR.into())
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

fn open_folder(at: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn is_on_proc(opened: &OwnedFd) -> io::Result<bool> {
    Ok(fstatfs(opened)?.f_type == PROC_SUPER_MAGIC)
}

/// Refuses another user's file in a sticky folder. A folder there is allowed: its contents are
/// checked in turn.
fn check_owner(folder: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
    if is_our_owner(stat.st_uid) || FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(fstat(folder)?.st_mode);
    let is_shared = mode.contains(Mode::SVTX) && mode.intersects(Mode::WGRP | Mode::WOTH);
    if !is_shared {
        return Ok(());
    }
    let error = ForeignFile {
        name: name.to_string_lossy().into_owned(),
        owner: stat.st_uid,
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, error))
}

impl ResolvedPath {
    /// Opens an existing file that is not regular, for writing.
    fn open_special(&self) -> io::Result<File> {
        let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        if self.kind == EntryKind::ProcLink {
            flags |= OFlags::TRUNC;
        } else {
            flags |= OFlags::NOFOLLOW;
        }
        let opened = openat(&self.folder, &self.name, flags, Mode::empty());
        let opened = opened.map_err(|error| match error {
            Errno::NXIO => io::Error::new(io::ErrorKind::NotConnected, PipeWithoutReader),
            error => error.into(),
        })?;
        let stat = fstat(&opened)?;
        if self.kind == EntryKind::Special {
            // It may differ from the one checked before.
            check_owner(&self.folder, &self.name, &stat)?;
        }
        // Writes wait for the reader, as those to standard output do.
        fcntl_setfl(&opened, OFlags::empty())?;
        Ok(opened.into())
    }

    /// Creates a file next to the target, to be renamed to it.
    fn create_beside(&self, mode: u32) -> io::Result<NewFile<'_>> {
        NewFile::create(self.folder.as_fd(), &self.name, Mode::from_raw_mode(mode))
    }
}

fn extended(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(ending);
    name
}

/// Writes a file next to the target and renames it. So users of the old file keep it, and nobody
/// sees half of the new one. A symbolic link is kept. A pipe or a device is written to directly.
///
/// The file has the given permissions, else those of a new file.
///
/// # Errors
///
/// The target cannot be written to, belongs to another user in a sticky folder, or `fill` fails:
/// then nothing is changed.
pub fn replace<T, E: From<io::Error>>(
    path: &Path,
    permissions: Option<Permissions>,
    fill: impl FnOnce(&File) -> Result<T, E>,
) -> Result<T, E> {
    let entry = resolve(path, LastLink::Follow)?;
    if matches!(entry.kind, EntryKind::Special | EntryKind::ProcLink) {
        return fill(&entry.open_special()?);
    }
    // Until it has its permissions, no other user can open it.
    let mode = if permissions.is_some() { 0o600 } else { 0o666 };
    let new = entry.create_beside(mode)?;
    if let Some(permissions) = permissions {
        new.file.set_permissions(permissions)?;
    }
    let result = fill(&new.file)?;
    new.take_place()?;
    Ok(result)
}

/// Whether [`replace`] can succeed, checked before work whose result would be lost.
///
/// # Errors
///
/// As for [`replace`].
pub fn check_writable(path: &Path) -> io::Result<()> {
    let entry = resolve(path, LastLink::Follow)?;
    match entry.kind {
        EntryKind::Special | EntryKind::ProcLink => Ok(()),
        _ => entry.create_beside(0o600).map(drop),
    }
}

/// Opens the user's file for appending; a pipe or a device is opened, too.
///
/// # Errors
///
/// It does not exist, cannot be written to, or belongs to another user.
pub fn append(path: &Path) -> io::Result<File> {
    let entry = resolve(path, LastLink::Follow)?;
    if matches!(entry.kind, EntryKind::Special | EntryKind::ProcLink) {
        return entry.open_special();
    }
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(&entry.folder, &entry.name, flags, Mode::empty())?.into())
}

/// Creates a folder and its missing parents.
///
/// # Errors
///
/// It cannot be created, or a component belongs to another user.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut folder = PathBuf::new();
    for part in path.components() {
        folder.push(part);
        match resolve(&folder, LastLink::Follow) {
            Ok(entry) if entry.kind == EntryKind::Nothing => {
                mkdirat(&entry.folder, &entry.name, Mode::from_raw_mode(0o777))?;
            }
            Ok(_) => return Err(Errno::NOTDIR.into()),
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file created by [`create`].
#[derive(Debug)]
pub struct NewOutput {
    path: ResolvedPath,
    given: PathBuf,
    id: FileId,
    /// The new name of the previous file.
    moved_to: Option<PathBuf>,
    /// What the file had been called whose name the previous one has. It is removed in the end.
    replaced: Option<OsString>,
}

/// Creates a file that only its owner may read, which can be read while it is written. An existing
/// file or link is renamed to the same name with `.old` appended, and replaces a file of that name.
/// A pipe or a device is opened for writing.
///
/// # Errors
///
/// The file cannot be created, or the existing one cannot be renamed or belongs to another user.
pub fn create(path: &Path) -> io::Result<(File, NewOutput)> {
    // A dangling link is renamed.
    let target = resolve(path, LastLink::Follow);
    match target {
        Ok(target) if matches!(target.kind, EntryKind::Special | EntryKind::ProcLink) => {
            let file = target.open_special()?;
            let created = NewOutput::new(target, path, &file)?;
            return Ok((file, created));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let given = path;
    let path = resolve(given, LastLink::Keep)?;
    let (mut moved_to, mut replaced) = (None, None);
    if path.kind != EntryKind::Nothing {
        let (old, kept) = (path.old_name(), temporary_name(&path.old_name()));
        replaced = path.rename(&old, &kept).is_ok().then_some(kept);
        path.rename(&path.name, &old)?;
        moved_to = Some(extended(given.as_os_str(), OLD_SUFFIX).into());
    }
    let file = create_new(&path.folder, &path.name, Mode::from_raw_mode(0o600))?;
    let mut created = NewOutput::new(path, given, &file)?;
    (created.moved_to, created.replaced) = (moved_to, replaced);
    Ok((file, created))
}

/// The suffix of the previous file's name.
const OLD_SUFFIX: &str = ".old";

impl ResolvedPath {
    fn old_name(&self) -> OsString {
        extended(&self.name, OLD_SUFFIX)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.folder, from, &self.folder, to)?)
    }
}

impl NewOutput {
    fn new(path: ResolvedPath, given: &Path, file: &File) -> io::Result<NewOutput> {
        Ok(NewOutput {
            path,
            given: given.to_owned(),
            id: FileId::new(&file.metadata()?),
            moved_to: None,
            replaced: None,
        })
    }

    /// The new name of the previous file.
    #[must_use]
    pub fn backup_path(&self) -> Option<&Path> {
        self.moved_to.as_deref()
    }

    /// What the file is called now: [`create`] of another process may have renamed it.
    #[must_use]
    pub fn current_path(&self) -> PathBuf {
        let old = PathBuf::from(extended(self.given.as_os_str(), OLD_SUFFIX));
        let is_it =
            |path: &Path| std::fs::metadata(path).is_ok_and(|found| FileId::new(&found) == self.id);
        if !is_it(&self.given) && is_it(&old) {
            old
        } else {
            self.given.clone()
        }
    }

    /// Undoes [`create`], for a recording that failed: the file is removed, and the previous ones
    /// get their names back. A pipe or a device stays.
    ///
    /// # Errors
    ///
    /// The file cannot be removed, or the previous one cannot be renamed back.
    pub fn undo(mut self) -> io::Result<()> {
        let entry = &self.path;
        match (entry.kind, &self.moved_to) {
            (EntryKind::Special | EntryKind::ProcLink, _) => return Ok(()),
            (_, Some(_)) => entry.rename(&entry.old_name(), &entry.name)?,
            (_, None) => unlinkat(&entry.folder, &entry.name, AtFlags::empty())?,
        }
        if let Some(replaced) = &self.replaced {
            entry.rename(replaced, &entry.old_name())?;
            self.replaced = None;
        }
        Ok(())
    }
}

impl Drop for NewOutput {
    fn drop(&mut self) {
        if let Some(replaced) = &self.replaced {
            // Somebody may have removed it.
            let _ = unlinkat(&self.path.folder, replaced, AtFlags::empty());
        }
    }
}
