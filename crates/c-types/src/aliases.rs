//! Aliases of symbols with known types: weak aliases, and other exported names of a function.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashSet;

use crate::elf::{ElfContext, SymbolExtent, SymbolKind};
use crate::graph::{Graph, TypedSymbol};
use crate::link::LinkUnit;

/// The aliases of each name.
type AliasSets = BTreeMap<String, BTreeSet<String>>;

/// Symbols that name the same functions and data.
#[derive(Debug, Clone, Default)]
pub struct Aliases {
    functions: AliasSets,
    objects: AliasSets,
}

impl Aliases {
    /// Adds the aliases of a file, and of separate files of its symbols. Symbols with equal
    /// addresses and sizes are aliases. An ifunc is not an alias of its resolver. Copies that a
    /// compiler makes of a function (`.constprop.0`) take other parameters.
    pub fn add(&mut self, files: &[ElfContext<'_>]) {
        let mut places: BTreeMap<Cow<'_, str>, BTreeSet<(SymbolKind, SymbolExtent)>> =
            BTreeMap::new();
        let mut names: BTreeMap<(SymbolKind, SymbolExtent), BTreeSet<Cow<'_, str>>> =
            BTreeMap::new();
        for file in files {
            let symbols = [true, false].map(|is_dynamic| file.symbols(is_dynamic));
            for symbol in symbols.into_iter().flatten() {
                let is_own = symbol.extent.size > 0 && !symbol.is_ifunc;
                if is_own && !symbol.name.contains(['.', '@']) {
                    let place = (symbol.kind, symbol.extent);
                    places.entry(symbol.name.clone()).or_default().insert(place);
                    names.entry(place).or_default().insert(symbol.name);
                }
            }
        }
        // An ambiguous name is not used.
        let is_one = |name: &Cow<'_, str>| places.get(name).is_some_and(|all| all.len() == 1);
        for ((kind, _), names) in names {
            let names: Vec<_> = names.into_iter().filter(is_one).collect();
            let list = match kind {
                SymbolKind::Function => &mut self.functions,
                SymbolKind::Object => &mut self.objects,
            };
            for name in names.iter().filter(|_| names.len() > 1) {
                let others = names.iter().filter(|other| *other != name);
                let known = list.entry(name.to_string()).or_default();
                known.extend(others.map(ToString::to_string));
            }
        }
    }

    /// Removes the names that have a type in a graph already.
    pub fn remove_typed<'g, 'a: 'g>(&mut self, graphs: impl Iterator<Item = &'g Graph<'a>>) {
        let (mut functions, mut objects) = (HashSet::new(), HashSet::new());
        for graph in graphs {
            functions.extend(graph.functions.iter().map(|one| &*one.name));
            let variables = graph.objects.iter().chain(&graph.variables);
            objects.extend(variables.map(|one| &*one.name));
        }
        for (list, known) in [
            (&mut self.functions, functions),
            (&mut self.objects, objects),
        ] {
            list.values_mut()
                .for_each(|names| names.retain(|name| !known.contains(&**name)));
            list.retain(|_, names| !names.is_empty());
        }
    }

    /// Whether a graph has types for any alias.
    fn apply_any(&self, graph: &Graph<'_>) -> bool {
        let has = |list: &AliasSets, symbols: &[TypedSymbol<'_>]| {
            symbols
                .iter()
                .any(|symbol| list.contains_key(&*symbol.name))
        };
        has(&self.functions, &graph.functions) || has(&self.objects, &graph.objects)
    }

    /// Gives untyped names the type of an alias in a graph.
    pub fn apply_to(&self, graph: &mut Graph<'_>) {
        let lists = [
            (&self.functions, &mut graph.functions),
            (&self.objects, &mut graph.objects),
        ];
        for (list, symbols) in lists {
            let known: BTreeSet<&str> = symbols.iter().map(|one| &*one.name).collect();
            let mut named: BTreeMap<&str, _> = BTreeMap::new();
            for symbol in symbols.iter() {
                let others = list.get(&*symbol.name).into_iter().flatten();
                for name in others.filter(|name| !known.contains(&***name)) {
                    named.entry(name).or_insert(symbol.ty);
                }
            }
            let named = named.into_iter();
            let named = named.map(|(name, ty)| TypedSymbol::new(name.to_owned(), ty));
            let named: Vec<_> = named.collect();
            symbols.extend(named);
            symbols.sort();
        }
    }

    /// Gives aliases the types of their targets in a unit that has them, where no unit has a type
    /// for the alias.
    pub fn apply_to_units(mut self, units: &mut [LinkUnit<'_>]) {
        self.remove_typed(units.iter().map(|unit| &*unit.graph));
        for unit in units {
            if self.apply_any(&unit.graph) {
                self.apply_to(Arc::make_mut(&mut unit.graph));
            }
        }
    }
}
