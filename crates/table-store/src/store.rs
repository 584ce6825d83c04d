//! Where compiled tables are found and kept.
//!
//! In order: the ELF file itself (section `.unspool`), the folders of `UNSPOOL_TABLE_PATH`, the
//! user's cache (`$XDG_CACHE_HOME/unspool`, else `~/.cache/unspool`), and
//! `/usr/lib/unspool/tables` for packaged tables. A table's file is named by its key
//! ([`TableKey`](unspool_elf::TableKey): the module's build ID, and a hash of what the table was made of), with
//! the ending `.unspool`, `.synth.unspool` for rows made of its code, `.native.so` for a table as machine code, or
//! `.args.unspool` for a table of arguments. Files with other names are neither used nor listed nor removed, but
//! those of earlier versions, whose names have no hash, make room for new ones.
//!
//! Beside it, a symbolic link with the build ID alone leads there for who knows only that: the own process
//! (`unspool_unwind::local::store`). There is one only if the file was one of this system that nobody but
//! root and the user can write to.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, process};

use unspool_compiled_table::layout::MAGIC;
use unspool_compiled_table::{CompiledTable, OpenError, TableCorruption};
use unspool_elf::{BuildId, ContentKey, DebugFiles, ElfFile, TableKey, variable};
use unspool_files::{FileMap, is_our_owner, is_untrusted};
use unspool_native_table::ObjectError;

use crate::compile::{StableFile, as_key};
use crate::hash_cache;
use crate::native::{NativeObject, NativeTableError};

/// The folder of packaged tables.
const SYSTEM: &str = "/usr/lib/unspool/tables";

/// What a table's rows were made of: the ending of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableKind {
    /// Of the module's unwind table.
    Compiled,
    /// Of its code.
    Synthesized,
    /// Of the module's unwind table, as machine code.
    Native,
    /// Of its code and what its functions take: no rows, but where arguments are.
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

/// In which form walks have tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableForm {
    /// As compiled tables, and as files have them.
    #[default]
    Compact,
    /// As machine code ([`NativeObject`]), where there can be some, and for what that leaves over as above.
    Native,
}

/// The most bytes that the tables of a cache have together.
const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// How exactly it is noted when a table was used last.
const USE_RESOLUTION: Duration = Duration::from_secs(24 * 60 * 60);

/// A file that a writer has not finished by then was left behind by one that was killed.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 60);

/// Finds compiled tables, and keeps those that were made.
///
/// A table file, and the folder that it is looked for in, must belong to the user or root and be
/// writable by nobody else. What is above the folder is not looked at.
///
/// Tables are mapped ([`Map`]). A table is replaced by renaming another onto it, as [`Store::keep`] does, so
/// that who has the old one mapped keeps it.
#[derive(Debug, Clone)]
pub struct Store {
    /// Folders that are looked in before the cache.
    path: Vec<PathBuf>,
    cache: Option<PathBuf>,
    cache_bytes: u64,
    /// The folder that is looked in last.
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

/// The bytes of a table that was found, mapped or borrowed from the ELF file.
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
        /// What it said.
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
    /// A cache would be made in the folder of another user.
    #[error("{}: no cache is made in a folder of user {owner}; set XDG_CACHE_HOME to one of yours", path.display())]
    OthersFolder {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// It is no file: a folder, a pipe.
    #[error("{}: not a regular file", path.display())]
    NotRegular {
        /// What there is.
        path: PathBuf,
    },
    /// It is larger than all tables of the cache may be together.
    #[error("{}: a table of {size} bytes; the cache is limited to {limit}", path.display())]
    TooLarge {
        /// Its file, if it were written.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// It is no table, or one of another version.
    #[error("{}: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: OpenError,
    },
    /// It is a table, and has bytes that no table has.
    #[error("{}: {corrupt}; the module's own unwind table is used instead", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        corrupt: TableCorruption,
    },
    /// It is no machine code of a table, or was changed.
    #[error("{}: {error}; another is made", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ObjectError,
    },
    /// It is no table of arguments, or one of another version.
    #[error("{}: {error}; another is made", path.display())]
    Arguments {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: unspool_arg_table::ArgTableError,
    },
    /// No machine code can be made of a module's table.
    #[error("{}: {error}; it is walked by its table", path.display())]
    NotNative {
        /// The module.
        path: PathBuf,
        /// Why.
        error: NativeTableError,
    },
    /// It was made of a file that others could write to meanwhile, and that is too large to be copied; or one of
    /// its debug files could be.
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

