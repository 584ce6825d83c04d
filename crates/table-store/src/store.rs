//! Finding and keeping compiled tables.
//!
//! In order: the ELF file itself (section `.unspool`), the folders of `UNSPOOL_TABLE_PATH`, the
//! user's cache (`$XDG_CACHE_HOME/unspool`, else `~/.cache/unspool`), and `/usr/lib/unspool/tables`
//! for packaged tables. A table's file is named by its key ([`TableKey`](unspool_elf::TableKey):
//! the module's build ID, and a hash of the table's source). The ending is `.unspool`,
//! `.synth.unspool` for rows made from code, `.native.so` for a table as machine code, or
//! `.args.unspool` for a table of arguments. Files with other names are not used, listed or
//! removed. Only those of earlier versions, with names without a hash, are removed to make room for
//! new ones.
//!
//! Beside it, a symbolic link named by the build ID alone leads to the table, for readers that know
//! only that: the own process (`unspool_unwind::local::store`). It exists only if the file is one
//! of this system that nobody but root and the user can write to.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, process};

use unspool_compiled_table::layout::MAGIC;
use unspool_compiled_table::{CompiledTable, TableCorruption, TableOpenError};
use unspool_elf::{BuildId, ContentKey, DebugFiles, ElfFile, TableKey, variable};
use unspool_files::{FileMap, is_our_owner, is_untrusted};
use unspool_native_table::ObjectError;

use crate::compile::{StableFile, as_key};
use crate::hash_cache;
use crate::native::{NativeObject, NativeTableError};

/// The folder of packaged tables.
const SYSTEM: &str = "/usr/lib/unspool/tables";

/// The source of a table's rows, which selects the ending of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableKind {
    /// The module's unwind table.
    Compiled,
    /// The module's code.
    Synthesized,
    /// The module's unwind table, as machine code.
    Native,
    /// The module's code and its functions' parameters: no rows, but the locations of arguments.
    Arguments,
}

impl TableKind {
    const ALL: [TableKind; 4] = [
        TableKind::Compiled,
        TableKind::Synthesized,
        TableKind::Native,
        TableKind::Arguments,
    ];

    const fn ending(self) -> &'static str {
        match self {
            TableKind::Compiled => "unspool",
            TableKind::Synthesized => "synth.unspool",
            TableKind::Native => "native.so",
            TableKind::Arguments => "args.unspool",
        }
    }
}

/// The form of tables in walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableForm {
    /// Compiled tables, and tables in the files' own form.
    #[default]
    Compact,
    /// Machine code ([`NativeObject`]) where possible, and the forms above for the rest.
    Native,
}

/// The limit of a cache's tables together, in bytes.
const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// The resolution of the time of last use.
const USE_RESOLUTION: Duration = Duration::from_secs(24 * 60 * 60);

/// A file that a writer has not finished after this time was left behind by a killed one.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// Finds compiled tables, and keeps new ones.
///
/// A table file, and its folder, must belong to the user or root and be writable by nobody else.
/// Folders above that are not checked.
///
/// Tables are mapped ([`FileMap`]). [`Store::keep`] replaces a table by renaming another onto it,
/// so processes that mapped the old one keep it.
#[derive(Debug, Clone)]
pub struct Store {
    /// Folders searched before the cache.
    path: Vec<PathBuf>,
    cache: Option<PathBuf>,
    cache_bytes: u64,
    /// The folder searched last.
    system: PathBuf,
    form: TableForm,
}

/// Where a table was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableOrigin {
    /// In the ELF file itself.
    Embedded,
    /// In a file.
    File(PathBuf),
}

/// The bytes of a found table, mapped or borrowed from the ELF file.
#[derive(Debug)]
pub enum TableBytes {
    /// The section of the ELF file, by index and length: borrow it again from there.
    Embedded,
    /// A file.
    Mapped(FileMap),
    /// A table that could not be written anywhere.
    Memory(Vec<u8>),
}

