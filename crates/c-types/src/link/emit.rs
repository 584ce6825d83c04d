//! Building the resulting graphs of a link.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;

use super::classes::{TypeClasses, UnitTypeId, index};
use super::layer::{Layer, LayerType};
use super::names::{SharedNames, SymbolList};
use super::sharing::{Choices, ShareStatus, differences};
use super::{LinkOutput, LinkUnit, Share};
use crate::graph::{Graph, NameSpace, TypeId, TypeKind};
use crate::record::kind;

/// Builds graphs from the results for all units.
pub(super) struct Emitter<'l, 'g, 'a> {
    pub(super) units: &'l [LinkUnit<'a>],
    pub(super) classes: &'l TypeClasses<'g, 'a>,
    pub(super) choices: &'l Choices,
    /// The status of each unit's types; `None` if all are shared.
    pub(super) statuses: &'l [Option<Vec<ShareStatus>>],
}

/// A child to be made.
struct Child<'a> {
    /// Its source file.
    file: Cow<'a, str>,
    units: Vec<usize>,
}

impl<'l, 'g, 'a> Emitter<'l, 'g, 'a> {
    pub(super) fn link_output(&self, threads: usize) -> LinkOutput<'a> {
        let pointer_size = self.classes.graph(0).map_or(8, |graph| graph.pointer_size);
        let mut graph = Graph::new(pointer_size);
        if let [only] = self.units {
            graph.unit = Some(only.name.clone());
        }
        let shared = self.shared(&mut graph);
        let id_of = |at| {
            if self.is_shared(at) {
                shared.id_of(at)
            } else {
                TypeId::NONE
            }
        };
        let names = SymbolList::ALL.map(|list| SharedNames::new(self.classes, list, id_of));
        for (list, names) in SymbolList::ALL.into_iter().zip(&names) {
            list.symbols_mut(&mut graph).clone_from(&names.shared);
        }
        let graph = Arc::new(graph);
        let child = |(name, child): (Cow<'a, str>, Child<'a>)| {
            let mut made = Graph::with_parent(Arc::clone(&graph));
            made.unit = Some(child.file);
            self.child(&mut made, &child.units, &shared, &names);
            (name, made)
        };
        let children = self.children(&names).into_iter().collect();
        LinkOutput {
            children: unspool_parallel::map(children, threads, child),
            shared: graph,
        }
    }

    /// Makes the shared types.
    fn shared(&self, graph: &mut Graph<'a>) -> Layer<'l, 'g, 'a> {
        let mut shared = Layer::new(self.classes, self.choices, 0);
        let mut is_known = vec![false; self.classes.len()];
        let is_new = |type_id: &UnitTypeId| {
            let known = is_known.get_mut(index(self.classes.class(*type_id)));
            known.is_some_and(|known| !std::mem::replace(known, true))
        };
        let all = (0..self.units.len()).flat_map(|unit| self.types(unit));
        let all = all.filter(|at| self.is_shared(*at)).filter(is_new);
        for at in self.in_order(all) {
            shared.id_in(at);
        }
        shared.fill(graph, HashSet::new(), |shared, _, at| shared.id_in(at));
        shared
    }

    /// The children to make, by name: one for each unit with types or names of its own, or for all
    /// units with a common child.
    fn children(&self, names: &[SharedNames<'a>; 3]) -> BTreeMap<Cow<'a, str>, Child<'a>> {
        let mut children: BTreeMap<Cow<'a, str>, Child<'a>> = BTreeMap::new();
        let has_own = |at: usize| {
            let has_types = self.statuses.get(at).is_some_and(Option::is_some);
            let mut names = names.iter().filter_map(|names| names.own.get(at));
            has_types || names.any(|own| !own.is_empty())
        };
        // Common children keep their names. A unit without types of its own belongs to one, too:
        // look-ups start there.
        let mut units: Vec<_> = self.units.iter().enumerate().collect();
        units.sort_by_key(|(_, unit)| unit.child.is_none());
        for (at, unit) in units {
            if unit.child.is_none() && !has_own(at) {
                continue;
            }
            let name = match &unit.child {
                Some(name) => name.clone(),
                None => free_name(&unit.name, |name| children.contains_key(name)),
            };
            let file = unit.child.as_ref().unwrap_or(&unit.name);
            let child = children.entry(name).or_insert_with(|| Child {
                file: file.clone(),
                units: Vec::new(),
            });
            child.units.push(at);
        }
        children.retain(|_, child| child.units.iter().any(|at| has_own(*at)));
        children
    }

    /// The types of a unit.
    fn types(&self, unit: usize) -> impl Iterator<Item = UnitTypeId> + use<> {
        let last = self.classes.graph(unit).map_or(0, Graph::last);
        (1..=last).map(move |id| (unit, TypeId(id)))
    }

    /// Types in output order: sorted by kind, since this compresses best.
    fn in_order(&self, types: impl Iterator<Item = UnitTypeId>) -> Vec<UnitTypeId> {
        let mut types: Vec<UnitTypeId> = types.collect();
        types.sort_by_key(|at| self.classes.ty(*at).map(|ty| kind::number(&ty.kind)));
        types
    }

    /// The names for which units with a common child must find the shared type: the first unit with
    /// more than a forward has no type of its own.
    fn names_of_shared(&self, units: &[usize]) -> HashSet<(NameSpace, Cow<'a, str>)> {
        let mut names = HashSet::new();
        if let [_] = units {
            return names;
        }
        let mut known = HashSet::new();
        for at in units.iter().flat_map(|&unit| self.types(unit)) {
            if let Some(ty) = self.classes.ty(at)
                && let Some(space) = ty.name_space()
                && !ty.is_hidden
                && !matches!(ty.kind, TypeKind::Forward(_))
                && known.insert((space, &*ty.name))
                && self.is_shared(at)
            {
                names.insert((space, ty.name.clone()));
            }
        }
        names
    }

    fn is_shared(&self, type_id: UnitTypeId) -> bool {
        status(self.statuses, type_id) == ShareStatus::Shared
    }

    /// Makes a child: its units' types beyond the shared ones, once if the units agree.
    fn child(
        &self,
        graph: &mut Graph<'a>,
        units: &[usize],
        shared: &Layer<'_, '_, 'a>,
        names: &[SharedNames<'a>; 3],
    ) {
        let only = Some(self.statuses);
        let choices = Choices::new(self.classes, Share::Unconflicted, (units, only));
        let mut inner = vec![None; self.units.len()];
        for &unit in units {
            if let Some(place) = inner.get_mut(unit) {
                *place = differences(self.classes, &choices, (unit, only));
            }
        }
        let mut layer = Layer::new(self.classes, &choices, graph.base());
        // The id of a type of the unit's own, and of one referenced from a common type.
        let own = |layer: &mut Layer<'_, '_, 'a>, at| match status(&inner, at) {
            ShareStatus::Shared => None,
            _ => Some(layer.own(at)),
        };
        let all = units.iter().flat_map(|&unit| self.types(unit));
        for at in self.in_order(all.filter(|at| !self.is_shared(*at))) {
            if own(&mut layer, at).is_none() {
                layer.id_in(at);
            }
        }
        let taken = self.names_of_shared(units);
        layer.fill(graph, taken, |layer, item, at| match item {
            _ if self.is_shared(at) => shared.id_of(at),
            LayerType::Own(_) => own(layer, at).unwrap_or_else(|| layer.id_in(at)),
            _ => layer.id_in(at),
        });
        for (list, names) in SymbolList::ALL.into_iter().zip(names) {
            let list = list.symbols_mut(graph);
            for &unit in units {
                let all = names.own.get(unit).into_iter().flatten();
                list.extend(all.map(|symbol| {
                    let at = (unit, symbol.ty);
                    let ty = if self.is_shared(at) {
                        shared.id_of(at)
                    } else {
                        layer.own_of(at).unwrap_or_else(|| layer.id_of(at))
                    };
                    symbol.with_type(ty)
                }));
            }
            list.sort();
            list.dedup_by(|one, other| one.name == other.name);
        }
    }
}

/// The status of a type, from the statuses of its unit.
fn status(statuses: &[Option<Vec<ShareStatus>>], (unit, id): UnitTypeId) -> ShareStatus {
    let statuses = statuses.get(unit).and_then(Option::as_ref);
    let status = statuses.and_then(|statuses| statuses.get(index(id.0)));
    status.copied().unwrap_or(ShareStatus::Shared)
}

/// The name of a unit, or the name with the first free number.
fn free_name<'a>(name: &Cow<'a, str>, is_taken: impl Fn(&str) -> bool) -> Cow<'a, str> {
    if !is_taken(name) {
        return name.clone();
    }
    let numbered = (0..).map(|number| format!("{name}#{number}"));
    numbered
        .filter(|name| !is_taken(name))
        .map(Cow::Owned)
        .next()
        .unwrap_or_default()
}
