//! The names of addresses.

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
    /// The names in the module of a request, by the request's index.
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

    /// Returns the modules, in the order of the requests.
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
    /// The name of an address; `None` if it was not requested, or there is no file.
    #[must_use]
    pub fn get(&self, address: Vaddr) -> Option<AddressName<'_>> {
        self.table.get(address)
    }

    /// The module's file.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<ElfFile>> {
        self.file.as_ref()
    }

    /// The problems of the lookup.
    #[must_use]
    pub fn problems(&self) -> &[SymbolProblem] {
        &self.problems
    }
}

/// The name of an address.
#[derive(Debug, Clone, Copy)]
pub struct AddressName<'a> {
    /// The symbol at the address.
    pub symbol: Option<CodeSymbol<'a>>,
    /// The start of the function that contains the code, as linked: by its symbol, or without one
    /// by the unwind table.
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
    /// Its size in bytes; 0 if the symbol table does not have it.
    pub size: u64,
    /// The CRC-32 of its mangled name. The instances of a template, and a class's constructors, can
    /// have one readable name and several of these. Static functions of several source files have
    /// one of both.
    pub symbol_hash: u32,
}

/// A function at an address, with the source location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineFrameRef<'a> {
    /// The function's readable name.
    pub function: Option<&'a str>,
    /// The source file as given to the compiler, with its working directory.
    pub file: Option<&'a str>,
    /// The line: of the address in the innermost function, of the inlined call in the others.
    pub line: Option<u32>,
    /// The column, if the compiler recorded it; 0 is the left edge.
    pub column: Option<u32>,
}

impl<'a> AddressName<'a> {
    /// The functions at the address: inlined ones first, innermost first, and last the one that
    /// contains the code. The last one has its symbol's name; the name from debug information is
    /// used only without a symbol. Empty if unknown.
    pub fn frames(&self) -> impl Iterator<Item = InlineFrameRef<'a>> + use<'a> {
        let symbol = self.symbol.map(|function| function.name);
        let alone = InlineFrameRef {
            function: symbol,
            file: None,
            line: None,
            column: None,
        };
        let alone = (self.records.is_empty() && symbol.is_some()).then_some(alone);
        self.debug_frames().chain(alone)
    }

    /// The same functions; empty without debug information.
    pub fn debug_frames(&self) -> impl ExactSizeIterator<Item = InlineFrameRef<'a>> + use<'a> {
        let (table, function) = (self.table, self.symbol);
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
