//! The work: modules side by side, and parts of big ones.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use unspool_elf::{DebugFiles, ElfFile, Preference, SignatureDetail};
use unspool_rows::Vaddr;

use crate::cache::{NameCache, NameCacheEntry};
use crate::fetch::DownloadError;
use crate::finder::{ModuleFinder, ModuleIdentity};
use crate::module_lookup::{MIN_ADDRESSES_PER_THREAD, ModuleLookup};
use crate::names::AddressNames;
use crate::parallel;
use crate::problem::SymbolProblem;

/// What is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameDetail {
    /// Function names only, from symbol tables.
    Functions,
    /// Source lines and inlined functions too, where there is debug information.
    #[default]
    Lines,
}

/// A module whose addresses have names.
#[derive(Debug, Clone)]
pub enum ModuleSource {
    /// Its file has to be found.
    Identity(ModuleIdentity),
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
pub struct SymbolRequest {
    /// The module.
    pub module: ModuleSource,
    /// Addresses of instructions, as linked, in any order: for a return address, of the call before
    /// it.
    pub addresses: Vec<Vaddr>,
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupEvent<'a> {
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
    finder: ModuleFinder,
    pub(crate) detail: NameDetail,
    pub(crate) signature: SignatureDetail,
    pub(crate) preference: Preference,
    threads: usize,
    cache: Option<NameCache>,
}

/// How far the work is, for all its threads.
pub(crate) struct LookupProgress<'a> {
    pub(crate) report: &'a (dyn Fn(LookupEvent<'_>) + Sync),
    done: AtomicUsize,
    all: usize,
}

impl LookupProgress<'_> {
    pub(crate) fn advance(&self, addresses: usize) {
        let before = self.done.fetch_add(addresses, Ordering::Relaxed);
        (self.report)(LookupEvent::Addresses {
            done: before + addresses,
            all: self.all,
        });
    }
}

impl Symbolizer {
    /// Finds files with `finder`, and uses as many threads as there are processors.
    #[must_use]
    pub fn new(finder: ModuleFinder, detail: NameDetail) -> Self {
        Symbolizer {
            finder,
            detail,
            signature: SignatureDetail::default(),
            preference: Preference::default(),
            threads: thread::available_parallelism().map_or(1, NonZero::get),
            cache: None,
        }
    }

    /// Keeps the lines and inlined functions of modules for the next time, and takes those that were kept.
    /// Nothing is kept of a module with a [`SymbolProblem`], or whose files somebody else can write to.
    #[must_use]
    pub fn with_cache(self, cache: Option<NameCache>) -> Self {
        Symbolizer { cache, ..self }
    }

    /// Names C++ functions with so much of their signatures. Only names with all of it are kept for the
    /// next time.
    #[must_use]
    pub fn with_signature(self, signature: SignatureDetail) -> Self {
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
    pub fn look_up(&self, requests: Vec<SymbolRequest>) -> AddressNames {
        self.look_up_with(requests, &|_| {})
    }

    /// As [`Symbolizer::look_up`]; `report` is told how far the work is, by several threads.
    #[must_use]
    pub fn look_up_with(
        &self,
        requests: Vec<SymbolRequest>,
        report: &(dyn Fn(LookupEvent<'_>) + Sync),
    ) -> AddressNames {
        let all = requests.iter().map(|request| request.addresses.len()).sum();
        let progress = LookupProgress {
            report,
            done: AtomicUsize::new(0),
            all,
        };
        let threads = match self.detail {
            // Faster than a thread starts.
            NameDetail::Functions if all < MIN_ADDRESSES_PER_THREAD => 1,
            _ => self.threads,
        };
        let begin = |request| ModuleLookup::start(self, request, threads, &progress);
        let mut works = parallel::map(requests, threads, begin);
        let parts = works.iter().enumerate();
        let parts =
            parts.flat_map(|(number, work)| work.rest().map(move |part| (number, work, part)));
        let look_up = |(number, work, part): (usize, &ModuleLookup, &[Vaddr])| {
            (number, work.look_up(part, self, &progress))
        };
        for (number, found) in parallel::map(parts.collect(), threads, look_up) {
            if let Some(work) = works.get_mut(number) {
                work.parts_done.push(found);
            }
        }
        AddressNames {
            modules: parallel::map(works, threads, ModuleLookup::finish),
        }
    }

    /// Opens the files of a module. If nothing is asked of it, none is downloaded.
    pub(crate) fn open(
        &self,
        request: &SymbolRequest,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<OpenedModule, Vec<SymbolProblem>> {
        let offline;
        let finder = match request.addresses.is_empty() {
            true => {
                offline = self.finder.offline();
                &offline
            }
            false => &self.finder,
        };
        let (file, root) = match &request.module {
            ModuleSource::Open { file, root } => (Arc::clone(file), root),
            ModuleSource::Identity(identity) => {
                (Arc::new(finder.open(identity, report)?), &identity.root)
            }
        };
        let (debug, failed) = finder.debug_files(&file, root.as_deref(), report);
        Ok(OpenedModule {
            file,
            debug,
            failed,
        })
    }

    /// Where the names of a module are kept.
    pub(crate) fn cache_entry(&self, opened: &OpenedModule) -> Option<NameCacheEntry> {
        let cache = self
            .cache
            .as_ref()
            .filter(|_| self.signature == SignatureDetail::Whole)
            .filter(|_| self.preference == Preference::Visible)
            .filter(|_| self.detail == NameDetail::Lines)?;
        Some(NameCacheEntry {
            cache: cache.clone(),
            key: opened.debug.key(&opened.file)?,
        })
    }
}

/// The files of a module.
pub(crate) struct OpenedModule {
    pub(crate) file: Arc<ElfFile>,
    pub(crate) debug: DebugFiles,
    /// Why debug files could not be downloaded.
    pub(crate) failed: Vec<DownloadError>,
}
