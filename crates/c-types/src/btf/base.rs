//! The base of split BTF.

use std::sync::Arc;

use hashbrown::HashMap;

use super::error::BtfError;
use super::read::{BtfReading, BtfTypeRef};
use crate::graph::{Graph, Type, TypeId, TypeKind};

/// The types and strings that split BTF continues: those of the kernel, for a module.
#[derive(Debug)]
pub struct BtfBase<'a> {
    pub(super) graph: Arc<Graph<'a>>,
    /// The graph's counterparts of the ids from 1 on.
    pub(super) slots: Vec<BtfTypeRef>,
    pub(super) void: TypeId,
    pub(super) strings: &'a [u8],
}

impl<'a> BtfBase<'a> {
    /// The base that was read.
    ///
    /// # Errors
    ///
    /// Not all of its types were found, so the ids behind them are not known.
    pub fn new(reading: BtfReading<'a>) -> Result<BtfBase<'a>, BtfError> {
        let is_cut = |problem: &&BtfError| {
            matches!(problem, BtfError::Kind { .. } | BtfError::Truncated { .. })
        };
        match reading.problems.iter().find(is_cut) {
            Some(problem) => Err(problem.clone()),
            None => Ok(BtfBase {
                graph: Arc::new(reading.graph),
                slots: reading.slots,
                void: reading.void,
                strings: reading.strings,
            }),
        }
    }

    /// The types of a base for the ids and strings of a distilled one (`.BTF.base`). That has the
    /// names, kinds and sizes of the types that a module uses of any base. Types are found by these,
    /// as libbpf does.
    ///
    /// # Errors
    ///
    /// The base lacks one of these types, or has several of its name, kind and size.
    pub fn with_distilled(&self, distilled: BtfReading<'a>) -> Result<BtfBase<'a>, BtfError> {
        let mut named: HashMap<&str, Vec<(TypeId, &Type<'_>)>> = HashMap::new();
        for (id, ty) in self.graph.types().filter(|(_, ty)| !ty.name.is_empty()) {
            named.entry(&ty.name).or_default().push((id, ty));
        }
        let distilled = BtfBase::new(distilled)?;
        let find = |slot: &BtfTypeRef| {
            let BtfTypeRef::Type(id) = slot else {
                return Ok(*slot);
            };
            let ty = distilled.graph.get(*id).ok_or(BtfError::Split)?;
            let named = named.get(&*ty.name).into_iter().flatten();
            let mut found = named.filter(|(_, other)| stands_for(ty, other));
            match (found.next(), found.next()) {
                (Some((id, _)), None) => Ok(BtfTypeRef::Type(*id)),
                (first, _) => Err(BtfError::BaseType {
                    ty: distilled.graph.declare(*id, ""),
                    count: if first.is_some() { "several" } else { "none" },
                }),
            }
        };
        Ok(BtfBase {
            slots: distilled.slots.iter().map(find).collect::<Result<_, _>>()?,
            graph: Arc::clone(&self.graph),
            void: self.void,
            strings: distilled.strings,
        })
    }
}

/// Whether a type of a distilled base stands for another type of its name.
fn stands_for(distilled: &Type<'_>, other: &Type<'_>) -> bool {
    match (&distilled.kind, &other.kind) {
        (TypeKind::Integer(one), TypeKind::Integer(two))
        | (TypeKind::Float(one), TypeKind::Float(two)) => one == two,
        (
            TypeKind::Record { tag, size, .. },
            TypeKind::Record {
                tag: other,
                size: others,
                ..
            },
        ) => (tag, size) == (other, others),
        (TypeKind::Forward(_), _) => distilled.tag() == other.tag(),
        _ => false,
    }
}
