//! The lookup in one module.

use std::cell::OnceCell;
use std::sync::Arc;

use unspool_elf::{DebugFiles, ElfFile, Lines, ModuleError, Symbols, UnwindEntries};
use unspool_rows::Vaddr;

use crate::cache::NameCacheEntry;
use crate::name_table::{CodeName, NameTable, NameTableBuilder};
use crate::names::ModuleNames;
use crate::problem::SymbolProblem;
use crate::symbolizer::{LookupProgress, NameDetail, SymbolRequest, Symbolizer};

/// The fewest addresses worth another thread, which must read a module's list of compilation units
/// once more.
pub(crate) const MIN_ADDRESSES_PER_THREAD: usize = 512;
/// The number of addresses between two reports of progress.
const PROGRESS_STEP_ADDRESSES: usize = 256;
/// The most problems with `.dwo` files to report for one module.
const MAX_SPLIT_PROBLEMS: usize = 8;

/// The lookup for one request.
#[derive(Default)]
pub(crate) struct ModuleLookup {
    file: Option<Arc<ElfFile>>,
    /// The cache entry of the names.
    cache_entry: Option<NameCacheEntry>,
    /// The cached names.
    cached: NameTable,
    /// The other addresses, sorted, each once.
    addresses: Vec<Vaddr>,
    /// The number of parts in which they are looked up.
    parts: usize,
    /// The source; `None` if nothing must be looked up, or there is no file.
    source: Option<LookupSource>,
    problems: Vec<SymbolProblem>,
    /// The results of the parts so far.
    pub(crate) parts_done: Vec<LookupPart>,
}

/// The source of names.
struct LookupSource {
    file: Arc<ElfFile>,
    debug: DebugFiles,
    symbols: Symbols,
}

/// The result for some addresses.
#[derive(Default)]
pub(crate) struct LookupPart {
    table: NameTable,
    /// The first error of debug information, and the number of addresses that had one.
    wrong: Option<(ModuleError, usize)>,
    split: Vec<ModuleError>,
    unnamed: usize,
}

impl ModuleLookup {
    /// Opens the module; looks everything up if that is one part.
    pub(crate) fn start(
        symbolizer: &Symbolizer,
        request: SymbolRequest,
        threads: usize,
        progress: &LookupProgress<'_>,
    ) -> ModuleLookup {
        let opened = symbolizer.open(&request, &|event| (progress.report)(event));
        let asked = request.addresses.len();
        let opened = match opened {
            Ok(opened) => opened,
            Err(problems) => {
                progress.advance(asked);
                return ModuleLookup {
                    problems,
                    ..ModuleLookup::default()
                };
            }
        };
        let cache_entry = symbolizer.cache_entry(&opened);
        let known = cache_entry
            .as_ref()
            .and_then(NameCacheEntry::load)
            .unwrap_or_default();
        let mut addresses = request.addresses;
        addresses.retain(|address| known.get(*address).is_none());
        addresses.sort_unstable();
        addresses.dedup();
        progress.advance(asked - addresses.len());
        let source = (!addresses.is_empty()).then(|| LookupSource {
            symbols: Symbols::for_addresses_preferring(
                symbolizer.preference,
                &opened.file,
                opened.debug.debug.as_deref(),
                &addresses,
            ),
            debug: opened.debug,
            file: Arc::clone(&opened.file),
        });
        let mut work = ModuleLookup {
            file: Some(opened.file),
            cache_entry,
            cached: known,
            parts: (addresses.len() / MIN_ADDRESSES_PER_THREAD).clamp(1, threads.max(1)),
            addresses,
            source,
            problems: opened
                .failed
                .into_iter()
                .map(SymbolProblem::Download)
                .collect(),
            parts_done: Vec::new(),
        };
        if work.parts == 1 {
            let found = work.look_up(&work.addresses, symbolizer, progress);
            work.parts_done.push(found);
        }
        work
    }

