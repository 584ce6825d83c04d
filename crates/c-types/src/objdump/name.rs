//! Names of types by libctf's rules.

use super::{MAX_CHAIN, ObjdumpLines};
use crate::graph::{Type, TypeId, TypeKind};

/// The size up to which the parameters in a name are always written. Functions with function
/// parameters can multiply: each further parameter costs [`PARAMETER_BYTES`] of the remaining
/// budget.
const MAX_NAME_BYTES: usize = 1 << 12;
const PARAMETER_BYTES: usize = 64;
/// The maximum nesting of parameters.
const MAX_PARAMETER_NESTING: usize = 1 << 9;

/// The kinds of a declaration's parts in a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DeclaratorKind {
    Base,
    Pointer,
    Array,
    Function,
}

/// The parts of a name, each list in order.
#[derive(Default)]
struct CDeclarator {
    lists: [Vec<TypeId>; 4],
    /// The order in which kinds first occur, from the innermost type.
    order: Vec<DeclaratorKind>,
}

impl CDeclarator {
    fn list(&mut self, kind: DeclaratorKind) -> Option<&mut Vec<TypeId>> {
        self.lists.get_mut(kind as usize)
    }

    fn rank(&self, kind: DeclaratorKind) -> Option<usize> {
        self.order.iter().position(|other| *other == kind)
    }

    /// The parts of a type's chain, from its innermost type outwards.
    fn new(lines: &ObjdumpLines<'_, '_>, id: TypeId) -> Option<CDeclarator> {
        let graph = lines.graph;
        let inner = |id| graph.get(id).and_then(inner_type);
        if lines.is_endless(id, inner) {
            return None;
        }
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next {
            if chain.len() >= MAX_CHAIN && !lines.spend(1) {
                return None;
            }
            let ty = graph.get(id)?;
            chain.push((id, ty));
            next = inner_type(ty);
        }
        let is_shown = |ty: &Type<'_>| match ty.kind {
            TypeKind::Slice { .. } => false,
            TypeKind::Typedef(_) => !ty.name.is_empty(),
            _ => true,
        };
        chain.retain(|(_, ty)| is_shown(ty));
        let mut parts = CDeclarator::default();
        let mut qualified = DeclaratorKind::Base;
        // Qualifiers of the innermost type, innermost first.
        let mut first = Vec::new();
        for (id, ty) in chain.into_iter().rev() {
            let place = match ty.kind {
                TypeKind::Array { .. } => DeclaratorKind::Array,
                TypeKind::Function { .. } => DeclaratorKind::Function,
                TypeKind::Pointer(_) => DeclaratorKind::Pointer,
                TypeKind::Qualified(..) => qualified,
                _ => DeclaratorKind::Base,
            };
            if parts.rank(place).is_none() {
                parts.order.push(place);
            }
            if place == DeclaratorKind::Pointer {
                qualified = DeclaratorKind::Pointer;
            }
            match (&ty.kind, place) {
                (TypeKind::Qualified(..), DeclaratorKind::Base) => first.push(id),
                _ => parts.list(place)?.push(id),
            }
        }
        first.reverse();
        let base = parts.list(DeclaratorKind::Base)?;
        first.append(base);
        *base = first;
        Some(parts)
    }
}

/// The next type inwards in a name.
fn inner_type(ty: &Type<'_>) -> Option<TypeId> {
    match ty.kind {
        TypeKind::Typedef(to) if ty.name.is_empty() => Some(to),
        TypeKind::Slice { of: to, .. }
        | TypeKind::Array { element: to, .. }
        | TypeKind::Function { returns: to, .. }
        | TypeKind::Pointer(to)
        | TypeKind::Qualified(_, to) => Some(to),
        _ => None,
    }
}

/// The remaining budget of a name.
struct NameBudget {
    /// Bytes of parameters.
    left: usize,
    /// The functions with parameters being named, each nested in the one before.
    open: Vec<TypeId>,
}

