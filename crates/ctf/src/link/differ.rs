//! What is shared of each name, and what in a unit differs from that.

use hashbrown::{HashMap, HashSet};

use super::Share;
use super::classes::{Class, Classes, NO_CLASS, index, narrow, tag_of};
use crate::graph::{Graph, Kind, NameSpace, Tag, Type, TypeId};

/// What is shared of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Types of that class.
    Class(Class),
    /// A forward, which children complete.
    Forward,
    /// Nothing.
    Nothing,
}

/// What all units have of a name.
#[derive(Debug)]
struct Variants<'g> {
    tag: Option<(Tag, &'g str)>,
    /// The classes of the types, in the order in which units have them first.
    classes: Vec<Class>,
    /// How many units know only the tag.
    forwards: u32,
    choice: Choice,
}

/// The choices for all names.
pub(super) struct Choices<'g> {
    names: Vec<Variants<'g>>,
    /// Of each class the name that it is of.
    name_of: Vec<Option<u32>>,
    by_tag: HashMap<(Tag, &'g str), u32>,
    /// How many units have types of each class.
    units: Vec<u32>,
    /// The classes that units have, ascending.
    present: Vec<Class>,
    share: Share,
}

/// Which types of each unit are linked: all, or those that differ from what is shared already.
pub(super) type Only<'s> = Option<&'s [Option<Vec<Status>>]>;

/// What a type of a unit is, seen from what is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// It is shared.
    Shared,
    /// It is the unit's, and what is shared has a forward in its place.
    Completes,
    /// It is the unit's.
    Differs,
}

impl<'g> Choices<'g> {
    /// Chooses for all names that types of some units have.
    pub(super) fn of(
        graphs: &[&'g Graph<'_>],
        classes: &Classes,
        share: Share,
        (units, only): (&[usize], Only<'_>),
    ) -> Choices<'g> {
        let mut choices = Choices {
            names: Vec::new(),
            name_of: vec![None; classes.len()],
            by_tag: HashMap::new(),
            units: vec![0; classes.len()],
            present: Vec::new(),
            share,
        };
        choices.count(classes, units, only);
        choices.group(graphs, classes);
        choices.choose();
        choices.spread_forwards(graphs, classes);
        choices
    }

    /// Counts the units that have types of each class.
    fn count(&mut self, classes: &Classes, units: &[usize], only: Only<'_>) {
        let mut last = vec![usize::MAX; classes.len()];
        for &unit in units {
            let of_unit = classes.of_units.get(unit).map_or(&[][..], Vec::as_slice);
            for (id, class) in of_unit.iter().enumerate() {
                if !takes_part(only, unit, id) {
                    continue;
                }
                let at = index(*class);
                if let (Some(last), Some(count)) = (last.get_mut(at), self.units.get_mut(at))
                    && std::mem::replace(last, unit) != unit
                {
                    *count += 1;
                    if *count == 1 {
                        self.present.push(*class);
                    }
                }
            }
        }
        self.present.sort_unstable();
    }