/// Something the user may want to know; the work goes on.
pub type Notice = StoreError;

impl Store {
    /// The folders that the environment names. In a setuid program the environment is ignored.
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

    /// Chooses the form of the tables that walks have.
    #[must_use]
    pub fn with_form(self, form: TableForm) -> Self {
        Store { form, ..self }
    }

    /// The form of the tables that walks have.
    #[must_use]
    pub fn form(&self) -> TableForm {
        self.form
    }

    /// Limits the size of the cache: [`Store::keep`] removes the least recently used tables until
    /// all of them together, the new one included, have at most so many bytes. 1 GiB if this is
    /// not called.
    ///
    /// Several processes that keep tables at the same time can exceed the limit by what the
    /// others are writing; the next that keeps one corrects that.
    #[must_use]
    pub fn with_cache_limit(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The same without the cache: none is read, and [`Store::keep`] fails.
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

    /// Whether [`Store::keep`] can write into the cache, found out by doing so; yields the folder,
    /// which is made if it is not there.
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

    /// The table of a module, if there is one. What was found and not used goes to `notices`,
    /// each notice once.
    ///
    /// Opens files and maps one. Reads all of the file, unless the cache remembers its hash.
    pub fn find(
        &self,
        file: &ElfFile,
        notices: &mut Vec<Notice>,
    ) -> Option<(TableBytes, TableOrigin)> {
        self.find_named(file, file.path(), notices)
    }

    /// What tells a file from others ([`ElfFile::content_key`]); of one without build ID, the cache remembers it.
    #[must_use]
    pub fn content_key(&self, file: &ElfFile) -> Option<ContentKey> {
        match file.build_id() {
            Some(id) => Some(ContentKey::BuildId(id)),
            None => hash_cache::content_hash(self.cache.as_deref(), file).map(ContentKey::Hash),
        }
    }

    /// What tables of a file are looked for under ([`ElfFile::table_key`]); the cache remembers its hash.
    fn table_key(&self, file: &ElfFile) -> Option<TableKey> {
        Some(TableKey {
            build_id: file.build_id(),
            content: hash_cache::content_hash(self.cache.as_deref(), file)?,
        })
    }

    /// Whether tables of a file can be looked for without reading all of it.
    #[must_use]
    pub fn knows(&self, file: &ElfFile) -> bool {
        hash_cache::known_hash(self.cache.as_deref(), file).is_some()
    }

    /// The file as tables are made of it that are kept here. Without a cache, itself.
    #[must_use]
    pub fn stable<'f>(&self, file: &'f ElfFile) -> StableFile<'f> {
        match self.cache {
            Some(_) => StableFile::new(file),
            None => StableFile::Own(file),
        }
    }

    /// As [`Store::find`], with the name that notices have for the file: its path may be one of
    /// the kernel's links in `/proc`, which tells people nothing.
    pub fn find_named(
        &self,
        file: &ElfFile,
        name: &Path,
        notices: &mut Vec<Notice>,
    ) -> Option<(TableBytes, TableOrigin)> {
        match check_embedded(file, name) {
            Ok(Some(_)) => return Some((TableBytes::Embedded, TableOrigin::Embedded)),
            Ok(None) => {}
            Err(notice) => push_notice(notices, notice),
        }
        let found = self.find_in_folders(file, TableKind::Compiled, notices)?;
        Some((TableBytes::Mapped(found.map), TableOrigin::File(found.path)))
    }

    /// The rows that were made of a module's code, if they are in a folder.
    pub(crate) fn find_synthesized(&self, file: &ElfFile) -> Option<TableBytes> {
        let found = self.find_in_folders(file, TableKind::Synthesized, &mut Vec::new())?;
        Some(TableBytes::Mapped(found.map))
    }

    /// The machine code of a module's table, if it is in a folder: it, too, must belong to the user or root and be
    /// writable by nobody else, be whole, and be of the module.
    ///
    /// Reads the file into memory: who changes it later changes nothing that is run.
    pub fn find_native(&self, file: &ElfFile, notices: &mut Vec<Notice>) -> Option<NativeObject> {
        let key = self.table_key(file)?;
        self.first_folder(notices, |folder| open_native(folder, &key))
    }

    /// The table of a module's arguments, if it is in a folder. `debug` are its debug files, of which its types are.
    pub fn find_arguments(
        &self,
        file: &ElfFile,
        debug: &DebugFiles,
        notices: &mut Vec<Notice>,
    ) -> Option<ArgumentTable> {
        let key = debug.key(file)?;
        self.first_folder(notices, |folder| open_arguments(folder, &key))
    }

    fn find_in_folders(
        &self,
        file: &ElfFile,
        kind: TableKind,
        notices: &mut Vec<Notice>,
    ) -> Option<TableFile> {
        let key = self.table_key(file)?;
        self.first_folder(notices, |folder| open_table(folder, &key, kind))
    }

    /// What is found in the first folder that has it, with its file.
    fn first_folder<T>(
        &self,
        notices: &mut Vec<Notice>,
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
                // An older or a newer unspool's; whoever finds none makes one, in its place.
                Err(StoreError::Arguments {
                    error: unspool_arg_table::ArgTableError::Version(_),
                    ..
                }) if cache == Some(folder) => {}
                Err(notice) => push_notice(notices, notice),
            }
        }
        None
    }

    /// Keeps a table in the cache: written beside its place and renamed, so that several writers
    /// and readers never see half of one, and not renamed before it is on the disk.
    ///
    /// Makes room first ([`Store::with_cache_limit`]), and removes files that killed writers left
    /// there over an hour ago.
    ///
    /// # Errors
    ///
    /// The file was not [stable](Store::stable) when the table was made of it, the folder cannot be made or
    /// trusted, the table's file cannot be written, or the table alone is larger than the limit; then no other
    /// is removed.
    pub fn keep(&self, file: &ElfFile, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        self.keep_as(file, self.stable_key(file)?, TableKind::Compiled, bytes)
    }

    /// Keeps rows that were made of a module's code, in the same way.
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

    /// Keeps the table of a module's arguments, in the same way. `debug` are the debug files that it was made of.
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
            // Else a table could have holes after a power failure, and nobody would notice.
            file.sync_data()
        })?;
        if let Some(id) = key.build_id.filter(|_| is_of_this_system(file)) {
            link(&folder.join(format!("{id}.{}", kind.ending())), &path)?;
        }
        Ok(path)
    }

    /// What a table of a file is kept under: the hash of the bytes that it was made of.
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

    /// Removes every table of the cache, what is remembered beside them, and what killed writers
    /// left there over an hour ago; yields how many tables it removed, and their bytes.
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

    /// Makes room for a new table at `path`. A table that cannot be removed is left alone.
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

