//! The command under test.

use std::ffi::OsStr;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use unspool_testing::{Finish as _, command};

pub(crate) const UNSPOOL: &str = env!("CARGO_BIN_EXE_unspool");

/// The command, with a cache shared by tests: they compile the C library's table once.
pub(crate) fn unspool() -> Command {
    let mut unspool = command(UNSPOOL);
    unspool.env(
        "XDG_CACHE_HOME",
        concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"),
    );
    unspool
}

/// A cache that is empty when the tests begin, for all that have the command make tables of arguments: the C library's takes longer
/// than a program's.
pub(crate) fn new_cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-cache");
        let _ = fs::remove_dir_all(&folder); // what another build has left, if it has
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// The command in a folder, where it has a cache of its own.
pub(crate) fn unspool_in(folder: &Path, words: &[&str]) -> Command {
    let mut unspool = unspool();
    unspool
        .args(words)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"));
    unspool
}

/// The command in a folder as [`unspool_in`], run by another command: for example, by `sh`, which
/// sets a limit.
pub(crate) fn unspool_by(starter: &[&str], folder: &Path) -> Command {
    let mut unspool = command(starter[0]);
    unspool
        .args(&starter[1..])
        .arg(UNSPOOL)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"));
    unspool
}

/// A new working folder of commands with arguments that have no spaces.
pub(crate) struct TestFolder(unspool_testing::Folder);

impl Deref for TestFolder {
    type Target = unspool_testing::Folder;

    fn deref(&self) -> &unspool_testing::Folder {
        &self.0
    }
}

impl TestFolder {
    pub(crate) fn new() -> TestFolder {
        TestFolder(unspool_testing::Folder::new())
    }

    pub(crate) fn run(&self, program: impl AsRef<OsStr>, words: &str) -> Output {
        self.started(&mut command(program), words).output().unwrap()
    }

    pub(crate) fn unspool(&self, words: &str) -> Output {
        self.started(&mut unspool(), words).output().unwrap()
    }

    /// The output of the command, which must succeed.
    pub(crate) fn done(&self, words: &str) -> String {
        self.started(&mut unspool(), words).succeed()
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).unwrap()
    }
}

/// The path of a program's source in the folder `programs`.
pub(crate) fn source(name: &str) -> String {
    format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}
