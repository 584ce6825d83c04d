//! Test folders.

use std::env;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::command::{Finish as _, tool};

/// A new folder for one test. Dropping it removes the folder, unless the test fails.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The folder that cargo provides for tests' files.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "no default is a new folder")]
    pub fn new() -> Folder {
        let own = env::current_exe().unwrap(); // TARGET/PROFILE/deps/PROGRAM
        Folder::below(&own.ancestors().nth(3).unwrap().join("tmp"))
    }

    /// A new folder in another one, which is created if missing.
    #[must_use]
    pub fn below(parent: &Path) -> Folder {
        let test = thread::current();
        let name = test.name().unwrap_or("test").replace("::", "-");
        let path = scratch(parent, &name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Runs a system tool in it, which must succeed; returns its output. The words have no spaces.
    #[track_caller]
    pub fn tool(&self, name: &str, words: &str) -> String {
        self.started(&mut tool(name), words).succeed()
    }

    /// A command that runs in it, with arguments that have no spaces.
    pub fn started<'c>(&self, command: &'c mut Command, words: &str) -> &'c mut Command {
        command.args(words.split_whitespace()).current_dir(&self.0)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !thread::panicking() {
            let _ = fs::remove_dir_all(&self.0); // A remaining folder does no harm.
        }
    }
}

/// A unique path in `folder`.
#[must_use]
pub fn scratch(folder: &Path, name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}-{}-{count}", std::process::id()))
}

/// Creates a folder with a unique name in `folder`.
#[must_use]
pub fn scratch_folder(folder: &Path, name: &str) -> PathBuf {
    let path = scratch(folder, name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Sets a file's permissions.
pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Sets the age of a file's last modification.
pub fn set_age(path: &Path, age: Duration) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

/// The gcc options that leave out `.eh_frame`, by a script for GNU ld in `folder`. With
/// `-Wa,--gsframe`, the program has only `.sframe`.
#[must_use]
pub fn without_eh_frame(folder: &Path) -> String {
    let script = scratch(folder, "without-eh-frame");
    let text = "SECTIONS { /DISCARD/ : { *(.eh_frame) } } INSERT BEFORE .text;\n";
    fs::write(&script, text).unwrap();
    format!("-Wl,-T,{}", script.display())
}

/// The user `nobody`.
pub const NOBODY: u32 = 65534;

/// A new folder of a user that everyone can access, for tests with two users.
#[derive(Debug)]
pub struct UserFolder(Folder);

impl UserFolder {
    /// Creates it in the folder for temporary files.
    ///
    /// # Panics
    ///
    /// The caller is not root.
    #[must_use]
    pub fn new(owner: u32) -> UserFolder {
        let folder = Folder::below(&env::temp_dir());
        set_mode(&folder, 0o755);
        chown(&folder, Some(owner), Some(owner))
            .unwrap_or_else(|error| panic!("a test with two users: run it as root: {error}"));
        UserFolder(folder)
    }

    /// Copies a file there, with this mode.
    pub fn copy(&self, file: &Path, name: &str, mode: u32) -> PathBuf {
        let copy = self.join(name);
        fs::copy(file, &copy).unwrap();
        set_mode(&copy, mode);
        copy
    }
}

impl Deref for UserFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}
