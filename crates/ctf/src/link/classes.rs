//! Classes: types of all units that say the same.
//!
//! Two types are of one class if they are equal but for the types that they cite, and those are of the same classes, one by one. A hash finds types that may
//! be equal; that they are is found out by comparing them.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::graph::{Graph, Kind, NameSpace, Tag, Type, TypeId};
use crate::parallel;

/// A class. 0 is that of no type, and of types that contain themselves other than by a tag.
pub(super) type Class = u32;

pub(super) const NO_CLASS: Class = 0;
/// Of a type whose class is not known yet, and of one whose cited types are looked at.
const UNKNOWN: Class = u32::MAX;
const OPEN: Class = u32::MAX - 1;

/// A type of a unit: the unit, and the type's id in it.
pub(super) type At = (usize, TypeId);

/// The types of all units, and their classes.
pub(super) struct Classes<'g, 'a> {
    graphs: Vec<&'g Graph<'a>>,
    units: Vec<UnitClasses>,
    meanings: Vec<Meaning<'g>>,
}

/// The classes of the types of one unit, by their ids.
#[derive(Default)]
struct UnitClasses {
    /// Their own. A forward's is that of its tag.
    own: Vec<Class>,
    /// Those that stand for them where they are cited: of tags, if they have one.
    cited: Vec<Class>,
}

impl UnitClasses {
    /// Marks a type as open, and adds those that it cites whose classes must be found first; yields whether there are any.
    fn open(&mut self, id: TypeId, ty: &Type<'_>, open: &mut Vec<TypeId>) -> bool {
        if let Some(own) = self.own.get_mut(index(id.0)) {
            *own = OPEN;
        }
        let before = open.len();
        ty.each_reference(|cited| {
            let is_unknown = class_of(&self.own, cited) == UNKNOWN;
            if is_unknown && class_of(&self.cited, cited) == UNKNOWN {
                open.push(cited);
            }
        });
        let new = open.get_mut(before..).unwrap_or_default();
        new.reverse();
        !new.is_empty()
    }

    /// The class that stands for a type where it is cited, as far as it is known.
    fn where_cited(&self, id: TypeId) -> Class {
        match class_of(&self.cited, id) {
            UNKNOWN => NO_CLASS,
            class => class,
        }
    }

    /// Notes the class of a type.
    fn set(&mut self, id: TypeId, class: Class) {
        if let Some(own) = self.own.get_mut(index(id.0)) {
            *own = class;
        }
        if let Some(cited) = self.cited.get_mut(index(id.0))
            && *cited == UNKNOWN
        {
            *cited = class;
        }
    }
}

/// What a class stands for.
#[derive(Debug, Clone, Copy)]
enum Meaning<'g> {
    /// No type.
    Nothing,
    /// A tag, and a forward of a unit that has one.
    Tag((Tag, &'g str), Option<At>),
    /// What this type says.
    Type(At),
}

impl<'g, 'a> Classes<'g, 'a> {
    pub(super) fn of(graphs: Vec<&'g Graph<'a>>, threads: usize) -> Classes<'g, 'a> {
        let size = graphs.len().div_ceil(threads.max(1)).max(1);
        let parts = graphs.chunks(size).collect();
        let mut tables = parallel::map(parts, threads, Table::of).into_iter();
        let mut all = tables.next().unwrap_or_else(|| Table::of(&[]));
        for table in tables {
            all.take_in(table, &graphs);
        }
        Classes {
            graphs,
            units: all.units,
            meanings: all.meanings,
        }
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        self.graphs.len()
    }

    /// The types of all units.
    pub(super) fn graphs(&self) -> impl Iterator<Item = &'g Graph<'a>> {
        self.graphs.iter().copied()
    }

    /// The types of a unit.
    pub(super) fn graph(&self, unit: usize) -> Option<&'g Graph<'a>> {
        self.graphs.get(unit).copied()
    }

    /// A type of a unit.
    pub(super) fn ty(&self, (unit, id): At) -> Option<&'g Type<'a>> {
        self.graph(unit)?.get(id)
    }

    /// How many classes there are, [`NO_CLASS`] included.
    pub(super) fn len(&self) -> usize {
        self.meanings.len()
    }

    /// A type of a class, and of which unit it is; a tag's is a forward, if a unit has one.
    pub(super) fn example(&self, class: Class) -> Option<(At, &'g Type<'a>)> {
        let at = match *self.meanings.get(index(class))? {
            Meaning::Nothing => None,
            Meaning::Tag(_, forward) => forward,
            Meaning::Type(at) => Some(at),
        }?;
        Some((at, self.ty(at)?))
    }

    /// The tag that a class stands for.
    pub(super) fn tag(&self, class: Class) -> Option<(Tag, &'g str)> {
        match *self.meanings.get(index(class))? {
            Meaning::Tag(tag, _) => Some(tag),
            _ => None,
        }
    }

    /// The classes of all types of a unit, by their ids.
    pub(super) fn of_unit(&self, unit: usize) -> &[Class] {
        self.units.get(unit).map_or(&[], |unit| &unit.own)
    }

    /// The class of a type.
    pub(super) fn class(&self, (unit, id): At) -> Class {
        class_of(self.of_unit(unit), id)
    }

    /// The class that stands for a type where it is cited: of its tag, if it has one.
    pub(super) fn cited(&self, (unit, id): At) -> Class {
        let unit = self.units.get(unit);
        unit.map_or(NO_CLASS, |unit| class_of(&unit.cited, id))
    }
}

/// A number as a place in a list.
pub(super) fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A size as a number of 32 bits, of which no list of ours has more.
pub(super) fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The tag by which a type is cited, if it has one.
pub(super) fn tag_of<'t>(ty: &'t Type<'_>) -> Option<(Tag, &'t str)> {
    match ty.name_space()? {
        NameSpace::Tags(tag) => Some((tag, &ty.name)),
        NameSpace::Ordinary => None,
    }
}

