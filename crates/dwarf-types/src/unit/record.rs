//! Structures, unions and their members.

use unspool_c_types::{Member, Number, Tag, Type, TypeId, TypeKind};

use super::UnitReader;
use super::cpp::ClassParts;
use crate::attributes::{flag, location, number, storage};
use crate::error::TypesError;
use crate::index::{DieEntry, DieRef};

impl<'a> UnitReader<'_, 'a> {
    pub(super) fn record(
        &mut self,
        tag: Tag,
        id: TypeId,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<TypeKind<'a>, TypesError> {
        let size = number(entry, gimli::DW_AT_byte_size);
        if flag(entry, gimli::DW_AT_declaration) {
            return Ok(TypeKind::Forward(tag));
        }
        let size = size.ok_or_else(|| die.missing_attribute("a structure without a size"))?;
        let mut members = Vec::new();
        let mut class = ClassParts::default();
        let index = self.index;
        index.children(die, |place, child| {
            if child.tag() == gimli::DW_TAG_variant_part {
                let variants = self.read_variant_part(place, child)?;
                self.variants.insert(id, variants);
            }
            if self.cpp.is_some() && self.part_of_class(place, child, &mut class)? {
                return Ok(());
            }
            // A base class is an unnamed member.
            let is_part = matches!(
                child.tag(),
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance
            );
            if is_part && !flag(child, gimli::DW_AT_declaration) {
                match self.member(place, child) {
                    Ok(member) => members.push(member),
                    Err(problem) => self.problems.push(problem),
                }
            }
            Ok(())
        })?;
        members.extend(self.members_of_class(die, entry, class));
        Ok(TypeKind::Record { tag, size, members })
    }

    pub(super) fn member(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<Member<'a>, TypesError> {
        let (unit, _) = self.index.unit(die)?;
        let start = location(entry, unit.encoding())
            .ok_or_else(|| die.missing_attribute("a member whose place is not a number"))?;
        let start = start.saturating_mul(8);
        let bits = number(entry, gimli::DW_AT_bit_size);
        let bits = bits.map(|bits| u16::try_from(bits).unwrap_or(u16::MAX));
        let offset = match (number(entry, gimli::DW_AT_data_bit_offset), bits) {
            (Some(offset), _) => start.saturating_add(offset),
            (None, Some(bits)) => start.saturating_add(self.old_offset(die, entry, bits)?),
            (None, None) => start,
        };
        Ok(Member {
            name: self.text(die, entry, gimli::DW_AT_name).unwrap_or_default(),
            ty: self.type_of(die, entry),
            offset,
            bits,
        })
    }

    /// A pointer to a member of a class (Itanium C++ ABI §2.3): the offset of data, or -1; or a
    /// function's address and what a call adds to the object's.
    pub(super) fn member_pointer(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<Type<'a>, TypesError> {
        let index = self.index;
        let target = |name| -> Result<Option<DieRef>, TypesError> {
            let target = entry.attr_value(name);
            let place = target.map(|target| index.resolve_reference(die, &target));
            place.transpose()
        };
        let class = match target(gimli::DW_AT_containing_type)? {
            Some(class) => self.text(class, &index.entry(class)?, gimli::DW_AT_name),
            None => None,
        };
        let name = format!("{}::*", class.unwrap_or_default());
        let is_function = match target(gimli::DW_AT_type)? {
            Some(to) => index.entry(to)?.tag() == gimli::DW_TAG_subroutine_type,
            None => false,
        };
        let size = self.graph.pointer_size;
        let bytes = u8::try_from(size).unwrap_or(0);
        let offset = TypeKind::Integer(Number::with_size(bytes, Number::SIGNED));
        if !is_function {
            return Ok(Type::named(name, offset));
        }
        let function = TypeKind::Pointer(self.type_of(die, entry));
        let mut member = |name: &'static str, kind: &TypeKind<'a>, offset| Member {
            name: name.into(),
            ty: self.graph.add(Type::unnamed(kind.clone())),
            offset,
            bits: None,
        };
        let kind = TypeKind::Record {
            tag: Tag::Struct,
            size: 2 * size,
            members: vec![
                member("__pfn", &function, 0),
                member("__delta", &offset, 8 * size),
            ],
        };
        let pair = self.graph.add(Type::unnamed(kind));
        Ok(Type::named(name, TypeKind::Typedef(pair)))
    }

    /// The offset of a bit-field in its storage unit, in bits. Before DWARF 4, and from gcc also
    /// later, it is counted from the most significant bit of the storage unit.
    fn old_offset(&self, die: DieRef, entry: &DieEntry<'a>, bits: u16) -> Result<u64, TypesError> {
        let Some(offset) = entry.attr(gimli::DW_AT_bit_offset) else {
            return Ok(0);
        };
        let lacks = || die.missing_attribute("a bit-field whose storage unit has no size");
        let offset = offset.sdata_value().ok_or_else(lacks)?;
        if self.index.is_big() {
            return Ok(offset.cast_unsigned());
        }
        let size =
            number(entry, gimli::DW_AT_byte_size).or_else(|| storage(self.index, die, entry));
        let size = size.ok_or_else(lacks)?.saturating_mul(8);
        let behind = i64::try_from(size)
            .ok()
            .and_then(|size| size.checked_sub(offset)?.checked_sub(i64::from(bits)));
        Ok(behind.ok_or_else(lacks)?.cast_unsigned())
    }
}
