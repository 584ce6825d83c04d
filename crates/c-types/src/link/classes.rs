//! Classes of equal types of all units.
//!
//! Two types are in one class if they are equal apart from their references, and the referenced
//! types are pairwise in the same classes. A hash finds candidates, and a comparison confirms them.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::graph::{Graph, NameSpace, Tag, Type, TypeId, TypeKind};

/// A class. 0 is for no type, and for types that contain themselves other than by a tag.
pub(super) type TypeClass = u32;

pub(super) const NO_CLASS: TypeClass = 0;
/// The class of a type that has none yet, also while its references are visited.
const UNKNOWN: TypeClass = u32::MAX;
const OPEN: TypeClass = u32::MAX - 1;

/// A type of a unit: the unit, and the type's id in it.
pub(super) type UnitTypeId = (usize, TypeId);

/// The types of all units, and their classes.
pub(super) struct TypeClasses<'g, 'a> {
    graphs: Vec<&'g Graph<'a>>,
    units: Vec<UnitClasses>,
    meanings: Vec<ClassMeaning<'g>>,
}

/// The classes of the types of one unit, by their ids.
#[derive(Default)]
struct UnitClasses {
    /// Their own classes. A forward's is that of its tag.
    own: Vec<TypeClass>,
    /// The classes that represent them in references: for tagged types, their tag's.
    cited: Vec<TypeClass>,
}

impl UnitClasses {
    /// Marks a type as open, and pushes the referenced types that need a class first; returns
    /// whether there are any.
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

    /// The class that represents a type in references, if it is known.
    fn representative(&self, id: TypeId) -> TypeClass {
        match class_of(&self.cited, id) {
            UNKNOWN => NO_CLASS,
            class => class,
        }
    }

