//! The definitions that others need, in an order that a C compiler takes.

use std::collections::HashSet;

use crate::graph::{Graph, TypeId, TypeKind};

/// The maximum number of types between a definition and one that it needs.
const MAX_DEPTH: usize = 1 << 10;

impl Graph<'_> {
    /// These types, each after the named structures, unions, enumerations and typedefs that its
    /// definition needs. A structure that is only pointed to is not needed.
    #[must_use]
    pub fn in_order_of_definition(&self, ids: impl IntoIterator<Item = TypeId>) -> Vec<TypeId> {
        let mut order = DefinitionOrder {
            graph: self,
            visited: HashSet::new(),
            ids: Vec::new(),
        };
        for id in ids {
            order.visit(id, true, 0);
        }
        order.ids
    }
}

struct DefinitionOrder<'g> {
    graph: &'g Graph<'g>,
    /// Types, and whether they were needed complete.
    visited: HashSet<(TypeId, bool)>,
    ids: Vec<TypeId>,
}

impl DefinitionOrder<'_> {
    /// Adds a type after what it needs. One that is pointed to need not be complete.
    fn visit(&mut self, id: TypeId, is_complete: bool, depth: usize) {
        let Some(ty) = self.graph.get(id) else { return };
        if depth > MAX_DEPTH || !self.visited.insert((id, is_complete)) {
            return;
        }
        match &ty.kind {
            // The body of one without a name is written where it is used.
            TypeKind::Record { .. } if !is_complete && !ty.name.is_empty() => return,
            TypeKind::Record { members, .. } => {
                let members = members.iter().map(|member| member.ty);
                members.for_each(|member| self.visit(member, true, depth + 1));
            }
            TypeKind::Pointer(_) | TypeKind::Function { .. } => {
                ty.each_reference(|part| self.visit(part, false, depth + 1));
            }
            TypeKind::Array { element, .. } => self.visit(*element, true, depth + 1),
            _ => ty.each_reference(|part| self.visit(part, is_complete, depth + 1)),
        }
        let is_definition = matches!(
            ty.kind,
            TypeKind::Record { .. } | TypeKind::Enum { .. } | TypeKind::Typedef(_)
        );
        let is_needed = is_definition && !ty.name.is_empty() || depth == 0;
        if is_needed && !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }
}
