//! Type properties printed by objdump apart from the name: kind, size and alignment, by libctf's
//! rules.

use hashbrown::HashSet;

use super::{MAX_CHAIN, ObjdumpLines};
use crate::graph::{Number, Tag, Type, TypeId, TypeKind};
use crate::record::kind;

impl ObjdumpLines<'_, '_> {
    /// The number of a type's kind. A slice counts as its integer.
    pub(super) fn kind_number(&self, ty: &Type<'_>) -> u8 {
        let sliced = match &ty.kind {
            TypeKind::Slice { of, .. } => self.graph.get(*of),
            _ => None,
        };
        match sliced {
            Some(inner) if !matches!(inner.kind, TypeKind::Slice { .. }) => self.kind_number(inner),
            _ => kind::number(&ty.kind),
        }
    }

    /// The format of a number, and whether it is a slice.
    pub(super) fn encoding(&self, ty: &Type<'_>) -> Option<(Number, bool)> {
        match ty.kind {
            TypeKind::Integer(number) | TypeKind::Float(number) => Some((number, false)),
            TypeKind::Slice {
                of,
                offset,
                bits,
                size,
            } => {
                let inner = self.graph.get(self.graph.resolve(of)?)?;
                let format = match inner.kind {
                    TypeKind::Integer(number) | TypeKind::Float(number) => number.format,
                    TypeKind::Enum { .. } => Number::SIGNED,
                    _ => return None,
                };
                let offset = u8::try_from(offset).unwrap_or(u8::MAX);
                Some((
                    Number {
                        size,
                        format,
                        offset,
                        bits,
                    },
                    true,
                ))
            }
            _ => None,
        }
    }

    pub(super) fn size(&self, id: TypeId) -> Option<u64> {
        let graph = self.graph;
        match graph.get(graph.resolve(id)?)?.kind {
            TypeKind::Enum { .. } => Some(4),
            TypeKind::Function { .. } => Some(0),
            TypeKind::Array { element, count, .. } => self.size_of_array(element, count),
            _ => graph.size(id),
        }
    }

    fn size_of_array(&self, mut element: TypeId, mut count: u64) -> Option<u64> {
        let graph = self.graph;
        for step in 0.. {
            if step >= MAX_CHAIN && !self.spend(1) {
                break;
            }
            match graph.get(graph.resolve(element)?)?.kind {
                TypeKind::Enum { .. } => return count.checked_mul(4),
                TypeKind::Function { .. } => return Some(0),
                TypeKind::Array {
                    element: inner,
                    count: more,
                    ..
                } => {
                    element = inner;
                    count = count.checked_mul(more)?;
                }
                _ => return graph.size(element)?.checked_mul(count),
            }
        }
        None
    }

    pub(super) fn align(&self, id: TypeId) -> Option<u64> {
        let graph = self.graph;
        let mut most = 0;
        // A type that was visited counts already.
        let mut seen = HashSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let id = graph.resolve(id)?;
            if !seen.insert(id) {
                continue;
            }
            if seen.len() > MAX_CHAIN && !self.spend(1) {
                return None;
            }
            let own = match &graph.get(id)?.kind {
                TypeKind::Pointer(_) | TypeKind::Function { .. } => graph.pointer_size,
                TypeKind::Array { element, .. } => {
                    open.push(*element);
                    continue;
                }
                TypeKind::Enum { .. } => 4,
                TypeKind::Record { tag, members, .. } => {
                    let counted = match tag {
                        Tag::Struct => 1,
                        _ => members.len(),
                    };
                    open.extend(members.iter().take(counted).map(|member| member.ty));
                    continue;
                }
                _ => graph.size(id)?,
            };
            most = most.max(own);
        }
        Some(most)
    }
}
