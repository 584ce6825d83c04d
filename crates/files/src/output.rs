//! Writing files.
//!
//! A path is walked name by name, by descriptors, so that what was looked at is what is used. The kernel's rules for
//! sticky folders (`protected_symlinks`, `protected_regular` and `protected_fifos` of `proc_sys_fs(5)`) hold whether
//! they are switched on or not: in a sticky folder that others may write to, such as `/tmp`, nothing of a stranger is
//! followed, written to or replaced. A stranger is who is neither the user nor root.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_setfl, fstat, fstatfs,
    mkdirat, openat, readlinkat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A sticky folder has something of a stranger in the way. The source of an [`io::Error`] of kind
/// [`io::ErrorKind::PermissionDenied`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name} is of user {owner} in a folder that everybody may write to: remove it, or write elsewhere"
)]
pub struct ForeignFile {
    /// Its name in the folder.
    pub name: String,
    /// Who owns it.
    pub owner: u32,
}

/// Nobody reads from a pipe. The source of an [`io::Error`] of kind [`io::ErrorKind::NotConnected`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a pipe that nobody reads: start its reader first")]
pub struct PipeWithoutReader;

/// As many links are followed in a path: the kernel's number (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// The place that a path leads to.
#[derive(Debug)]
struct ResolvedPath {
    folder: OwnedFd,
    name: OsString,
    kind: EntryKind,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Nothing,
    File,
    /// A link, which was not to be followed.
    Link,
    /// A pipe, a device, a socket.
    Special,
    /// A link of `/proc` to what a process has open, which has no path: `/dev/stdout` is one.
    ProcLink,
}

/// What becomes of a link at the end of a path.
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
            FileType::Symlink if is_on_proc(&opened)? => match is_last {
                true => EntryKind::ProcLink,
                false => {
                    folder = open_folder(&folder, &name)?;
                    continue;
                }
            },
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

/// Refuses what a stranger has put into a sticky folder. A folder there is no trap by itself: what is in it is looked at in turn.
fn check_owner(folder: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let is_ours = stat.st_uid == 0 || stat.st_uid == geteuid().as_raw();
    if is_ours || FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
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
    /// Opens what is there and no regular file, to be written to.
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
            // It may be another than the one that was looked at.
            check_owner(&self.folder, &self.name, &stat)?;
        }
        // Writes wait for the reader, as those to standard output do.
        fcntl_setfl(&opened, OFlags::empty())?;
        Ok(opened.into())
    }

    /// Makes a file of that name, which nobody else has.
    fn create_new(&self, name: &OsStr, mode: Mode) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.folder, name, flags, mode)?.into())
    }

    /// Makes a file beside the place, to be renamed onto it. Strangers cannot guess its name.
    fn create_beside(&self, mode: Mode) -> io::Result<TemporaryFile<'_>> {
        let random = RandomState::new().hash_one(std::process::id());
        let name = extended(&self.name, &format!(".{random:016x}.tmp"));
        let file = self.create_new(&name, mode)?;
        Ok(TemporaryFile {
            entry: self,
            name,
            file,
        })
    }
}

/// A file that has not taken its place yet. Removed when it is dropped, unless it has.
struct TemporaryFile<'e> {
    entry: &'e ResolvedPath,
    name: OsString,
    file: File,
}

impl TemporaryFile<'_> {
    fn take_place(&self) -> io::Result<()> {
        let folder = self.entry.folder.as_fd();
        Ok(renameat(folder, &self.name, folder, &self.entry.name)?)
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        // Not there any more if it has taken its place.
        let _ = unlinkat(&self.entry.folder, &self.name, AtFlags::empty());
    }
}

fn extended(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(ending);
    name
}

