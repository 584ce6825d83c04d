//! The text of source files, by their paths in debug information.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_files::FileOrigin;

use crate::debuginfod::Debuginfod;
use crate::fetch::{DownloadError, Fetch};
use crate::symbolizer::LookupEvent;

/// The size of the largest source file that is read, in bytes.
const MAX_SOURCE_BYTES: u64 = 8 << 20;

/// The ends of names of source files. Debug information can name any file: one that is a key or a
/// list of passwords has another name.
const SUFFIXES: [&str; 44] = [
    "S", "ada", "adb", "ads", "asm", "c", "c++", "cc", "cpp", "cppm", "cu", "cxx", "d", "def", "f",
    "f90", "go", "h", "h++", "hh", "hpp", "hxx", "inc", "inl", "ipp", "java", "js", "kt", "l", "m",
    "mjs", "ml", "mm", "nim", "py", "pyx", "rs", "s", "swift", "tcc", "ts", "vala", "y", "zig",
];

/// A folder of source files that is elsewhere now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathMapping {
    /// The folder, or the file, in debug information.
    pub from: PathBuf,
    /// Where it is now.
    pub to: PathBuf,
}

/// Finds source files.
#[derive(Debug, Clone, Default)]
pub struct SourceFinder {
    mappings: Vec<PathMapping>,
    fetch: Option<Arc<dyn Fetch>>,
}

/// A source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    /// The file that was read.
    pub path: PathBuf,
    /// Its text. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Whether it was changed after the program was built.
    pub is_newer: bool,
}

/// Why a source file is not shown.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NoSource {
    /// It is not there.
    #[error("{}: not found: --source-map FROM=TO says where it is now", .0.display())]
    NotFound(PathBuf),
    /// Its name does not end as those of source files do.
    #[error("{}: it is not shown: its name is not one of a source file", .0.display())]
    Name(PathBuf),
    /// The program that names it may be another user's, who does not own it.
    #[error("{}: it is not shown: the program that names it is another user's", .0.display())]
    Untrusted(PathBuf),
    /// It cannot be read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// It could not be downloaded.
    #[error(transparent)]
    Download(DownloadError),
}

impl SourceFinder {
    /// Looks in these folders first; the most specific mapping counts.
    #[must_use]
    pub fn new(mut mappings: Vec<PathMapping>) -> SourceFinder {
        mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.from.components().count()));
        SourceFinder {
            mappings,
            fetch: None,
        }
    }

    /// Asks debuginfod's servers for files that are not here, if the environment names some.
    #[must_use]
    pub fn with_servers_from_environment(self) -> SourceFinder {
        let servers = Debuginfod::from_environment();
        SourceFinder {
            fetch: servers.map(|servers| Arc::new(servers) as Arc<dyn Fetch>),
            ..self
        }
    }

    /// Fetches files that are not here.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn Fetch>) -> SourceFinder {
        SourceFinder {
            fetch: Some(fetch),
            ..self
        }
    }

    /// Reads the source file that a program's debug information names: where the mappings say, at
    /// its path, or from a server. `report` receives the progress of a download. If the program is
    /// not here, only the mappings count.
    ///
    /// # Errors
    ///
    /// [`NoSource`]: why none is shown.
    pub fn read(
        &self,
        name: &Path,
        program: Option<&ElfFile>,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<SourceText, NoSource> {
        if !has_source_name(name) {
            return Err(NoSource::Name(name.to_path_buf()));
        }
        if let Some(mapped) = self.mapped(name) {
            let file = open(&mapped)?;
            // Whoever gave the mapping wants to see it.
            let file = file.ok_or_else(|| NoSource::NotFound(mapped.clone()))?;
            return text(mapped, &file, program);
        }
        let Some(program) = program else {
            return Err(NoSource::NotFound(name.to_path_buf()));
        };
        if let Some(file) = name
            .is_absolute()
            .then(|| open(name))
            .transpose()?
            .flatten()
        {
            let unreadable = |error: io::Error| NoSource::unreadable(name, &error);
            if !program.may_show(&FileOrigin::new(&file).map_err(unreadable)?) {
                return Err(NoSource::Untrusted(name.to_path_buf()));
            }
            return text(name.to_path_buf(), &file, Some(program));
        }
        match self
            .fetched(name, program, report)
            .map_err(NoSource::Download)?
        {
            Some(path) => {
                let file = open(&path)?.ok_or_else(|| NoSource::NotFound(path.clone()))?;
                text(path, &file, None)
            }
            None => Err(NoSource::NotFound(name.to_path_buf())),
        }
    }

    /// The path by the most specific mapping.
    fn mapped(&self, name: &Path) -> Option<PathBuf> {
        self.mappings.iter().find_map(|mapping| {
            let rest = name.strip_prefix(&mapping.from).ok()?;
            Some(if rest.as_os_str().is_empty() {
                mapping.to.clone()
            } else {
                mapping.to.join(rest)
            })
        })
    }

    fn fetched(
        &self,
        name: &Path,
        program: &ElfFile,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        let fetch = self
            .fetch
            .as_ref()
            .zip(program.build_id())
            .zip(name.to_str());
        fetch.map_or(Ok(None), |((fetch, id), name)| {
            fetch.source(id, name, report)
        })
    }
}

fn has_source_name(name: &Path) -> bool {
    let suffix = name.extension().and_then(|suffix| suffix.to_str());
    let suffix = suffix.map(|suffix| (suffix, suffix.to_ascii_lowercase()));
    suffix.is_some_and(|(as_is, lower)| {
        SUFFIXES.contains(&as_is) || SUFFIXES.contains(&lower.as_str())
    })
}

/// Opens a file; `None` if it is missing.
fn open(path: &Path) -> Result<Option<File>, NoSource> {
    match unspool_files::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(NoSource::unreadable(path, &error)),
        },
    }
}

fn text(path: PathBuf, file: &File, program: Option<&ElfFile>) -> Result<SourceText, NoSource> {
    let unreadable = |error: io::Error| NoSource::unreadable(&path, &error);
    let text = read_text(file).map_err(unreadable)?;
    let state = FileOrigin::new(file).map_err(unreadable)?.state;
    let built = program
        .and_then(ElfFile::state)
        .map(|program| program.modified);
    Ok(SourceText {
        is_newer: built.is_some_and(|built| state.modified > built),
        text,
        path,
    })
}

/// The text of a file.
///
/// # Errors
///
/// The system's error, or that it is too large, or not text.
pub(crate) fn read_text(mut file: &File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SOURCE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a text"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl NoSource {
    fn unreadable(path: &Path, error: &io::Error) -> NoSource {
        NoSource::Unreadable {
            path: path.to_path_buf(),
            reason: error.to_string(),
        }
    }
}
