//! The parallel lookup: of modules, and of parts of large ones.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use unspool_elf::{DebugFiles, ElfFile, Preference, SignatureDetail};
use unspool_rows::Vaddr;

use crate::cache::{NameCache, NameCacheEntry};
use crate::fetch::DownloadError;
use crate::finder::{ModuleFinder, ModuleIdentity};
use crate::module_lookup::{MIN_ADDRESSES_PER_THREAD, ModuleLookup};
use crate::names::AddressNames;
use crate::problem::SymbolProblem;

/// The detail of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameDetail {
    /// Function names only, from symbol tables. An inlined function counts as its caller; reports
    /// of `unspool` have [`NameDetail::Lines`].
    Functions,
    /// Source lines and inlined functions too, if there is debug information.
    #[default]
    Lines,
}

/// The module of a request.
#[derive(Debug, Clone)]
pub enum ModuleSource {
    /// It must be found.
    Identity(ModuleIdentity),
    /// Its file is open.
    Open {
        /// The file.
        file: Arc<ElfFile>,
        /// As [`ModuleIdentity::root`]: the first place to look for debug files.
        root: Option<PathBuf>,
    },
}

/// A request for names in one module.
#[derive(Debug, Clone)]
pub struct SymbolRequest {
    /// The module.
    pub module: ModuleSource,
    /// Addresses of instructions, as linked, in any order: for a return address, an address within
    /// the call before it.
    pub addresses: Vec<Vaddr>,
}

/// The progress of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupEvent<'a> {
    /// Addresses were looked up.
    Addresses {
        /// Their number.
        done: usize,
        /// The number of all addresses of all modules.
        all: usize,
    },
    /// A file is being downloaded.
    Download {
        /// Its URL.
        url: &'a str,
        /// The bytes so far.
        bytes: u64,
        /// The size in bytes, if the server reports it.
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

/// The progress of all threads.
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
    /// Finds files with `finder`, and uses one thread for each CPU.
    #[must_use]
    pub fn new(finder: ModuleFinder, detail: NameDetail) -> Self {
        Symbolizer {
            finder,
            detail,
            signature: SignatureDetail::default(),
            preference: Preference::default(),
            threads: unspool_parallel::processors(),
            cache: None,
        }
    }

    /// Finds files as the user has configured it ([`ModuleFinder::from_environment`]). Lines are
    /// cached in the user's cache.
    #[must_use]
    pub fn from_environment(detail: NameDetail) -> Self {
        let finder = ModuleFinder::from_environment();
        Symbolizer::new(finder, detail).with_cache(NameCache::from_environment())
    }

    /// Caches the lines and inlined functions of modules. A module with a [`SymbolProblem`], or
    /// with files that another user can write to, is not cached.
    #[must_use]
    pub fn with_cache(self, cache: Option<NameCache>) -> Self {
        Symbolizer { cache, ..self }
    }

    /// Names C++ functions with this detail of their signatures. Only full names are cached.
    #[must_use]
    pub fn with_signature(self, signature: SignatureDetail) -> Self {
        Symbolizer { signature, ..self }
    }

    /// Prefers other symbols where several are at one address. Their names are not cached.
    #[must_use]
    pub fn with_preference(self, preference: Preference) -> Self {
        Symbolizer { preference, ..self }
    }

    /// Uses at most this many threads, including the calling one.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Symbolizer { threads, ..self }
    }

    /// Looks up all requests. The result has the modules in the order of the requests.
    #[must_use]
    pub fn look_up(&self, requests: Vec<SymbolRequest>) -> AddressNames {
        self.look_up_with(requests, &|_| {})
    }

    /// As [`Symbolizer::look_up`]; several threads call `report` with the progress.
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
            // This is faster than starting a thread.
            NameDetail::Functions if all < MIN_ADDRESSES_PER_THREAD => 1,
            _ => self.threads,
        };
        let begin = |request| ModuleLookup::start(self, request, threads, &progress);
        let mut works = unspool_parallel::map(requests, threads, begin);
        let parts = works.iter().enumerate();
        let parts =
            parts.flat_map(|(number, work)| work.rest().map(move |part| (number, work, part)));
        let look_up = |(number, work, part): (usize, &ModuleLookup, &[Vaddr])| {
            (number, work.look_up(part, self, &progress))
        };
        for (number, found) in unspool_parallel::map(parts.collect(), threads, look_up) {
            if let Some(work) = works.get_mut(number) {
                work.parts_done.push(found);
            }
        }
        AddressNames {
            modules: unspool_parallel::map(works, threads, ModuleLookup::finish),
        }
    }

    /// Opens the files of a module. Without requested addresses, nothing is downloaded.
    pub(crate) fn open(
        &self,
        request: &SymbolRequest,
        report: &dyn Fn(LookupEvent<'_>),
    ) -> Result<OpenedModule, Vec<SymbolProblem>> {
        let offline;
        let finder = if request.addresses.is_empty() {
            offline = self.finder.offline();
            &offline
        } else {
            &self.finder
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

    /// The cache entry of a module's names.
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
