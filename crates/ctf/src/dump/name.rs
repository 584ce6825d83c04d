//! Names of types, put together by libctf's rules.

use super::DEEPEST;
use crate::graph::{Graph, Kind, Type, TypeId};

/// No name of a type gets much longer than this, in bytes: functions that take functions can multiply.
const LONGEST: usize = 1 << 12;

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
    fn of(graph: &Graph<'_>, id: TypeId) -> Option<Parts> {
        let mut chain = Vec::new();
        let mut next = Some(id);
        for _ in 0..DEEPEST {
            let Some(id) = next else { break };
            let ty = graph.get(id)?;
            let (is_shown, inner) = match &ty.kind {
                Kind::Slice { of, .. } => (false, Some(*of)),
                Kind::Typedef(to) if ty.name.is_empty() => (false, Some(*to)),
                Kind::Array { element: to, .. }
                | Kind::Function { returns: to, .. }
                | Kind::Pointer(to)
                | Kind::Qualified(_, to) => (true, Some(*to)),
                _ => (true, None),
            };
            if is_shown {
                chain.push((id, ty));
            }
            next = inner;
        }
        if next.is_some() {
            return None; // it leads in a circle
        }
        let mut parts = Parts::default();
        let mut qualified = Place::Base;
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
            let is_first = matches!(ty.kind, Kind::Qualified(..)) && place == Place::Base;
            let list = parts.list(place)?;
            let at = if is_first { 0 } else { list.len() };
            list.insert(at, id);
        }
        Some(parts)
    }
}

/// What a name may still take.
struct Limits {
    /// Bytes of parameters.
    left: usize,
    /// Parameters within parameters.
    depth: usize,
}

/// A type's name.
pub(super) fn name(graph: &Graph<'_>, id: TypeId) -> String {
    let mut limits = Limits {
        left: LONGEST,
        depth: DEEPEST,
    };
    name_within(graph, id, &mut limits)
}

fn name_within(graph: &Graph<'_>, id: TypeId, limits: &mut Limits) -> String {
    let Some(parts) = Parts::of(graph, id) else {
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
            let Some(ty) = graph.get(*id) else { continue };
            if needs_space {
                text.push(' ');
            }
            if open == Some(place) && nth == 0 {
                text.push('(');
            }
            one_part(graph, ty, &mut text, limits);
            needs_space = !matches!(ty.kind, Kind::Pointer(_) | Kind::Array { .. });
        }
        if close == Some(place) {
            text.push(')');
        }
    }
    text
}

fn one_part(graph: &Graph<'_>, ty: &Type<'_>, text: &mut String, limits: &mut Limits) {
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
            let mut arguments: Vec<String> = Vec::new();
            for parameter in parameters {
                // A parameter takes a byte at least, also one that is a function with such parameters.
                let next = limits.left.checked_sub(1).zip(limits.depth.checked_sub(1));
                let Some((left, depth)) = next else { break };
                *limits = Limits { left, depth };
                let argument = name_within(graph, parameter.ty, limits);
                limits.left = limits.left.saturating_sub(argument.len());
                limits.depth += 1;
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
