//! The shared type of each name, and the differences of a unit from it.

use hashbrown::{HashMap, HashSet};

use super::Share;
use super::classes::{NO_CLASS, TypeClass, TypeClasses, index, narrow, tag_of};
use crate::graph::{Graph, NameSpace, Type, TypeId, TypeKind};

/// The shared type of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Types of that class.
    Class(TypeClass),
    /// A forward; children complete it.
    Forward,
    /// Nothing.
    Nothing,
}

/// All units' types of a name.
#[derive(Debug)]
struct NameClasses {
    is_tag: bool,
    /// The classes of the types, in order of their first unit.
    classes: Vec<TypeClass>,
    /// The number of units with only a forward.
    forwards: u32,
    choice: Choice,
}

/// The data of a class.
#[derive(Debug, Default)]
struct ClassUse {
    /// The number of units with its types.
    units: u32,
    /// The last of these units.
    last: Option<usize>,
    /// The name of its types, or the tag that it represents.
    name: Option<u32>,
}

/// The choices for all names.
pub(super) struct Choices {
    names: Vec<NameClasses>,
    uses: HashMap<TypeClass, ClassUse>,
    share: Share,
}

/// The types of each unit to link: all, or those that differ from the shared ones.
pub(super) type TypeFilter<'s> = Option<&'s [Option<Vec<ShareStatus>>]>;

/// The status of a unit's type relative to the shared types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShareStatus {
    /// It is shared.
    Shared,
    /// It is the unit's own, and completes a shared forward.
    Completes,
    /// It is the unit's own.
    Differs,
}