/// A table of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTable {
    /// Its file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// When it was used last, to the day: the time of its last modification.
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
        /// The system's error.
        error: io::Error,
    },
    /// Others could have written it.
    #[error("{}: not trusted: owned by user {owner}, mode {mode:03o}; it must belong to you or root (chown) and be writable by nobody else (chmod go-w)", path.display())]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The cache would be made in the folder of another user.
    #[error("{}: no cache is made in a folder of user {owner}; set XDG_CACHE_HOME to one of yours", path.display())]
    OthersFolder {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// It is not a regular file: a folder, a pipe.
    #[error("{}: not a regular file", path.display())]
    NotRegular {
        /// Its path.
        path: PathBuf,
    },
    /// It is larger than the limit of the whole cache.
    #[error("{}: a table of {size} bytes; the cache is limited to {limit}", path.display())]
    TooLarge {
        /// Its file, had it been written.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// It is not a table, or has another version.
    #[error("{}: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: TableOpenError,
    },
    /// It is a table with invalid bytes.
    #[error("{}: {corruption}; the module's own unwind table is used instead", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        corruption: TableCorruption,
    },
    /// It is not machine code of a table, or was changed.
    #[error("{}: {error}; another is made", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ObjectError,
    },
    /// It is not a table of arguments, or has another version.
    #[error("{}: {error}; another is made", path.display())]
    Arguments {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: unspool_arg_table::ArgTableError,
    },
    /// A module's table cannot be made into machine code.
    #[error("{}: {error}; it is walked by its table", path.display())]
    NotNative {
        /// The module.
        path: PathBuf,
        /// Why.
        error: NativeTableError,
    },
    /// It was made from a file that others could write to meanwhile, and that is too large to be
    /// copied; or one of its debug files could be.
    #[error("{}: a large file that others can write to, or that changed just now, is not cached", path.display())]
    Changeable {
        /// The module.
        path: PathBuf,
    },
    /// It is the table of another module.
    #[error("{}: the table of another module", path.display())]
    OtherModule {
        /// The file.
        path: PathBuf,
    },
    /// There is nowhere to keep tables.
    #[error("no cache folder: neither XDG_CACHE_HOME nor HOME names one")]
    NoCache,
}