    /// Sets the class of a type.
    fn set(&mut self, id: TypeId, class: TypeClass) {
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

/// The meaning of a class.
#[derive(Debug, Clone, Copy)]
enum ClassMeaning<'g> {
    /// No type.
    Nothing,
    /// A tag, and a forward of a unit that has one.
    Tag((Tag, &'g str), Option<UnitTypeId>),
    /// Types equal to this one.
    Type(UnitTypeId),
}

impl<'g, 'a> TypeClasses<'g, 'a> {
    pub(super) fn new(graphs: Vec<&'g Graph<'a>>, threads: usize) -> TypeClasses<'g, 'a> {
        let size = graphs.len().div_ceil(threads.max(1)).max(1);
        let parts = graphs.chunks(size).collect();
        let mut tables = unspool_parallel::map(parts, threads, ClassTable::new).into_iter();
        let mut all = tables.next().unwrap_or_else(|| ClassTable::new(&[]));
        for table in tables {
            all.merge(table, &graphs);
        }
        TypeClasses {
            graphs,
            units: all.units,
            meanings: all.meanings,
        }
    }

    /// The number of units.
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
    pub(super) fn ty(&self, (unit, id): UnitTypeId) -> Option<&'g Type<'a>> {
        self.graph(unit)?.get(id)
    }

    /// The number of classes, including class 0.
    pub(super) fn len(&self) -> usize {
        self.meanings.len()
    }

    /// A type of a class, and its unit; for a tag's class a forward, if a unit has one.
    pub(super) fn example(&self, class: TypeClass) -> Option<(UnitTypeId, &'g Type<'a>)> {
        let at = match *self.meanings.get(index(class))? {
            ClassMeaning::Nothing => None,
            ClassMeaning::Tag(_, forward) => forward,
            ClassMeaning::Type(at) => Some(at),
        }?;
        Some((at, self.ty(at)?))
    }

    /// The tag of a tag's class.
    pub(super) fn tag(&self, class: TypeClass) -> Option<(Tag, &'g str)> {
        match *self.meanings.get(index(class))? {
            ClassMeaning::Tag(tag, _) => Some(tag),
            _ => None,
        }
    }

    /// The classes of all types of a unit, by their ids.
    pub(super) fn of_unit(&self, unit: usize) -> &[TypeClass] {
        self.units.get(unit).map_or(&[], |unit| &unit.own)
    }

    /// The class of a type.
    pub(super) fn class(&self, (unit, id): UnitTypeId) -> TypeClass {
        class_of(self.of_unit(unit), id)
    }

    /// The class that represents a type in references: its tag's, if it has one.
    pub(super) fn cited(&self, (unit, id): UnitTypeId) -> TypeClass {
        let unit = self.units.get(unit);
        unit.map_or(NO_CLASS, |unit| class_of(&unit.cited, id))
    }
}

/// A number as an index.
pub(super) fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// A size as a 32-bit number; no list here is longer.
pub(super) fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The tag that represents a type in references, if it has one.
pub(super) fn tag_of<'t>(ty: &'t Type<'_>) -> Option<(Tag, &'t str)> {
    match ty.name_space()? {
        NameSpace::Tags(tag) => Some((tag, &ty.name)),
        NameSpace::Ordinary => None,
    }
}

fn class_of(classes: &[TypeClass], id: TypeId) -> TypeClass {
    classes.get(index(id.0)).copied().unwrap_or(NO_CLASS)
}

/// The classes of some units.
#[derive(Default)]
struct ClassTable<'g> {
    hasher: DefaultHashBuilder,
    tags: HashMap<(Tag, &'g str), TypeClass>,
    types: HashTable<TypeClass>,
    meanings: Vec<ClassMeaning<'g>>,
    hashes: Vec<u64>,
    /// The referenced classes of each class, concatenated, and the end of each.
    citations: Vec<TypeClass>,
    ends: Vec<usize>,
    units: Vec<UnitClasses>,
}

impl<'g> ClassTable<'g> {
    fn new(graphs: &[&'g Graph<'_>]) -> ClassTable<'g> {
        let mut table = ClassTable::default();
        table.add(ClassMeaning::Nothing, 0, &[]);
        for unit in 0..graphs.len() {
            table.add_unit(graphs, unit);
        }
        table
    }

    /// A new class.
    fn add(&mut self, meaning: ClassMeaning<'g>, hash: u64, citations: &[TypeClass]) -> TypeClass {
        let class = narrow(self.meanings.len());
        self.meanings.push(meaning);
        self.hashes.push(hash);
        self.citations.extend_from_slice(citations);
        self.ends.push(self.citations.len());
        class
    }

    /// The classes that a class's types refer to.
    fn citations(&self, class: TypeClass) -> &[TypeClass] {
        let at = index(class);
        let end = |at: Option<usize>| at.and_then(|at| self.ends.get(at)).copied().unwrap_or(0);
        let range = end(at.checked_sub(1))..end(Some(at));
        self.citations.get(range).unwrap_or_default()
    }

    /// Finds the classes of all types of a unit. Referenced types come first, unless they have a
    /// tag.
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
                    continue; // visit it again after its references
                }
                open.pop();
                if own == UNKNOWN || own == OPEN {
                    citations.clear();
                    ty.each_reference(|id| citations.push(classes.representative(id)));
                    let class = self.class(graphs, (unit, id), ty, &citations);
                    classes.set(id, class);
                }
            }
        }
        self.units.push(classes);
    }

    /// The classes that follow from tags: those of forwards, and those that represent tagged types
    /// in references.
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
                    TypeKind::Forward(_) => {
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

    /// The class of a tag. If it had no forward yet, it gets this one.
    fn tag(&mut self, tag: (Tag, &'g str), forward: Option<UnitTypeId>) -> TypeClass {
        if let Some(&class) = self.tags.get(&tag) {
            if let Some(ClassMeaning::Tag(_, known)) = self.meanings.get_mut(index(class)) {
                *known = known.or(forward);
            }
            return class;
        }
        let class = self.add(ClassMeaning::Tag(tag, forward), 0, &[]);
        self.tags.insert(tag, class);
        class
    }

    /// The class of a type with references to these classes; a new one if there is none yet.
    fn class(
        &mut self,
        graphs: &[&'g Graph<'_>],
        type_id: UnitTypeId,
        ty: &Type<'_>,
        citations: &[TypeClass],
    ) -> TypeClass {
        let hash = self.hash(ty, citations);
        let is_it = |class: &TypeClass| {
            let Some(ClassMeaning::Type((unit, id))) = self.meanings.get(index(*class)) else {
                return false;
            };
            self.hashes.get(index(*class)) == Some(&hash)
                && self.citations(*class) == citations
                && graphs
                    .get(*unit)
                    .and_then(|graph| graph.get(*id))
                    .is_some_and(|other| {
                        ty.is_hidden == other.is_hidden && ty.equals_shallow(other)
                    })
        };
        if let Some(&class) = self.types.find(hash, is_it) {
            return class;
        }
        let class = self.add(ClassMeaning::Type(type_id), hash, citations);
        let hashes = &self.hashes;
        let hash_of = |class: &TypeClass| hashes.get(index(*class)).copied().unwrap_or(0);
        self.types.insert_unique(hash, class, hash_of);
        class
    }

    /// A hash of most parts of a type: equal types have equal hashes.
    fn hash(&self, ty: &Type<'_>, citations: &[TypeClass]) -> u64 {
        let mut state = self.hasher.build_hasher();
        std::mem::discriminant(&ty.kind).hash(&mut state);
        state.write(ty.own_name().as_bytes());
        match &ty.kind {
            TypeKind::Array { count, .. } => state.write_u64(*count),
            TypeKind::Slice { bits, .. } => state.write_u16(*bits),
            TypeKind::Record { members, .. } => {
                for member in members {
                    state.write(member.name.as_bytes());
                }
            }
            TypeKind::Enum { enumerators, .. } => {
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

    /// Adds the classes of the units behind these.
    fn merge(&mut self, other: ClassTable<'g>, graphs: &[&'g Graph<'_>]) {
        let first = self.units.len();
        let mut ours: Vec<TypeClass> = Vec::with_capacity(other.meanings.len());
        let map = |ours: &[TypeClass], class: &TypeClass| {
            let class = ours.get(index(*class));
            class.copied().unwrap_or(NO_CLASS)
        };
        // In order: each number comes after those of its references.
        for (meaning, theirs) in other.meanings.iter().zip(0..) {
            let class = match *meaning {
                ClassMeaning::Nothing => NO_CLASS,
                ClassMeaning::Tag(tag, forward) => {
                    self.tag(tag, forward.map(|(unit, id)| (unit + first, id)))
                }
                ClassMeaning::Type((unit, id)) => {
                    let at = (unit + first, id);
                    let citations = other.citations(theirs).iter();
                    let citations: Vec<TypeClass> =
                        citations.map(|class| map(&ours, class)).collect();
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