/// Whether a file is one of this system as its path leads to it, and nobody but root and the user can write to it:
/// not one that a process sees under that path in its own mounts. Then its build ID says enough.
fn is_of_this_system(file: &ElfFile) -> bool {
    let Some(state) = file.state().filter(|_| file.is_trusted()) else {
        return false;
    };
    let path = file.path();
    // Links of the kernel's lead to what others have mounted.
    let is_here = path.is_absolute() && !path.starts_with("/proc");
    let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == (state.device, state.inode);
    is_here && fs::metadata(path).is_ok_and(is_same)
}

/// Adds a notice. Modules share folders, and one word about each is enough.
fn push_notice(notices: &mut Vec<Notice>, notice: Notice) {
    let text = notice.to_string();
    if !notices.iter().any(|said| said.to_string() == text) {
        notices.push(notice);
    }
}

/// The section of an ELF file that holds its own table.
pub const EMBEDDED_SECTION: &str = ".unspool";

/// The table that a file holds of itself.
#[must_use]
pub fn embedded(file: &ElfFile) -> Option<CompiledTable<'_>> {
    let (_, compiled) = check_embedded(file, file.path()).ok()??;
    Some(compiled)
}

/// The bytes of the table that a file holds of itself.
///
/// # Errors
///
/// It is no table of this version, or that of another file.
pub fn embedded_bytes(file: &ElfFile) -> Result<Option<&[u8]>, StoreError> {
    let found = check_embedded(file, file.path())?;
    Ok(found.map(|(bytes, _)| bytes))
}

