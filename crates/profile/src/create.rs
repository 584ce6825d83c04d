//! The file that a recording goes to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file that was made.
#[derive(Debug)]
pub struct Created {
    /// The file, to be written.
    pub file: File,
    /// What the file that was there is called now.
    pub moved_to: Option<PathBuf>,
}

/// Makes a file that only its owner may read: stacks tell what a program does. A file that is there
/// is moved to the same name with `.old` at its end, in place of what is there. What is no regular
/// file (a pipe, a device) is opened to be written.
///
/// # Errors
///
/// The file cannot be made, or what is there cannot be moved.
pub fn create(path: &Path) -> io::Result<Created> {
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let file = OpenOptions::new().write(true).open(path)?;
        return Ok(Created {
            file,
            moved_to: None,
        });
    }
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    let moved_to = match fs::rename(path, &old) {
        Ok(()) => Some(old.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    Ok(Created { file, moved_to })
}

/// Undoes [`create`], of a recording that came to nothing: the file is removed, and what was moved has
/// its name again. What is no regular file stays.
///
/// # Errors
///
/// The file cannot be removed, or what was moved cannot be moved back.
pub fn take_back(path: &Path, moved_to: Option<&Path>) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Ok(());
    }
    match moved_to {
        Some(old) => fs::rename(old, path),
        None => fs::remove_file(path),
    }
}
