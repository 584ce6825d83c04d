//! Files that somebody else has.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use unspool_elf::BuildId;

use crate::symbolizer::LookupEvent;

/// Fetches files by build ID.
pub trait Fetch: Debug + Send + Sync {
    /// Where a file is, after it was fetched if need be; `None` if nobody has it. `report` is told how far
    /// the download is.
    ///
    /// # Errors
    ///
    /// [`DownloadError`]: what kept it from being fetched, although somebody may have it.
    fn get(
        &self,
        id: BuildId,
        artifact: Artifact,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError>;
}

/// What a server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Artifact {
    /// What was stripped from a file.
    DebugInfo,
    /// The file itself.
    Executable,
}

impl Artifact {
    /// Its name in URLs and in the cache.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Artifact::DebugInfo => "debuginfo",
            Artifact::Executable => "executable",
        }
    }
}

/// Why a file could not be had from a server.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The server cannot be reached, or breaks off. It is not asked again.
    #[error("{url}: {why}")]
    Server {
        /// What was asked for.
        url: String,
        /// What happened.
        why: String,
    },
    /// The server answers with an error.
    #[error("{url}: the server answers {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The server sends less than 100 KiB within the time allowed (`DEBUGINFOD_TIMEOUT`), or takes longer
    /// for all than allowed (`DEBUGINFOD_MAXTIME`). It is not asked again.
    #[error("{url}: given up after {} s: too slow (DEBUGINFOD_TIMEOUT, DEBUGINFOD_MAXTIME)", after.as_secs())]
    TooSlow {
        /// What was asked for.
        url: String,
        /// How long it took.
        after: Duration,
    },
    /// The file is larger than allowed (`DEBUGINFOD_MAXSIZE`).
    #[error("{url}: more than {limit} bytes (DEBUGINFOD_MAXSIZE)")]
    TooLarge {
        /// What was asked for.
        url: String,
        /// What is allowed, in bytes.
        limit: u64,
    },
    /// What the server sent is no whole ELF file, or one of another build.
    #[error("{url}: {why}")]
    WrongFile {
        /// What was asked for.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The cache cannot be written.
    #[error("{}: {why}", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
}
