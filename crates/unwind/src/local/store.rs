//! Finding kept tables of modules: like `unspool_table_store::Store`, without an allocator, for
//! modules with a build ID.
//!
//! In order: the folders of `UNSPOOL_TABLE_PATH`; the user's cache (`$XDG_CACHE_HOME/unspool`, else
//! `~/.cache/unspool`); and `/usr/lib/unspool/tables`. A file, and its folder, must belong to the
//! user or root and be writable by nobody else. In a setuid program the environment is ignored.
//!
//! A module in memory is known here only by its build ID, which the file's creator chooses. So the
//! file is looked up by the name of a link. The store makes that only for files of this system that
//! nobody but root and the user can write to.

use core::ffi::CStr;
use core::fmt;

pub use super::sys::files::FileMapping;
use super::sys::files::{self, FileStatus, RawFile};
pub use super::sys::variable;

/// The folder of packaged tables.
const SYSTEM: &CStr = c"/usr/lib/unspool/tables";

/// The resolution of the time of last use, in seconds.
const USE_RESOLUTION_SECONDS: i64 = 24 * 60 * 60;

/// The folders of the environment, each followed by a zero byte.
#[derive(Debug)]
pub struct TableFolders {
    /// Those of `UNSPOOL_TABLE_PATH`.
    path: FixedPath,
    /// The cache, or nothing.
    cache: FixedPath,
}

/// A file that nobody but the user or root could have written, in such a folder.
pub struct TrustedFile {
    file: RawFile,
    size: usize,
}

impl fmt::Debug for TrustedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedFile").finish_non_exhaustive()
    }
}

impl TableFolders {
    /// The folders of the present environment, `UNSPOOL_TABLE_PATH` up to 4 KiB. Not
    /// async-signal-safe.
    #[must_use]
    pub fn from_environment() -> TableFolders {
        let variable = |name| variable(name).unwrap_or_default();
        let cache = cache(variable(c"XDG_CACHE_HOME"), variable(c"HOME"));
        TableFolders {
            // A longer value is ignored.
            path: each_ended(variable(c"UNSPOOL_TABLE_PATH")).unwrap_or_default(),
            cache: cache.unwrap_or_default(),
        }
    }

    /// The first trusted file of a module, by the ending of its name, for which `found` yields a
    /// result. Async-signal-safe if that is; preserves `errno`.
    pub fn first<T>(
        &self,
        build_id: &[u8],
        ending: &[u8],
        found: impl FnMut(&TrustedFile) -> Option<T>,
    ) -> Option<T> {
        let name = name(build_id, ending)?;
        files::keeping_errno(|| self.first_named(name.terminated()?, found))
    }

    fn first_named<T>(
        &self,
        name: &CStr,
        mut found: impl FnMut(&TrustedFile) -> Option<T>,
    ) -> Option<T> {
        let mut in_folder = |folder: &CStr| {
            let file = TrustedFile::open(folder, name)?;
            Some((found(&file)?, file))
        };
        let in_path = self.path.ended().find_map(&mut in_folder);
        in_path
            .or_else(|| {
                let in_cache = self.cache.ended().find_map(&mut in_folder);
                in_cache.inspect(|(_, file)| file.note_use())
            })
            .or_else(|| in_folder(SYSTEM))
            .map(|(found, _)| found)
    }
}

/// The name of a module's file; `None` without a build ID.
fn name(build_id: &[u8], ending: &[u8]) -> Option<FixedName> {
    let mut name = FixedName::new();
    name.push_hex(build_id)?;
    name.push(ending)?;
    (!build_id.is_empty()).then_some(name)
}

/// The parts between colons, each followed by a zero byte.
fn each_ended(path: &[u8]) -> Option<FixedPath> {
    let mut ended = FixedPath::new();
    let folders = path.split(|byte| *byte == b':');
    for folder in folders.filter(|folder| !folder.is_empty()) {
        ended.push(folder)?;
        ended.push(b"\0")?;
    }
    Some(ended)
}

/// The path of the cache.
fn cache(cache_home: &[u8], home: &[u8]) -> Option<FixedPath> {
    let [folder, below] = match (cache_home, home) {
        ([b'/', ..], _) => [cache_home, b"/unspool\0"],
        (_, [b'/', ..]) => [home, b"/.cache/unspool\0"],
        _ => return None,
    };
    let mut cache = FixedPath::new();
    cache.push(folder)?;
    cache.push(below)?;
    Some(cache)
}

impl TrustedFile {
    fn open(folder: &CStr, name: &CStr) -> Option<TrustedFile> {
        // Both are checked after they are opened. So the checks apply to this folder, which
        // contains the file, and to the file that is read, whatever happens to their names.
        let folder = RawFile::open_folder(folder)?;
        folder.status().filter(is_trusted)?;
        let file = folder.open_in(name)?;
        let about = file.status()?;
        let size = about.size;
        (about.is_regular && is_trusted(&about)).then_some(TrustedFile { file, size })
    }

    /// The file, mapped.
    #[must_use]
    pub fn map(&self) -> Option<FileMapping> {
        self.file.map(self.size)
    }

    /// The file, read into memory: later changes to the file have no effect.
    #[must_use]
    pub fn copy(&self) -> Option<FileMapping> {
        self.file.copy(self.size)
    }

    /// Notes that a table was used, in its modification time: the cache uses that to decide which
    /// tables to remove.
    fn note_use(&self) {
        let is_recent = self.file.status().is_some_and(|about| {
            files::now().saturating_sub(about.modified) < USE_RESOLUTION_SECONDS
        });
        if !is_recent {
            self.file.touch();
        }
    }
}

/// Whether nobody else could have written it.
fn is_trusted(status: &FileStatus) -> bool {
    (status.owner == 0 || status.owner == files::effective_user()) && status.mode & 0o022 == 0
}

/// Text in memory of fixed size.
#[derive(Debug, Clone, Copy)]
pub struct FixedText<const BYTES: usize> {
    bytes: [u8; BYTES],
    length: usize,
}

/// A path. The kernel's limit is `PATH_MAX`, including the zero byte.
pub type FixedPath = FixedText<4096>;

/// The name of a module's file: up to 32 bytes of its build ID, and an ending.
type FixedName = FixedText<96>;

impl<const BYTES: usize> FixedText<BYTES> {
    /// The limit in bytes.
    pub const MAX_BYTES: usize = BYTES;

    /// Empty text.
    #[must_use]
    pub const fn new() -> Self {
        FixedText {
            bytes: [0; BYTES],
            length: 0,
        }
    }

    /// Adds a part; `None` if there is no room.
    pub fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.length.checked_add(part.len())?;
        self.bytes.get_mut(self.length..end)?.copy_from_slice(part);
        self.length = end;
        Some(())
    }

    fn push_hex(&mut self, bytes: &[u8]) -> Option<()> {
        let digit = |value: u8| b"0123456789abcdef".get(usize::from(value)).copied();
        bytes
            .iter()
            .try_for_each(|byte| self.push(&[digit(byte >> 4)?, digit(byte & 15)?]))
    }

    /// The pushed parts, which end with zero bytes.
    fn ended(&self) -> impl Iterator<Item = &CStr> {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        let ended = bytes.split_inclusive(|byte| *byte == 0);
        ended.filter_map(|text| CStr::from_bytes_with_nul(text).ok())
    }

    /// With a final zero byte, for the kernel.
    #[must_use]
    pub fn terminated(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.length)?).ok()
    }
}

impl<const BYTES: usize> Default for FixedText<BYTES> {
    fn default() -> Self {
        FixedText::new()
    }
}
