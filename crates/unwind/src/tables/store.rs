//! Where compiled tables are found and kept.
//!
//! In order: the ELF file itself (section `.unspool`), the folders of `UNSPOOL_TABLE_PATH`, the
//! user's cache (`$XDG_CACHE_HOME/unspool`, else `~/.cache/unspool`), and
//! `/usr/lib/unspool/tables` for packaged tables. A table's file is named by the module's build
//! ID, or `sha256-` and a hash of its contents, with the ending `.unspool`.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use std::{env, process};

use unspool_compact::layout::MAGIC;
use unspool_compact::{Compiled, Key, OpenError};
use unspool_module::{ContentKey, ElfFile};

use super::compile::as_key;
use crate::sys;

/// The folder of packaged tables.
const SYSTEM: &str = "/usr/lib/unspool/tables";

/// The cache is trimmed to this many bytes, least recently used tables first.
const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// Finds compiled tables, and keeps those that were made.
#[derive(Debug, Clone)]
pub struct Store {
    /// Folders that are looked in before the cache.
    path: Vec<PathBuf>,
    cache: Option<PathBuf>,
    cache_bytes: u64,
}

/// Where a table was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the ELF file itself.
    Embedded,
    /// In a file.
    File(PathBuf),
}

/// The bytes of a table that was found, mapped or borrowed from the ELF file.
#[derive(Debug)]
pub enum TableBytes {
    /// The section of the ELF file, by index and length: borrow it again from there.
    Embedded,
    /// A file.
    Mapped(memmap2::Mmap),
    /// A table that could not be written anywhere.
    Memory(Vec<u8>),
}

/// A table of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// When it was used last.
    pub used: SystemTime,
}

/// Why a table file is not used, or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Others could have written it.
    #[error("{}: owned by user {owner}, mode {mode:03o}: not trusted; it must belong to you or root and be writable by nobody else", path.display())]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// It is no table, or one of another version.
    #[error("{}: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: OpenError,
    },
    /// It is the table of another module.
    #[error("{}: the table of another module", path.display())]
    OtherModule {
        /// The file.
        path: PathBuf,
    },
    /// There is nowhere to keep tables.
    #[error("no cache folder: neither XDG_CACHE_HOME nor HOME is set")]
    NoCache,
}

/// Something the user may want to know; the work goes on.
pub type Notice = StoreError;

impl Store {
    /// The folders that the environment names. In a setuid program the environment is ignored.
    #[must_use]
    pub fn from_environment() -> Self {
        let privileged = sys::is_privileged();
        let variable = |name: &str| if privileged { None } else { env::var_os(name) };
        Store::new(
            variable("UNSPOOL_TABLE_PATH"),
            variable("XDG_CACHE_HOME"),
            variable("HOME"),
        )
    }

