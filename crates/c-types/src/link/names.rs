//! Functions and data: of each name the type that most units give to it is shared, and units that mean another say so themselves.

use hashbrown::HashSet;

use super::classes::{TypeClasses, UnitTypeId};
use crate::graph::{Graph, TypeId, TypedSymbol};

/// Which of the lists of names a graph has.
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

/// The names of one kind that have types.
pub(super) struct SharedNames<'a> {
    /// Those that mean the same in all units, or in most.
    pub(super) shared: Vec<TypedSymbol<'a>>,
    /// Of each unit those that mean something else there, with the ids of its types.
    pub(super) own: Vec<Vec<TypedSymbol<'a>>>,
}

impl<'a> SharedNames<'a> {
    /// The names of all units, given the ids that their types have among the shared ones; [`TypeId::NONE`] of those that are not shared.
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
                // What is a data symbol is said to be a variable, too.
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

    /// Adds what units say of one name.
    fn add(&mut self, same: &[(&TypedSymbol<'a>, usize, TypeId)]) {
        let count = |id| same.iter().filter(|(.., other)| *other == id).count();
        let ids = same.iter().rev().map(|(.., id)| *id);
        let most = ids
            .filter(|id| *id != TypeId::NONE)
            .max_by_key(|id| count(*id));
        if let (Some(ty), Some((symbol, ..))) = (most, same.first()) {
            let name = symbol.name.clone();
            self.shared.push(TypedSymbol { name, ty });
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
