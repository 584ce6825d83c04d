//! The graphs that a link yields.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::classes::{Class, Classes, index, tag_of};
use super::differ::{Choice, Choices, Status, differences};
use super::{LinkUnit, Linked, Share};
use crate::graph::{Graph, Kind, NameSpace, Symbol, Tag, Type, TypeId};

/// Makes the graphs of what was found out about units.
pub(super) struct Emitter<'l, 'a> {
    units: &'l [LinkUnit<'a>],
    graphs: &'l [&'l Graph<'a>],
    classes: &'l Classes,
    choices: &'l Choices<'l>,
    /// What the types of each unit are; `None` if all are shared.
    statuses: &'l [Option<Vec<Status>>],
}

/// A type of a graph that is being made.
#[derive(Clone, Copy)]
enum Item<'l> {
    /// What is the same in some units, and a type of one of them.
    Class(Class, (usize, TypeId)),
    /// A tag of which no more is shared.
    Forward(Tag, &'l str),
    /// A type of one unit.
    Own(usize, TypeId),
}

/// The types of a graph that is being made, with the ids that they will have.
struct Layer<'l> {
    choices: &'l Choices<'l>,
    base: u32,
    items: Vec<Item<'l>>,
    of_class: HashMap<Class, TypeId>,
    of_tag: HashMap<(Tag, &'l str), TypeId>,
    of_own: HashMap<(usize, TypeId), TypeId>,
}

impl<'l> Layer<'l> {
    fn new(choices: &'l Choices<'l>, base: u32) -> Layer<'l> {
        Layer {
            choices,
            base,
            items: Vec::new(),
            of_class: HashMap::new(),
            of_tag: HashMap::new(),
            of_own: HashMap::new(),
        }
    }

    /// What stands for a type of a unit here; `None` if nothing does.
    fn item<'t>(&self, ty: &'t Type<'_>, class: Class, at: (usize, TypeId)) -> Option<Item<'t>> {
        let Some(tag) = tag_of(ty) else {
            return Some(Item::Class(class, at));
        };
        match self.choices.of_tag(tag)? {
            Choice::Class(class) => Some(Item::Class(class, at)),
            Choice::Forward => Some(Item::Forward(tag.0, tag.1)),
            Choice::Nothing => None,
        }
    }

    /// The id of what stands for a type here, if it has one.
    fn find(&self, item: Item<'_>) -> Option<TypeId> {
        match item {
            Item::Class(class, _) => self.of_class.get(&class),
            Item::Forward(tag, name) => self.of_tag.get(&(tag, name)),
            Item::Own(unit, id) => self.of_own.get(&(unit, id)),
        }
        .copied()
    }

    /// The id of a type that a unit has for itself.
    fn own(&mut self, unit: usize, id: TypeId) -> TypeId {
        self.add(Item::Own(unit, id))
    }

    fn add(&mut self, item: Item<'l>) -> TypeId {
        let count = super::classes::narrow(self.items.len());
        let next = TypeId(self.base.saturating_add(count).saturating_add(1));
        let id = match item {
            Item::Class(class, _) => self.of_class.entry(class).or_insert(next),
            Item::Forward(tag, name) => self.of_tag.entry((tag, name)).or_insert(next),
            Item::Own(unit, id) => self.of_own.entry((unit, id)).or_insert(next),
        };
        if *id == next {
            self.items.push(item);
        }
        *id
    }
}

/// The names of one kind that have types.
#[derive(Default)]
struct Names<'a> {
    /// Those that mean the same in all units, or in most.
    shared: Vec<Symbol<'a>>,
    /// Of each unit those that mean something else there, with the ids of its types.
    own: Vec<Vec<Symbol<'a>>>,
}

