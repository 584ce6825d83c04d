//! Functions and data: of each name the type that most units give to it is shared, and units that mean another say so themselves.

use hashbrown::HashSet;

use super::classes::{At, Classes};
use crate::graph::{Graph, Symbol, TypeId};

/// Which of the lists of names a graph has.
#[derive(Clone, Copy)]
pub(super) enum List {
    Functions,
    Objects,
    Variables,
}

impl List {
    pub(super) const ALL: [List; 3] = [List::Functions, List::Objects, List::Variables];

    pub(super) fn of<'s, 'a>(self, graph: &'s Graph<'a>) -> &'s [Symbol<'a>] {
        match self {
            List::Functions => &graph.functions,
            List::Objects => &graph.objects,
            List::Variables => &graph.variables,
        }
    }

    pub(super) fn of_mut<'s, 'a>(self, graph: &'s mut Graph<'a>) -> &'s mut Vec<Symbol<'a>> {
        match self {
            List::Functions => &mut graph.functions,
            List::Objects => &mut graph.objects,
            List::Variables => &mut graph.variables,
        }
    }
}

/// The names of one kind that have types.
pub(super) struct Names<'a> {
    /// Those that mean the same in all units, or in most.
    pub(super) shared: Vec<Symbol<'a>>,
    /// Of each unit those that mean something else there, with the ids of its types.
    pub(super) own: Vec<Vec<Symbol<'a>>>,
}

impl<'a> Names<'a> {
    /// The names of all units, given the ids that their types have among the shared ones; [`TypeId::NONE`] of those that are not shared.
    pub(super) fn of(classes: &Classes<'_, 'a>, list: List, id_of: impl Fn(At) -> TypeId) -> Self {
        let mut names = Names {
            shared: Vec::new(),
            own: vec![Vec::new(); classes.units()],
        };
        let mut all: Vec<(&Symbol<'a>, usize, TypeId)> = Vec::new();
        for (unit, graph) in classes.graphs().enumerate() {
            let objects: HashSet<&str> = match list {
                // What is a data symbol is said to be a variable, too.
                List::Variables => graph.objects.iter().map(|symbol| &*symbol.name).collect(),
                _ => HashSet::new(),
            };
            let symbols = list.of(graph).iter();
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
    fn add(&mut self, same: &[(&Symbol<'a>, usize, TypeId)]) {
        let count = |id| same.iter().filter(|(.., other)| *other == id).count();
        let ids = same.iter().rev().map(|(.., id)| *id);
        let most = ids
            .filter(|id| *id != TypeId::NONE)
            .max_by_key(|id| count(*id));
        if let (Some(ty), Some((symbol, ..))) = (most, same.first()) {
            let name = symbol.name.clone();
            self.shared.push(Symbol { name, ty });
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