impl Store {
    /// The folders of the environment. In a setuid program the environment is ignored.
    #[must_use]
    pub fn from_environment() -> Self {
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
        // An empty part of the variable would be the working directory.
        let is_some = |folder: &PathBuf| !folder.as_os_str().is_empty();
        let path = table_path.map(|path| env::split_paths(&path).filter(is_some).collect());
        let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|p| p.is_absolute());
        let cache = absolute(cache_home).or_else(|| absolute(home).map(|home| home.join(".cache")));
        Store {
            path: path.unwrap_or_default(),
            cache: cache.map(|cache| cache.join("unspool")),
            cache_bytes: DEFAULT_CACHE_BYTES,
            system: PathBuf::from(SYSTEM),
            form: TableForm::default(),
        }
    }

    /// Sets the form of tables in walks.
    #[must_use]
    pub fn with_form(self, form: TableForm) -> Self {
        Store { form, ..self }
    }

    /// The form of tables in walks.
    #[must_use]
    pub fn form(&self) -> TableForm {
        self.form
    }

    /// Limits the size of the cache, 1 GiB by default. [`Store::keep`] removes the least recently
    /// used tables until all tables, including the new one, have at most `bytes` bytes.
    ///
    /// Several processes that keep tables at the same time can exceed the limit by the tables that
    /// the others are writing; the next one that keeps a table corrects that.
    #[must_use]
    pub fn with_cache_limit(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The same without the cache: it is not read, and [`Store::keep`] fails.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Store {
            cache: None,
            ..self
        }
    }

    /// The cache folder.
    #[must_use]
    pub fn cache_folder(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// Checks whether [`Store::keep`] can write into the cache, by writing. Yields the folder,
    /// which is made if it is missing.
    ///
    /// # Errors
    ///
    /// There is no cache, somebody else could write to it, or it cannot be written to.
    pub fn check_cache(&self) -> Result<&Path, StoreError> {
        let folder = self.cache_folder().ok_or(StoreError::NoCache)?;
        make_folder(folder)?;
        let (written, _) =
            create_beside(&folder.join("check")).map_err(|error| io_error(folder, error))?;
        fs::remove_file(&written).map_err(|error| io_error(&written, error))?;
        Ok(folder)
    }

    /// The table of a module, if there is one. Tables that were found and not used go to `notices`,
    /// each notice once.
    ///
    /// Opens files and maps one. Reads the whole file, unless the cache remembers its hash.
    pub fn find(
        &self,
        file: &ElfFile,
        notices: &mut Vec<StoreError>,
    ) -> Option<(TableBytes, TableOrigin)> {
        self.find_named(file, file.path(), notices)
    }

    /// The key of a file's contents ([`ElfFile::content_key`]); if it has no build ID, the cache
    /// remembers its hash.
    #[must_use]
    pub fn content_key(&self, file: &ElfFile) -> Option<ContentKey> {
        match file.build_id() {
            Some(id) => Some(ContentKey::BuildId(id)),
            None => hash_cache::content_hash(self.cache.as_deref(), file).map(ContentKey::Hash),
        }
    }

    /// The key of a file's tables ([`ElfFile::table_key`]); the cache remembers its hash.
    fn table_key(&self, file: &ElfFile) -> Option<TableKey> {
        Some(TableKey {
            build_id: file.build_id(),
            content: hash_cache::content_hash(self.cache.as_deref(), file)?,
        })
    }

    /// Whether a file's tables can be found without reading the whole file.
    #[must_use]
    pub fn has_content_hash(&self, file: &ElfFile) -> bool {
        hash_cache::known_hash(self.cache.as_deref(), file).is_some()
    }

    /// The file in the form from which kept tables are made. Without a cache, the file itself.
    #[must_use]
    pub fn stable<'f>(&self, file: &'f ElfFile) -> StableFile<'f> {
        match self.cache {
            Some(_) => StableFile::new(file),
            None => StableFile::Own(file),
        }
    }

    /// As [`Store::find`], with the file's name for notices: its path may be one of the kernel's
    /// links in `/proc`, which means nothing to users.
    pub fn find_named(
        &self,
        file: &ElfFile,
        name: &Path,
        notices: &mut Vec<StoreError>,
    ) -> Option<(TableBytes, TableOrigin)> {
        match check_embedded(file, name) {
            Ok(Some(_)) => return Some((TableBytes::Embedded, TableOrigin::Embedded)),
            Ok(None) => {}
            Err(notice) => push_notice(notices, notice),
        }
        let found = self.find_in_folders(file, TableKind::Compiled, notices)?;
        Some((TableBytes::Mapped(found.map), TableOrigin::File(found.path)))
    }

    /// The rows synthesized from a module's code, if they are in a folder.
    pub(crate) fn find_synthesized(&self, file: &ElfFile) -> Option<TableBytes> {
        let found = self.find_in_folders(file, TableKind::Synthesized, &mut Vec::new())?;
        let version = CompiledTable::open(&found.map).ok()?.synthesis_version();
        (version == Some(unspool_synthesis::VERSION)).then_some(TableBytes::Mapped(found.map))
    }

    /// The machine code of a module's table, if it is in a folder. It, too, must belong to the user
    /// or root, be writable by nobody else, be whole, and belong to the module.
    ///
    /// Reads the file into memory, so later changes to the file do not affect the code that runs.
    pub fn find_native(
        &self,
        file: &ElfFile,
        notices: &mut Vec<StoreError>,
    ) -> Option<NativeObject> {
        let key = self.table_key(file)?;
        self.first_folder(notices, |folder| open_native(folder, &key))
    }

    /// The table of a module's arguments, if it is in a folder. `debug` are the debug files that
    /// its types are from.
    pub fn find_arguments(
        &self,
        file: &ElfFile,
        debug: &DebugFiles,
        notices: &mut Vec<StoreError>,
    ) -> Option<ArgumentTable> {
        let key = debug.key(file)?;
        self.first_folder(notices, |folder| open_arguments(folder, &key))
    }

    fn find_in_folders(
        &self,
        file: &ElfFile,
        kind: TableKind,
        notices: &mut Vec<StoreError>,
    ) -> Option<TableFile> {
        let key = self.table_key(file)?;
        self.first_folder(notices, |folder| open_table(folder, &key, kind))
    }

    /// The result of the first folder that has the file, with its path.
    fn first_folder<T>(
        &self,
        notices: &mut Vec<StoreError>,
        open: impl Fn(&Path) -> Result<Option<(File, T)>, StoreError>,
    ) -> Option<T> {
        let cache = self.cache.as_ref();
        for folder in self.path.iter().chain(cache).chain([&self.system]) {
            match open(folder) {
                Ok(Some((file, found))) => {
                    if cache == Some(folder) {
                        note_use(&file);
                    }
                    return Some(found);
                }
                Ok(None) => {}
                // From an older or newer unspool; the caller makes a new one in its place.
                Err(StoreError::Arguments {
                    error: unspool_arg_table::ArgTableError::Version(_),
                    ..
                }) if cache == Some(folder) => {}
                Err(notice) => push_notice(notices, notice),
            }
        }
        None
    }

    /// Keeps a table in the cache. It is written under a temporary name, synced to the disk, and
    /// renamed, so concurrent writers and readers never see half a table.
    ///
    /// Makes room first ([`Store::with_cache_limit`]), and removes temporary files that killed
    /// writers left there over an hour ago.
    ///
    /// # Errors
    ///
    /// The file was not [stable](Store::stable) when the table was made from it. The folder cannot
    /// be made or trusted. The table's file cannot be written. The table alone is larger than the
    /// limit; then no other is removed.
    pub fn keep(&self, file: &ElfFile, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        self.keep_as(file, self.stable_key(file)?, TableKind::Compiled, bytes)
    }

    /// Keeps rows synthesized from a module's code, in the same way.
    ///
    /// # Errors
    ///
    /// As for [`Store::keep`].
    pub fn keep_synthesized(&self, file: &ElfFile, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        self.keep_as(file, self.stable_key(file)?, TableKind::Synthesized, bytes)
    }

    /// Keeps machine code of a module's table, in the same way.
    ///
    /// # Errors
    ///
    /// As for [`Store::keep`].
    pub fn keep_native(
        &self,
        file: &ElfFile,
        object: &NativeObject,
    ) -> Result<PathBuf, StoreError> {
        self.keep_as(
            file,
            self.stable_key(file)?,
            TableKind::Native,
            object.bytes(),
        )
    }

    /// Keeps the table of a module's arguments, in the same way. `debug` are the debug files that
    /// it was made from.
    ///
    /// # Errors
    ///
    /// As for [`Store::keep`], and if one of the files has no [stamp](ElfFile::stamp).
    pub fn keep_arguments(
        &self,
        file: &ElfFile,
        debug: &DebugFiles,
        bytes: &[u8],
    ) -> Result<PathBuf, StoreError> {
        let key = debug.key(file).ok_or_else(|| changeable(file))?;
        self.keep_as(file, key, TableKind::Arguments, bytes)
    }

    fn keep_as(
        &self,
        file: &ElfFile,
        key: TableKey,
        kind: TableKind,
        bytes: &[u8],
    ) -> Result<PathBuf, StoreError> {
        let folder = self.cache.as_deref().ok_or(StoreError::NoCache)?;
        let path = folder.join(file_name(&key, kind));
        let size = bytes.len() as u64;
        if size > self.cache_bytes {
            return Err(StoreError::TooLarge {
                path,
                size,
                limit: self.cache_bytes,
            });
        }
        make_folder(folder)?;
        remove_leftovers(folder);
        self.trim(&path, size);
        write_atomically(&path, |file| {
            file.write_all(bytes)?;
            // Otherwise a table could have unnoticed holes after a power failure.
            file.sync_data()
        })?;
        if let Some(id) = key.build_id.filter(|_| is_of_this_system(file)) {
            link(&folder.join(format!("{id}.{}", kind.ending())), &path)?;
        }
        Ok(path)
    }

    /// The key under which a file's table is kept: with the hash of the table's source bytes.
    fn stable_key(&self, file: &ElfFile) -> Result<TableKey, StoreError> {
        if self.cache.is_none() {
            return Err(StoreError::NoCache);
        }
        let key = file.is_private().then(|| file.table_key()).flatten();
        key.ok_or_else(|| changeable(file))
    }

    /// The tables in the cache, by name.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<StoredTable>, StoreError> {
        let folder = self.cache.as_deref().ok_or(StoreError::NoCache)?;
        let mut stored = files(folder, is_table)?;
        stored.retain(|table| !table.path.is_symlink());
        stored.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(stored)
    }

    /// Removes every table of the cache, the remembered hashes, and temporary files that killed
    /// writers left over an hour ago. Yields the number of removed tables, and their bytes.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or trusted, or a file cannot be removed.
    pub fn clean(&self) -> Result<(usize, u64), StoreError> {
        let folder = self.cache.as_deref().ok_or(StoreError::NoCache)?;
        let (mut count, mut bytes) = (0, 0);
        if is_trusted_folder(folder)? {
            for table in self.list()? {
                if remove(&table.path)? {
                    count += 1;
                    bytes = table.size.saturating_add(bytes);
                }
            }
            hash_cache::forget_all(folder)?;
            remove_leftovers(folder);
            remove_links(folder, |_| true);
        }
        Ok((count, bytes))
    }

    /// Makes room for a new table at `path`. A table that cannot be removed stays.
    fn trim(&self, path: &Path, new: u64) {
        let mut stored = self.list().unwrap_or_default();
        stored.retain(|table| table.path != path); // the new one takes its place
        stored.sort_by_key(|table| table.used);
        let sizes = stored.iter().map(|table| table.size);
        let mut total = sizes.fold(new, u64::saturating_add);
        for table in stored {
            if total <= self.cache_bytes {
                break;
            }
            if fs::remove_file(&table.path).is_ok() {
                total = total.saturating_sub(table.size);
            }
        }
        let leads_nowhere = |path: &Path| fs::metadata(path).is_err_and(|error| is_missing(&error));
        if let Some(folder) = path.parent() {
            remove_links(folder, leads_nowhere);
        }
    }
}