    /// As [`Store::from_environment`], with the values of the variables.
    #[must_use]
    pub fn new(
        table_path: Option<OsString>,
        cache_home: Option<OsString>,
        home: Option<OsString>,
    ) -> Self {
        let path = table_path
            .map(|path| env::split_paths(&path).collect())
            .unwrap_or_default();
        let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|p| p.is_absolute());
        let cache = absolute(cache_home).or_else(|| absolute(home).map(|home| home.join(".cache")));
        Store {
            path,
            cache: cache.map(|cache| cache.join("unspool")),
            cache_bytes: DEFAULT_CACHE_BYTES,
        }
    }

    /// The cache folder.
    #[must_use]
    pub fn cache_folder(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// The table of a module, if there is one; what was found and not used goes to `notices`.
    pub fn find(&self, file: &ElfFile, notices: &mut Vec<Notice>) -> Option<(TableBytes, Place)> {
        if embedded(file).is_some() {
            return Some((TableBytes::Embedded, Place::Embedded));
        }
        let key = file.content_key();
        let name = file_name(&key);
        let folders = self
            .path
            .iter()
            .map(PathBuf::as_path)
            .chain(self.cache.as_deref());
        for folder in folders.chain([Path::new(SYSTEM)]) {
            let path = folder.join(&name);
            match open(&path, &key) {
                Ok(Some(map)) => return Some((TableBytes::Mapped(map), Place::File(path))),
                Ok(None) => {}
                Err(notice) => notices.push(notice),
            }
        }
        None
    }

    /// Keeps a table in the cache: written beside its place and renamed, so that several writers
    /// and readers never see half of one.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or trusted, or the file cannot be written.
    pub fn keep(&self, key: &ContentKey, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        let folder = self.cache.as_deref().ok_or(StoreError::NoCache)?;
        make_folder(folder)?;
        self.trim(folder, bytes.len() as u64);
        let path = folder.join(file_name(key));
        write_atomically(&path, bytes)?;
        Ok(path)
    }

    /// The tables in the cache.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<Stored>, StoreError> {
        let folder = self.cache.as_deref().ok_or(StoreError::NoCache)?;
        let io = |error| StoreError::Io {
            path: folder.to_path_buf(),
            error,
        };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(io)?,
        };
        let mut stored = Vec::new();
        for entry in entries {
            let path = entry.map_err(io)?.path();
            if path
                .extension()
                .is_none_or(|extension| extension != "unspool")
            {
                continue;
            }
            if let Ok(metadata) = fs::symlink_metadata(&path) {
                let used = metadata
                    .accessed()
                    .or(metadata.modified())
                    .unwrap_or(SystemTime::UNIX_EPOCH);
                stored.push(Stored {
                    path,
                    size: metadata.len(),
                    used,
                });
            }
        }
        stored.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(stored)
    }

    /// Removes every table of the cache; yields how many there were, and their bytes.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a file cannot be removed.
    pub fn clean(&self) -> Result<(usize, u64), StoreError> {
        let stored = self.list()?;
        for table in &stored {
            fs::remove_file(&table.path).map_err(|error| StoreError::Io {
                path: table.path.clone(),
                error,
            })?;
        }
        Ok((stored.len(), stored.iter().map(|table| table.size).sum()))
    }

    /// Makes room for a new table. A table that cannot be removed is left alone.
    fn trim(&self, folder: &Path, new: u64) {
        let Ok(mut stored) = self.list() else { return };
        let mut total: u64 = stored.iter().map(|table| table.size).sum();
        stored.sort_by_key(|table| table.used);
        for table in stored {
            if total.saturating_add(new) <= self.cache_bytes {
                break;
            }
            if fs::remove_file(folder.join(table.path)).is_ok() {
                total -= table.size;
            }
        }
    }
}

/// The section of an ELF file that holds its own table.
pub const EMBEDDED_SECTION: &str = ".unspool";

/// The table that a file holds of itself.
///
/// A table that is keyed by a build ID must have the file's. One that is keyed by contents cannot
/// be checked: the contents have changed by its being put there.
pub(crate) fn embedded(file: &ElfFile) -> Option<Compiled<'_>> {
    let (_, bytes) = file.embedded(EMBEDDED_SECTION, &MAGIC)?;
    let compiled = Compiled::open(bytes).ok()?;
    let is_own = match compiled.key() {
        Key::BuildId(id) => file.build_id().is_some_and(|own| own.as_bytes() == id),
        Key::Content(_) => file.build_id().is_none(),
    };
    is_own.then_some(compiled)
}

fn file_name(key: &ContentKey) -> String {
    format!("{key}.unspool")
}

/// Maps a table file if it is there, can be trusted and belongs to the module.
fn open(path: &Path, key: &ContentKey) -> Result<Option<memmap2::Mmap>, StoreError> {
    let io = |error| StoreError::Io {
        path: path.to_path_buf(),
        error,
    };
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
    {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        other => other.map_err(io)?,
    };
    check_trust(path, &file.metadata().map_err(io)?)?;
    let map = sys::map(&file).map_err(io)?;
    let compiled = Compiled::open(&map).map_err(|error| StoreError::Table {
        path: path.to_path_buf(),
        error,
    })?;
    if compiled.key() != as_key(key) {
        return Err(StoreError::OtherModule {
            path: path.to_path_buf(),
        });
    }
    Ok(Some(map))
}

/// Refuses what somebody else could have written.
fn check_trust(path: &Path, metadata: &fs::Metadata) -> Result<(), StoreError> {
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
    if (owner == 0 || owner == sys::effective_user()) && mode & 0o022 == 0 {
        return Ok(());
    }
    Err(StoreError::Untrusted {
        path: path.to_path_buf(),
        owner,
        mode,
    })
}

fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let io = |error| StoreError::Io {
        path: folder.to_path_buf(),
        error,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(io)?;
    check_trust(folder, &fs::metadata(folder).map_err(io)?)
}

fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(format!(".{}.{count}.tmp", process::id()));
    let temporary = PathBuf::from(temporary);
    let io = |error| StoreError::Io {
        path: temporary.clone(),
        error,
    };
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(io)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary); // nothing more can be done about it
        io(error)
    })
}
