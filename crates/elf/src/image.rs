//! The bytes of a file: mapped, read, or passed in.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use unspool_files::{FileMap, FileOrigin, FileState};

use crate::error::ModuleError;

/// The bytes of one file, shared by all that keep offsets into it.
#[derive(Debug)]
pub(crate) enum ImageBytes {
    File(FileMap),
    Shared(Arc<[u8]>),
}

impl ImageBytes {
    /// Whether nobody can change the bytes: they are in this process's own memory.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            ImageBytes::File(map) => !map.is_mapped(),
            ImageBytes::Shared(_) => true,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            ImageBytes::File(map) => map,
            ImageBytes::Shared(bytes) => bytes,
        }
    }

    /// Opens a regular file.
    pub(crate) fn open(path: &Path) -> Result<(ImageBytes, FileOrigin), ModuleError> {
        let file = unspool_files::open(path).map_err(|error| io_error(path, error))?;
        ImageBytes::from_file(&file, path)
    }

    /// The bytes of a regular file that is open; `path` stands for it in errors.
    pub(crate) fn from_file(
        file: &File,
        path: &Path,
    ) -> Result<(ImageBytes, FileOrigin), ModuleError> {
        let opened = || {
            // This precedes reading the file, so any later write gets another time.
            let origin = FileOrigin::new(file)?;
            io::Result::Ok((ImageBytes::File(FileMap::new(file)?), origin))
        };
        opened().map_err(|error| io_error(path, error))
    }

    /// Checks that the bytes read so far are those that the file had when it was opened, by its
    /// state. Bytes in this process's own memory always are.
    pub(crate) fn check(&self, path: &Path, state: Option<FileState>) -> Result<(), ModuleError> {
        let map = match self {
            ImageBytes::File(map) if map.is_mapped() => map,
            _ => return Ok(()),
        };
        let now = unspool_files::metadata(path).map(|metadata| FileState::new(&metadata));
        // The path can lead to another file by now; that does not matter.
        let is_written = |now: FileState, state: FileState| now.id == state.id && now != state;
        let is_written = matches!((now, state), (Ok(now), Some(state)) if is_written(now, state));
        if map.check_intact().is_err() || is_written {
            Err(ModuleError::Changed {
                file: path.to_path_buf(),
            })
        } else {
            Ok(())
        }
    }
}

impl From<Vec<u8>> for ImageBytes {
    fn from(bytes: Vec<u8>) -> ImageBytes {
        ImageBytes::File(bytes.into())
    }
}

fn io_error(path: &Path, source: io::Error) -> ModuleError {
    let file = path.to_path_buf();
    let what = source.get_ref().and_then(|inner| inner.downcast_ref());
    match what {
        Some(what) => ModuleError::NotRegular { file, what: *what },
        None => ModuleError::Io {
            file,
            source: Arc::new(source),
        },
    }
}