fn changeable(file: &ElfFile) -> StoreError {
    StoreError::Changeable {
        path: file.path().to_path_buf(),
    }
}

/// Whether a file is the one at its path in this system, and nobody but root and the user can write
/// to it. A process may have another file under that path in its own mounts. Then the build ID
/// suffices as its key.
fn is_of_this_system(file: &ElfFile) -> bool {
    let Some(state) = file.state().filter(|_| file.is_trusted()) else {
        return false;
    };
    let path = file.path();
    // The kernel's links lead into other mounts.
    let is_here = path.is_absolute() && !path.starts_with("/proc");
    let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == (state.device, state.inode);
    is_here && fs::metadata(path).is_ok_and(is_same)
}

/// Adds a notice. Modules share folders, and one notice about each is enough.
fn push_notice(notices: &mut Vec<StoreError>, notice: StoreError) {
    let text = notice.to_string();
    if !notices.iter().any(|said| said.to_string() == text) {
        notices.push(notice);
    }
}

/// The section of an ELF file for its own table.
pub const EMBEDDED_SECTION: &str = ".unspool";

/// A file's embedded table.
#[must_use]
pub fn embedded(file: &ElfFile) -> Option<CompiledTable<'_>> {
    let (_, compiled) = check_embedded(file, file.path()).ok()??;
    Some(compiled)
}