impl Choices {
    /// Chooses for all names of some units' types.
    pub(super) fn new(
        classes: &TypeClasses<'_, '_>,
        share: Share,
        (units, only): (&[usize], TypeFilter<'_>),
    ) -> Choices {
        let mut choices = Choices {
            names: Vec::new(),
            uses: HashMap::new(),
            share,
        };
        choices.count(classes, units, only);
        choices.group(classes);
        choices.choose();
        choices.spread_forwards(classes);
        choices
    }

    /// Counts the units with types of each class.
    fn count(&mut self, classes: &TypeClasses<'_, '_>, units: &[usize], filter: TypeFilter<'_>) {
        for &unit in units {
            for (id, class) in classes.of_unit(unit).iter().enumerate() {
                if !is_linked(filter, unit, id) {
                    continue;
                }
                let known = self.uses.entry(*class).or_default();
                if known.last.replace(unit) != Some(unit) {
                    known.units += 1;
                }
            }
        }
    }

    /// Groups the classes of each name.
    fn group(&mut self, classes: &TypeClasses<'_, '_>) {
        let mut present: Vec<TypeClass> = self.uses.keys().copied().collect();
        present.sort_unstable();
        let mut groups: HashMap<(NameSpace, &str), u32> = HashMap::new();
        for class in present {
            let Some((at, ty)) = classes.example(class) else {
                continue;
            };
            let Some(space) = ty.name_space().filter(|_| !ty.is_hidden) else {
                continue;
            };
            let next = narrow(self.names.len());
            let group = *groups.entry((space, &*ty.name)).or_insert(next);
            if group == next {
                self.names.push(NameClasses {
                    is_tag: tag_of(ty).is_some(),
                    classes: Vec::new(),
                    forwards: 0,
                    choice: Choice::Nothing,
                });
            }
            // A class, and that of its tag.
            for class in [class, classes.cited(at)] {
                self.uses.entry(class).or_default().name = Some(group);
            }
            let units = self.units(class);
            if let Some(variants) = self.names.get_mut(index(group)) {
                match ty.kind {
                    TypeKind::Forward(_) => variants.forwards = units,
                    _ => variants.classes.push(class),
                }
            }
        }
    }

    /// The number of units with types of a class.
    fn units(&self, class: TypeClass) -> u32 {
        self.uses.get(&class).map_or(0, |known| known.units)
    }

    fn choose(&mut self) {
        let least = match self.share {
            Share::Unconflicted => 1,
            Share::Duplicated => 2,
        };
        for variants in &mut self.names {
            let count = |class: &TypeClass| self.uses.get(class).map_or(0, |known| known.units);
            // The first among the most frequent.
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

    /// If only a forward of a type is shared, types that contain it can only be shared as forwards,
    /// too.
    fn spread_forwards(&mut self, classes: &TypeClasses<'_, '_>) {
        loop {
            let mut forwards = Vec::new();
            for (at, variants) in self.names.iter().enumerate() {
                let Choice::Class(class) = variants.choice else {
                    continue;
                };
                if variants.is_tag && self.contains_forward(classes, class) {
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

    /// Whether types of a class have members of types that are shared as forwards only.
    fn contains_forward(&self, classes: &TypeClasses<'_, '_>, class: TypeClass) -> bool {
        let Some(((unit, _), ty)) = classes.example(class) else {
            return false;
        };
        let mut open = Vec::new();
        let mut seen = HashSet::new();
        push_contained(ty, &mut open);
        while let Some(id) = open.pop() {
            let Some(ty) = classes.ty((unit, id)).filter(|_| seen.insert(id)) else {
                continue;
            };
            if tag_of(ty).is_none() {
                push_contained(ty, &mut open);
                continue;
            }
            let is_complete = !matches!(ty.kind, TypeKind::Forward(_));
            if is_complete && self.of_class(classes.cited((unit, id))) == Some(Choice::Forward) {
                return true;
            }
        }
        false
    }

    /// The choice for the name of a class's types, or for the tag it represents; `None` if they
    /// have no name.
    pub(super) fn of_class(&self, class: TypeClass) -> Option<Choice> {
        let name = self.uses.get(&class)?.name?;
        Some(self.names.get(index(name))?.choice)
    }

    /// The status of a type by its own class alone.
    fn status(&self, ty: &Type<'_>, class: TypeClass) -> ShareStatus {
        if ty.is_hidden && ty.name_space().is_some() {
            return ShareStatus::Differs;
        }
        match self.of_class(class) {
            _ if class == NO_CLASS => ShareStatus::Differs,
            Some(Choice::Class(chosen)) if chosen == class => ShareStatus::Shared,
            Some(Choice::Class(_) | Choice::Forward) if matches!(ty.kind, TypeKind::Forward(_)) => {
                ShareStatus::Shared
            }
            Some(Choice::Forward) => ShareStatus::Completes,
            Some(Choice::Class(_) | Choice::Nothing) => ShareStatus::Differs,
            None => match self.share {
                Share::Unconflicted => ShareStatus::Shared,
                Share::Duplicated if self.units(class) > 1 => ShareStatus::Shared,
                Share::Duplicated => ShareStatus::Differs,
            },
        }
    }

    /// The status of a type that refers to another one; `cited_by` is the class that represents it
    /// in references.
    fn propagate(&self, ty: &Type<'_>, cited_by: TypeClass, leads_to: ShareStatus) -> ShareStatus {
        match (&ty.kind, leads_to) {
            (_, ShareStatus::Shared)
            | (TypeKind::Pointer(_) | TypeKind::Function { .. }, ShareStatus::Completes) => {
                ShareStatus::Shared
            }
            (TypeKind::Typedef(_) | TypeKind::Qualified(..), _) => leads_to,
            (TypeKind::Record { .. }, _) if !ty.name.is_empty() => match self.of_class(cited_by) {
                Some(Choice::Forward) => ShareStatus::Completes,
                _ => ShareStatus::Differs,
            },
            (_, ShareStatus::Completes | ShareStatus::Differs) => ShareStatus::Differs,
        }
    }
}

/// Pushes the types that a type contains: those of its members, and the targets of typedefs and
/// qualifiers.
fn push_contained(ty: &Type<'_>, open: &mut Vec<TypeId>) {
    if !matches!(ty.kind, TypeKind::Pointer(_) | TypeKind::Function { .. }) {
        ty.each_reference(|id| open.push(id));
    }
}

/// Whether a type must be linked.
fn is_linked(filter: TypeFilter<'_>, unit: usize, id: usize) -> bool {
    let Some(only) = filter else { return true };
    let statuses = only.get(unit).and_then(Option::as_ref);
    let status = statuses.and_then(|statuses| statuses.get(id));
    status.is_some_and(|status| *status != ShareStatus::Shared)
}

/// The status of each type of a unit, by id; `None` if all are shared.
pub(super) fn differences(
    classes: &TypeClasses<'_, '_>,
    choices: &Choices,
    (unit, only): (usize, TypeFilter<'_>),
) -> Option<Vec<ShareStatus>> {
    let graph = classes.graph(unit)?;
    let mut statuses = vec![ShareStatus::Shared];
    let mut open = Vec::new();
    for (id, class) in (1..=graph.last())
        .map(TypeId)
        .zip(classes.of_unit(unit).iter().skip(1))
    {
        let status = if is_linked(only, unit, index(id.0)) {
            choices.status(graph.get(id)?, *class)
        } else {
            ShareStatus::Shared
        };
        statuses.push(status);
        if status != ShareStatus::Shared {
            open.push(id);
        }
    }
    if open.is_empty() {
        return None;
    }
    let citers = Citers::new(graph);
    // Propagates differences to the referring types.
    while let Some(id) = open.pop() {
        let Some(&status) = statuses.get(index(id.0)) else {
            continue;
        };
        for &citer in citers.of_type(id) {
            let Some(ty) = graph.get(citer) else { continue };
            let follows = choices.propagate(ty, classes.cited((unit, citer)), status);
            if let Some(old) = statuses.get_mut(index(citer.0))
                && *old < follows
            {
                *old = follows;
                open.push(citer);
            }
        }
    }
    Some(statuses)
}

/// For each type, the types that refer to it.
struct Citers {
    /// All referring types, concatenated, and the start of each type's list.
    all: Vec<TypeId>,
    starts: Vec<usize>,
}

impl Citers {
    fn new(graph: &Graph<'_>) -> Citers {
        let mut starts = vec![0usize; index(graph.last()).saturating_add(2)];
        each_citation(graph, |_, cited| {
            if let Some(count) = starts.get_mut(index(cited.0).saturating_add(1)) {
                *count += 1;
            }
        });
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut all = vec![TypeId::NONE; sum];
        let mut next = starts.clone();
        each_citation(graph, |citer, cited| {
            if let Some(at) = next.get_mut(index(cited.0)) {
                if let Some(place) = all.get_mut(*at) {
                    *place = citer;
                }
                *at += 1;
            }
        });
        Citers { all, starts }
    }

    fn of_type(&self, id: TypeId) -> &[TypeId] {
        let at = index(id.0);
        let start = self.starts.get(at).copied().unwrap_or(0);
        let end = self.starts.get(at.saturating_add(1)).copied();
        self.all
            .get(start..end.unwrap_or(start))
            .unwrap_or_default()
    }
}

/// Calls a function with each type of a graph and each of its references.
fn each_citation(graph: &Graph<'_>, mut visit: impl FnMut(TypeId, TypeId)) {
    for id in (1..=graph.last()).map(TypeId) {
        if let Some(ty) = graph.get(id) {
            ty.each_reference(|cited| visit(id, cited));
        }
    }
}