    /// Brings the classes of each name together.
    fn group(&mut self, graphs: &[&'g Graph<'_>], classes: &Classes) {
        let mut groups: HashMap<(NameSpace, &'g str), u32> = HashMap::new();
        for &class in &self.present {
            let count = self.units.get(index(class)).copied().unwrap_or(0);
            let Some((_, ty)) = classes.example(graphs, class) else {
                continue;
            };
            let Some(space) = ty.name_space().filter(|_| !ty.is_hidden) else {
                continue;
            };
            let next = narrow(self.names.len());
            let group = *groups.entry((space, &*ty.name)).or_insert(next);
            if group == next {
                let tag = tag_of(ty);
                if let Some(tag) = tag {
                    self.by_tag.insert(tag, group);
                }
                self.names.push(Variants {
                    tag,
                    classes: Vec::new(),
                    forwards: 0,
                    choice: Choice::Nothing,
                });
            }
            if let Some(variants) = self.names.get_mut(index(group)) {
                match ty.kind {
                    Kind::Forward(_) => variants.forwards = count,
                    _ => variants.classes.push(class),
                }
            }
            if let Some(name) = self.name_of.get_mut(index(class)) {
                *name = Some(group);
            }
        }
    }

    fn choose(&mut self) {
        let least = match self.share {
            Share::Unconflicted => 1,
            Share::Duplicated => 2,
        };
        for variants in &mut self.names {
            let count = |class: &Class| self.units.get(index(*class)).copied().unwrap_or(0);
            // The first of those that most units have.
            let most = variants
                .classes
                .iter()
                .rev()
                .max_by_key(|class| count(class));
            let is_conflicted = variants.classes.len() > 1;
            variants.choice = match most {
                Some(_) if is_conflicted && variants.forwards > 0 => Choice::Forward,
                Some(class) if count(class).saturating_add(variants.forwards) >= least => {
                    Choice::Class(*class)
                }
                None if variants.forwards >= least => Choice::Forward,
                _ => Choice::Nothing,
            };
        }
    }

    /// What contains something of which only a forward is shared can be shared only as a forward, too.
    fn spread_forwards(&mut self, graphs: &[&'g Graph<'_>], classes: &Classes) {
        loop {
            let mut forwards = Vec::new();
            for (at, variants) in self.names.iter().enumerate() {
                let Choice::Class(class) = variants.choice else {
                    continue;
                };
                if variants.tag.is_some() && self.contains_forward(graphs, classes, class) {
                    forwards.push(at);
                }
            }
            if forwards.is_empty() {
                return;
            }
            for at in forwards {
                if let Some(variants) = self.names.get_mut(at) {
                    variants.choice = Choice::Forward;
                }
            }
        }
    }

    /// Whether types of a class have members of which what is shared has only forwards.
    fn contains_forward(&self, graphs: &[&Graph<'_>], classes: &Classes, class: Class) -> bool {
        let Some((unit, ty)) = classes.example(graphs, class) else {
            return false;
        };
        let Some(graph) = graphs.get(unit) else {
            return false;
        };
        let mut open = Vec::new();
        let mut seen = HashSet::new();
        push_contained(ty, &mut open);
        while let Some(id) = open.pop() {
            let Some(ty) = graph.get(id).filter(|_| seen.insert(id)) else {
                continue;
            };
            match tag_of(ty) {
                Some(tag) => {
                    let is_complete = !matches!(ty.kind, Kind::Forward(_));
                    if is_complete && self.of_tag(tag) == Some(Choice::Forward) {
                        return true;
                    }
                }
                None => push_contained(ty, &mut open),
            }
        }
        false
    }

    /// What was chosen for a tag.
    pub(super) fn of_tag(&self, tag: (Tag, &str)) -> Option<Choice> {
        let group = *self.by_tag.get(&tag)?;
        Some(self.names.get(index(group))?.choice)
    }

    /// What was chosen for the name that types of a class have; `None` if they have none.
    fn of_class(&self, class: Class) -> Option<Choice> {
        let group = (*self.name_of.get(index(class))?)?;
        Some(self.names.get(index(group))?.choice)
    }

    /// What a type is, if only its own class counts.
    fn status(&self, ty: &Type<'_>, class: Class) -> Status {
        if ty.is_hidden && ty.name_space().is_some() {
            return Status::Differs;
        }
        match self.of_class(class) {
            _ if class == NO_CLASS => Status::Differs,
            Some(Choice::Class(chosen)) if chosen == class => Status::Shared,
            Some(Choice::Class(_) | Choice::Forward) if matches!(ty.kind, Kind::Forward(_)) => {
                Status::Shared
            }
            Some(Choice::Forward) => Status::Completes,
            Some(Choice::Class(_) | Choice::Nothing) => Status::Differs,
            None => match self.share {
                Share::Unconflicted => Status::Shared,
                Share::Duplicated
                    if self.units.get(index(class)).is_some_and(|count| *count > 1) =>
                {
                    Status::Shared
                }
                Share::Duplicated => Status::Differs,
            },
        }
    }

    /// What a type is that leads to another one.
    fn follows(&self, ty: &Type<'_>, cited: Status) -> Status {
        match (&ty.kind, cited) {
            (_, Status::Shared) | (Kind::Pointer(_) | Kind::Function { .. }, Status::Completes) => {
                Status::Shared
            }
            (Kind::Typedef(_) | Kind::Qualified(..), _) => cited,
            (Kind::Record { .. }, _) => match tag_of(ty).and_then(|tag| self.of_tag(tag)) {
                Some(Choice::Forward) => Status::Completes,
                _ => Status::Differs,
            },
            (_, Status::Completes | Status::Differs) => Status::Differs,
        }
    }
}

/// Adds the types that a type contains: those of its members, and those that its names stand for.
fn push_contained(ty: &Type<'_>, open: &mut Vec<TypeId>) {
    if !matches!(ty.kind, Kind::Pointer(_) | Kind::Function { .. }) {
        ty.each_reference(|id| open.push(id));
    }
}

/// Whether a type is to be linked.
fn takes_part(only: Only<'_>, unit: usize, id: usize) -> bool {
    let Some(only) = only else { return true };
    let statuses = only.get(unit).and_then(Option::as_ref);
    let status = statuses.and_then(|statuses| statuses.get(id));
    status.is_some_and(|status| *status != Status::Shared)
}

/// What the types of a unit are, by their ids; `None` if all are shared.
pub(super) fn differences(
    graphs: &[&Graph<'_>],
    classes: &Classes,
    choices: &Choices<'_>,
    (unit, only): (usize, Only<'_>),
) -> Option<Vec<Status>> {
    let graph = graphs.get(unit)?;
    let mut statuses = vec![Status::Shared];
    let mut open = Vec::new();
    for id in (1..=graph.last()).map(TypeId) {
        let ty = graph.get(id)?;
        let status = match takes_part(only, unit, index(id.0)) {
            true => choices.status(ty, classes.class(unit, id)),
            false => Status::Shared,
        };
        statuses.push(status);
        if status != Status::Shared {
            open.push(id);
        }
    }
    if open.is_empty() {
        return None;
    }
    spread(graph, choices, &mut statuses, open);
    Some(statuses)
}

/// Carries differences on to what leads to them.
fn spread(
    graph: &Graph<'_>,
    choices: &Choices<'_>,
    statuses: &mut [Status],
    mut open: Vec<TypeId>,
) {
    let citers = Citers::of(graph);
    while let Some(id) = open.pop() {
        let Some(&status) = statuses.get(index(id.0)) else {
            continue;
        };
        for &citer in citers.of_type(id) {
            let Some(ty) = graph.get(citer) else { continue };
            let follows = choices.follows(ty, status);
            if let Some(old) = statuses.get_mut(index(citer.0))
                && *old < follows
            {
                *old = follows;
                open.push(citer);
            }
        }
    }
}

/// For each type those that cite it.
struct Citers {
    starts: Vec<usize>,
    all: Vec<TypeId>,
}

impl Citers {
    fn of(graph: &Graph<'_>) -> Citers {
        let ids = || (1..=graph.last()).map(TypeId);
        let each = |mut visit: Box<dyn FnMut(TypeId, TypeId) + '_>| {
            for id in ids() {
                if let Some(ty) = graph.get(id) {
                    ty.each_reference(|cited| visit(id, cited));
                }
            }
        };
        let mut starts = vec![0usize; index(graph.last()).saturating_add(2)];
        each(Box::new(|_, cited| {
            if let Some(count) = starts.get_mut(index(cited.0).saturating_add(1)) {
                *count += 1;
            }
        }));
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut all = vec![TypeId::NONE; sum];
        let mut next = starts.clone();
        each(Box::new(|citer, cited| {
            if let Some(at) = next.get_mut(index(cited.0)) {
                if let Some(place) = all.get_mut(*at) {
                    *place = citer;
                }
                *at += 1;
            }
        }));
        Citers { starts, all }
    }

    fn of_type(&self, id: TypeId) -> &[TypeId] {
        let at = index(id.0);
        let start = self.starts.get(at).copied().unwrap_or(0);
        let end = self
            .starts
            .get(at.saturating_add(1))
            .copied()
            .unwrap_or(start);
        self.all.get(start..end).unwrap_or_default()
    }
}
