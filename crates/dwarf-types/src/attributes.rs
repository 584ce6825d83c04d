//! Reading the attributes of an entry.

use std::borrow::Cow;

use gimli::{AttributeValue, DwAt, Operation};

use crate::index::{DieEntry, DieIndex, DieRef, DwarfReader};

/// A name, or any other text.
pub(crate) fn text<'a>(
    index: &DieIndex<'a>,
    die: DieRef,
    entry: &DieEntry<'a>,
    name: DwAt,
) -> Option<Cow<'a, str>> {
    let value = entry.attr_value(name)?;
    let (unit, _) = index.unit(die).ok()?;
    let text = index.dwarf(die.section).attr_string(unit, value).ok()?;
    Some(String::from_utf8_lossy(text.slice()))
}

/// A number that cannot be negative.
pub(crate) fn number(entry: &DieEntry<'_>, name: DwAt) -> Option<u64> {
    entry.attr(name)?.udata_value()
}

/// A number that may be signed, depending on its form: forms of variable size are signed, those of
/// fixed size are unsigned, as gcc and clang write them.
pub(crate) fn signed(entry: &DieEntry<'_>, name: DwAt) -> Option<i64> {
    match entry.attr_value_raw(name)? {
        AttributeValue::Sdata(value) => Some(value),
        AttributeValue::Udata(value) | AttributeValue::Data8(value) => Some(value.cast_signed()),
        AttributeValue::Data1(value) => Some(i64::from(value)),
        AttributeValue::Data2(value) => Some(i64::from(value)),
        AttributeValue::Data4(value) => Some(i64::from(value)),
        _ => None,
    }
}

/// A constant, as [`signed`], with large unsigned numbers as they are.
pub(crate) fn constant(entry: &DieEntry<'_>, name: DwAt) -> Option<i128> {
    let value = signed(entry, name)?;
    Some(match entry.attr_value_raw(name)? {
        AttributeValue::Sdata(_) => i128::from(value),
        _ => i128::from(value.cast_unsigned()),
    })
}

/// Whether a flag is set.
pub(crate) fn flag(entry: &DieEntry<'_>, name: DwAt) -> bool {
    matches!(entry.attr_value(name), Some(AttributeValue::Flag(true)))
}

/// The offset of a member in bytes; `None` if it must be computed at run time.
pub(crate) fn location(entry: &DieEntry<'_>, encoding: gimli::Encoding) -> Option<u64> {
    let attribute = entry.attr(gimli::DW_AT_data_member_location);
    let Some(attribute) = attribute else {
        return Some(0); // a member of a union
    };
    // DWARF 2 has an expression that adds the offset to an address.
    match attribute
        .exprloc_value()
        .map(|bytes| first_operation(bytes, encoding))
    {
        Some(operation) => match operation? {
            Operation::PlusConstant { value } | Operation::UnsignedConstant { value } => {
                Some(value)
            }
            _ => None,
        },
        None => attribute.udata_value(),
    }
}

/// The size in bytes of an entry's type, behind typedefs and qualifiers.
pub(crate) fn storage<'a>(index: &DieIndex<'a>, die: DieRef, entry: &DieEntry<'a>) -> Option<u64> {
    number(&sized_type(index, die, entry)?.1, gimli::DW_AT_byte_size)
}

/// The first type with a size, behind an entry's typedefs and qualifiers, and its place.
pub(crate) fn sized_type<'a>(
    index: &DieIndex<'a>,
    die: DieRef,
    entry: &DieEntry<'a>,
) -> Option<(DieRef, DieEntry<'a>)> {
    let (mut place, mut entry) = (die, entry.clone());
    for _ in 0..MAX_TYPEDEFS {
        let value = entry.attr_value(gimli::DW_AT_type)?;
        place = index.resolve_reference(place, &value).ok()?;
        entry = index.entry(place).ok()?;
        if entry.has_attr(gimli::DW_AT_byte_size) {
            return Some((place, entry));
        }
    }
    None
}

/// The maximum number of typedefs and qualifiers to follow.
const MAX_TYPEDEFS: usize = 256;

fn first_operation<'a>(
    expression: gimli::Expression<DwarfReader<'a>>,
    encoding: gimli::Encoding,
) -> Option<Operation<DwarfReader<'a>>> {
    expression.operations(encoding).next().ok().flatten()
}
