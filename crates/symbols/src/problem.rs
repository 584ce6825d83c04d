//! What is in the way of the names of a module.

use std::path::PathBuf;

use unspool_elf::{BuildId, ModuleError};

use crate::fetch::DownloadError;

/// What is in the way of some or all names of one module. Each is said once for a module, however
/// many addresses it concerns.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolProblem {
    /// No file could be used: what was tried is told by other problems.
    #[error("{}: no file with its symbols was found{}", path.display(), wanted(build_id.as_deref()))]
    NotFound {
        /// The path that the process knew.
        path: PathBuf,
        /// The build ID that a file must have.
        build_id: Option<Box<BuildId>>,
    },
    /// A file is there, and of another build than what the process had mapped. It is not used.
    #[error("{}: it has {}, but build ID {expected} was mapped; it is not used", file.display(), found_id(found.as_deref()))]
    OtherBuild {
        /// The file.
        file: PathBuf,
        /// The build ID of what was mapped.
        expected: Box<BuildId>,
        /// That of the file, if it has one.
        found: Option<Box<BuildId>>,
    },
    /// A file is there, and is not what the process had mapped, which has no build ID: its hash is another. It
    /// is not used.
    #[error("{}: it was changed since it was mapped; it is not used", file.display())]
    OtherFile {
        /// The file.
        file: PathBuf,
    },
    /// A file cannot be read, or a debug file is not the module's.
    #[error(transparent)]
    File(ModuleError),
    /// A file could not be had from a server.
    #[error(transparent)]
    Download(DownloadError),
    /// The file was stripped of its symbol table, and that is nowhere else: what other modules may call
    /// has names, at best.
    #[error("{}: it is stripped, and its debug file was not found{}; {unnamed} of {addresses} addresses have no name", file.display(), wanted(build_id.as_deref()))]
    Stripped {
        /// The file.
        file: PathBuf,
        /// Its build ID.
        build_id: Option<Box<BuildId>>,
        /// How many addresses have no name.
        unnamed: usize,
        /// Of how many.
        addresses: usize,
    },
    /// A symbol table cannot be read.
    #[error(transparent)]
    SymbolTable(ModuleError),
    /// Debug information cannot be read. The addresses concerned have the names of symbols.
    #[error("{error} ({addresses} addresses without lines)")]
    DebugInfo {
        /// The first error.
        error: ModuleError,
        /// How many addresses have no lines for such a reason.
        addresses: usize,
    },
    /// The debug information of a compilation unit, in a file of its own (`.dwo`), cannot be read.
    #[error(transparent)]
    SplitDwarf(ModuleError),
}

fn wanted(id: Option<&BuildId>) -> String {
    id.map_or_else(String::new, |id| format!(" (build ID {id})"))
}

fn found_id(id: Option<&BuildId>) -> String {
    id.map_or_else(|| "no build ID".into(), |id| format!("build ID {id}"))
}
