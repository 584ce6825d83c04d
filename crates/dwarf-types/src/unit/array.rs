//! Arrays and their dimensions.

use gimli::AttributeValue;
use unspool_c_types::{Type, TypeId, TypeKind, UNKNOWN_TYPE};

use super::UnitReader;
use crate::attributes::{number, signed, sized_type};
use crate::error::TypesError;
use crate::index::{DieEntry, DieRef, DwarfReader};

impl<'a> UnitReader<'_, 'a> {
    /// A vector: a type without a name in C, with gcc's declaration as its name.
    pub(super) fn vector(&self, die: DieRef, entry: &DieEntry<'a>) -> Type<'a> {
        let mut elements = None;
        let read = self.index.children(die, |_, child| {
            if child.tag() == gimli::DW_TAG_subrange_type {
                elements = Some(count(child));
            }
            Ok(())
        });
        let element = sized_type(self.index, die, entry);
        let name = element.and_then(|(place, element)| {
            let bytes = number(&element, gimli::DW_AT_byte_size)?.checked_mul(elements?)?;
            let element = self.text(place, &element, gimli::DW_AT_name)?;
            Some(format!("{element} __attribute__((vector_size({bytes})))"))
        });
        let name = name.filter(|_| read.is_ok());
        Type::named(
            name.unwrap_or_else(|| UNKNOWN_TYPE.to_owned()),
            TypeKind::Unknown,
        )
    }

    /// An array, with a type for each of its dimensions except the first.
    pub(super) fn array(
        &mut self,
        id: TypeId,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<TypeKind<'a>, TypesError> {
        let mut element = self.type_of(die, entry);
        let mut dimensions = Vec::new();
        self.index.children(die, |place, child| {
            if child.tag() == gimli::DW_TAG_subrange_type {
                dimensions.push((place, child.clone()));
            }
            Ok(())
        })?;
        let mut dimensions = dimensions.into_iter();
        let first = dimensions.next();
        for (place, entry) in dimensions.rev() {
            let kind = TypeKind::Array {
                element,
                index: self.index_type(place, &entry),
                count: count(&entry),
            };
            element = self.graph.add(Type::unnamed(kind));
            self.dimensions
                .extend(dynamic_dimension(element, place, &entry));
        }
        let Some((place, entry)) = first else {
            return Ok(TypeKind::Array {
                element,
                index: TypeId::NONE,
                count: 0,
            });
        };
        self.dimensions.extend(dynamic_dimension(id, place, &entry));
        Ok(TypeKind::Array {
            element,
            index: self.index_type(place, &entry),
            count: count(&entry),
        })
    }

    /// The type of a dimension's indexes; no type if it is missing.
    fn index_type(&mut self, die: DieRef, entry: &DieEntry<'a>) -> TypeId {
        if entry.has_attr(gimli::DW_AT_type) {
            self.type_of(die, entry)
        } else {
            TypeId::NONE
        }
    }
}

/// The number of a dimension's elements; 0 if it is unknown or computed.
fn count(entry: &DieEntry<'_>) -> u64 {
    let from_bound = || {
        let upper = signed(entry, gimli::DW_AT_upper_bound)?;
        Some(up_to(entry, upper))
    };
    number(entry, gimli::DW_AT_count)
        .or_else(from_bound)
        .unwrap_or(0)
}

/// The number of a dimension's elements, from its last index. In C, the first index is 0.
fn up_to(entry: &DieEntry<'_>, upper: i64) -> u64 {
    let lower = signed(entry, gimli::DW_AT_lower_bound).unwrap_or(0);
    upper.wrapping_sub(lower).wrapping_add(1).cast_unsigned()
}

/// A dimension of an array without a constant size (DWARF 5 §5.13).
pub(crate) struct DynamicDimension<'a> {
    /// The array.
    pub(crate) array: TypeId,
    /// The entry of the dimension.
    pub(crate) die: DieRef,
    /// The expression or reference for the number of elements, or for the last index; `None` if
    /// there is none.
    pub(crate) bound: Option<AttributeValue<DwarfReader<'a>>>,
    /// The difference from its value to the number of elements.
    pub(crate) plus: i64,
}

/// The dimension of an entry; `None` if its size is constant.
fn dynamic_dimension<'a>(
    array: TypeId,
    die: DieRef,
    entry: &DieEntry<'a>,
) -> Option<DynamicDimension<'a>> {
    let (bound, plus) = match entry.attr_value(gimli::DW_AT_count) {
        Some(count) => (Some(count), 0),
        None => (
            entry.attr_value(gimli::DW_AT_upper_bound),
            up_to(entry, 0).cast_signed(),
        ),
    };
    let is_number = |value: AttributeValue<DwarfReader<'a>>| {
        value.udata_value().is_some() || value.sdata_value().is_some()
    };
    (!bound.is_some_and(is_number)).then_some(DynamicDimension {
        array,
        die,
        bound,
        plus,
    })
}
