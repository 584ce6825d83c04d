//! Classes: types of all units that say the same.
//!
//! A type is written as a list of numbers, in which names and the types that it refers to are numbers themselves; two types are of one class if these lists are
//! equal. There is no hash in whose hands the result is.

use std::hash::BuildHasher as _;
use std::thread;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::graph::{Graph, Kind, NameSpace, Qualifier, Tag, Type, TypeId};

/// A class. 0 is that of no type, and of types that contain themselves other than by a tag.
pub(super) type Class = u32;

pub(super) const NO_CLASS: Class = 0;

/// The classes of the types of all units.
pub(super) struct Classes {
    /// Of each unit the classes of its types, by id. A forward's class is that of its tag.
    pub(super) of_units: Vec<Vec<Class>>,
    /// A type of each class: the unit, and the type in it. What stands for a tag has [`TypeId::NONE`] where no unit has it as a
    /// forward.
    pub(super) examples: Vec<(usize, TypeId)>,
}

impl Classes {
    pub(super) fn of(graphs: &[&Graph<'_>], threads: usize) -> Classes {
        let size = graphs.len().div_ceil(threads.max(1)).max(1);
        let shards: Vec<Table<'_>> = match threads > 1 && graphs.len() > 1 {
            false => graphs.chunks(size).map(Table::of).collect(),
            true => thread::scope(|scope| {
                let workers: Vec<_> = graphs
                    .chunks(size)
                    .map(|graphs| scope.spawn(move || Table::of(graphs)))
                    .collect();
                let joined = workers.into_iter().zip(graphs.chunks(size));
                joined
                    .map(|(worker, graphs)| worker.join().unwrap_or_else(|_| Table::of(graphs)))
                    .collect()
            }),
        };
        let mut shards = shards.into_iter();
        let mut all = shards.next().unwrap_or_else(Table::empty);
        let mut first = all.of_units.len();
        for shard in shards {
            let count = shard.of_units.len();
            all.take_in(shard, graphs, first);
            first += count;
        }
        Classes {
            of_units: all.of_units,
            examples: all.examples,
        }
    }

    /// How many there are, [`NO_CLASS`] included.
    pub(super) fn len(&self) -> usize {
        self.examples.len()
    }

    /// A type of a class.
    pub(super) fn example<'g, 'a>(
        &self,
        graphs: &[&'g Graph<'a>],
        class: Class,
    ) -> Option<(usize, &'g Type<'a>)> {
        let (unit, id) = *self.examples.get(index(class))?;
        Some((unit, graphs.get(unit)?.get(id)?))
    }

    /// The class of a type of a unit.
    pub(super) fn class(&self, unit: usize, id: TypeId) -> Class {
        let classes = self.of_units.get(unit);
        classes
            .and_then(|classes| classes.get(index(id.0)))
            .copied()
            .unwrap_or(NO_CLASS)
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

/// Classes of some units.
#[derive(Default)]
struct Table<'g> {
    hasher: DefaultHashBuilder,
    names: HashMap<&'g str, u32>,
    /// The lists of all classes, one behind another.
    words: Vec<u32>,
    /// Where each begins.
    starts: Vec<usize>,
    found: HashTable<Class>,
    examples: Vec<(usize, TypeId)>,
    of_units: Vec<Vec<Class>>,
    scratch: Vec<u32>,
}

impl<'g> Table<'g> {
    fn of(graphs: &[&'g Graph<'_>]) -> Table<'g> {
        let mut table = Table::empty();
        for (unit, graph) in graphs.iter().enumerate() {
            table.add_unit(unit, graph);
        }
        table
    }

