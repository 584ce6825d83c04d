//! A graph under construction: its types, and their ids.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use super::classes::{TypeClass, TypeClasses, UnitTypeId, narrow};
use super::sharing::{Choice, Choices};
use crate::graph::{Graph, NameSpace, Type, TypeId, TypeKind};

/// A type of a graph under construction.
#[derive(Clone, Copy)]
pub(super) enum LayerType {
    /// A class common to some units, and one of its types.
    Class(TypeClass, UnitTypeId),
    /// The class of a tag that is shared as a forward only.
    Forward(TypeClass),
    /// A type of one unit.
    Own(UnitTypeId),
}

/// The types of a graph under construction.
pub(super) struct Layer<'l, 'g, 'a> {
    classes: &'l TypeClasses<'g, 'a>,
    choices: &'l Choices,
    /// The last id of the parent's types.
    base: u32,
    types: Vec<LayerType>,
    of_class: HashMap<TypeClass, TypeId>,
    of_own: HashMap<UnitTypeId, TypeId>,
}

impl<'l, 'g, 'a> Layer<'l, 'g, 'a> {
    pub(super) fn new(
        classes: &'l TypeClasses<'g, 'a>,
        choices: &'l Choices,
        base: u32,
    ) -> Layer<'l, 'g, 'a> {
        Layer {
            classes,
            choices,
            base,
            types: Vec::new(),
            of_class: HashMap::new(),
            of_own: HashMap::new(),
        }
    }

    /// The counterpart of a unit's type here; `None` if it has none.
    fn item(&self, type_id: UnitTypeId) -> Option<LayerType> {
        let class = self.classes.class(type_id);
        let tag = self.classes.cited(type_id);
        if self.classes.tag(tag).is_none() {
            return Some(LayerType::Class(class, type_id));
        }
        match self.choices.of_class(tag)? {
            // A unit that completes a forward has its own type.
            Choice::Class(class) if class != self.classes.class(type_id) => {
                Some(LayerType::Class(class, self.classes.example(class)?.0))
            }
            Choice::Class(class) => Some(LayerType::Class(class, type_id)),
            Choice::Forward => Some(LayerType::Forward(tag)),
            Choice::Nothing => None,
        }
    }

    /// The id of the counterpart of a unit's type; a new one if it has none yet.
    pub(super) fn id_in(&mut self, type_id: UnitTypeId) -> TypeId {
        self.item(type_id)
            .map_or(TypeId::NONE, |item| self.add(item))
    }

    /// The id of the counterpart of a unit's type, if it has one.
    pub(super) fn id_of(&self, type_id: UnitTypeId) -> TypeId {
        let id = self.item(type_id).and_then(|item| match item {
            LayerType::Class(class, _) | LayerType::Forward(class) => self.of_class.get(&class),
            LayerType::Own(at) => self.of_own.get(&at),
        });
        id.copied().unwrap_or_default()
    }

    /// The id of a unit's own type; a new one if it has none yet.
    pub(super) fn own(&mut self, type_id: UnitTypeId) -> TypeId {
        self.add(LayerType::Own(type_id))
    }

    /// The id of a unit's own type, if it has one.
    pub(super) fn own_of(&self, type_id: UnitTypeId) -> Option<TypeId> {
        self.of_own.get(&type_id).copied()
    }

    fn add(&mut self, layer_type: LayerType) -> TypeId {
        let count = narrow(self.types.len());
        let next = TypeId(self.base.saturating_add(count).saturating_add(1));
        let id = match layer_type {
            LayerType::Class(class, _) | LayerType::Forward(class) => {
                *self.of_class.entry(class).or_insert(next)
            }
            LayerType::Own(at) => *self.of_own.entry(at).or_insert(next),
        };
        if id == next {
            self.types.push(layer_type);
        }
        id
    }

    /// Makes the types. A function returns the references of each; types that it adds are made,
    /// too. A type is hidden if its name is taken.
    pub(super) fn fill(
        &mut self,
        graph: &mut Graph<'a>,
        mut taken: HashSet<(NameSpace, Cow<'a, str>)>,
        reference: impl Fn(&mut Self, LayerType, UnitTypeId) -> TypeId,
    ) {
        let mut next = 0;
        while let Some(item) = self.types.get(next).copied() {
            next += 1;
            let mut ty = self.ty(item);
            if let LayerType::Class(_, (unit, _)) | LayerType::Own((unit, _)) = item {
                ty = ty.with_references(|id| reference(self, item, (unit, id)));
            }
            // Among types with one name in a graph, look-ups find the first.
            if let Some(space) = ty.name_space()
                && !ty.is_hidden
            {
                ty.is_hidden = !taken.insert((space, ty.name.clone()));
            }
            graph.add(ty);
        }
    }

    /// The type of an item, with its unit's references.
    fn ty(&self, layer_type: LayerType) -> Type<'a> {
        let at = match layer_type {
            LayerType::Class(_, at) | LayerType::Own(at) => at,
            LayerType::Forward(class) => {
                let tag = self.classes.tag(class);
                return tag.map_or(Type::unnamed(TypeKind::Unknown), |(tag, name)| {
                    Type::named(name.to_owned(), TypeKind::Forward(tag))
                });
            }
        };
        let Some(ty) = self.classes.ty(at) else {
            return Type::unnamed(TypeKind::Unknown);
        };
        let mut ty = ty.clone();
        if ty.own_name().is_empty() {
            ty.name = Cow::Borrowed("");
        }
        ty
    }
}
