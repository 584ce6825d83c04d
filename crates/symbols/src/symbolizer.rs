//! The work: modules side by side, and parts of big ones.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, Preference, Signature};

use crate::cache::{NameCache, Place};
use crate::fetch::DownloadError;
use crate::finder::{Finder, Identity};
use crate::names::Names;
use crate::parallel;
use crate::problem::Problem;
use crate::work::{WORTH_A_THREAD, Work};

/// What is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// Function names only, from symbol tables.
    Functions,
    /// Source lines and inlined functions too, where there is debug information.
    #[default]
    Lines,
}

/// A module whose addresses have names.
#[derive(Debug, Clone)]
pub enum Module {
    /// Its file has to be found.
    Named(Identity),
    /// Its file is open.
    Open {
        /// The file.
        file: Arc<ElfFile>,
        /// As in [`Identity::root`]: where debug files are looked for first.
        root: Option<PathBuf>,
    },
}

/// What names are asked for in one module.
#[derive(Debug, Clone)]
pub struct Request {
    /// The module.
    pub module: Module,
    /// Addresses of instructions, as linked, in any order: for a return address, of the call before
    /// it.
    pub addresses: Vec<Vaddr>,
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// So many addresses have been looked up.
    Addresses {
        /// So many have.
        done: usize,
        /// Of so many, of all modules.
        all: usize,
    },
    /// A file is being downloaded.
    Download {
        /// From where.
        url: &'a str,
        /// So many bytes are there.
        bytes: u64,
        /// Of so many, if the server says so.
        all: Option<u64>,
    },
}

/// Looks up the names of addresses.
#[derive(Debug, Clone)]
pub struct Symbolizer {
    finder: Finder,
    pub(crate) detail: Detail,
    pub(crate) signature: Signature,
    pub(crate) preference: Preference,
    threads: usize,
    cache: Option<NameCache>,
}

/// How far the work is, for all its threads.
pub(crate) struct Progress<'a> {
    pub(crate) report: &'a (dyn Fn(Event<'_>) + Sync),
    done: AtomicUsize,
    all: usize,
}

impl Progress<'_> {
    pub(crate) fn advance(&self, addresses: usize) {
        let before = self.done.fetch_add(addresses, Ordering::Relaxed);
        (self.report)(Event::Addresses {
            done: before + addresses,
            all: self.all,
        });
    }
}

impl Symbolizer {
    /// Finds files with `finder`, and uses as many threads as there are processors.
    #[must_use]
    pub fn new(finder: Finder, detail: Detail) -> Self {
        Symbolizer {
            finder,
            detail,
            signature: Signature::default(),
            preference: Preference::default(),
            threads: thread::available_parallelism().map_or(1, NonZero::get),
            cache: None,
        }
    }

    /// Keeps the lines and inlined functions of modules for the next time, and takes those that were kept.
    /// Nothing is kept of a module with a [`Problem`], or whose files somebody else can write to.
    #[must_use]
    pub fn with_cache(self, cache: Option<NameCache>) -> Self {
        Symbolizer { cache, ..self }
    }

    /// Names C++ functions with so much of their signatures. Only names with all of it are kept for the
    /// next time.
    #[must_use]
    pub fn with_signature(self, signature: Signature) -> Self {
        Symbolizer { signature, ..self }
    }

    /// Prefers other symbols where several name an address. Their names are not kept for the next time.
    #[must_use]
    pub fn with_preference(self, preference: Preference) -> Self {
        Symbolizer { preference, ..self }
    }

    /// Uses at most so many threads, the calling one included.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Symbolizer { threads, ..self }
    }

    /// Looks up all that is asked for. The result has the modules in the order of the requests, and
    /// nothing has to be asked in it twice.
    #[must_use]
    pub fn look_up(&self, requests: Vec<Request>) -> Names {
        self.look_up_with(requests, &|_| {})
    }

    /// As [`Symbolizer::look_up`]; `report` is told how far the work is, by several threads.
    #[must_use]
    pub fn look_up_with(
        &self,
        requests: Vec<Request>,
        report: &(dyn Fn(Event<'_>) + Sync),
    ) -> Names {
        let all = requests.iter().map(|request| request.addresses.len()).sum();
        let progress = Progress {
            report,
            done: AtomicUsize::new(0),
            all,
        };
        let threads = match self.detail {
            // Faster than a thread starts.
            Detail::Functions if all < WORTH_A_THREAD => 1,
            _ => self.threads,
        };
        let begin = |request| Work::begin(self, request, threads, &progress);
        let mut works = parallel::map(requests, threads, begin);
        let parts = works.iter().enumerate();
        let parts =
            parts.flat_map(|(number, work)| work.rest().map(move |part| (number, work, part)));
        let look_up = |(number, work, part): (usize, &Work, &[Vaddr])| {
            (number, work.look_up(part, self, &progress))
        };
        for (number, found) in parallel::map(parts.collect(), threads, look_up) {
            if let Some(work) = works.get_mut(number) {
                work.found.push(found);
            }
        }
        Names {
            modules: parallel::map(works, threads, Work::finish),
        }
    }

    /// Opens the files of a module. If nothing is asked of it, none is downloaded.
    pub(crate) fn open(
        &self,
        request: &Request,
        report: &dyn Fn(Event<'_>),
    ) -> Result<Opened, Vec<Problem>> {
        let offline;
        let finder = match request.addresses.is_empty() {
            true => {
                offline = self.finder.offline();
                &offline
            }
            false => &self.finder,
        };
        let (file, root) = match &request.module {
            Module::Open { file, root } => (Arc::clone(file), root),
            Module::Named(identity) => (Arc::new(finder.open(identity, report)?), &identity.root),
        };
        let (debug, failed) = finder.debug_files(&file, root.as_deref(), report);
        Ok(Opened {
            file,
            debug,
            failed,
        })
    }

    /// Where the names of a module are kept.
    pub(crate) fn place(&self, opened: &Opened) -> Option<Place> {
        let cache = self
            .cache
            .as_ref()
            .filter(|_| self.signature == Signature::Whole)
            .filter(|_| self.preference == Preference::Visible)
            .filter(|_| self.detail == Detail::Lines)?;
        Some(Place {
            cache: cache.clone(),
            key: opened.debug.key(&opened.file)?,
        })
    }
}

/// The files of a module.
pub(crate) struct Opened {
    pub(crate) file: Arc<ElfFile>,
    pub(crate) debug: DebugFiles,
    /// Why debug files could not be downloaded.
    pub(crate) failed: Vec<DownloadError>,
}
