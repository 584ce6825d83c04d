//! The names that a library offers.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use hashbrown::HashMap;

use crate::elf::{ElfContext, ElfSymbol, SymbolExtent, SymbolKind};
use crate::graph::{Graph, Linkage, TypeId, TypedSymbol};

/// The functions and data that an interface offers, and the names by which programs ask for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exports {
    /// The functions and data.
    pub symbols: BTreeMap<ExportName, Export>,
    /// The versions that programs can require of the library (`.gnu.version_d`).
    pub versions: BTreeSet<String>,
    /// The name of the library for the dynamic loader (`DT_SONAME`).
    pub soname: Option<String>,
}

/// The names of a symbol's bytes in the source, in order.
type SourceNames<'a> = BTreeSet<Cow<'a, str>>;

/// The maximum number of names in the source that are kept of a symbol.
const MAX_SOURCE_NAMES: usize = 16;

/// The name of an exported function or of data. Several versions of it can be there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExportName {
    /// Function or data.
    pub kind: SymbolKind,
    /// The name.
    pub name: String,
    /// The version of the symbol (`V1` of `f@V1`), if it has one.
    pub version: Option<String>,
}

/// An exported function, or data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Export {
    /// Whether programs that are linked now get a later version of it.
    pub is_superseded: bool,
    /// Whether it is thread-local data.
    pub is_thread_local: bool,
    /// Its size in bytes; `None` if it is not known.
    pub size: Option<u64>,
    /// The names of the function or of the data in the source, if any is another one: `f_old` for
    /// `f@V1`.
    pub source_names: Vec<String>,
}

impl ExportName {
    /// A name without a version.
    #[must_use]
    pub fn new(kind: SymbolKind, name: impl Into<String>) -> ExportName {
        ExportName {
            kind,
            name: name.into(),
            version: None,
        }
    }

    /// The word for its kind.
    pub(super) fn kind_word(&self) -> &'static str {
        match self.kind {
            SymbolKind::Function => "function",
            SymbolKind::Object => "data",
        }
    }
}

/// With its kind, and without a version: `function f`.
impl fmt::Display for ExportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind_word(), self.name)
    }
}

impl Exports {
    /// The exports of a file: the symbols in `.dynsym`, or without one the global symbols in
    /// `.symtab`. `None` if it has neither. The name of the library is not among the tables.
    #[must_use]
    pub fn from_elf(elf: ElfContext<'_>) -> Option<Exports> {
        if elf.dynsym.is_empty() && elf.symtab.is_empty() {
            return None;
        }
        let mut source_names: HashMap<(SymbolKind, SymbolExtent), SourceNames<'_>> = HashMap::new();
        for symbol in elf.symbols(false).filter(|one| !one.name.contains('@')) {
            let names = source_names.entry((symbol.kind, symbol.extent));
            names.or_default().insert(symbol.name);
        }
        let versions: HashMap<u16, String> = elf.version_definitions().collect();
        let is_dynamic = !elf.dynsym.is_empty();
        let global = elf.symbols(is_dynamic).filter(|symbol| symbol.is_global);
        let export = |symbol: ElfSymbol<'_>| {
            let version = elf.symbol_version(symbol.index).filter(|_| is_dynamic);
            let (version, is_superseded) = version.unwrap_or_default();
            let name = ExportName {
                kind: symbol.kind,
                name: symbol.name.into_owned(),
                version: versions.get(&version).cloned(),
            };
            let names = source_names.get(&(symbol.kind, symbol.extent));
            let names = names.filter(|names| !names.contains(&*name.name));
            let names = names.into_iter().flatten().take(MAX_SOURCE_NAMES);
            let export = Export {
                is_superseded: is_superseded && name.version.is_some(),
                is_thread_local: symbol.is_thread_local,
                size: Some(symbol.extent.size).filter(|size| *size > 0),
                source_names: names.map(|name| name.clone().into_owned()).collect(),
            };
            (name, export)
        };
        Some(Exports {
            symbols: global.map(export).collect(),
            versions: versions.values().cloned().collect(),
            soname: None,
        })
    }

    /// The functions and data that have a type in a graph.
    #[must_use]
    pub fn with_types(graph: &Graph<'_>) -> Exports {
        let list = |kind, symbols: &[TypedSymbol<'_>]| {
            let names = symbols.iter().map(|one| ExportName::new(kind, &*one.name));
            names.collect::<Vec<_>>()
        };
        let lists = [
            list(SymbolKind::Function, &graph.functions),
            list(SymbolKind::Object, &graph.objects),
            list(SymbolKind::Object, &graph.variables),
        ];
        let names = lists.into_iter().flatten();
        Exports {
            symbols: names.map(|name| (name, Export::default())).collect(),
            ..Exports::default()
        }
    }

    /// The names that others have, too, without versions: types alone have none.
    #[must_use]
    pub fn common(&self, others: &Exports) -> Exports {
        let current = self.symbols.iter().filter(|(_, one)| !one.is_superseded);
        let unversioned = current.map(|(name, one)| {
            let name = ExportName::new(name.kind, &*name.name);
            (name, one.clone())
        });
        let common = unversioned.filter(|(name, _)| others.symbols.contains_key(name));
        Exports {
            symbols: common.collect(),
            ..Exports::default()
        }
    }

    /// The counterpart of a symbol of an older version. Programs that ask for no version get the
    /// default one.
    pub(super) fn counterpart(&self, name: &ExportName) -> Option<(&ExportName, &Export)> {
        let default = || {
            let first = ExportName::new(name.kind, &*name.name);
            let mut named = self.symbols.range(first..);
            let mut named = named
                .by_ref()
                .take_while(|(other, _)| (other.kind, &other.name) == (name.kind, &name.name));
            named.find(|(_, one)| !one.is_superseded)
        };
        let exact = self.symbols.get_key_value(name);
        exact.or_else(|| default().filter(|_| name.version.is_none()))
    }
}

/// The types of names in a graph.
pub(super) struct SymbolTypes<'s> {
    functions: HashMap<&'s str, TypeId>,
    objects: HashMap<&'s str, TypeId>,
}

impl<'s> SymbolTypes<'s> {
    pub(super) fn new(graph: &'s Graph<'_>) -> SymbolTypes<'s> {
        // Of several types of a name, the first one counts. What is static in a unit is not
        // exported; but pahole says that all of the kernel's functions are.
        let types = |first: &'s [TypedSymbol<'_>], then: &'s [TypedSymbol<'_>]| {
            let is_static = |one: &&TypedSymbol<'_>| one.linkage == Some(Linkage::Static);
            let all = || first.iter().chain(then).rev();
            let statics = all().filter(is_static);
            let others = all().filter(|one| !is_static(one));
            let in_order = statics.chain(others);
            in_order.map(|one| (&*one.name, one.ty)).collect()
        };
        SymbolTypes {
            functions: types(&graph.functions, &[]),
            objects: types(&graph.objects, &graph.variables),
        }
    }

    /// The type of an export: that of the function or the data that the symbol names. A superseded
    /// version has its own, not that of its name.
    pub(super) fn find(&self, name: &ExportName, export: &Export) -> Option<TypeId> {
        let types = match name.kind {
            SymbolKind::Function => &self.functions,
            SymbolKind::Object => &self.objects,
        };
        let own = Some(&name.name).filter(|_| !export.is_superseded);
        let names = export.source_names.iter().chain(own);
        names
            .filter_map(|name| types.get(name.as_str()))
            .copied()
            .next()
    }
}