fn class_of(classes: &[Class], id: TypeId) -> Class {
    classes.get(index(id.0)).copied().unwrap_or(NO_CLASS)
}

/// Classes of some units.
#[derive(Default)]
struct Table<'g> {
    hasher: DefaultHashBuilder,
    tags: HashMap<(Tag, &'g str), Class>,
    types: HashTable<Class>,
    meanings: Vec<Meaning<'g>>,
    hashes: Vec<u64>,
    /// The classes that the types of each class cite, one class behind another, and where each ends.
    citations: Vec<Class>,
    ends: Vec<usize>,
    units: Vec<UnitClasses>,
}

impl<'g> Table<'g> {
    fn of(graphs: &[&'g Graph<'_>]) -> Table<'g> {
        let mut table = Table::default();
        table.add(Meaning::Nothing, 0, &[]);
        for unit in 0..graphs.len() {
            table.add_unit(graphs, unit);
        }
        table
    }

    /// A new class.
    fn add(&mut self, meaning: Meaning<'g>, hash: u64, citations: &[Class]) -> Class {
        let class = narrow(self.meanings.len());
        self.meanings.push(meaning);
        self.hashes.push(hash);
        self.citations.extend_from_slice(citations);
        self.ends.push(self.citations.len());
        class
    }

    /// The classes that the types of a class cite.
    fn citations(&self, class: Class) -> &[Class] {
        let at = index(class);
        let end = |at: Option<usize>| at.and_then(|at| self.ends.get(at)).copied().unwrap_or(0);
        let range = end(at.checked_sub(1))..end(Some(at));
        self.citations.get(range).unwrap_or_default()
    }

    /// Finds the classes of all types of a unit: of those that one cites first, unless it cites them by a tag.
    fn add_unit(&mut self, graphs: &[&'g Graph<'_>], unit: usize) {
        let Some(graph) = graphs.get(unit) else {
            return;
        };
        let mut classes = self.tags_of(graph, unit);
        let mut open = Vec::new();
        let mut citations = Vec::new();
        for id in 1..=graph.last() {
            open.push(TypeId(id));
            while let Some(&id) = open.last() {
                let Some(ty) = graph.get(id) else {
                    open.pop();
                    continue;
                };
                let own = class_of(&classes.own, id);
                if own == UNKNOWN && classes.open(id, ty, &mut open) {
                    continue; // once those that it cites are known
                }
                open.pop();
                if own == UNKNOWN || own == OPEN {
                    citations.clear();
                    ty.each_reference(|id| citations.push(classes.where_cited(id)));
                    let class = self.class(graphs, (unit, id), ty, &citations);
                    classes.set(id, class);
                }
            }
        }
        self.units.push(classes);
    }

    /// The classes of the types of a unit as far as tags tell them: those of forwards, and those by which types with tags are cited.
    fn tags_of(&mut self, graph: &'g Graph<'_>, unit: usize) -> UnitClasses {
        let count = index(graph.last()).saturating_add(1);
        let mut classes = UnitClasses {
            own: Vec::with_capacity(count),
            cited: Vec::with_capacity(count),
        };
        for id in (0..=graph.last()).map(TypeId) {
            let ty = graph.get(id);
            let tag = ty.and_then(|ty| Some((ty, tag_of(ty)?)));
            let (own, cited) = match (ty, tag) {
                (None, _) => (NO_CLASS, NO_CLASS),
                (Some(_), None) => (UNKNOWN, UNKNOWN),
                (_, Some((ty, tag))) => match ty.kind {
                    Kind::Forward(_) => {
                        let class = self.tag(tag, Some((unit, id)));
                        (class, class)
                    }
                    _ => (UNKNOWN, self.tag(tag, None)),
                },
            };
            classes.own.push(own);
            classes.cited.push(cited);
        }
        classes
    }

    /// The class of a tag. One for which no unit had a forward gets this.
    fn tag(&mut self, tag: (Tag, &'g str), forward: Option<At>) -> Class {
        if let Some(&class) = self.tags.get(&tag) {
            if let Some(Meaning::Tag(_, known)) = self.meanings.get_mut(index(class)) {
                *known = known.or(forward);
            }
            return class;
        }
        let class = self.add(Meaning::Tag(tag, forward), 0, &[]);
        self.tags.insert(tag, class);
        class
    }

    /// The class of a type that cites types of these classes; a new one if there is none yet.
    fn class(
        &mut self,
        graphs: &[&'g Graph<'_>],
        at: At,
        ty: &Type<'_>,
        citations: &[Class],
    ) -> Class {
        let hash = self.hash(ty, citations);
        let is_it = |class: &Class| {
            let Some(Meaning::Type((unit, id))) = self.meanings.get(index(*class)) else {
                return false;
            };
            self.hashes.get(index(*class)) == Some(&hash)
                && self.citations(*class) == citations
                && graphs
                    .get(*unit)
                    .and_then(|graph| graph.get(*id))
                    .is_some_and(|other| ty.is_hidden == other.is_hidden && ty.says_the_same(other))
        };
        if let Some(&class) = self.types.find(hash, is_it) {
            return class;
        }
        let class = self.add(Meaning::Type(at), hash, citations);
        let hashes = &self.hashes;
        let hash_of = |class: &Class| hashes.get(index(*class)).copied().unwrap_or(0);
        self.types.insert_unique(hash, class, hash_of);
        class
    }

    /// A hash of the most of what a type says: equal types have the same.
    fn hash(&self, ty: &Type<'_>, citations: &[Class]) -> u64 {
        let mut state = self.hasher.build_hasher();
        std::mem::discriminant(&ty.kind).hash(&mut state);
        state.write(ty.own_name().as_bytes());
        match &ty.kind {
            Kind::Array { count, .. } => state.write_u64(*count),
            Kind::Slice { bits, .. } => state.write_u16(*bits),
            Kind::Record { members, .. } => {
                for member in members {
                    state.write(member.name.as_bytes());
                }
            }
            Kind::Enum { enumerators, .. } => {
                for enumerator in enumerators {
                    state.write(enumerator.name.as_bytes());
                }
            }
            _ => {}
        }
        for class in citations {
            state.write_u32(*class);
        }
        state.finish()
    }

    /// Takes in the classes of the units behind these.
    fn take_in(&mut self, other: Table<'g>, graphs: &[&'g Graph<'_>]) {
        let first = self.units.len();
        let mut ours: Vec<Class> = Vec::with_capacity(other.meanings.len());
        let map = |ours: &[Class], class: &Class| {
            let class = ours.get(index(*class));
            class.copied().unwrap_or(NO_CLASS)
        };
        // In the order of their numbers, which come behind those of what they cite.
        for (meaning, theirs) in other.meanings.iter().zip(0..) {
            let class = match *meaning {
                Meaning::Nothing => NO_CLASS,
                Meaning::Tag(tag, forward) => {
                    self.tag(tag, forward.map(|(unit, id)| (unit + first, id)))
                }
                Meaning::Type((unit, id)) => {
                    let at = (unit + first, id);
                    let citations = other.citations(theirs).iter();
                    let citations: Vec<Class> = citations.map(|class| map(&ours, class)).collect();
                    let ty = graphs.get(at.0).and_then(|graph| graph.get(id));
                    ty.map_or(NO_CLASS, |ty| self.class(graphs, at, ty, &citations))
                }
            };
            ours.push(class);
        }
        for mut unit in other.units {
            for class in unit.own.iter_mut().chain(&mut unit.cited) {
                *class = map(&ours, class);
            }
            self.units.push(unit);
        }
    }
}
