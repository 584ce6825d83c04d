//! Functions and data: for each name the most frequent type is shared, and units with another type
//! have it in their child.

use hashbrown::HashSet;

use super::classes::{TypeClasses, UnitTypeId};
use crate::graph::{Graph, Linkage, TypeId, TypedSymbol};

/// A list of names in a graph.
#[derive(Clone, Copy)]
pub(super) enum SymbolList {
    Functions,
    Objects,
    Variables,
}

impl SymbolList {
    pub(super) const ALL: [SymbolList; 3] = [
        SymbolList::Functions,
        SymbolList::Objects,
        SymbolList::Variables,
    ];

    pub(super) fn symbols<'s, 'a>(self, graph: &'s Graph<'a>) -> &'s [TypedSymbol<'a>] {
        match self {
            SymbolList::Functions => &graph.functions,
            SymbolList::Objects => &graph.objects,
            SymbolList::Variables => &graph.variables,
        }
    }

    pub(super) fn symbols_mut<'s, 'a>(
        self,
        graph: &'s mut Graph<'a>,
    ) -> &'s mut Vec<TypedSymbol<'a>> {
        match self {
            SymbolList::Functions => &mut graph.functions,
            SymbolList::Objects => &mut graph.objects,
            SymbolList::Variables => &mut graph.variables,
        }
    }
}

/// The typed names of one kind.
pub(super) struct SharedNames<'a> {
    /// The names with the same type in all units, or in most.
    pub(super) shared: Vec<TypedSymbol<'a>>,
    /// For each unit the names with another type, with the ids of its types.
    pub(super) own: Vec<Vec<TypedSymbol<'a>>>,
}

impl<'a> SharedNames<'a> {
    /// The names of all units. The given ids are those of their shared types; [`TypeId::NONE`] for
    /// types that are not shared.
    pub(super) fn new(
        classes: &TypeClasses<'_, 'a>,
        list: SymbolList,
        id_of: impl Fn(UnitTypeId) -> TypeId,
    ) -> Self {
        let mut names = SharedNames {
            shared: Vec::new(),
            own: vec![Vec::new(); classes.units()],
        };
        let mut all: Vec<(&TypedSymbol<'a>, usize, TypeId)> = Vec::new();
        for (unit, graph) in classes.graphs().enumerate() {
            let objects: HashSet<&str> = match list {
                // The name of a data symbol is a variable, too.
                SymbolList::Variables => graph.objects.iter().map(|symbol| &*symbol.name).collect(),
                _ => HashSet::new(),
            };
            let symbols = list.symbols(graph).iter();
            let symbols = symbols.filter(|symbol| !objects.contains(&*symbol.name));
            all.extend(symbols.map(|symbol| (symbol, unit, id_of((unit, symbol.ty)))));
        }
        all.sort_by(|(one, ..), (other, ..)| one.name.cmp(&other.name));
        for same in all.chunk_by(|(one, ..), (other, ..)| one.name == other.name) {
            names.add(same);
        }
        names
    }

    /// Adds all units' types of one name.
    fn add(&mut self, same: &[(&TypedSymbol<'a>, usize, TypeId)]) {
        let count = |id| same.iter().filter(|(.., other)| *other == id).count();
        let ids = same.iter().rev().map(|(.., id)| *id);
        let most = ids
            .filter(|id| *id != TypeId::NONE)
            .max_by_key(|id| count(*id));
        // A static function of a unit does not make others static.
        let is_static = |symbol: &TypedSymbol<'_>| symbol.linkage == Some(Linkage::Static);
        let of_most = same.iter().filter(|(.., id)| Some(*id) == most);
        let symbol = of_most.min_by_key(|(symbol, ..)| is_static(symbol));
        if let (Some(ty), Some((symbol, ..))) = (most, symbol) {
            self.shared.push(symbol.with_type(ty));
        }
        for (symbol, unit, id) in same {
            if Some(*id) != most
                && let Some(own) = self.own.get_mut(*unit)
            {
                own.push((*symbol).clone());
            }
        }
    }
}