/// The bytes of a file's embedded table.
///
/// # Errors
///
/// It is not a table of this version, or belongs to another file.
pub fn embedded_bytes(file: &ElfFile) -> Result<Option<&[u8]>, StoreError> {
    let found = check_embedded(file, file.path())?;
    Ok(found.map(|(bytes, _)| bytes))
}

/// A file's embedded table, or why it is not used.
///
/// It must have the file's build ID. Its hash cannot be checked: embedding it changed the contents.
/// Whoever made the file embedded it, and could as well have written another unwind table.
fn check_embedded<'f>(
    file: &'f ElfFile,
    name: &Path,
) -> Result<Option<(&'f [u8], CompiledTable<'f>)>, StoreError> {
    let Some((_, bytes)) = file.embedded(EMBEDDED_SECTION, &MAGIC) else {
        return Ok(None);
    };
    let path = || name.to_path_buf();
    let compiled = CompiledTable::open(bytes).map_err(|error| StoreError::Table {
        path: path(),
        error,
    })?;
    let own = file.build_id();
    if own.as_ref().map_or(&[][..], BuildId::as_bytes) != compiled.key().build_id
        || compiled.synthesis_version().is_some()
    {
        return Err(StoreError::OtherModule { path: path() });
    }
    Ok(Some((bytes, compiled)))
}

fn file_name(key: &TableKey, kind: TableKind) -> String {
    format!("{key}.{}", kind.ending())
}

