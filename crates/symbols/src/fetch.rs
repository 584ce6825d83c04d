//! Files from elsewhere.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unspool_elf::BuildId;
use unspool_files::CacheError;

use crate::symbolizer::LookupEvent;

/// Fetches files by build ID.
pub trait Fetch: Debug + Send + Sync {
    /// The path of a file, after a download if necessary; `None` if no source has it. `report`
    /// receives the progress of the download.
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

    /// The same for a source file of the build, by its path in debug information: an absolute one.
    ///
    /// # Errors
    ///
    /// As for [`Fetch::get`].
    fn source(
        &self,
        _id: BuildId,
        _path: &str,
        _report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<Option<PathBuf>, DownloadError> {
        Ok(None)
    }
}

/// A kind of file on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Artifact {
    /// The debug information stripped from a file.
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

/// Why a file could not be downloaded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// The server cannot be reached, or the connection breaks. It is not asked again.
    #[error("{url}: {reason}")]
    Server {
        /// The requested URL.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The server responds with an error.
    #[error("{url}: the server answers {status}")]
    Status {
        /// The requested URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The server sends less than 100 KiB within the timeout (`DEBUGINFOD_TIMEOUT`), or exceeds the
    /// total time (`DEBUGINFOD_MAXTIME`). It is not asked again.
    #[error("{url}: given up after {} s: too slow (DEBUGINFOD_TIMEOUT, DEBUGINFOD_MAXTIME)", after.as_secs())]
    TooSlow {
        /// The requested URL.
        url: String,
        /// The time spent.
        after: Duration,
    },
    /// The file exceeds the limit (`DEBUGINFOD_MAXSIZE`).
    #[error("{url}: more than {limit} bytes (DEBUGINFOD_MAXSIZE)")]
    TooLarge {
        /// The requested URL.
        url: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The received file is not a complete ELF file, is of another build, or is not text.
    #[error("{url}: {reason}")]
    WrongFile {
        /// The requested URL.
        url: String,
        /// The problem.
        reason: String,
    },
    /// The cache cannot be trusted or written.
    #[error(transparent)]
    Cache(Arc<CacheError>),
}

impl From<CacheError> for DownloadError {
    fn from(error: CacheError) -> Self {
        DownloadError::Cache(Arc::new(error))
    }
}
