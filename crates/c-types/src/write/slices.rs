//! Bit-fields as slices.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::graph::{Graph, Type, TypeId, TypeKind};

/// The graph with a slice for each member that is a bit-field itself: CTF has no other encoding for
/// it.
pub(super) fn with_slices<'g, 'a>(graph: &'g Graph<'a>) -> Cow<'g, Graph<'a>> {
    let is_field = |ty: &Type<'_>| match &ty.kind {
        TypeKind::Record { members, .. } => members.iter().any(|member| member.bits.is_some()),
        _ => false,
    };
    if !graph.types().any(|(_, ty)| is_field(ty)) {
        return Cow::Borrowed(graph);
    }
    let mut sliced = graph.clone();
    let mut slices: HashMap<(TypeId, u16), TypeId> = HashMap::new();
    let fields = graph.types().filter(|(_, ty)| is_field(ty));
    for (id, ty) in fields {
        let mut ty = ty.clone();
        if let TypeKind::Record { members, .. } = &mut ty.kind {
            for member in members {
                let Some(bits) = member.bits.take() else {
                    continue;
                };
                let of = member.ty;
                let slice = || Type {
                    is_hidden: true,
                    ..Type::unnamed(TypeKind::Slice {
                        of,
                        size: u64::from(bits).div_ceil(8).next_power_of_two(),
                        offset: 0,
                        bits,
                    })
                };
                member.ty = *slices
                    .entry((of, bits))
                    .or_insert_with(|| sliced.add(slice()));
            }
        }
        sliced.set(id, ty);
    }
    Cow::Owned(sliced)
}