/// Whether a file could have this name from [`file_name`].
fn is_table(name: &str) -> bool {
    name.split_once('.').is_some_and(|(stem, rest)| {
        is_key(stem) && TableKind::ALL.iter().any(|kind| rest == kind.ending())
    })
}

/// Whether a file could have this name from [`create_beside`].
fn is_temporary(name: &str) -> bool {
    name.split_once('.').is_some_and(|(stem, rest)| {
        (is_key(stem) || hash_cache::is_slot(stem)) && rest.ends_with(".tmp")
    })
}

/// A key, or a build ID: the name of a link, and of tables of earlier versions.
fn is_key(text: &str) -> bool {
    BuildId::from_hex(text).is_some() || TableKey::from_text(text).is_some()
}

/// Makes a link from a build ID to a table.
fn link(path: &Path, table: &Path) -> Result<(), StoreError> {
    let target = table.file_name().unwrap_or_default();
    if fs::read_link(path).is_ok_and(|found| found.as_os_str() == target) {
        return Ok(());
    }
    let (temporary, _) = create_beside(path).map_err(|error| io_error(path, error))?;
    let linked = fs::remove_file(&temporary)
        .and_then(|()| symlink(target, &temporary))
        .and_then(|()| fs::rename(&temporary, path));
    linked.map_err(|error| {
        let _ = fs::remove_file(&temporary); // nothing more can be done about it
        io_error(path, error)
    })
}

/// Removes links to tables. A link that cannot be removed stays.
fn remove_links(cache: &Path, is_unwanted: impl Fn(&Path) -> bool) {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())) {
        let is_ours = entry.file_name().to_str().is_some_and(is_table);
        if is_ours && is_unwanted(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A usable table file.
struct TableFile {
    path: PathBuf,
    map: FileMap,
}

/// A module's file of a kind, if it is in the folder and can be trusted.
fn open(
    folder: &Path,
    key: &TableKey,
    kind: TableKind,
) -> Result<Option<(PathBuf, File)>, StoreError> {
    if !is_trusted_folder(folder)? {
        return Ok(None);
    }
    let path = folder.join(file_name(key, kind));
    Ok(open_trusted(&path)?.map(|file| (path, file)))
}

/// Maps a module's table file if it is in the folder, can be trusted and belongs to the module.
fn open_table(
    folder: &Path,
    key: &TableKey,
    kind: TableKind,
) -> Result<Option<(File, TableFile)>, StoreError> {
    let Some((path, file)) = open(folder, key, kind)? else {
        return Ok(None);
    };
    let map = FileMap::new(&file).map_err(|error| io_error(&path, error))?;
    match CompiledTable::open(&map) {
        Err(error) => return Err(StoreError::Table { path, error }),
        Ok(compiled)
            if compiled.key() != as_key(key)
                || compiled.synthesis_version().is_some() != (kind == TableKind::Synthesized) =>
        {
            return Err(StoreError::OtherModule { path });
        }
        Ok(_) => {}
    }
    Ok(Some((file, TableFile { path, map })))
}

/// The bytes of a table of arguments.
#[derive(Debug)]
pub struct ArgumentTable(TableBytes);

impl ArgumentTable {
    /// A table that was just made.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> ArgumentTable {
        ArgumentTable(TableBytes::Memory(bytes))
    }

    /// The table; `None` for invalid bytes, which [`Store::find_arguments`] does not yield.
    #[must_use]
    pub fn table(&self) -> Option<unspool_arg_table::ArgTable<'_>> {
        let bytes: &[u8] = match &self.0 {
            TableBytes::Mapped(map) => map,
            TableBytes::Memory(bytes) => bytes,
            TableBytes::Embedded => return None,
        };
        unspool_arg_table::ArgTable::open(bytes).ok()
    }
}

/// Maps a module's table of arguments if it is in the folder, can be trusted and belongs to the
/// module.
fn open_arguments(
    folder: &Path,
    key: &TableKey,
) -> Result<Option<(File, ArgumentTable)>, StoreError> {
    let Some((path, file)) = open(folder, key, TableKind::Arguments)? else {
        return Ok(None);
    };
    let map = FileMap::new(&file).map_err(|error| io_error(&path, error))?;
    let is_own = match unspool_arg_table::ArgTable::open(&map) {
        Err(error) => return Err(StoreError::Arguments { path, error }),
        Ok(table) => table.key().content == &key.content,
    };
    match is_own {
        true => Ok(Some((file, ArgumentTable(TableBytes::Mapped(map))))),
        false => Err(StoreError::OtherModule { path }),
    }
}

