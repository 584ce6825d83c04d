//! Opens files for reading.

use std::fmt::{self, Display};
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::iter;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::file_id::FileId;
use crate::sys::raw::OPEN_ATTEMPTS;

/// A kind of file that is not regular.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A folder.
    Directory,
    /// A pipe, named or not.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
}

impl FileKind {
    /// The kind of a file; `None` for a regular one.
    #[must_use]
    pub fn new(kind: FileType) -> Option<FileKind> {
        match kind {
            kind if kind.is_file() => None,
            kind if kind.is_dir() => Some(FileKind::Directory),
            kind if kind.is_fifo() => Some(FileKind::Fifo),
            kind if kind.is_socket() => Some(FileKind::Socket),
            _ => Some(FileKind::Device),
        }
    }

    fn check_regular(metadata: &Metadata) -> Result<(), NotRegularFile> {
        FileKind::new(metadata.file_type()).map_or(Ok(()), |kind| Err(NotRegularFile(kind)))
    }
}

impl Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::Directory => "folder",
            FileKind::Fifo => "pipe",
            FileKind::Socket => "socket",
            FileKind::Device => "device",
        })
    }
}

/// The path does not lead to a regular file. The source of an [`io::Error`] of kind
/// [`io::ErrorKind::InvalidInput`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {0}, not a regular file{remedy}", remedy = self.remedy())]
pub struct NotRegularFile(pub FileKind);

impl NotRegularFile {
    fn remedy(self) -> &'static str {
        match self.0 {
            FileKind::Fifo => ": write its output to a file first",
            _ => "",
        }
    }
}

impl From<NotRegularFile> for io::Error {
    fn from(error: NotRegularFile) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Opens a regular file for reading.
///
/// The path may be untrusted. Opening a FIFO does not block, and a device is not opened, since that
/// may have effects, even if the path changes meanwhile. The descriptor is close-on-exec, and a
/// terminal does not become the controlling terminal.
///
/// A path below another root, through a link of `/proc` (`/proc/PID/root/…`, `/proc/self/fd/N/…`),
/// is resolved in that root: its links cannot lead out of it.
///
/// # Errors
///
/// The system's error, or [`NotRegularFile`].
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

/// As [`open`], but a symbolic link is not followed: in a folder that everyone may write to, none
/// should be.
///
/// # Errors
///
/// As for [`open`]; for a link, the system's error.
pub fn open_no_link(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::NOFOLLOW)
}

/// Reads a regular file of at most `max_bytes` bytes.
///
/// # Errors
///
/// As for [`open`]; [`io::ErrorKind::FileTooLarge`] for a larger file.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = open(path)?.take(max_bytes);
    file.read_to_end(&mut bytes)?;
    match file.into_inner().read(&mut [0])? {
        0 => Ok(bytes),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// The metadata of the file that [`open`] would open, or of another kind of file. Opens nothing.
///
/// # Errors
///
/// The system's error.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    resolve(path, OFlags::PATH)?.metadata()
}

fn open_with(path: &Path, link: OFlags) -> io::Result<File> {
    let found = resolve(path, OFlags::PATH | link)?;
    let metadata = found.metadata()?;
    if metadata.is_symlink() {
        return Err(Errno::LOOP.into());
    }
    FileKind::check_regular(&metadata)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    // By its descriptor it is the same file. Whoever can change what its own path leads to can also
    // make this fail. So that path is opened again only in a process without `/proc`.
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let opened = resolve(Path::new(&same), flags).or_else(|error| {
        if fs::symlink_metadata(&same).is_ok() {
            return Err(error);
        }
        resolve(path, flags | link)
    })?;
    if FileId::new(&opened.metadata()?) != FileId::new(&metadata) {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(opened)
}

/// Opens any file with these flags.
fn resolve(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    let opened = match split_root(path) {
        Some((root, inside)) => {
            let as_folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = openat(CWD, root, as_folder, Mode::empty())?;
            let resolution = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let attempt = || openat2(&root, inside, flags, Mode::empty(), resolution);
            let mut attempts = iter::repeat_with(attempt).take(OPEN_ATTEMPTS);
            let opened = attempts.find(|opened| !matches!(opened, Err(Errno::AGAIN)));
            opened.unwrap_or(Err(Errno::AGAIN))?
        }
        None => openat(CWD, path, flags, Mode::empty())?,
    };
    Ok(opened.into())
}

/// Splits a path behind a link of `/proc` to another root.
fn split_root(path: &Path) -> Option<(PathBuf, &Path)> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let mut root = Path::new("/proc").join(parts.next()?);
    let link = parts.next()?;
    root.push(link);
    match link.as_os_str().as_bytes() {
        b"root" => {}
        b"fd" => root.push(parts.next()?),
        _ => return None,
    }
    let inside = parts.as_path();
    (!inside.as_os_str().is_empty()).then_some((root, inside))
}

/// The most bytes to read from a pipe, which has no size to check in advance.
pub const MAX_STREAM_BYTES: u64 = 1 << 30;

/// An input.
#[derive(Debug)]
pub enum Input {
    /// A regular file.
    File(File),
    /// A pipe, which can be read once.
    Stream(Stream),
}

/// A pipe. Reads fail with [`io::ErrorKind::FileTooLarge`] after [`MAX_STREAM_BYTES`].
#[derive(Debug)]
pub struct Stream {
    file: File,
    left: u64,
}

/// A pipe has more data than the limit. The source of an [`io::Error`] of kind
/// [`io::ErrorKind::FileTooLarge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {MAX_STREAM_BYTES} bytes: write them to a file first")]
pub(crate) struct StreamTooLong;

/// Opens a regular file, or a pipe that the user has named: this waits for a writer, and signals
/// interrupt it as in any program.
///
/// # Errors
///
/// The system's error, or [`NotRegularFile`] for a folder, a device or a socket.
pub fn open_input(path: &Path) -> io::Result<Input> {
    let wanted = |metadata: &Metadata| match FileKind::new(metadata.file_type()) {
        None => Ok(false),
        Some(FileKind::Fifo) => Ok(true),
        Some(other) => Err(NotRegularFile(other)),
    };
    if !wanted(&metadata(path)?)? {
        return open(path).map(Input::File);
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)?;
    if !wanted(&file.metadata()?)? {
        return Ok(Input::File(file));
    }
    Ok(Input::Stream(Stream {
        file,
        left: MAX_STREAM_BYTES,
    }))
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        let left = self.left.checked_sub(read as u64);
        self.left =
            left.ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, StreamTooLong))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Opening a FIFO without a writer would block.
    #[test]
    fn special_files_are_rejected_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, socket) = (folder.path().join("fifo"), folder.path().join("socket"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let refused = |path: &Path| open(path).unwrap_err().to_string();
        assert_eq!(
            refused(&fifo),
            "a pipe, not a regular file: write its output to a file first"
        );
        assert_eq!(refused(&socket), "a socket, not a regular file");
        assert_eq!(refused(folder.path()), "a folder, not a regular file");
        assert_eq!(
            refused(Path::new("/dev/zero")),
            "a device, not a regular file"
        );
        for path in [&*socket, folder.path(), Path::new("/dev/zero")] {
            assert_eq!(
                open_input(path).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }

    #[test]
    fn a_pipe_is_read_to_its_limit() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"0123456789").unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(reader));
        let mut stream = Stream { file, left: 8 };
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"01234567");
        assert_eq!(
            stream.read(&mut bytes).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }
}
