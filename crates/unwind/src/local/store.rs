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

use unspool_files::environment::{PACKAGED_TABLES, cache_home, variable_bytes};
use unspool_files::raw::{RawFile, keeping_errno};

/// The folders of the environment, each followed by a zero byte.
#[derive(Debug)]
pub struct TableFolders {
    /// Those of `UNSPOOL_TABLE_PATH`.
    path: FixedPath,
    /// The cache, or nothing.
    cache: FixedPath,
}

impl TableFolders {
    /// The folders of the present environment, `UNSPOOL_TABLE_PATH` up to 4 KiB. Not
    /// async-signal-safe.
    #[must_use]
    pub fn from_environment() -> TableFolders {
        let variable = |name| variable_bytes(name).unwrap_or_default();
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
        found: impl FnMut(&RawFile) -> Option<T>,
    ) -> Option<T> {
        let name = name(build_id, ending)?;
        keeping_errno(|| self.first_named(name.terminated()?, found))
    }

    fn first_named<T>(
        &self,
        name: &CStr,
        mut found: impl FnMut(&RawFile) -> Option<T>,
    ) -> Option<T> {
        let mut in_folder = |folder: &CStr| {
            let file = RawFile::open_trusted(folder, name)?;
            Some((found(&file)?, file))
        };
        let in_path = self.path.ended().find_map(&mut in_folder);
        in_path
            .or_else(|| {
                let in_cache = self.cache.ended().find_map(&mut in_folder);
                in_cache.inspect(|(_, file)| file.note_use())
            })
            .or_else(|| in_folder(PACKAGED_TABLES))
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
fn cache(home_of_caches: &[u8], home: &[u8]) -> Option<FixedPath> {
    let mut cache = FixedPath::new();
    for part in cache_home(home_of_caches, home)? {
        cache.push(part)?;
    }
    cache.push(b"/unspool\0")?;
    Some(cache)
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