impl<'l, 'a> Emitter<'l, 'a> {
    pub(super) fn new(
        units: &'l [LinkUnit<'a>],
        graphs: &'l [&'l Graph<'a>],
        classes: &'l Classes,
        choices: &'l Choices<'l>,
        statuses: &'l [Option<Vec<Status>>],
    ) -> Emitter<'l, 'a> {
        Emitter {
            units,
            graphs,
            classes,
            choices,
            statuses,
        }
    }

    pub(super) fn linked(&self) -> Linked<'a> {
        let mut shared = Layer::new(self.choices, 0);
        for unit in 0..self.units.len() {
            self.each_type(unit, |id, _| {
                if self.status(unit, id) == Status::Shared {
                    self.id_in(&mut shared, (unit, id));
                }
            });
        }
        let mut graph = Graph::new(self.graphs.first().map_or(8, |graph| graph.pointer_size));
        if let [only] = self.units {
            graph.unit = Some(only.name.clone());
        }
        self.fill(&mut graph, &mut shared, |shared, _, at| {
            self.id_in(shared, at)
        });
        let names = LISTS.map(|list| self.names(&shared, list));
        for (list, names) in LISTS.into_iter().zip(&names) {
            list_mut(&mut graph, list).clone_from(&names.shared);
        }
        let graph = Arc::new(graph);
        let mut children: Vec<(&Cow<'a, str>, Vec<usize>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (at, unit) in self.units.iter().enumerate() {
            let has_types = self.statuses.get(at).is_some_and(Option::is_some);
            let has_names = names
                .iter()
                .any(|names| names.own.get(at).is_some_and(|own| !own.is_empty()));
            if has_types || has_names {
                let next = children.len();
                let place = *places.entry(&unit.name).or_insert(next);
                if place == next {
                    children.push((&unit.name, Vec::new()));
                }
                if let Some((_, units)) = children.get_mut(place) {
                    units.push(at);
                }
            }
        }
        children.sort();
        let child = |(name, units): (&Cow<'a, str>, Vec<usize>)| {
            let mut child = Graph::child_of(Arc::clone(&graph));
            child.unit = Some(name.clone());
            self.child(&mut child, &units, &shared, &names);
            (name.clone(), child)
        };
        Linked {
            children: children.into_iter().map(child).collect(),
            shared: graph,
        }
    }

    fn each_type(&self, unit: usize, mut visit: impl FnMut(TypeId, &'l Type<'a>)) {
        let Some(graph) = self.graphs.get(unit) else {
            return;
        };
        for id in (1..=graph.last()).map(TypeId) {
            if let Some(ty) = graph.get(id) {
                visit(id, ty);
            }
        }
    }

    fn ty(&self, unit: usize, id: TypeId) -> Option<&'l Type<'a>> {
        self.graphs.get(unit)?.get(id)
    }

    fn status(&self, unit: usize, id: TypeId) -> Status {
        status(self.statuses, unit, id)
    }

    /// What stands for a unit's type in a layer.
    fn item(&self, layer: &Layer<'_>, (unit, id): (usize, TypeId)) -> Option<Item<'l>> {
        let ty = self.ty(unit, id)?;
        let item = layer.item(ty, self.classes.class(unit, id), (unit, id))?;
        Some(match (item, &ty.kind) {
            // Whoever completes the forward has the type.
            (Item::Class(class, _), Kind::Forward(_)) => {
                Item::Class(class, *self.classes.examples.get(index(class))?)
            }
            (item, _) => item,
        })
    }

    /// The id of a unit's type in a layer; a new one if it has none yet.
    fn id_in<'c>(&'c self, layer: &mut Layer<'c>, at: (usize, TypeId)) -> TypeId {
        self.item(layer, at)
            .map_or(TypeId::NONE, |item| layer.add(item))
    }

    /// The id of a unit's type in a layer that is made already.
    fn id_of(&self, layer: &Layer<'_>, at: (usize, TypeId)) -> TypeId {
        let item = self.item(layer, at);
        item.and_then(|item| layer.find(item)).unwrap_or_default()
    }

    /// Makes the types of a layer, each with the references that a function yields.
    fn fill<'c>(
        &'c self,
        graph: &mut Graph<'a>,
        layer: &mut Layer<'c>,
        reference: impl Fn(&mut Layer<'c>, Item<'c>, (usize, TypeId)) -> TypeId,
    ) {
        let mut names: HashSet<(NameSpace, Cow<'a, str>)> = HashSet::new();
        let mut at = 0;
        while let Some(item) = layer.items.get(at).copied() {
            at += 1;
            let (unit, id) = match item {
                Item::Class(_, at) => at,
                Item::Own(unit, id) => (unit, id),
                Item::Forward(tag, name) => {
                    let name = Cow::Owned(name.to_owned());
                    graph.add(Type::named(name, Kind::Forward(tag)));
                    continue;
                }
            };
            let Some(mut ty) = self.ty(unit, id).cloned() else {
                graph.add(Type::unnamed(Kind::Unknown));
                continue;
            };
            if ty.own_name().is_empty() {
                ty.name = Cow::Borrowed("");
            }
            ty = ty.with_references(|id| reference(layer, item, (unit, id)));
            // Of types with one name in one graph the first is found by it.
            if let Some(space) = ty.name_space()
                && !ty.is_hidden
            {
                ty.is_hidden = !names.insert((space, ty.name.clone()));
            }
            graph.add(ty);
        }
    }

    /// Makes a child: what its units have beyond what is shared, once where they agree on it.
    fn child(
        &self,
        graph: &mut Graph<'a>,
        units: &[usize],
        shared: &Layer<'_>,
        names: &[Names<'a>; 3],
    ) {
        let only = Some(self.statuses);
        let choices = Choices::of(
            self.graphs,
            self.classes,
            Share::Unconflicted,
            (units, only),
        );
        let mut inner = vec![None; self.units.len()];
        for &unit in units {
            if let Some(place) = inner.get_mut(unit) {
                *place = differences(self.graphs, self.classes, &choices, (unit, only));
            }
        }
        let mut layer = Layer::new(&choices, graph.base());
        // The id of a type where it is the unit's own, and where it is cited by what units agree on.
        let own = |layer: &mut Layer<'_>, (unit, id)| match status(&inner, unit, id) {
            Status::Shared => None,
            _ => Some(layer.own(unit, id)),
        };
        let is_shared = |(unit, id)| self.status(unit, id) == Status::Shared;
        for &unit in units {
            self.each_type(unit, |id, _| {
                if !is_shared((unit, id)) && own(&mut layer, (unit, id)).is_none() {
                    self.id_in(&mut layer, (unit, id));
                }
            });
        }
        self.fill(graph, &mut layer, |layer, item, at| match item {
            _ if is_shared(at) => self.id_of(shared, at),
            Item::Own(..) => own(layer, at).unwrap_or_else(|| self.id_in(layer, at)),
            _ => self.id_in(layer, at),
        });
        for (list, names) in LISTS.into_iter().zip(names) {
            let list = list_mut(graph, list);
            for &unit in units {
                let all = names.own.get(unit).into_iter().flatten();
                list.extend(all.map(|symbol| {
                    let at = (unit, symbol.ty);
                    let own = || layer.of_own.get(&at).copied();
                    let ty = match is_shared(at) {
                        true => self.id_of(shared, at),
                        false => own().unwrap_or_else(|| self.id_of(&layer, at)),
                    };
                    let name = symbol.name.clone();
                    Symbol { name, ty }
                }));
            }
            list.sort();
            list.dedup_by(|one, other| one.name == other.name);
        }
    }

    /// The names of one kind: with the type that most units give to each, as far as that is shared, and where units differ.
    fn names(&self, shared: &Layer<'_>, list: List) -> Names<'a> {
        let mut names = Names {
            shared: Vec::new(),
            own: vec![Vec::new(); self.units.len()],
        };
        let mut all: Vec<(&Symbol<'a>, usize, TypeId)> = Vec::new();
        for (unit, graph) in self.graphs.iter().enumerate() {
            let objects: HashSet<&str> = match list {
                // What is a data symbol is said to be a variable, too.
                List::Variables => graph.objects.iter().map(|symbol| &*symbol.name).collect(),
                _ => HashSet::new(),
            };
            let symbols = list_of(graph, list).iter();
            for symbol in symbols.filter(|symbol| !objects.contains(&*symbol.name)) {
                let at = (unit, symbol.ty);
                let id = match self.status(unit, symbol.ty) {
                    Status::Shared => self.id_of(shared, at),
                    _ => TypeId::NONE,
                };
                all.push((symbol, unit, id));
            }
        }
        all.sort_by(|(one, ..), (other, ..)| one.name.cmp(&other.name));
        for same in all.chunk_by(|(one, ..), (other, ..)| one.name == other.name) {
            let count = |id| same.iter().filter(|(.., other)| *other == id).count();
            let ids = same
                .iter()
                .rev()
                .map(|(.., id)| *id)
                .filter(|id| *id != TypeId::NONE);
            let most = ids.max_by_key(|id| count(*id));
            if let (Some(ty), Some((symbol, ..))) = (most, same.first()) {
                let name = symbol.name.clone();
                names.shared.push(Symbol { name, ty });
            }
            for (symbol, unit, id) in same {
                if Some(*id) != most
                    && let Some(own) = names.own.get_mut(*unit)
                {
                    own.push((*symbol).clone());
                }
            }
        }
        names
    }
}

/// Which of the lists of names a graph has.
#[derive(Clone, Copy)]
enum List {
    Functions,
    Objects,
    Variables,
}

const LISTS: [List; 3] = [List::Functions, List::Objects, List::Variables];

fn list_of<'s, 'a>(graph: &'s Graph<'a>, list: List) -> &'s [Symbol<'a>] {
    match list {
        List::Functions => &graph.functions,
        List::Objects => &graph.objects,
        List::Variables => &graph.variables,
    }
}

fn list_mut<'s, 'a>(graph: &'s mut Graph<'a>, list: List) -> &'s mut Vec<Symbol<'a>> {
    match list {
        List::Functions => &mut graph.functions,
        List::Objects => &mut graph.objects,
        List::Variables => &mut graph.variables,
    }
}

fn status(statuses: &[Option<Vec<Status>>], unit: usize, id: TypeId) -> Status {
    let statuses = statuses.get(unit).and_then(Option::as_ref);
    statuses
        .and_then(|statuses| statuses.get(index(id.0)))
        .copied()
        .unwrap_or(Status::Shared)
}
