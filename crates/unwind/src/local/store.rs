//! Where the files of modules are found that tables are kept in: what `unspool_unwind::tables::Store` does, without an
//! allocator, for modules that have a build ID.
//!
//! In order: the folders of `UNSPOOL_TABLE_PATH`; the user's cache (`$XDG_CACHE_HOME/unspool`, else
//! `~/.cache/unspool`); and `/usr/lib/unspool/tables`. A file, and the folder that it is in, must belong to the user or
//! root and be writable by nobody else. In a setuid program the environment is ignored.

use core::ffi::CStr;
use core::fmt;

use super::sys::files::{self, About, File};
use super::sys::variable;

pub use super::sys::files::Mapping;

/// The folder of packaged tables.
const SYSTEM: &[u8] = b"/usr/lib/unspool/tables";

/// How exactly it is noted when a table was used last, in seconds.
const USE_NOTED: i64 = 24 * 60 * 60;

/// The folders, as the environment names them.
#[derive(Debug)]
pub struct Folders {
    /// Those of `UNSPOOL_TABLE_PATH`, as it has them.
    path: Path,
    /// The cache, or nothing.
    cache: Path,
}

/// A file that nobody but the user or root could have written, in a folder to which that applies, too.
pub struct TrustedFile {
    file: File,
    size: usize,
}

impl fmt::Debug for TrustedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedFile").finish_non_exhaustive()
    }
}

impl Folders {
    /// Those that the environment names now, of `UNSPOOL_TABLE_PATH` up to 4 KiB. Not async-signal-safe.
    #[must_use]
    pub fn of_environment() -> Folders {
        let variable = |name| variable(name).unwrap_or_default();
        let mut path = Path::new();
        // More than that counts for nothing.
        let _ = path.push(variable(c"UNSPOOL_TABLE_PATH"));
        let cache = cache(variable(c"XDG_CACHE_HOME"), variable(c"HOME"));
        Folders {
            path,
            cache: cache.unwrap_or_default(),
        }
    }

    /// The first of a module's files, by the ending of their name, that can be trusted and of which `found` makes
    /// something. Async-signal-safe as far as that is.
    pub fn first<T>(
        &self,
        build_id: &[u8],
        ending: &[u8],
        mut found: impl FnMut(&TrustedFile) -> Option<T>,
    ) -> Option<T> {
        if build_id.is_empty() {
            return None;
        }
        let mut in_folder = |folder: &[u8]| {
            let file = TrustedFile::open(folder, build_id, ending)?;
            Some((found(&file)?, file))
        };
        let path = self.path.bytes().split(|byte| *byte == b':');
        let mut path = path.filter(|folder| !folder.is_empty());
        let in_path = path.find_map(&mut in_folder);
        in_path
            .or_else(|| {
                let cache = Some(self.cache.bytes()).filter(|cache| !cache.is_empty())?;
                in_folder(cache).inspect(|(_, file)| file.note_use())
            })
            .or_else(|| in_folder(SYSTEM))
            .map(|(found, _)| found)
    }
}

/// The path of the cache.
fn cache(cache_home: &[u8], home: &[u8]) -> Option<Path> {
    let [folder, below] = match (cache_home, home) {
        ([b'/', ..], _) => [cache_home, b"/unspool"],
        (_, [b'/', ..]) => [home, b"/.cache/unspool"],
        _ => return None,
    };
    let mut cache = Path::new();
    cache.push(folder)?;
    cache.push(below)?;
    Some(cache)
}

impl TrustedFile {
    fn open(folder: &[u8], build_id: &[u8], ending: &[u8]) -> Option<TrustedFile> {
        let mut path = Path::new();
        path.push(folder)?;
        // What is in a folder, its own `.` too, is out of reach for those who may not look into it.
        path.push(b"/.")?;
        files::about(path.terminated()?).filter(is_trusted)?;
        let mut path = Path::new();
        path.push(folder)?;
        path.push(b"/")?;
        path.push_hex(build_id)?;
        path.push(ending)?;
        let file = File::open(path.terminated()?)?;
        // Of the file that is open, so that it is the one that is read.
        let about = file.about()?;
        let size = about.size;
        (about.is_regular && is_trusted(&about)).then_some(TrustedFile { file, size })
    }

    /// The file, mapped.
    #[must_use]
    pub fn map(&self) -> Option<Mapping> {
        self.file.map(self.size)
    }

    /// The file, read into memory: who changes it later changes nothing there.
    #[must_use]
    pub fn copy(&self) -> Option<Mapping> {
        self.file.copy(self.size)
    }

    /// Notes that a table was used, in the time of its last modification: by it the cache decides which
    /// tables to remove.
    fn note_use(&self) {
        let is_recent = self
            .file
            .about()
            .is_some_and(|about| files::now().saturating_sub(about.modified) < USE_NOTED);
        if !is_recent {
            self.file.touch();
        }
    }
}

/// Whether nobody else could have written it.
fn is_trusted(about: &About) -> bool {
    (about.owner == 0 || about.owner == files::effective_user()) && about.mode & 0o022 == 0
}

/// A path in memory of fixed size.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    bytes: [u8; Path::MOST],
    length: usize,
}

impl Path {
    /// The kernel takes no longer one (`PATH_MAX`), the zero byte included.
    pub const MOST: usize = 4096;

    /// None.
    #[must_use]
    pub const fn new() -> Path {
        Path {
            bytes: [0; Path::MOST],
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

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// With a zero byte at its end, as the kernel takes it.
    #[must_use]
    pub fn terminated(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(self.bytes.get(..=self.length)?).ok()
    }
}

impl Default for Path {
    fn default() -> Self {
        Path::new()
    }
}
