//! The public headers of a library: what they declare is its interface.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use unspool_c_types::{ExportName, HeaderNames};

use crate::declared_types::normalized;

/// The maximum size of a header, in bytes.
const MAX_HEADER_BYTES: u64 = 64 << 20;

/// The ends of the names of headers in C and C++. Those of the C++ library have none.
const HEADER_EXTENSIONS: [&str; 11] = [
    "h", "H", "hh", "hp", "hpp", "hxx", "h++", "inc", "inl", "ipp", "tcc",
];

/// The public headers of a library.
#[derive(Debug, Clone, Default)]
pub struct PublicHeaders {
    /// Where they were searched.
    searched: Vec<PathBuf>,
    /// Their paths, as found and without symbolic links.
    paths: HashSet<PathBuf>,
    file_names: HashSet<OsString>,
    names: HeaderNames,
}

/// Why headers are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// A header or a folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There are none.
    #[error("{} has no headers (files named *.h, *.hh, *.hpp, *.hxx, *.inl and the like)", path.display())]
    None {
        /// The folder.
        path: PathBuf,
    },
}

impl PublicHeaders {
    /// Reads headers: files, and all those below folders.
    ///
    /// # Errors
    ///
    /// A file or folder cannot be read, or a folder has no header.
    pub fn read(paths: &[PathBuf]) -> Result<PublicHeaders, HeadersError> {
        let mut headers = PublicHeaders {
            searched: paths.to_vec(),
            ..PublicHeaders::default()
        };
        for path in paths {
            let failed = |source| HeadersError::Io {
                path: path.clone(),
                source,
            };
            let before = headers.paths.len();
            if fs::metadata(path).map_err(failed)?.is_dir() {
                headers.add_folder(path)?;
            } else {
                headers.add(path)?;
            }
            if headers.paths.len() == before {
                return Err(HeadersError::None { path: path.clone() });
            }
        }
        Ok(headers)
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), HeadersError> {
        let mut open = vec![folder.to_owned()];
        // A symbolic link can lead to a folder that contains it.
        let mut visited = HashSet::new();
        while let Some(folder) = open.pop() {
            let failed = |source| HeadersError::Io {
                path: folder.clone(),
                source,
            };
            if !visited.insert(fs::canonicalize(&folder).map_err(failed)?) {
                continue;
            }
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                // A link to nothing is not a header.
                match fs::metadata(&path) {
                    Ok(metadata) if metadata.is_dir() => open.push(path),
                    Ok(metadata) if metadata.is_file() && is_header(&path) => self.add(&path)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path) -> Result<(), HeadersError> {
        let failed = |source| HeadersError::Io {
            path: path.to_owned(),
            source,
        };
        let text = unspool_files::read(path, MAX_HEADER_BYTES).map_err(failed)?;
        self.names.add(&String::from_utf8_lossy(&text));
        self.paths.insert(fs::canonicalize(path).map_err(failed)?);
        let absolute = std::path::absolute(path).map_err(failed)?;
        self.paths.insert(normalized(&absolute));
        self.file_names
            .extend(path.file_name().map(OsStr::to_owned));
        Ok(())
    }

    /// Whether they have the name of an exported function or of data.
    #[must_use]
    pub fn declares(&self, export: &ExportName) -> bool {
        self.names.declares(&export.name)
    }

    /// Which of the files that declare a program's types are among them. A file is, if it has the
    /// path of a header. If none with its name has, each file with the name of a header is: they may
    /// have been copied from where the program was built.
    pub(crate) fn among<'f>(&self, files: HashSet<&'f Path>) -> HashSet<&'f Path> {
        let (exact, others): (Vec<&Path>, Vec<&Path>) = files
            .into_iter()
            .partition(|file| self.paths.contains(*file));
        let certain: HashSet<&OsStr> = exact.iter().filter_map(|file| file.file_name()).collect();
        let has_name = |file: &&Path| {
            let name = file.file_name();
            name.is_some_and(|name| self.file_names.contains(name) && !certain.contains(name))
        };
        let copied = others.into_iter().filter(has_name);
        exact.iter().copied().chain(copied).collect()
    }
}

/// Where headers were searched: for messages.
impl fmt::Display for PublicHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, path) in self.searched.iter().enumerate() {
            let separator = if nth == 0 { "" } else { ", " };
            write!(f, "{separator}{}", path.display())?;
        }
        Ok(())
    }
}

fn is_header(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_none_or(|own| HEADER_EXTENSIONS.iter().any(|known| own == *known))
}
