//! Memory layout: sizes, alignments, members and the holes between them.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::graph::{Graph, Tag, TypeId, TypeKind};

/// The maximum nesting of a type; a broken file can make a type contain itself.
const MAX_NESTING: u32 = 256;

/// The layout of a structure or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordLayout<'g> {
    /// Structure or union.
    pub tag: Tag,
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment in bytes, derived from its members ([`Graph::align`]): attributes can require
    /// more.
    pub align: u64,
    /// Its members.
    pub members: Vec<MemberLayout<'g>>,
    /// Bits of a structure that belong to no member. The last hole can be at the end.
    pub holes: Vec<Hole>,
}

/// A member's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLayout<'g> {
    /// Its name; empty if it has none.
    pub name: Cow<'g, str>,
    /// Its type.
    pub ty: TypeId,
    /// Its offset, in bits.
    pub offset: u64,
    /// Its width in bits; `None` if its type has no known size.
    pub bits: Option<u64>,
    /// Whether it is a bit-field.
    pub is_bit_field: bool,
}

/// A part of a structure that belongs to no member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// Its offset, in bits.
    pub offset: u64,
    /// Its width in bits.
    pub bits: u64,
    /// Whether it is behind all members.
    pub is_padding: bool,
}

impl<'a> Graph<'a> {
    /// The size of a type in bytes; `None` for functions, forwards and unrepresented types. An
    /// array without a number of elements has size 0.
    #[must_use]
    pub fn size(&self, id: TypeId) -> Option<u64> {
        self.size_within(id, MAX_NESTING)
    }

    fn size_within(&self, id: TypeId, depth: u32) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        match &self.get(self.resolve(id)?)?.kind {
            TypeKind::Integer(number) | TypeKind::Float(number) => Some(number.size),
            TypeKind::Pointer(_) => Some(self.pointer_size),
            TypeKind::Array { element, count, .. } => {
                self.size_within(*element, depth)?.checked_mul(*count)
            }
            TypeKind::Record { size, .. }
            | TypeKind::Enum { size, .. }
            | TypeKind::Slice { size, .. } => Some(*size),
            _ => None,
        }
    }

    /// The alignment of a type in bytes; `None` if it has none. A structure's is the maximum of its
    /// members', if it can have that: the size and the offsets are multiples. Otherwise it is packed,
    /// and the result is the largest that divides them. Attributes in the source are not known.
    #[must_use]
    pub fn align(&self, id: TypeId) -> Option<u64> {
        self.align_within(id, MAX_NESTING, &mut HashMap::new())
    }

    fn align_within(
        &self,
        id: TypeId,
        depth: u32,
        known: &mut HashMap<TypeId, Option<u64>>,
    ) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let id = self.resolve(id)?;
        if let Some(known) = known.get(&id) {
            return *known;
        }
        known.insert(id, None); // within itself
        let align = match &self.get(id)?.kind {
            // A complex number is aligned as each of its two parts.
            TypeKind::Float(number) if matches!(number.format, 3..=5) => Some(number.size / 2),
            TypeKind::Integer(number) | TypeKind::Float(number) => Some(number.size),
            TypeKind::Pointer(_) => Some(self.pointer_size),
            TypeKind::Enum { size, .. } => Some(*size),
            TypeKind::Array { element: of, .. } | TypeKind::Slice { of, .. } => {
                self.align_within(*of, depth, known)
            }
            TypeKind::Record { size, members, .. } => {
                let aligns = members.iter().map(|member| {
                    let align = self.align_within(member.ty, depth, known).unwrap_or(1);
                    // The place of a bit-field depends on no alignment.
                    let (_, _, is_bit_field) = self.extent(member.ty, member.bits);
                    (align, if is_bit_field { 0 } else { member.offset / 8 })
                });
                Some(record_align(*size, aligns))
            }
            _ => None,
        };
        known.insert(id, align);
        align
    }

    /// The layout of a structure or union, also through typedefs and qualifiers; `None` for other
    /// types.
    #[must_use]
    pub fn layout(&self, id: TypeId) -> Option<RecordLayout<'_>> {
        let TypeKind::Record { tag, size, members } = &self.get(self.resolve(id)?)?.kind else {
            return None;
        };
        let placed: Vec<_> = members
            .iter()
            .map(|member| {
                let (shift, bits, is_bit_field) = self.extent(member.ty, member.bits);
                MemberLayout {
                    name: Cow::Borrowed(&*member.name),
                    ty: member.ty,
                    offset: member.offset.saturating_add(shift),
                    bits,
                    is_bit_field,
                }
            })
            .collect();
        let holes = match tag {
            Tag::Struct => holes(&placed, size.saturating_mul(8)),
            _ => Vec::new(),
        };
        Some(RecordLayout {
            tag: *tag,
            size: *size,
            align: self.align(id)?,
            members: placed,
            holes,
        })
    }

    /// The offset of a member's first bit in its storage, its width in bits, and whether it is a
    /// bit-field.
    fn extent(&self, ty: TypeId, bits: Option<u16>) -> (u64, Option<u64>, bool) {
        if let Some(bits) = bits {
            return (0, Some(u64::from(bits)), true);
        }
        let resolved = self.resolve(ty).and_then(|id| self.get(id));
        match resolved.map(|ty| &ty.kind) {
            Some(TypeKind::Slice { offset, bits, .. }) => {
                (u64::from(*offset), Some(u64::from(*bits)), true)
            }
            Some(TypeKind::Integer(number))
                if u64::from(number.bits) < number.size.saturating_mul(8) && number.bits != 0 =>
            {
                (u64::from(number.offset), Some(u64::from(number.bits)), true)
            }
            _ => (0, self.size(ty).and_then(|size| size.checked_mul(8)), false),
        }
    }
}

/// The alignment of a structure of that size in bytes, by the alignments and offsets of its members.
fn record_align(size: u64, members: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut align, mut is_packed, mut places) = (1, false, size);
    for (own, offset) in members.filter(|(align, _)| *align > 1) {
        align = align.max(own);
        is_packed |= !offset.is_multiple_of(own);
        places |= offset;
    }
    let divisor = 1_u64.checked_shl(places.trailing_zeros());
    match divisor {
        Some(divisor) if is_packed || !size.is_multiple_of(align) => align.min(divisor),
        _ => align,
    }
}

/// The bits of a structure without a member.
fn holes(members: &[MemberLayout<'_>], size: u64) -> Vec<Hole> {
    let mut ranges: Vec<_> = members
        .iter()
        .map(|member| {
            let end = member.offset.saturating_add(member.bits.unwrap_or(0));
            (member.offset, end)
        })
        .collect();
    ranges.sort_unstable();
    let mut holes = Vec::new();
    let mut end = 0;
    let mut hole = |from: u64, to: u64, is_padding| {
        if from < to {
            holes.push(Hole {
                offset: from,
                bits: to - from,
                is_padding,
            });
        }
    };
    for (start, its_end) in ranges {
        hole(end, start, false);
        end = end.max(its_end);
    }
    hole(end, size, true);
    holes
}