/// The table that a file holds of itself, or why it is not used.
///
/// It must have the file's build ID. Its hash cannot be checked: the contents have changed by its being put there.
/// Who made the file put it there, and could as well have written another unwind table.
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
        || compiled.is_synthesized()
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

/// Has a build ID's name lead to a table.
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

/// Removes links to tables. What cannot be removed is left alone.
fn remove_links(cache: &Path, is_unwanted: impl Fn(&Path) -> bool) {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())) {
        let is_ours = entry.file_name().to_str().is_some_and(is_table);
        if is_ours && is_unwanted(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A table file that can be used.
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
                || compiled.is_synthesized() != (kind == TableKind::Synthesized) =>
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
    /// One that was just made.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> ArgumentTable {
        ArgumentTable(TableBytes::Memory(bytes))
    }

    /// The table; `None` of bytes that are none, which [`Store::find_arguments`] does not yield.
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

/// Maps a module's table of arguments if it is in the folder, can be trusted and belongs to the module.
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

/// Notes that a table was used, in the time of its last modification: file systems need not keep
/// that of the last access, and mostly do not (`noatime`, `relatime`).
fn note_use(file: &File) {
    let noted = file.metadata().and_then(|metadata| metadata.modified());
    let is_recent = noted.is_ok_and(|noted| noted.elapsed().is_ok_and(|age| age < USE_RESOLUTION));
    if !is_recent {
        // Fails for root's table in the user's cache, which then counts as not used.
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Opens a regular file if it is there and can be trusted.
pub(crate) fn open_trusted(path: &Path) -> Result<Option<File>, StoreError> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK) // a pipe would have us wait for its writer
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

/// Whether there is a folder; an error if it cannot be trusted, or not looked into.
pub(crate) fn is_trusted_folder(folder: &Path) -> Result<bool, StoreError> {
    // What is in a folder, its own `.` too, is out of reach for those who may not look into it.
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

/// Refuses what somebody else could have written.
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

/// Makes a folder, and the one that it is in, for the user alone. Not those above: a home is not
/// made.
pub(crate) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    if is_trusted_folder(folder)? {
        return Ok(());
    }
    // Root with the home of a user, which `sudo` may keep: a folder of root's would be in the
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
    // Somebody else may have been faster, or there is something else by that name.
    if !is_trusted_folder(folder)? {
        return Err(io_error(folder, io::ErrorKind::NotADirectory.into()));
    }
    Ok(())
}

/// Writes a file beside its place and renames it.
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
            // Of a killed process that had this number, or of one in another container.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (PathBuf::from(temporary), file)),
        }
    }
}

/// What a folder has by such names and is no folder itself; nothing if there is no such folder.
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
            continue; // removed in between
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

/// Removes what killed writers left behind in a cache. What cannot be removed is left alone.
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

/// Removes a file; yields whether it was there.
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

    /// The header of an ELF file that has nothing else.
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
        let found = |notices: &mut Vec<Notice>| store.find(&file, notices).map(|found| found.1);
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
