//! The work: modules side by side, and parts of big ones.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, Lines, ModuleError, Symbols};

use crate::fetch::DownloadError;
use crate::finder::{Finder, Identity};
use crate::names::{ModuleNames, Names};
use crate::parallel;
use crate::problem::Problem;
use crate::table::{Builder, Table};

/// How many addresses are worth a thread, and reading a module's list of compilation units once more.
const WORTH_A_THREAD: usize = 512;
/// How many addresses are looked up between two reports of progress.
const STEP: usize = 256;
/// The most problems with `.dwo` files that are told of one module.
const MOST_SPLIT: usize = 8;

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
    detail: Detail,
    threads: usize,
}

/// How far the work is, for all its threads.
struct Progress<'a> {
    report: &'a (dyn Fn(Event<'_>) + Sync),
    done: AtomicUsize,
    all: usize,
}

impl Progress<'_> {
    fn advance(&self, addresses: usize) {
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
            threads: thread::available_parallelism().map_or(1, NonZero::get),
        }
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
            (number, work.look_up(part, self.detail, &progress))
        };
        for (number, found) in parallel::map(parts.collect(), threads, look_up) {
            if let Some(work) = works.get_mut(number) {
                work.found.push(found);
            }
        }
        Names {
            modules: works.into_iter().map(Work::finish).collect(),
        }
    }

    /// Opens the files of a module. If nothing is asked of it, none is downloaded.
    fn open(
        &self,
        request: &Request,
        report: &dyn Fn(Event<'_>),
    ) -> Result<(Arc<ElfFile>, DebugFiles, Vec<DownloadError>), Vec<Problem>> {
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
        Ok((file, debug, failed))
    }
}

/// A module whose file was found.
struct Source {
    file: Arc<ElfFile>,
    debug: DebugFiles,
    symbols: Symbols,
}

/// The work for one request.
struct Work {
    /// By address, each once.
    addresses: Vec<Vaddr>,
    /// In how many parts the addresses are looked up.
    parts: usize,
    source: Option<Source>,
    problems: Vec<Problem>,
    /// What was found for each part so far.
    found: Vec<Found>,
}

/// What was found for some addresses.
#[derive(Default)]
struct Found {
    table: Table,
    /// The first error of debug information, and the number of addresses that had one.
    wrong: Option<(ModuleError, usize)>,
    split: Vec<ModuleError>,
    unnamed: usize,
}

impl Work {
    /// Opens the module; looks everything up if that is one part.
    fn begin(
        symbolizer: &Symbolizer,
        request: Request,
        threads: usize,
        progress: &Progress<'_>,
    ) -> Work {
        let opened = symbolizer.open(&request, &|event| (progress.report)(event));
        let asked = request.addresses.len();
        let mut addresses = request.addresses;
        addresses.sort_unstable();
        addresses.dedup();
        progress.advance(asked - addresses.len());
        let mut work = Work {
            parts: (addresses.len() / WORTH_A_THREAD).clamp(1, threads.max(1)),
            addresses,
            source: None,
            problems: Vec::new(),
            found: Vec::new(),
        };
        match opened {
            Ok((file, debug, failed)) => {
                work.problems = failed.into_iter().map(Problem::Download).collect();
                let symbols = Symbols::near(&file, debug.debug.as_deref(), &work.addresses);
                work.source = Some(Source {
                    file,
                    debug,
                    symbols,
                });
            }
            Err(problems) => {
                work.problems = problems;
                progress.advance(work.addresses.len());
            }
        }
        if work.parts == 1 {
            let found = work.look_up(&work.addresses, symbolizer.detail, progress);
            work.found.push(found);
        }
        work
    }

    /// The addresses that have not been looked up, part by part.
    fn rest(&self) -> impl Iterator<Item = &[Vaddr]> {
        let is_left = self.found.is_empty() && self.source.is_some();
        let addresses = if is_left {
            self.addresses.as_slice()
        } else {
            &[]
        };
        addresses.chunks(self.addresses.len().div_ceil(self.parts).max(1))
    }

    /// Looks up addresses that are close to each other: others may read what lies between.
    fn look_up(&self, addresses: &[Vaddr], detail: Detail, progress: &Progress<'_>) -> Found {
        let mut found = Found::default();
        let Some(source) = &self.source else {
            return found;
        };
        let lines = Lines::new(Arc::clone(&source.file), &source.debug, addresses);
        let mut table = Builder::default();
        for step in addresses.chunks(STEP) {
            for address in step {
                let frames = match detail {
                    Detail::Functions => Ok(Vec::new()),
                    Detail::Lines => lines.frames(*address),
                };
                let frames = frames.unwrap_or_else(|error| {
                    found.wrong.get_or_insert((error, 0)).1 += 1;
                    Vec::new()
                });
                let symbol = source.symbols.lookup(*address);
                let is_named = symbol.is_some() || !frames.is_empty();
                found.unnamed += usize::from(!is_named);
                table.add(*address, symbol, &frames);
            }
            progress.advance(step.len());
        }
        found.table = table.finish();
        found.split = lines.problems();
        found
    }

    fn finish(self) -> ModuleNames {
        let Some(source) = &self.source else {
            return ModuleNames {
                problems: self.problems,
                ..ModuleNames::default()
            };
        };
        let mut problems = self.found_problems(source);
        problems.splice(0..0, self.problems);
        let mut tables = self.found.into_iter().map(|found| found.table);
        let table = match self.parts {
            1 => tables.next().unwrap_or_default(),
            _ => {
                let mut whole = Builder::default();
                tables.for_each(|table| whole.append(&table));
                whole.finish()
            }
        };
        ModuleNames {
            file: self.source.map(|source| source.file),
            table,
            problems,
        }
    }

    fn found_problems(&self, source: &Source) -> Vec<Problem> {
        let rejected = source.debug.rejected.iter().cloned().map(Problem::File);
        let tables = source.symbols.problems().iter().cloned();
        let split = self.found.iter().flat_map(|found| &found.split);
        let mut problems: Vec<Problem> = rejected
            .chain(tables.map(Problem::SymbolTable))
            .chain(split.take(MOST_SPLIT).cloned().map(Problem::SplitDwarf))
            .collect();
        let wrong = self.found.iter().filter_map(|found| found.wrong.as_ref());
        let addresses = wrong.clone().map(|(_, addresses)| addresses).sum();
        problems.extend(wrong.take(1).map(|(error, _)| Problem::DebugInfo {
            error: error.clone(),
            addresses,
        }));
        let unnamed = self.found.iter().map(|found| found.unnamed).sum();
        if unnamed > 0 && is_stripped(source) {
            problems.push(Problem::Stripped {
                file: source.file.path().to_path_buf(),
                build_id: source.file.build_id().map(Box::new),
                unnamed,
                addresses: self.addresses.len(),
            });
        }
        problems
    }
}

/// Whether neither the file nor its debug file has a symbol table of all functions.
fn is_stripped(source: &Source) -> bool {
    let has = |file: &ElfFile| {
        let mut sections = file.sections();
        sections.any(|section| [".symtab", ".gnu_debugdata"].contains(&&*section.name))
    };
    !has(&source.file) && !source.debug.debug.as_deref().is_some_and(has)
}
