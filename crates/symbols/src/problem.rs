//! Problems in looking up the names of a module.

use std::path::PathBuf;

use unspool_elf::{BuildId, ModuleError};

use crate::fetch::DownloadError;

/// A problem with some or all names of one module. Each is reported once for a module, however many
/// addresses it concerns.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolProblem {
    /// No file could be used: other problems report the attempts.
    #[error("{}: no file with its symbols was found{}", path.display(), wanted(build_id.as_deref()))]
    NotFound {
        /// The path in the process.
        path: PathBuf,
        /// The build ID that a file must have.
        build_id: Option<Box<BuildId>>,
    },
    /// A file exists, but of another build than the process had mapped. It is not used.
    #[error("{}: it has {}, but build ID {expected} was mapped; it is not used", file.display(), found_id(found.as_deref()))]
    OtherBuild {
        /// The file.
        file: PathBuf,
        /// The build ID of the mapped file.
        expected: Box<BuildId>,
        /// The build ID of this file, if it has one.
        found: Option<Box<BuildId>>,
    },
    /// A file exists, but has another hash than the mapped one, which has no build ID. It is not
    /// used.
    #[error("{}: it was changed since it was mapped; it is not used", file.display())]
    OtherFile {
        /// The file.
        file: PathBuf,
    },
    /// A file cannot be read, or a debug file is not the module's.
    #[error(transparent)]
    File(ModuleError),
    /// A file could not be downloaded.
    #[error(transparent)]
    Download(DownloadError),
    /// The file's symbol table was stripped, and is nowhere else: only its dynamic symbols may have
    /// names.
    #[error("{}: it is stripped, and its debug file was not found{}; {unnamed} of {addresses} addresses have no name", file.display(), wanted(build_id.as_deref()))]
    Stripped {
        /// The file.
        file: PathBuf,
        /// Its build ID.
        build_id: Option<Box<BuildId>>,
        /// The number of addresses without a name.
        unnamed: usize,
        /// The number of all its addresses.
        addresses: usize,
    },
    /// A symbol table cannot be read.
    #[error(transparent)]
    SymbolTable(ModuleError),
    /// Debug information cannot be read. The addresses concerned have names from symbols.
    #[error("{error} ({addresses} addresses without lines)")]
    DebugInfo {
        /// The first error.
        error: ModuleError,
        /// The number of addresses without lines for that reason.
        addresses: usize,
    },
    /// The split debug information of a compilation unit (`.dwo`) cannot be read.
    #[error(transparent)]
    SplitDwarf(ModuleError),
}

fn wanted(id: Option<&BuildId>) -> String {
    id.map_or_else(String::new, |id| format!(" (build ID {id})"))
}

fn found_id(id: Option<&BuildId>) -> String {
    id.map_or_else(|| "no build ID".into(), |id| format!("build ID {id}"))
}