/// Has a file written beside its place and renames it, so that whoever has the old one open or mapped keeps
/// it, and nobody sees half of the new. A symbolic link stays one. A pipe or a device
/// is written to as it is.
///
/// The file has the permissions that are given, else those of a new file.
///
/// # Errors
///
/// The place cannot be written to, has something of a stranger, or `fill` fails: then nothing is changed.
pub fn replace<T, E: From<io::Error>>(
    path: &Path,
    permissions: Option<Permissions>,
    fill: impl FnOnce(&File) -> Result<T, E>,
) -> Result<T, E> {
    let entry = resolve(path, LastLink::Follow)?;
    if matches!(entry.kind, EntryKind::Special | EntryKind::ProcLink) {
        return fill(&entry.open_special()?);
    }
    // Until it has its permissions, nobody else opens it.
    let mode = if permissions.is_some() { 0o600 } else { 0o666 };
    let temporary = entry.create_beside(Mode::from_raw_mode(mode))?;
    if let Some(permissions) = permissions {
        temporary.file.set_permissions(permissions)?;
    }
    let result = fill(&temporary.file)?;
    temporary.take_place()?;
    Ok(result)
}

/// Whether [`replace`] has a chance, found out before work is done whose result would be lost.
///
/// # Errors
///
/// As for [`replace`].
pub fn check_writable(path: &Path) -> io::Result<()> {
    let entry = resolve(path, LastLink::Follow)?;
    match entry.kind {
        EntryKind::Special | EntryKind::ProcLink => Ok(()),
        _ => entry.create_beside(Mode::from_raw_mode(0o600)).map(drop),
    }
}

/// Opens a file of the user to write behind its end; a pipe or a device is opened, too.
///
/// # Errors
///
/// It is not there, cannot be written to, or is a stranger's.
pub fn append(path: &Path) -> io::Result<File> {
    let entry = resolve(path, LastLink::Follow)?;
    if matches!(entry.kind, EntryKind::Special | EntryKind::ProcLink) {
        return entry.open_special();
    }
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(&entry.folder, &entry.name, flags, Mode::empty())?.into())
}

/// Makes a folder, and those that it is in, where there are none.
///
/// # Errors
///
/// It cannot be made, or a name on the way is a stranger's.
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

/// A file that was made by [`create`].
#[derive(Debug)]
pub struct NewOutput {
    entry: ResolvedPath,
    /// What the file that was there is called now.
    moved_to: Option<PathBuf>,
}

/// Makes a file that only its owner may read, to be written while it can already be read. A file or link that is there is moved
/// to the same name with `.old` at its end, in place of what is there. A pipe or a device is opened to be written.
///
/// # Errors
///
/// The file cannot be made, what is there cannot be moved, or is a stranger's.
pub fn create(path: &Path) -> io::Result<(File, NewOutput)> {
    // A link that leads nowhere is moved.
    let target = resolve(path, LastLink::Follow);
    match target {
        Ok(target) if matches!(target.kind, EntryKind::Special | EntryKind::ProcLink) => {
            return Ok((
                target.open_special()?,
                NewOutput {
                    entry: target,
                    moved_to: None,
                },
            ));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let entry = resolve(path, LastLink::Keep)?;
    let moved_to = match entry.kind {
        EntryKind::Nothing => None,
        _ => {
            entry.rename(&entry.name, &entry.old_name())?;
            Some(extended(path.as_os_str(), OLD_SUFFIX).into())
        }
    };
    let file = entry.create_new(&entry.name, Mode::from_raw_mode(0o600))?;
    Ok((file, NewOutput { entry, moved_to }))
}

/// The ending of the name of what was there before.
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
    /// What the file that was there is called now.
    #[must_use]
    pub fn backup_path(&self) -> Option<&Path> {
        self.moved_to.as_deref()
    }

    /// Undoes [`create`], of a recording that came to nothing: the file is removed, and what was moved has its name again. A pipe or
    /// a device stays.
    ///
    /// # Errors
    ///
    /// The file cannot be removed, or what was moved cannot be moved back.
    pub fn undo(&self) -> io::Result<()> {
        let entry = &self.entry;
        match (entry.kind, &self.moved_to) {
            (EntryKind::Special | EntryKind::ProcLink, _) => Ok(()),
            (_, Some(_)) => entry.rename(&entry.old_name(), &entry.name),
            (_, None) => Ok(unlinkat(&entry.folder, &entry.name, AtFlags::empty())?),
        }
    }
}
