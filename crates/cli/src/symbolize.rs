//! Names and source lines for addresses.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

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

/// Looks names up, and keeps what it read of each module.
pub(crate) struct Symbolizer {
    detail: Detail,
    roots: SearchRoots,
    modules: RefCell<HashMap<PathBuf, Rc<Names>>>,
}

/// The names of one module.
struct Names {
    file: Arc<ElfFile>,
    debug: DebugFiles,
    symbols: OnceCell<Symbols>,
    lines: Lines,
}

/// What is known of an address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Name {
    /// The function that has the code, and the offset in it.
    pub(crate) function: Option<(String, u64)>,
    /// The functions that were inlined at the address, innermost first, then the one that has
    /// the code: empty without debug information.
    pub(crate) inlined: Vec<InlineFrame>,
}

impl Symbolizer {
    pub(crate) fn new(detail: Detail) -> Self {
        Symbolizer {
            detail,
            roots: SearchRoots::default(),
            modules: RefCell::new(HashMap::new()),
        }
    }

    /// Names an address of a module: `lookup` is in the instruction, `address` what is shown.
    pub(crate) fn name(&self, file: &Arc<ElfFile>, lookup: Vaddr, address: Vaddr) -> Name {
        let names = self.names(file);
        let symbol = names.symbols().lookup(lookup);
        let function = symbol.map(|symbol| {
            let offset = address.0.wrapping_sub(symbol.address.0);
            (demangle(&symbol.name).into_owned(), offset)
        });
        let inlined = match self.detail {
            Detail::Functions => Vec::new(),
            // Debug information that cannot be read leaves the symbol's name.
            Detail::Lines => names.lines.frames(lookup).unwrap_or_default(),
        };
        Name { function, inlined }
    }

    fn names(&self, file: &Arc<ElfFile>) -> Rc<Names> {
        let mut modules = self.modules.borrow_mut();
        let names = modules.entry(file.path().to_path_buf()).or_insert_with(|| {
            let debug = DebugFiles::locate(file, &self.roots);
            let lines = Lines::new(Arc::clone(file), &debug);
            Rc::new(Names {
                file: Arc::clone(file),
                debug,
                symbols: OnceCell::new(),
                lines,
            })
        });
        Rc::clone(names)
    }
}

impl Names {
    fn symbols(&self) -> &Symbols {
        self.symbols
            .get_or_init(|| Symbols::new(&self.file, self.debug.debug.as_deref()))
    }
}

/// The last component of a module's path.
pub(crate) fn short_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