    /// With the class of no type, whose list is empty.
    fn empty() -> Table<'g> {
        Table {
            starts: vec![0, 0],
            examples: vec![(0, TypeId::NONE)],
            ..Table::default()
        }
    }

    /// Finds the classes of all types of a unit: of those that one cites first, unless it cites them by a tag.
    fn add_unit(&mut self, unit: usize, graph: &'g Graph<'_>) {
        let last = index(graph.last());
        let mut done: Vec<Option<Class>> = vec![None; last.saturating_add(1)];
        let mut open = Vec::new();
        let mut is_open = vec![false; last.saturating_add(1)];
        for id in 1..=graph.last() {
            open.push(TypeId(id));
            while let Some(&id) = open.last() {
                let at = index(id.0);
                if done.get(at).is_none_or(Option::is_some) {
                    open.pop();
                    continue;
                }
                let Some(ty) = graph.get(id) else {
                    open.pop();
                    continue;
                };
                let was_open = is_open
                    .get_mut(at)
                    .is_none_or(|flag| std::mem::replace(flag, true));
                if !was_open {
                    let before = open.len();
                    ty.each_reference(|cited| {
                        let is_new = done.get(index(cited.0)).is_some_and(Option::is_none)
                            && !is_open.get(index(cited.0)).is_none_or(|is_open| *is_open)
                            && graph.get(cited).is_some_and(|ty| tag_of(ty).is_none());
                        if is_new {
                            open.push(cited);
                        }
                    });
                    if open.len() > before {
                        if let Some(new) = open.get_mut(before..) {
                            new.reverse();
                        }
                        continue;
                    }
                }
                let class = self.class(graph, ty, (unit, id), |_, cited| {
                    done.get(index(cited.0))
                        .copied()
                        .flatten()
                        .unwrap_or(NO_CLASS)
                });
                if let Some(place) = done.get_mut(at) {
                    *place = Some(class);
                }
                open.pop();
            }
        }
        let classes = done
            .into_iter()
            .map(|class| class.unwrap_or(NO_CLASS))
            .collect();
        self.of_units.push(classes);
    }

    /// The class of a type, given those of the types that it cites without a tag.
    fn class(
        &mut self,
        graph: &'g Graph<'_>,
        ty: &'g Type<'_>,
        example: (usize, TypeId),
        cited: impl Fn(&Self, TypeId) -> Class,
    ) -> Class {
        let mut words = std::mem::take(&mut self.scratch);
        words.clear();
        if let Kind::Forward(tag) = ty.kind {
            self.write_tag(&mut words, tag, &ty.name);
        } else {
            self.write(&mut words, graph, ty, cited);
        }
        let class = self.intern(&words, example);
        self.scratch = words;
        class
    }

    /// The class that stands for a type where it is cited.
    fn cited(
        &mut self,
        graph: &'g Graph<'_>,
        id: TypeId,
        cited: &impl Fn(&Self, TypeId) -> Class,
    ) -> Class {
        match graph.get(id).and_then(tag_of) {
            Some((tag, name)) => {
                let mut words = Vec::with_capacity(2);
                self.write_tag(&mut words, tag, name);
                self.intern(&words, (0, TypeId::NONE))
            }
            None => cited(self, id),
        }
    }

    fn write_tag(&mut self, words: &mut Vec<u32>, tag: Tag, name: &'g str) {
        words.push(match tag {
            Tag::Struct => 100,
            Tag::Union => 101,
            Tag::Enum => 102,
        });
        words.push(self.name(name));
    }

    fn name(&mut self, name: &'g str) -> u32 {
        let next = narrow(self.names.len());
        *self.names.entry(name).or_insert(next)
    }

    /// The class of a list; a new one if there is none yet. One that had no example gets this.
    fn intern(&mut self, words: &[u32], example: (usize, TypeId)) -> Class {
        let hash = self.hasher.hash_one(words);
        let (starts, all) = (&self.starts, &self.words);
        let list = |class: Class| {
            let at = index(class);
            let start = starts.get(at).copied().unwrap_or(0);
            let end = starts.get(at.saturating_add(1)).copied().unwrap_or(0);
            all.get(start..end).unwrap_or_default()
        };
        if let Some(&class) = self.found.find(hash, |class| list(*class) == words) {
            if example.1 != TypeId::NONE
                && let Some(old) = self.examples.get_mut(index(class))
                && old.1 == TypeId::NONE
            {
                *old = example;
            }
            return class;
        }
        let class = narrow(self.examples.len());
        let hasher = &self.hasher;
        self.found
            .insert_unique(hash, class, |class| hasher.hash_one(list(*class)));
        self.words.extend_from_slice(words);
        self.starts.push(self.words.len());
        self.examples.push(example);
        class
    }

    /// Writes a type as a list of numbers. The first says what follows, so that no two different types have the same list.
    fn write(
        &mut self,
        words: &mut Vec<u32>,
        graph: &'g Graph<'_>,
        ty: &'g Type<'_>,
        cited: impl Fn(&Self, TypeId) -> Class,
    ) {
        let hidden = u32::from(ty.is_hidden) << 16;
        words.push(code(&ty.kind) | hidden);
        let name = self.name(ty.own_name());
        words.push(name);
        let size_to = |words: &mut Vec<u32>, size: u64| {
            words.extend([narrow_half(size), narrow_half(size >> 32)]);
        };
        match &ty.kind {
            Kind::Unknown | Kind::Forward(_) => {}
            Kind::Integer(number) | Kind::Float(number) => {
                size_to(words, number.size);
                let format = u32::from(number.format) << 24 | u32::from(number.offset) << 16;
                words.push(format | u32::from(number.bits));
            }
            Kind::Pointer(to) | Kind::Typedef(to) | Kind::Qualified(_, to) => {
                let to = self.cited(graph, *to, &cited);
                words.push(to);
            }
            Kind::Array {
                element,
                index,
                count,
            } => {
                for id in [element, index] {
                    let class = self.cited(graph, *id, &cited);
                    words.push(class);
                }
                size_to(words, *count);
            }
            Kind::Function {
                returns,
                parameters,
                is_variadic,
            } => {
                let returns = self.cited(graph, *returns, &cited);
                words.extend([returns, u32::from(*is_variadic)]);
                for parameter in parameters {
                    let name = self.name(&parameter.name);
                    let class = self.cited(graph, parameter.ty, &cited);
                    words.extend([name, class]);
                }
            }
            Kind::Record { size, members, .. } => {
                size_to(words, *size);
                for member in members {
                    let name = self.name(&member.name);
                    let class = self.cited(graph, member.ty, &cited);
                    let bits = member.bits.map_or(0, |bits| u32::from(bits) + 1);
                    words.extend([name, class, bits]);
                    size_to(words, member.offset);
                }
            }
            Kind::Enum { size, enumerators } => {
                size_to(words, *size);
                for enumerator in enumerators {
                    let name = self.name(&enumerator.name);
                    words.push(name);
                    size_to(words, enumerator.value.cast_unsigned());
                }
            }
            Kind::Slice {
                of,
                size,
                offset,
                bits,
            } => {
                let of = self.cited(graph, *of, &cited);
                words.extend([of, u32::from(*offset), u32::from(*bits)]);
                size_to(words, *size);
            }
        }
    }

    /// Takes in the classes of the units behind these.
    fn take_in(&mut self, shard: Table<'g>, graphs: &[&'g Graph<'_>], first: usize) {
        let mut ours: Vec<Class> = Vec::with_capacity(shard.examples.len());
        ours.push(NO_CLASS);
        // In the order of their numbers, which come behind those of what they cite. What stands for a tag is met where it is cited.
        for (unit, id) in shard.examples.iter().skip(1) {
            let unit = unit.saturating_add(first);
            let found = graphs.get(unit).and_then(|graph| {
                let ty = graph.get(*id)?;
                let own = shard.of_units.get(unit.checked_sub(first)?)?;
                Some(self.class(graph, ty, (unit, *id), |_, cited| {
                    let theirs = own.get(index(cited.0)).copied().unwrap_or(NO_CLASS);
                    ours.get(index(theirs)).copied().unwrap_or(NO_CLASS)
                }))
            });
            ours.push(found.unwrap_or(NO_CLASS));
        }
        for classes in shard.of_units {
            let map = |class: Class| ours.get(index(class)).copied().unwrap_or(NO_CLASS);
            self.of_units.push(classes.into_iter().map(map).collect());
        }
    }
}

/// The lower half of a number.
fn narrow_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

/// A number for each kind.
fn code(kind: &Kind<'_>) -> u32 {
    match kind {
        Kind::Unknown => 0,
        Kind::Integer(_) => 1,
        Kind::Float(_) => 2,
        Kind::Pointer(_) => 3,
        Kind::Array { .. } => 4,
        Kind::Function { .. } => 5,
        Kind::Record { tag, .. } if *tag == Tag::Union => 7,
        Kind::Record { .. } => 6,
        Kind::Enum { .. } => 8,
        Kind::Forward(_) => 9,
        Kind::Typedef(_) => 10,
        Kind::Qualified(Qualifier::Volatile, _) => 11,
        Kind::Qualified(Qualifier::Const, _) => 12,
        Kind::Qualified(Qualifier::Restrict, _) => 13,
        Kind::Slice { .. } => 14,
    }
}
