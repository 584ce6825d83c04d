//! Arrays and their dimensions.

use gimli::AttributeValue;
use unspool_ctf::{Kind, Type, TypeId};

use super::UnitReader;
use crate::entry::{flag, number, signed};
use crate::error::TypesError;
use crate::index::{Entry, Place, Slice};

impl<'a> UnitReader<'_, 'a> {
    /// An array, with a type for each of its dimensions but the first.
    pub(super) fn array(
        &mut self,
        id: TypeId,
        place: Place,
        entry: &Entry<'a>,
    ) -> Result<Kind<'a>, TypesError> {
        if flag(entry, gimli::DW_AT_GNU_vector) {
            return Ok(Kind::Unknown);
        }
        let mut element = self.type_of(place, entry);
        let mut dimensions = Vec::new();
        self.index.children(place, |place, child| {
            if child.tag() == gimli::DW_TAG_subrange_type {
                dimensions.push((place, child.clone()));
            }
            Ok(())
        })?;
        let mut dimensions = dimensions.into_iter();
        let first = dimensions.next();
        for (place, entry) in dimensions.rev() {
            let kind = Kind::Array {
                element,
                index: self.index_type(place, &entry),
                count: count(&entry),
            };
            element = self.graph.add(Type::unnamed(kind));
            self.dimensions.extend(open(element, place, &entry));
        }
        let Some((place, entry)) = first else {
            return Ok(Kind::Array {
                element,
                index: TypeId::NONE,
                count: 0,
            });
        };
        self.dimensions.extend(open(id, place, &entry));
        Ok(Kind::Array {
            element,
            index: self.index_type(place, &entry),
            count: count(&entry),
        })
    }

    /// The type of a dimension's indexes; no type if it is not said.
    fn index_type(&mut self, place: Place, entry: &Entry<'a>) -> TypeId {
        match entry.has_attr(gimli::DW_AT_type) {
            true => self.type_of(place, entry),
            false => TypeId::NONE,
        }
    }
}

/// How many elements a dimension has; 0 if that is not known, or computed.
fn count(entry: &Entry<'_>) -> u64 {
    let from_bound = || {
        let upper = signed(entry, gimli::DW_AT_upper_bound)?;
        Some(up_to(entry, upper))
    };
    number(entry, gimli::DW_AT_count)
        .or_else(from_bound)
        .unwrap_or(0)
}

/// How many elements a dimension has, the last with this index. In C, the first has 0.
fn up_to(entry: &Entry<'_>, upper: i64) -> u64 {
    let lower = signed(entry, gimli::DW_AT_lower_bound).unwrap_or(0);
    upper.wrapping_sub(lower).wrapping_add(1).cast_unsigned()
}

/// A dimension of an array that has no constant size (DWARF 5 §5.13).
pub(crate) struct Dimension<'a> {
    /// The array.
    pub(crate) array: TypeId,
    /// The entry of the dimension.
    pub(crate) place: Place,
    /// What computes the number of elements, or the index of the last; `None` if nothing is said.
    pub(crate) bound: Option<AttributeValue<Slice<'a>>>,
    /// What to add to it for the number of elements.
    pub(crate) plus: i64,
}

/// The dimension that an entry is; `None` if its size is a constant.
fn open<'a>(array: TypeId, place: Place, entry: &Entry<'a>) -> Option<Dimension<'a>> {
    let (bound, plus) = match entry.attr_value(gimli::DW_AT_count) {
        Some(count) => (Some(count), 0),
        None => (
            entry.attr_value(gimli::DW_AT_upper_bound),
            up_to(entry, 0).cast_signed(),
        ),
    };
    let is_number = |value: AttributeValue<Slice<'a>>| {
        value.udata_value().is_some() || value.sdata_value().is_some()
    };
    (!bound.is_some_and(is_number)).then_some(Dimension {
        array,
        place,
        bound,
        plus,
    })
}
