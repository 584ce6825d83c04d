//! Opening the file behind a mapping of a live process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::procfs;
use crate::maps::{Device, Mapping};

/// An opened file that a process has mapped.
#[derive(Debug)]
pub struct MappedFile {
    /// The file.
    pub file: File,
    /// The path it was opened by.
    pub path: PathBuf,
    /// The way it was found.
    pub route: Route,
    /// Whether it is the file that is mapped.
    pub identity: Identity,
}

/// The ways to the file behind a mapping, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/proc/PID/map_files/START-END`: the mapped file itself, even if it was deleted or lies
    /// in another mount namespace. Needs CAP_CHECKPOINT_RESTORE.
    MapFiles,
    /// `/proc/PID/root/PATH`: the path as the process sees it.
    Root,
    /// The path as this program sees it.
    Path,
    /// `/proc/PID/exe`: the executable, wherever it is, for everybody who may look at the
    /// process.
    Executable,
}

/// Whether an opened file is the one that a process has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The same device and inode, or opened through the mapping itself.
    Same,
    /// The same inode number on another device number. Btrfs and overlayfs report other device
    /// numbers for a mapping than for a file, so it is probably the same: compare build IDs.
    Unverified,
    /// Another inode: the file on disk was replaced since it was mapped.
    Replaced,
}

/// Opens the file behind a mapping of a process, which need not be attached to.
///
/// Tries the ways one after the other, until one leads to the mapped file. If none does, the
/// first file that was found is returned, or the error of the last way to the path.
///
/// # Errors
///
/// The mapping comes from no file, or no way leads to one.
pub fn open_mapped_file(pid: u32, mapping: &Mapping) -> io::Result<MappedFile> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
    open(pid, mapping)
}

pub(super) fn open(pid: i32, mapping: &Mapping) -> io::Result<MappedFile> {
    let name = mapping.path().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the mapping comes from no file",
        )
    })?;
    let link = format!("map_files/{:x}-{:x}", mapping.start.0, mapping.end.0);
    let mut found = Err(io::Error::from(io::ErrorKind::NotFound));
    for (route, path) in [
        (Route::MapFiles, procfs::path(pid, &link)),
        (Route::Root, in_root(pid, name)),
        (Route::Path, name.to_path_buf()),
        (Route::Executable, procfs::path(pid, "exe")),
    ] {
        let opened = open_regular(&path).and_then(|file| identify(file, path, route, mapping));
        let is_mapped = |file: &MappedFile| file.identity != Identity::Replaced;
        match opened {
            Ok(file) if is_mapped(&file) => return Ok(file),
            // What has nothing to do with the path says nothing about it.
            _ if route == Route::Executable => {}
            opened => found = found.or(opened),
        }
    }
    found
}

fn in_root(pid: i32, name: &Path) -> PathBuf {
    procfs::path(pid, "root").join(name.strip_prefix("/").unwrap_or(name))
}

/// Opens a regular file only: another process chose the path, and opening a device or a FIFO
/// can block or have effects.
fn open_regular(path: &Path) -> io::Result<File> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    if !std::fs::metadata(path)?.is_file() {
        return Err(refused());
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(refused())
    }
}

fn identify(file: File, path: PathBuf, route: Route, mapping: &Mapping) -> io::Result<MappedFile> {
    let metadata = file.metadata()?;
    let device = Device {
        major: libc::major(metadata.dev()),
        minor: libc::minor(metadata.dev()),
    };
    let identity = match route {
        Route::MapFiles => Identity::Same,
        _ if metadata.ino() != mapping.inode => Identity::Replaced,
        _ if device != mapping.device => Identity::Unverified,
        _ => Identity::Same,
    };
    Ok(MappedFile {
        file,
        path,
        route,
        identity,
    })
}
