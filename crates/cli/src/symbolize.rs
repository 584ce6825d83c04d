//! Names and source lines for addresses.

use std::collections::HashMap;
use std::fs;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use unspool_ir::Vaddr;
use unspool_module::{DebugFiles, ElfFile, InlineFrame, Lines, SearchRoots, Symbols, demangle};

/// What is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Function names only, from symbol tables.
    Functions,
    /// Source lines and inlined functions too, where there is debug information.
    Lines,
}

/// What is known of an address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Name {
    /// The function that has the code, and its address.
    pub(crate) function: Option<(String, Vaddr)>,
    /// The functions that were inlined at the address, innermost first, then the one that has
    /// the code: empty without debug information.
    pub(crate) inlined: Vec<InlineFrame>,
}

/// The names of some addresses of some modules.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<(FileAddress, Vaddr), Name>,
    /// A file that is gone could leave its address to another.
    _files: Vec<Arc<ElfFile>>,
}

/// Which file it is: where it lies in our memory.
type FileAddress = usize;

fn address_of(file: &ElfFile) -> FileAddress {
    std::ptr::from_ref(file).addr()
}

/// The addresses to look up in one module.
struct Work<'a> {
    file: &'a Arc<ElfFile>,
    addresses: Vec<Vaddr>,
}

impl Names {
    /// Looks the addresses up, several modules at a time, with debug files from `roots`. An address is that of an instruction:
    /// for a return address, of the call before it.
    pub(crate) fn look_up<'a>(
        addresses: impl Iterator<Item = (&'a Arc<ElfFile>, Vaddr)>,
        detail: Detail,
        roots: &SearchRoots,
    ) -> Names {
        let mut modules: HashMap<FileAddress, Work<'a>> = HashMap::new();
        for (file, address) in addresses {
            let work = modules.entry(address_of(file)).or_insert_with(|| Work {
                file,
                addresses: Vec::new(),
            });
            work.addresses.push(address);
        }
        let workers = match detail {
            // Faster than a thread starts.
            Detail::Functions => 1,
            Detail::Lines => thread::available_parallelism().map_or(1, NonZero::get),
        };
        let workers = workers.min(modules.len());
        let files = modules.values().map(|work| Arc::clone(work.file));
        let files = files.collect();
        let queue = Mutex::new(modules.into_values());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let known = Mutex::new(HashMap::new());
        let work = || {
            while let Some(work) = next() {
                let names = work.names(detail, roots);
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.extend(names);
            }
        };
        thread::scope(|scope| {
            for _ in 1..workers {
                // With fewer threads it takes longer.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        Names {
            known: known.into_inner().unwrap_or_else(PoisonError::into_inner),
            _files: files,
        }
    }

    /// The name of an address that was looked up.
    pub(crate) fn get(&self, file: &ElfFile, address: Vaddr) -> Option<&Name> {
        self.known.get(&(address_of(file), address))
    }
}

impl Work<'_> {
    fn names(mut self, detail: Detail, roots: &SearchRoots) -> Vec<((FileAddress, Vaddr), Name)> {
        self.addresses.sort_unstable();
        self.addresses.dedup();
        let debug = DebugFiles::locate(self.file, roots);
        let symbols = Symbols::near(self.file, debug.debug.as_deref(), &self.addresses);
        let lines = Lines::new(Arc::clone(self.file), &debug, &self.addresses);
        let name = |address: &Vaddr| {
            let function = symbols.lookup(*address);
            Name {
                function: function
                    .map(|symbol| (demangle(&symbol.name).into_owned(), symbol.address)),
                inlined: match detail {
                    Detail::Functions => Vec::new(),
                    // Debug information that cannot be read leaves the symbol's name.
                    Detail::Lines => lines.frames(*address).unwrap_or_default(),
                },
            }
        };
        let file = address_of(self.file);
        self.addresses
            .iter()
            .map(|address| ((file, *address), name(address)))
            .collect()
    }
}

/// Where the debug files of a process are: in its own root first, where that is another.
pub(crate) fn roots_of(pid: u32) -> SearchRoots {
    let mut roots = SearchRoots::default();
    let own = PathBuf::from(format!("/proc/{pid}/root"));
    let identity = |path: &Path| fs::metadata(path).map(|root| (root.dev(), root.ino())).ok();
    if let (Some(theirs), Some(ours)) = (identity(&own), identity(Path::new("/")))
        && theirs != ours
    {
        roots.roots.insert(0, own);
    }
    roots
}

/// The last component of a module's path.
pub(crate) fn short_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