/// Reads a module's machine code if it is in the folder, can be trusted and belongs to the module.
fn open_native(folder: &Path, key: &TableKey) -> Result<Option<(File, NativeObject)>, StoreError> {
    let Some((path, mut file)) = open(folder, key, TableKind::Native)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| io_error(&path, error))?;
    match NativeObject::trusted(bytes, key) {
        Err(error) => Err(StoreError::Object { path, error }),
        Ok(None) => Err(StoreError::OtherModule { path }),
        Ok(Some(object)) => Ok(Some((file, object))),
    }
}

/// Notes that a table was used, in its modification time. File systems need not keep access times,
/// and usually do not (`noatime`, `relatime`).
fn note_use(file: &File) {
    let noted = file.metadata().and_then(|metadata| metadata.modified());
    let is_recent = noted.is_ok_and(|noted| noted.elapsed().is_ok_and(|age| age < USE_RESOLUTION));
    if !is_recent {
        // Fails for root's table in the user's cache, which then counts as unused.
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Opens a regular file if it is there and can be trusted.
pub(crate) fn open_trusted(path: &Path) -> Result<Option<File>, StoreError> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK) // opening a pipe would wait for its writer
        .open(path);
    let file = match opened {
        Err(error) if is_missing(&error) => return Ok(None),
        opened => opened.map_err(|error| io_error(path, error))?,
    };
    let metadata = file.metadata().map_err(|error| io_error(path, error))?;
    if !metadata.is_file() {
        return Err(StoreError::NotRegular {
            path: path.to_path_buf(),
        });
    }
    check_trust(path, &metadata)?;
    Ok(Some(file))
}

/// Whether a folder exists; an error if it cannot be trusted, or cannot be searched.
pub(crate) fn is_trusted_folder(folder: &Path) -> Result<bool, StoreError> {
    // Files in a folder, even its own `.`, cannot be reached without search permission.
    match fs::metadata(folder.join(".")) {
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(io_error(folder, error)),
        Ok(metadata) => check_trust(folder, &metadata).map(|()| true),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn io_error(path: &Path, error: io::Error) -> StoreError {
    StoreError::Io {
        path: path.to_path_buf(),
        error,
    }
}

/// Refuses files that somebody else could have written.
fn check_trust(path: &Path, metadata: &fs::Metadata) -> Result<(), StoreError> {
    if !is_untrusted(metadata) {
        return Ok(());
    }
    Err(StoreError::Untrusted {
        path: path.to_path_buf(),
        owner: metadata.uid(),
        mode: metadata.mode() & 0o777,
    })
}

/// Makes a folder, and its parent, for the user alone. Folders above are not made: a home must
/// exist.
pub(crate) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    if is_trusted_folder(folder)? {
        return Ok(());
    }
    // Root may have a user's home, which `sudo` can keep. A folder of root's there would be in the
    // user's way.
    let mut above = folder.ancestors().skip(1);
    let existing = above.find_map(|path| Some((path, fs::metadata(path).ok()?.uid())));
    if let Some((path, owner)) = existing.filter(|(_, owner)| !is_our_owner(*owner)) {
        return Err(StoreError::OthersFolder {
            path: path.to_path_buf(),
            owner,
        });
    }
    for path in folder.parent().into_iter().chain([folder]) {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io_error(path, error));
            }
            _ => {}
        }
    }
    // Another process may have been faster, or the name is taken by something else.
    if !is_trusted_folder(folder)? {
        return Err(io_error(folder, io::ErrorKind::NotADirectory.into()));
    }
    Ok(())
}

/// Writes a file under a temporary name beside its path and renames it.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), StoreError> {
    let (temporary, mut file) = create_beside(path).map_err(|error| io_error(path, error))?;
    let written = write(&mut file).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary); // nothing more can be done about it
        io_error(path, error)
    })
}

fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut temporary = path.as_os_str().to_os_string();
        temporary.push(format!(".{}.{count}.tmp", process::id()));
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary);
        match created {
            // Left by a killed process with this process ID, or by one in another container.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (PathBuf::from(temporary), file)),
        }
    }
}

