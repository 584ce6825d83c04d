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

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use unspool_compiled_table::layout::MAGIC;
use unspool_compiled_table::{CompiledTable, TableCorruption, TableOpenError};
use unspool_elf::{BuildId, ContentKey, DebugFiles, ElfFile, TableKey};
use unspool_files::environment::{PACKAGED_TABLES, cache_home_path, variable};
use unspool_files::{
    CacheEntry, CacheError, CacheFolder, FileId, FileMap, RemovedFiles, TrustedFile, open_trusted,
};
use unspool_native_table::ObjectError;

use crate::compile::{StableFile, as_key};
use crate::hash_cache;
use crate::native::{NativeObject, NativeTableError};

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
    cache: Option<CacheFolder>,
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

/// Why a table file is not used, or could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be opened, trusted or written.
    #[error(transparent)]
    File(#[from] CacheError),
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
        let cache = cache_home_path(cache_home, home);
        let cache = cache.map(|cache| CacheFolder::new(cache.join("unspool"), is_table));
        Store {
            path: path.unwrap_or_default(),
            cache: cache.map(|cache| cache.with_limit(DEFAULT_CACHE_BYTES)),
            system: OsStr::from_bytes(PACKAGED_TABLES.to_bytes()).into(),
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
    pub fn with_cache_limit(self, bytes: u64) -> Self {
        Store {
            cache: self.cache.map(|cache| cache.with_limit(bytes)),
            ..self
        }
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
    pub fn cache_folder(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(CacheFolder::path)
    }

    fn cache(&self) -> Result<&CacheFolder, StoreError> {
        self.cache.as_ref().ok_or(StoreError::NoCache)
    }

    /// Checks whether [`Store::keep`] can write into the cache, by writing. Yields the folder,
    /// which is made if it is missing.
    ///
    /// # Errors
    ///
    /// There is no cache, somebody else could write to it, or it cannot be written to.
    pub fn check_cache(&self) -> Result<PathBuf, StoreError> {
        let cache = self.cache()?;
        cache.check_writable()?;
        Ok(cache.path())
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
            None => hash_cache::content_hash(self.cache.as_ref(), file).map(ContentKey::Hash),
        }
    }

    /// The key of a file's tables ([`ElfFile::table_key`]); the cache remembers its hash.
    fn table_key(&self, file: &ElfFile) -> Option<TableKey> {
        Some(TableKey {
            build_id: file.build_id(),
            content: hash_cache::content_hash(self.cache.as_ref(), file)?,
        })
    }

    /// Whether a file's tables can be found without reading the whole file.
    #[must_use]
    pub fn has_content_hash(&self, file: &ElfFile) -> bool {
        hash_cache::known_hash(self.cache.as_ref(), file).is_some()
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
        self.first(&key, TableKind::Native, notices, |file| {
            read_native(file, &key)
        })
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
        self.first(&key, TableKind::Arguments, notices, |file| {
            map_arguments(file, &key)
        })
    }

    fn find_in_folders(
        &self,
        file: &ElfFile,
        kind: TableKind,
        notices: &mut Vec<StoreError>,
    ) -> Option<TableFile> {
        let key = self.table_key(file)?;
        self.first(&key, kind, notices, |file| map_table(file, &key, kind))
    }

    /// What is read of the first file of that kind that can be trusted and is right.
    fn first<T>(
        &self,
        key: &TableKey,
        kind: TableKind,
        notices: &mut Vec<StoreError>,
        read: impl Fn(&TrustedFile) -> Result<T, StoreError>,
    ) -> Option<T> {
        let name = file_name(key, kind);
        let cache = self.cache_folder();
        let folders = self.path.iter().chain(&cache).chain([&self.system]);
        for folder in folders {
            let is_cache = cache.as_ref() == Some(folder);
            let found = match open_trusted(folder, Path::new(&name)) {
                Ok(None) => continue,
                Ok(Some(file)) => read(&file).inspect(|_| {
                    if is_cache {
                        file.note_use();
                    }
                }),
                Err(error) => Err(error.into()),
            };
            match found {
                Ok(found) => return Some(found),
                // From an older or newer unspool; the caller makes a new one in its place.
                Err(StoreError::Arguments {
                    error: unspool_arg_table::ArgTableError::Version(_),
                    ..
                }) if is_cache => {}
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
        let cache = self.cache()?;
        let name = file_name(&key, kind);
        let path = cache.write_with(&name, bytes.len() as u64, |file| {
            // Without a sync, a table could have unnoticed holes after a power failure.
            let written = file.write_all(bytes).and_then(|()| file.sync_data());
            written.map_err(|error| CacheError::new(&cache.path().join(&name), error))
        })?;
        if let Some(id) = key.build_id.filter(|_| is_of_this_system(file)) {
            cache.link(&format!("{id}.{}", kind.ending()), &name)?;
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
    pub fn list(&self) -> Result<Vec<CacheEntry>, StoreError> {
        Ok(self.cache()?.entries()?)
    }

    /// Removes every table of the cache, the remembered hashes, and temporary files that killed
    /// writers left over an hour ago. Yields the number of removed tables, and their bytes.
    ///
    /// # Errors
    ///
    /// The folder cannot be read or trusted, or a file cannot be removed.
    pub fn clean(&self) -> Result<RemovedFiles, StoreError> {
        let removed = self.cache()?.remove_all()?;
        hash_cache::folder(self.cache()?).remove_all()?;
        Ok(removed)
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
    is_here && fs::metadata(path).is_ok_and(|found| FileId::new(&found) == state.id)
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

/// A key, or a build ID: the name of a link, and of tables of earlier versions.
fn is_key(text: &str) -> bool {
    BuildId::from_hex(text).is_some() || TableKey::from_text(text).is_some()
}

/// A usable table file.
struct TableFile {
    path: PathBuf,
    map: FileMap,
}

/// Maps a module's table file if it belongs to the module.
fn map_table(file: &TrustedFile, key: &TableKey, kind: TableKind) -> Result<TableFile, StoreError> {
    let (path, map) = (file.path().to_path_buf(), file.map()?);
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
    Ok(TableFile { path, map })
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

/// Maps a module's table of arguments if it belongs to the module.
fn map_arguments(file: &TrustedFile, key: &TableKey) -> Result<ArgumentTable, StoreError> {
    let (path, map) = (file.path().to_path_buf(), file.map()?);
    let is_own = match unspool_arg_table::ArgTable::open(&map) {
        Err(error) => return Err(StoreError::Arguments { path, error }),
        Ok(table) => table.key().content == &key.content,
    };
    if is_own {
        Ok(ArgumentTable(TableBytes::Mapped(map)))
    } else {
        Err(StoreError::OtherModule { path })
    }
}

/// Reads a module's machine code if it belongs to the module.
fn read_native(file: &TrustedFile, key: &TableKey) -> Result<NativeObject, StoreError> {
    let path = || file.path().to_path_buf();
    match NativeObject::trusted(file.read(DEFAULT_CACHE_BYTES)?, key) {
        Err(error) => Err(StoreError::Object {
            path: path(),
            error,
        }),
        Ok(None) => Err(StoreError::OtherModule { path: path() }),
        Ok(Some(object)) => Ok(object),
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
    #[cfg_attr(miri, ignore = "opens files")]
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
        let root = env::temp_dir().join(format!("unspool-store-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let place = |name: &str| {
            let folder = CacheFolder::new(root.join(name), is_table);
            fs::create_dir_all(folder.path().parent().unwrap()).unwrap();
            folder
                .write(&file_name(&key, TableKind::Compiled), &table)
                .unwrap()
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
        }
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
            "#.unspool.1.0.tmp",
        ];
        for name in others {
            assert!(!is_table(&key(name)), "{name}");
        }
    }
}
