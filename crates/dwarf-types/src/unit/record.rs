//! Structures, unions and their members.

use unspool_c_types::{Member, Tag, TypeId, TypeKind};

use super::UnitReader;
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
        let index = self.index;
        index.children(die, |place, child| {
            if child.tag() == gimli::DW_TAG_variant_part {
                let variants = self.read_variant_part(place, child)?;
                self.variants.insert(id, variants);
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