/// The entries of a folder with such names, except folders; nothing if the folder does not exist.
pub(crate) fn files(
    folder: &Path,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<StoredTable>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io_error(folder, error))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io_error(folder, error))?;
        if !entry.file_name().to_str().is_some_and(&is_wanted) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else {
            continue; // removed meanwhile
        };
        if !metadata.is_dir() {
            files.push(StoredTable {
                path: entry.path(),
                size: metadata.len(),
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            });
        }
    }
    Ok(files)
}

/// Removes files that killed writers left behind in a cache. A file that cannot be removed stays.
fn remove_leftovers(cache: &Path) {
    for folder in [cache, &hash_cache::folder(cache)] {
        let is_trusted = is_trusted_folder(folder).is_ok_and(|is_there| is_there);
        let found = is_trusted.then(|| files(folder, is_temporary));
        for file in found.and_then(Result::ok).unwrap_or_default() {
            if file.used.elapsed().is_ok_and(|age| age > LEFTOVER_AGE) {
                let _ = fs::remove_file(&file.path);
            }
        }
    }
}

/// Removes a file; yields whether it existed.
pub(crate) fn remove(path: &Path) -> Result<bool, StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use unspool_compiled_table::{ExecutableCode, encode};
    use unspool_rows::Table;

    use super::*;

    /// An ELF file with just the header.
    fn file() -> ElfFile {
        let mut header = [0; 64];
        header[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
        header[16..24].copy_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
        header[52] = 64; // e_ehsize
        ElfFile::from_bytes("file", header.to_vec()).unwrap()
    }

    #[test]
    fn the_folder_of_packaged_tables_comes_last() {
        let file = file();
        let key = file.table_key().unwrap();
        let table = encode(
            &Table::new(file.abi()),
            as_key(&key),
            &ExecutableCode::default(),
            &[],
        );
        let table = table.unwrap().bytes;
        let root = env::temp_dir().join(format!("unspool-store-{}", process::id()));
        let place = |name: &str| {
            let folder = root.join(name);
            make_folder(folder.parent().unwrap()).unwrap();
            make_folder(&folder).unwrap();
            let path = folder.join(file_name(&key, TableKind::Compiled));
            fs::write(&path, &table).unwrap();
            path
        };
        let home = root.join("home");
        let mut store = Store::new(None, None, Some(home.into()));
        assert_eq!(store.system, Path::new("/usr/lib/unspool/tables"));
        store.system = root.join("system");
        let (system, cached) = (place("system"), place("home/.cache/unspool"));
        let found = |notices: &mut Vec<StoreError>| store.find(&file, notices).map(|found| found.1);
        let mut notices = Vec::new();
        assert_eq!(found(&mut notices), Some(TableOrigin::File(cached.clone())));
        fs::remove_file(cached).unwrap();
        assert_eq!(found(&mut notices), Some(TableOrigin::File(system.clone())));
        fs::remove_file(system).unwrap();
        assert_eq!(found(&mut notices), None);
        assert!(notices.is_empty(), "{notices:?}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn names_of_our_files() {
        let digits = "0123456789abcdef0123456789abcdef01234567";
        let key = |text: &str| text.replace('#', digits);
        for name in ["#.unspool", "sha256-#.unspool", "ab-#.unspool"] {
            assert!(is_table(&key(name)), "{name}");
            assert!(!is_temporary(&key(name)), "{name}");
            assert!(is_temporary(&key(&format!("{name}.1.0.tmp"))), "{name}");
        }
        assert!(is_temporary("0ff.1.0.tmp"));
        let others = [
            "",
            ".",
            "#",
            "0ff",
            "unspool",
            ".unspool",
            "abc.unspool",
            "xy.unspool",
            "#.unspool~",
            "#.Unspool",
            "#..unspool",
            "sha256-ab.unspool",
            "#-.unspool",
            "-#.unspool",
            "#-##.unspool",
            "#.unspool.bak",
            "a b.unspool",
            "notes.tmp",
            "x.1.0.tmp",
            "0fff.1.0.tmps",
        ];
        for name in others {
            assert!(!is_table(&key(name)), "{name}");
            assert!(!is_temporary(&key(name)), "{name}");
        }
    }
}
