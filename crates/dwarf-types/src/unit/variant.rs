//! Structures with variants (DWARF 5 §5.7.10), such as Rust's enumerations with data. CTF cannot
//! represent them.

use gimli::AttributeValue;
use unspool_c_types::Member;

use super::UnitReader;
use crate::error::TypesError;
use crate::index::{DieEntry, DieRef};

/// The variants of a structure.
#[derive(Debug, Clone)]
pub struct VariantPart<'a> {
    /// The member that selects the variant; `None` if there is only one variant.
    pub discriminant: Option<Member<'a>>,
    /// The variants.
    pub variants: Vec<Variant<'a>>,
}

/// One of the variants of a structure.
#[derive(Debug, Clone)]
pub struct Variant<'a> {
    /// The discriminant's value, with as many low bits as the discriminant has; `None` for the
    /// default variant.
    pub value: Option<u64>,
    /// Its member.
    pub member: Member<'a>,
}

impl<'a> VariantPart<'a> {
    /// The variant for a discriminant of `bits` bits.
    #[must_use]
    pub fn select(&self, discriminant: u64, bits: u32) -> Option<&Variant<'a>> {
        let unused = 64 - bits.clamp(1, 64);
        let is_it = |value: u64| value << unused == discriminant << unused;
        let mut variants = self.variants.iter();
        let own = variants.find(|own| own.value.is_some_and(is_it));
        own.or_else(|| self.variants.iter().find(|own| own.value.is_none()))
    }
}

impl<'a> UnitReader<'_, 'a> {
    /// Reads a variant part. Variants with another number of members than one, or with lists of
    /// discriminants, are left out: Rust has none.
    pub(super) fn read_variant_part(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<VariantPart<'a>, TypesError> {
        let index = self.index;
        let discriminant = match entry.attr_value(gimli::DW_AT_discr) {
            Some(value) => {
                let place = index.resolve_reference(die, &value)?;
                Some(self.member(place, &index.entry(place)?)?)
            }
            None => None,
        };
        let mut variants = Vec::new();
        index.children(die, |place, child| {
            if child.tag() == gimli::DW_TAG_variant && !child.has_attr(gimli::DW_AT_discr_list) {
                let value = child.attr_value(gimli::DW_AT_discr_value);
                let value = value.map(|value| discriminant_value(place, &value));
                let mut members = Vec::new();
                index.children(place, |place, child| {
                    if child.tag() == gimli::DW_TAG_member {
                        members.push(self.member(place, child)?);
                    }
                    Ok(())
                })?;
                if let [member] = &mut members[..] {
                    variants.push(Variant {
                        value: value.transpose()?,
                        member: member.clone(),
                    });
                }
            }
            Ok(())
        })?;
        Ok(VariantPart {
            discriminant,
            variants,
        })
    }
}

fn discriminant_value<R: gimli::Reader>(
    die: DieRef,
    value: &AttributeValue<R>,
) -> Result<u64, TypesError> {
    let unsigned = value.udata_value();
    let value = unsigned.or_else(|| value.sdata_value().map(i64::cast_unsigned));
    value.ok_or_else(|| die.missing_attribute("a variant whose discriminant does not fit 64 bits"))
}
