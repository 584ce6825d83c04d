//! What is known of addresses.

use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_rows::Vaddr;

use crate::name_table::{FrameEntry, NameTable};
use crate::problem::SymbolProblem;

/// The names of some addresses of some modules, in the order of the requests.
#[derive(Debug, Default)]
pub struct AddressNames {
    pub(crate) modules: Vec<ModuleNames>,
}

impl AddressNames {
    /// The names of the module of one request, by the request's place among all.
    #[must_use]
    pub fn module(&self, request: usize) -> Option<&ModuleNames> {
        self.modules.get(request)
    }

    /// The name of an address in the module of one request.
    #[must_use]
    pub fn get(&self, request: usize, address: Vaddr) -> Option<AddressName<'_>> {
        self.module(request)?.get(address)
    }

    /// All modules, in the order of the requests.
    #[must_use]
    pub fn modules(&self) -> &[ModuleNames] {
        &self.modules
    }

    /// Hands the modules over, in the order of the requests.
    #[must_use]
    pub fn into_modules(self) -> Vec<ModuleNames> {
        self.modules
    }
}

/// The names of some addresses of one module.
#[derive(Debug, Default)]
pub struct ModuleNames {
    pub(crate) file: Option<Arc<ElfFile>>,
    pub(crate) table: NameTable,
    pub(crate) problems: Vec<SymbolProblem>,
}

impl ModuleNames {
    /// What is known of an address; `None` if it was not asked for, or if there is no file.
    #[must_use]
    pub fn get(&self, address: Vaddr) -> Option<AddressName<'_>> {
        self.table.get(address)
    }

    /// The file that was found for the module.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<ElfFile>> {
        self.file.as_ref()
    }

    /// What was in the way.
    #[must_use]
    pub fn problems(&self) -> &[SymbolProblem] {
        &self.problems
    }
}

/// What is known of one address.
#[derive(Debug, Clone, Copy)]
pub struct AddressName<'a> {
    /// The symbol that the address belongs to.
    pub function: Option<CodeSymbol<'a>>,
    /// Where the function begins that has the code, as linked: by its symbol, or if it has none by the
    /// unwind table.
    pub begin: Option<Vaddr>,
    pub(crate) records: &'a [FrameEntry],
    pub(crate) table: &'a NameTable,
}

/// A symbol of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeSymbol<'a> {
    /// Its readable name.
    pub name: &'a str,
    /// Its first address, as linked.
    pub address: Vaddr,
    /// Its size in bytes; 0 where the symbol table does not say.
    pub size: u64,
    /// The CRC-32 of its mangled name. The copies of a template, and a class's constructors, can have one
    /// readable name and several of these; static functions of several source files have one of both.
    pub symbol_hash: u32,
}

/// A function that an address is in, with the place in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineFrameRef<'a> {
    /// The function's readable name.
    pub function: Option<&'a str>,
    /// The source file, as the compiler was told, with the directory that it ran in.
    pub file: Option<&'a str>,
    /// The line: of the address in the innermost function, of the inlined call in the others.
    pub line: Option<u32>,
    /// The column, if the compiler recorded it; 0 is the left edge.
    pub column: Option<u32>,
}

impl<'a> AddressName<'a> {
    /// The functions that the address is in: inlined ones first, the innermost before the others,
    /// and last the one that has the code. It has its symbol's name, and that of debug information only
    /// if there is no symbol. Empty if nothing is known.
    pub fn frames(&self) -> impl Iterator<Item = InlineFrameRef<'a>> + use<'a> {
        let symbol = self.function.map(|function| function.name);
        let alone = InlineFrameRef {
            function: symbol,
            file: None,
            line: None,
            column: None,
        };
        let alone = (self.records.is_empty() && symbol.is_some()).then_some(alone);
        self.debug_frames().chain(alone)
    }

    /// The same functions; none where there is no debug information.
    pub fn debug_frames(&self) -> impl ExactSizeIterator<Item = InlineFrameRef<'a>> + use<'a> {
        let (table, function) = (self.table, self.function);
        let last = self.records.len().saturating_sub(1);
        let frames = self.records.iter().enumerate();
        frames.map(move |(at, record)| {
            let frame = table.frame(record);
            let symbol = function.filter(|_| at == last);
            InlineFrameRef {
                function: symbol.map_or(frame.function, |symbol| Some(symbol.name)),
                ..frame
            }
        })
    }
}
