//! The base of split BTF.

use std::sync::Arc;

use hashbrown::HashMap;

use super::error::BtfError;
use super::read::{BtfReading, BtfSlot};
use crate::graph::{Graph, Type, TypeId, TypeKind};

/// The types and strings that split BTF continues: those of the kernel, for a module.
#[derive(Debug)]
pub struct BtfBase<'a> {
    pub(super) graph: Arc<Graph<'a>>,
    /// The graph's counterparts of the ids from 1 on.
    pub(super) slots: Vec<BtfSlot>,
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
        let find = |slot: &BtfSlot| {
            let BtfSlot::Type(id) = slot else {
                return Ok(BtfSlot::None);
            };
            let Some(ty) = distilled.graph.get(*id) else {
                return Ok(BtfSlot::None);
            };
            let named = named.get(&*ty.name).into_iter().flatten();
            let mut found: Vec<_> = named.filter(|(_, other)| stands_for(ty, other)).collect();
            // A definition, if there is one.
            let is_defined = |ty: &Type<'_>| !matches!(ty.kind, TypeKind::Forward(_));
            if found.iter().any(|(_, ty)| is_defined(ty)) {
                found.retain(|(_, ty)| is_defined(ty));
            }
            match *found {
                [(id, _)] => Ok(BtfSlot::Type(*id)),
                _ => Err(BtfError::BaseType {
                    ty: distilled.graph.declare(*id, ""),
                    count: if found.is_empty() { "none" } else { "several" },
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

impl BtfBase<'_> {
    /// The ids of the base's types, by their ids in its graph.
    pub(super) fn ids(&self) -> HashMap<TypeId, u32> {
        let types = (1..).zip(&self.slots).filter_map(|(id, slot)| match slot {
            BtfSlot::Type(ty) => Some((*ty, id)),
            _ => None,
        });
        // Of several ids of a type, the first counts.
        let mut ids = HashMap::new();
        for (ty, id) in types {
            ids.entry(ty).or_insert(id);
        }
        ids
    }

    /// The offsets of the base's strings.
    pub(super) fn string_offsets(&self) -> HashMap<&[u8], u32> {
        let mut at = 0;
        let mut offsets = HashMap::new();
        for string in self.strings.split(|byte| *byte == 0) {
            offsets
                .entry(string)
                .or_insert(u32::try_from(at).unwrap_or(0));
            at += string.len() + 1;
        }
        offsets
    }
}