    /// The addresses not looked up yet, part by part.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &[Vaddr]> {
        let is_left = self.parts_done.is_empty() && self.source.is_some();
        let addresses = if is_left {
            self.addresses.as_slice()
        } else {
            &[]
        };
        let size = self.addresses.len().div_ceil(self.parts.max(1));
        addresses.chunks(size.max(1))
    }

    /// Looks up a contiguous part of the addresses; other threads look up the others.
    pub(crate) fn look_up(
        &self,
        addresses: &[Vaddr],
        symbolizer: &Symbolizer,
        progress: &LookupProgress<'_>,
    ) -> LookupPart {
        let mut found = LookupPart::default();
        let Some(source) = &self.source else {
            return found;
        };
        let lines = Lines::new(Arc::clone(&source.file), &source.debug, addresses);
        let lines = lines.with_signature(symbolizer.signature);
        let mut table = NameTableBuilder::new(symbolizer.signature);
        let unwind_entries = OnceCell::new();
        let unnamed = |address| {
            let entries = unwind_entries.get_or_init(|| UnwindEntries::new(&source.file));
            entries.covering(address)
        };
        for step in addresses.chunks(PROGRESS_STEP_ADDRESSES) {
            for address in step {
                let frames = match symbolizer.detail {
                    NameDetail::Functions => Ok(Vec::new()),
                    NameDetail::Lines => lines.frames(*address),
                };
                let frames = frames.unwrap_or_else(|error| {
                    found.wrong.get_or_insert((error, 0)).1 += 1;
                    Vec::new()
                });
                let symbol = source.symbols.lookup(*address);
                let is_named = symbol.is_some() || !frames.is_empty();
                found.unnamed += usize::from(!is_named);
                let code = match symbol {
                    Some(symbol) => CodeName::Symbol(symbol),
                    None => unnamed(*address).map_or(CodeName::Unknown, CodeName::Unnamed),
                };
                table.add(*address, &code, &frames);
            }
            progress.advance(step.len());
        }
        found.table = table.finish();
        found.split = lines.problems();
        found
    }

    /// Combines the results, and stores them for the next time.
    pub(crate) fn finish(mut self) -> ModuleNames {
        if let Some(source) = &self.source {
            let found = self.found_problems(source);
            self.problems.extend(found);
        }
        let is_news = !self.addresses.is_empty() && self.problems.is_empty();
        let mut tables = vec![self.cached];
        tables.extend(self.parts_done.into_iter().map(|found| found.table));
        let table = NameTable::merged(tables);
        if let Some(place) = self.cache_entry.filter(|_| is_news) {
            // Without this, the next run takes longer.
            let _ = place.keep(&table);
        }
        ModuleNames {
            file: self.file,
            table,
            problems: self.problems,
        }
    }

    fn found_problems(&self, source: &LookupSource) -> Vec<SymbolProblem> {
        let files = [Some(&*source.file), source.debug.debug.as_deref()];
        let changed = files.into_iter().flatten().map(ElfFile::check_unchanged);
        let changed = changed.filter_map(|checked| checked.err().map(SymbolProblem::File));
        let rejected = source
            .debug
            .rejected
            .iter()
            .cloned()
            .map(SymbolProblem::File);
        let tables = source.symbols.problems().iter().cloned();
        let split = self.parts_done.iter().flat_map(|found| &found.split);
        let mut problems: Vec<SymbolProblem> = changed
            .chain(rejected)
            .chain(tables.map(SymbolProblem::SymbolTable))
            .chain(
                split
                    .take(MAX_SPLIT_PROBLEMS)
                    .cloned()
                    .map(SymbolProblem::SplitDwarf),
            )
            .collect();
        let wrong = self
            .parts_done
            .iter()
            .filter_map(|found| found.wrong.as_ref());
        let addresses = wrong.clone().map(|(_, addresses)| addresses).sum();
        problems.extend(wrong.take(1).map(|(error, _)| SymbolProblem::DebugInfo {
            error: error.clone(),
            addresses,
        }));
        let unnamed = self.parts_done.iter().map(|found| found.unnamed).sum();
        if unnamed > 0 && is_stripped(source) {
            problems.push(SymbolProblem::Stripped {
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
fn is_stripped(source: &LookupSource) -> bool {
    let has = |file: &ElfFile| {
        let mut sections = file.sections();
        sections.any(|section| [".symtab", ".gnu_debugdata"].contains(&&*section.name))
    };
    !has(&source.file) && !source.debug.debug.as_deref().is_some_and(has)
}
