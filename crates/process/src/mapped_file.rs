//! Opening the file behind a mapping of a live process.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use unspool_files::{FileId, FileState, metadata};

use crate::maps::{Device, Mapping};
use crate::procfs;

/// An opened file that a process has mapped.
#[derive(Debug)]
pub struct MappedFile {
    /// The file.
    pub file: File,
    /// Its path. If the process's path leads to it here, that path; else the process's path under
    /// `/proc/PID/root`. The file may be gone.
    pub path: PathBuf,
    /// The route to it.
    pub route: FileRoute,
    /// Whether it is the mapped file.
    pub identity: FileIdentity,
}

/// The routes to the file behind a mapping, in the order in which they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRoute {
    /// `/proc/PID/map_files/START-END`: the mapped file itself, even if it was deleted or is in
    /// another mount namespace. Needs CAP_CHECKPOINT_RESTORE.
    MapFiles,
    /// `/proc/PID/root/PATH`: the path as the process sees it.
    Root,
    /// The path as this program sees it.
    Path,
    /// `/proc/PID/exe`: the executable, at any path, for every user who may inspect the process.
    Executable,
}

/// Whether an opened file is the mapped one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileIdentity {
    /// The same device and inode, or opened through the mapping itself.
    Same,
    /// The same inode number on another device number, or the mapping's inode is unknown. Btrfs and
    /// overlayfs report other device numbers for a mapping than for a file, so it is probably the
    /// same: compare build IDs.
    Unverified,
    /// Another inode: the file on disk was replaced since it was mapped.
    Replaced,
}

/// Candidates for the file behind a mapping, in the order of the [`FileRoute`]s, each opened on
/// demand. The process need not be attached to.
///
/// A mapping without a file has none.
pub fn mapped_files(
    pid: u32,
    mapping: &Mapping,
) -> impl Iterator<Item = io::Result<MappedFile>> + use<'_> {
    // No process has such an ID.
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    candidates(pid, mapping).map(|(_, opened)| opened)
}

/// The file behind a mapping, at its beginning; `None` unless it is certainly the mapped one. The
/// process need not be attached to.
#[must_use]
pub fn same_file(pid: u32, mapping: &Mapping) -> Option<File> {
    let mut opened = mapped_files(pid, mapping).filter_map(Result::ok);
    let same = opened.find(|opened| opened.identity == FileIdentity::Same)?;
    Some(same.file)
}

/// The routes to the file behind a mapping.
fn routes(pid: i32, mapping: &Mapping) -> impl Iterator<Item = (FileRoute, PathBuf)> + use<> {
    let link = format!("map_files/{:x}-{:x}", mapping.start.0, mapping.end.0);
    let routes = mapping.path().map(|name| {
        [
            (FileRoute::MapFiles, procfs::path(pid, &link)),
            (FileRoute::Root, in_root(pid, name)),
            (FileRoute::Path, name.to_path_buf()),
            (FileRoute::Executable, procfs::path(pid, "exe")),
        ]
    });
    routes.into_iter().flatten()
}

fn candidates(
    pid: i32,
    mapping: &Mapping,
) -> impl Iterator<Item = (FileRoute, io::Result<MappedFile>)> + use<'_> {
    routes(pid, mapping).map(move |(route, path)| {
        let opened = open_mapped(path, route, mapping);
        let placed = opened.map(|opened| MappedFile {
            path: place(pid, mapping, &opened.file),
            ..opened
        });
        (route, placed)
    })
}

/// The path of an opened file. Names of links in `/proc` mean nothing to users, and do not lead to
/// its debug files.
fn place(pid: i32, mapping: &Mapping, file: &File) -> PathBuf {
    let name = mapping.path().unwrap_or(Path::new(""));
    let id = |found: io::Result<Metadata>| found.ok().map(|found| FileId::new(&found));
    let here = id(metadata(name));
    if here.is_some() && here == id(file.metadata()) {
        name.to_path_buf()
    } else {
        in_root(pid, name)
    }
}

/// Opens the file behind a mapping: the first that is the mapped one. If none is, yields the first
/// file found, or the error of the last route by path.
pub(crate) fn open(pid: i32, mapping: &Mapping) -> io::Result<MappedFile> {
    let mut found = Err(match mapping.path() {
        Some(_) => io::Error::from(io::ErrorKind::NotFound),
        None => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the mapping comes from no file",
        ),
    });
    for (route, opened) in candidates(pid, mapping) {
        match opened {
            Ok(file) if file.identity != FileIdentity::Replaced => return Ok(file),
            // An error on this route says nothing about the path.
            _ if route == FileRoute::Executable => {}
            opened => found = found.or(opened),
        }
    }
    found
}

/// The state of the file behind a mapping, or of the first file on its routes; `None` if there is
/// no file any more. Opens nothing.
#[must_use]
pub fn mapped_state(pid: u32, mapping: &Mapping) -> Option<FileState> {
    let pid = i32::try_from(pid).unwrap_or(i32::MAX);
    let routes = routes(pid, mapping).filter(|(route, _)| *route != FileRoute::Executable);
    let mut found = routes.filter_map(|(_, path)| metadata(&path).ok());
    let found = found.find(Metadata::is_file)?;
    Some(FileState::new(&found))
}

/// A process's path through its root. If `chroot` changed that root, the kernel's path includes it.
fn in_root(pid: i32, name: &Path) -> PathBuf {
    let link = procfs::path(pid, "root");
    let root = std::fs::read_link(&link).unwrap_or_else(|_| PathBuf::from("/"));
    let inside = name.strip_prefix(root).or_else(|_| name.strip_prefix("/"));
    link.join(inside.unwrap_or(name))
}

/// Opens a regular file by its path, a candidate for the file behind a mapping.
///
/// # Errors
///
/// It cannot be opened, or is not a regular file.
pub fn open_mapped(path: PathBuf, route: FileRoute, mapping: &Mapping) -> io::Result<MappedFile> {
    let file = unspool_files::open(&path)?;
    let metadata = file.metadata()?;
    let device = Device {
        major: libc::major(metadata.dev()),
        minor: libc::minor(metadata.dev()),
    };
    let (device, inode) = (device == mapping.device, metadata.ino() == mapping.inode);
    let identity = match (device, inode) {
        _ if mapping.inode == 0 => FileIdentity::Unverified,
        (true, true) => FileIdentity::Same,
        (false, _) if route == FileRoute::MapFiles => FileIdentity::Same,
        (false, true) => FileIdentity::Unverified,
        // Even at the same addresses another file may be mapped by now.
        (_, false) => FileIdentity::Replaced,
    };
    Ok(MappedFile {
        file,
        path,
        route,
        identity,
    })
}