impl ObjdumpLines<'_, '_> {
    /// A type's name.
    pub(super) fn name(&self, id: TypeId) -> String {
        let mut limits = NameBudget {
            left: MAX_NAME_BYTES,
            open: Vec::new(),
        };
        name_within(self, id, &mut limits)
    }
}

fn name_within(lines: &ObjdumpLines<'_, '_>, id: TypeId, budget: &mut NameBudget) -> String {
    let Some(parts) = CDeclarator::new(lines, id) else {
        return String::new();
    };
    let is_late = |kind: DeclaratorKind| parts.rank(kind).is_some_and(|rank| rank > kind as usize);
    let (pointer, array) = (
        is_late(DeclaratorKind::Pointer),
        is_late(DeclaratorKind::Array),
    );
    let (open, close) = match (pointer, array) {
        (true, true) => (Some(DeclaratorKind::Pointer), Some(DeclaratorKind::Array)),
        (true, false) => (Some(DeclaratorKind::Pointer), Some(DeclaratorKind::Pointer)),
        (false, true) => (Some(DeclaratorKind::Array), Some(DeclaratorKind::Array)),
        (false, false) => (None, None),
    };
    let mut text = String::new();
    let mut needs_space = false;
    let places = [
        DeclaratorKind::Base,
        DeclaratorKind::Pointer,
        DeclaratorKind::Array,
        DeclaratorKind::Function,
    ];
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
            put_declarator(lines, (*id, ty), &mut text, budget);
            needs_space = !matches!(ty.kind, TypeKind::Pointer(_) | TypeKind::Array { .. });
        }
        if close == Some(place) {
            text.push(')');
        }
    }
    text
}

fn put_declarator(
    lines: &ObjdumpLines<'_, '_>,
    (id, ty): (TypeId, &Type<'_>),
    text: &mut String,
    budget: &mut NameBudget,
) {
    let name_of = &ty.name;
    match &ty.kind {
        TypeKind::Pointer(_) => text.push('*'),
        TypeKind::Array { count, .. } => text.push_str(&format!("[{count}]")),
        TypeKind::Qualified(qualifier, _) => text.push_str(qualifier.keyword()),
        TypeKind::Function {
            parameters,
            is_variadic,
            ..
        } => {
            let takes_itself = budget.open.contains(&id);
            let mut arguments: Vec<String> = Vec::new();
            for parameter in parameters {
                let depth = budget.open.len();
                let is_near = budget.left > 0 && depth < MAX_CHAIN;
                let may = || depth < MAX_PARAMETER_NESTING && lines.spend(PARAMETER_BYTES);
                if !is_near && (takes_itself || !may()) {
                    break;
                }
                // A parameter takes at least a byte, even if it is a function with such parameters.
                budget.left = budget.left.saturating_sub(1);
                budget.open.push(id);
                let argument = name_within(lines, parameter.ty, budget);
                budget.left = budget.left.saturating_sub(argument.len());
                budget.open.pop();
                arguments.push(argument);
            }
            if *is_variadic {
                arguments.push("...".to_owned());
            }
            text.push_str(&format!("(*) ({})", arguments.join(", ")));
        }
        TypeKind::Record { tag, .. } | TypeKind::Forward(tag) => {
            text.push_str(&format!("{} {name_of}", tag.keyword()));
        }
        TypeKind::Enum { .. } => text.push_str(&format!("enum {name_of}")),
        TypeKind::Unknown if name_of.is_empty() => text.push_str("(nonrepresentable type)"),
        TypeKind::Unknown => text.push_str(&format!("(nonrepresentable type {name_of})")),
        TypeKind::Integer(_) | TypeKind::Float(_) | TypeKind::Typedef(_) => text.push_str(name_of),
        // CTF has no tags.
        TypeKind::Slice { .. } | TypeKind::TypeTag { .. } => {}
    }
}
