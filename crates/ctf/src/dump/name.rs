//! Names of types, put together by libctf's rules.

use super::{DEEPEST, Lines};
use crate::graph::{Kind, Type, TypeId};

/// Parameters take so many bytes of a name in any case. Functions that take functions can multiply: each parameter more costs [`PARAMETER`] of
/// what may be behind.
const LONGEST: usize = 1 << 12;
const PARAMETER: usize = 64;
/// No parameters are nested deeper than this.
const DEEPEST_PARAMETER: usize = 1 << 9;

/// The places that parts of a declaration have in a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Base,
    Pointer,
    Array,
    Function,
}

/// The parts of a name, each list in its order.
#[derive(Default)]
struct Parts {
    lists: [Vec<TypeId>; 4],
    /// In which order places were come to, from the innermost type.
    order: Vec<Place>,
}

impl Parts {
    fn list(&mut self, place: Place) -> Option<&mut Vec<TypeId>> {
        self.lists.get_mut(place as usize)
    }

    fn rank(&self, place: Place) -> Option<usize> {
        self.order.iter().position(|other| *other == place)
    }

    /// The parts of a type: the chain from it to its innermost type, taken from that end.
    fn of(lines: &Lines<'_, '_>, id: TypeId) -> Option<Parts> {
        let graph = lines.graph;
        let inner = |id| graph.get(id).and_then(part_of);
        if lines.is_endless(id, inner) {
            return None;
        }
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next {
            if chain.len() >= DEEPEST && !lines.spend(1) {
                return None;
            }
            let ty = graph.get(id)?;
            chain.push((id, ty));
            next = part_of(ty);
        }
        let is_shown = |ty: &Type<'_>| match ty.kind {
            Kind::Slice { .. } => false,
            Kind::Typedef(_) => !ty.name.is_empty(),
            _ => true,
        };
        chain.retain(|(_, ty)| is_shown(ty));
        let mut parts = Parts::default();
        let mut qualified = Place::Base;
        // Qualifiers of the innermost type, from the innermost on.
        let mut first = Vec::new();
        for (id, ty) in chain.into_iter().rev() {
            let place = match ty.kind {
                Kind::Array { .. } => Place::Array,
                Kind::Function { .. } => Place::Function,
                Kind::Pointer(_) => Place::Pointer,
                Kind::Qualified(..) => qualified,
                _ => Place::Base,
            };
            if parts.rank(place).is_none() {
                parts.order.push(place);
            }
            if place == Place::Pointer {
                qualified = Place::Pointer;
            }
            match (&ty.kind, place) {
                (Kind::Qualified(..), Place::Base) => first.push(id),
                _ => parts.list(place)?.push(id),
            }
        }
        first.reverse();
        let base = parts.list(Place::Base)?;
        first.append(base);
        *base = first;
        Some(parts)
    }
}

/// The type that a name is built around.
fn part_of(ty: &Type<'_>) -> Option<TypeId> {
    match ty.kind {
        Kind::Typedef(to) if ty.name.is_empty() => Some(to),
        Kind::Slice { of: to, .. }
        | Kind::Array { element: to, .. }
        | Kind::Function { returns: to, .. }
        | Kind::Pointer(to)
        | Kind::Qualified(_, to) => Some(to),
        _ => None,
    }
}

/// What a name may still take.
struct Limits {
    /// Bytes of parameters.
    left: usize,
    /// The functions whose parameters are named, each in those of the one before.
    open: Vec<TypeId>,
}

impl Lines<'_, '_> {
    /// A type's name.
    pub(super) fn name(&self, id: TypeId) -> String {
        let mut limits = Limits {
            left: LONGEST,
            open: Vec::new(),
        };
        name_within(self, id, &mut limits)
    }
}

fn name_within(lines: &Lines<'_, '_>, id: TypeId, limits: &mut Limits) -> String {
    let Some(parts) = Parts::of(lines, id) else {
        return String::new();
    };
    let is_late = |place: Place| parts.rank(place).is_some_and(|rank| rank > place as usize);
    let (pointer, array) = (is_late(Place::Pointer), is_late(Place::Array));
    let (open, close) = match (pointer, array) {
        (true, true) => (Some(Place::Pointer), Some(Place::Array)),
        (true, false) => (Some(Place::Pointer), Some(Place::Pointer)),
        (false, true) => (Some(Place::Array), Some(Place::Array)),
        (false, false) => (None, None),
    };
    let mut text = String::new();
    let mut needs_space = false;
    let places = [Place::Base, Place::Pointer, Place::Array, Place::Function];
    for (place, list) in places.into_iter().zip(&parts.lists) {
        for (nth, id) in list.iter().enumerate() {
            let Some(ty) = lines.graph.get(*id) else {
                continue;
            };
            if needs_space {
                text.push(' ');
            }
            if open == Some(place) && nth == 0 {
                text.push('(');
            }
            one_part(lines, (*id, ty), &mut text, limits);
            needs_space = !matches!(ty.kind, Kind::Pointer(_) | Kind::Array { .. });
        }
        if close == Some(place) {
            text.push(')');
        }
    }
    text
}

fn one_part(
    lines: &Lines<'_, '_>,
    (id, ty): (TypeId, &Type<'_>),
    text: &mut String,
    limits: &mut Limits,
) {
    let name_of = &ty.name;
    match &ty.kind {
        Kind::Pointer(_) => text.push('*'),
        Kind::Array { count, .. } => text.push_str(&format!("[{count}]")),
        Kind::Qualified(qualifier, _) => text.push_str(qualifier.word()),
        Kind::Function {
            parameters,
            is_variadic,
            ..
        } => {
            let takes_itself = limits.open.contains(&id);
            let mut arguments: Vec<String> = Vec::new();
            for parameter in parameters {
                let depth = limits.open.len();
                let is_near = limits.left > 0 && depth < DEEPEST;
                let may = || depth < DEEPEST_PARAMETER && lines.spend(PARAMETER);
                if !is_near && (takes_itself || !may()) {
                    break;
                }
                // A parameter takes a byte at least, also one that is a function with such parameters.
                limits.left = limits.left.saturating_sub(1);
                limits.open.push(id);
                let argument = name_within(lines, parameter.ty, limits);
                limits.left = limits.left.saturating_sub(argument.len());
                limits.open.pop();
                arguments.push(argument);
            }
            if *is_variadic {
                arguments.push("...".to_owned());
            }
            text.push_str(&format!("(*) ({})", arguments.join(", ")));
        }
        Kind::Record { tag, .. } | Kind::Forward(tag) => {
            text.push_str(&format!("{} {name_of}", tag.word()));
        }
        Kind::Enum { .. } => text.push_str(&format!("enum {name_of}")),
        Kind::Unknown if name_of.is_empty() => text.push_str("(nonrepresentable type)"),
        Kind::Unknown => text.push_str(&format!("(nonrepresentable type {name_of})")),
        Kind::Integer(_) | Kind::Float(_) | Kind::Typedef(_) => text.push_str(name_of),
        Kind::Slice { .. } => {}
    }
}
