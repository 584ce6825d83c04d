//! C types as types of displayed values.

use std::borrow::Cow;
use std::{slice, vec};

use unspool_arg_table::{Array, BitField, DisplayKind, DisplayMember, DisplayType};
use unspool_c_types::{Enumerator, Graph, MemberLayout, Number, TypeId, TypeKind};

/// The maximum nesting of members; deeper ones are bytes.
const MAX_NESTING: u32 = 7;

/// The maximum number of members of a structure, or constants of an enumeration.
const MAX_MEMBERS: usize = 256;

/// A type of a graph. Its [kind](DisplayType::kind) is read from the graph at each call, one level
/// at a time.
#[derive(Clone, Copy)]
pub struct GraphType<'g, 'a> {
    graph: &'g Graph<'a>,
    ty: TypeId,
    /// The remaining nesting of members.
    depth: u32,
}

impl<'g, 'a> GraphType<'g, 'a> {
    /// A type of a graph.
    #[must_use]
    pub fn new(graph: &'g Graph<'a>, ty: TypeId) -> GraphType<'g, 'a> {
        GraphType {
            graph,
            ty,
            depth: MAX_NESTING,
        }
    }

    /// Its size in bytes; 0 if it has none, or more than a `u32` holds.
    #[must_use]
    pub fn bytes(self) -> u32 {
        let size = self.graph.size(self.ty);
        size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
    }

    /// Another type of the graph, at another depth.
    fn with(self, ty: TypeId, depth: u32) -> GraphType<'g, 'a> {
        GraphType { ty, depth, ..self }
    }

    fn resolved(self, ty: TypeId) -> Option<&'g TypeKind<'a>> {
        let resolved = self.graph.get(self.graph.resolve(ty)?)?;
        Some(&resolved.kind)
    }

    /// The kind of a type with parts; `None` if it is nested too deep, or has too many or no known
    /// members.
    fn compound(self, kind: &TypeKind<'_>) -> Option<DisplayKind<Self>> {
        let depth = self.depth.checked_sub(1)?;
        match kind {
            TypeKind::Slice { of, .. } => Some(self.with(*of, depth).kind()),
            TypeKind::Array { element, count, .. } => {
                let element = self.with(*element, depth);
                Some(DisplayKind::Array(Array {
                    count: *count,
                    bytes: element.bytes(),
                    element,
                }))
            }
            TypeKind::Record { .. } => {
                let members = self.graph.layout(self.ty)?.members;
                let is_shown = (1..=MAX_MEMBERS).contains(&members.len());
                is_shown.then(|| {
                    DisplayKind::Record(GraphMembers {
                        record: self.with(self.ty, depth),
                        members: members.into_iter(),
                    })
                })
            }
            _ => None,
        }
    }
}

impl<'g, 'a> DisplayType for GraphType<'g, 'a> {
    type Name = Cow<'g, str>;
    type Members = GraphMembers<'g, 'a>;
    type Enumerators = GraphEnumerators<'g, 'a>;

    fn kind(self) -> DisplayKind<Self> {
        let Some(kind) = self.resolved(self.ty) else {
            return DisplayKind::Bytes;
        };
        match kind {
            TypeKind::Integer(number) => integer_kind(*number),
            // A complex number consists of two.
            TypeKind::Float(number) if matches!(number.format, 3..=5) => DisplayKind::Bytes,
            TypeKind::Float(_) => DisplayKind::Float,
            TypeKind::Pointer(to) => match self.resolved(*to) {
                Some(TypeKind::Integer(number)) if number.format & Number::CHAR != 0 => {
                    DisplayKind::CharPointer
                }
                _ => DisplayKind::Pointer,
            },
            TypeKind::Enum { enumerators, .. } => DisplayKind::Enum(GraphEnumerators {
                negative: enumerators.iter(),
                others: enumerators.iter(),
                left: MAX_MEMBERS,
            }),
            compound => self.compound(compound).unwrap_or(DisplayKind::Bytes),
        }
    }
}

fn integer_kind<T: DisplayType>(number: Number) -> DisplayKind<T> {
    match number.format {
        format if format & Number::BOOL != 0 => DisplayKind::Bool,
        format if format & Number::CHAR != 0 => match format & Number::SIGNED {
            0 => DisplayKind::UnsignedChar,
            _ => DisplayKind::Char,
        },
        format if format & Number::SIGNED != 0 => DisplayKind::Signed,
        _ => DisplayKind::Unsigned,
    }
}

/// The constants of an enumeration, the negative ones first: if there are too many, they still show
/// that values are signed.
#[derive(Clone)]
pub struct GraphEnumerators<'g, 'a> {
    negative: slice::Iter<'g, Enumerator<'a>>,
    others: slice::Iter<'g, Enumerator<'a>>,
    left: usize,
}

impl<'g> Iterator for GraphEnumerators<'g, '_> {
    type Item = (i64, Cow<'g, str>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let value = |constant: &Enumerator<'_>| constant.bits().cast_signed();
        let negative = self.negative.find(|constant| value(constant) < 0);
        let constant = negative.or_else(|| self.others.find(|constant| value(constant) >= 0))?;
        Some((value(constant), Cow::Borrowed(&*constant.name)))
    }
}

/// The members of a structure or union.
#[derive(Clone)]
pub struct GraphMembers<'g, 'a> {
    record: GraphType<'g, 'a>,
    members: vec::IntoIter<MemberLayout<'g>>,
}

impl GraphMembers<'_, '_> {
    /// What determines the members in a graph: the structure, and the remaining nesting.
    #[must_use]
    pub fn key(&self) -> (TypeId, u32) {
        (self.record.ty, self.record.depth)
    }
}

impl<'g, 'a> Iterator for GraphMembers<'g, 'a> {
    type Item = DisplayMember<GraphType<'g, 'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let member = self.members.next()?;
        let ty = self.record.with(member.ty, self.record.depth);
        let (bytes, display_kind) = match member.bits {
            Some(bits) if member.is_bit_field => bit_field(member.offset % 8, bits, ty),
            _ => (ty.bytes(), ty.kind()),
        };
        Some(DisplayMember {
            name: member.name,
            offset: u32::try_from(member.offset / 8).unwrap_or(u32::MAX),
            bytes,
            display_kind,
        })
    }
}

/// The bytes that contain a bit-field, and its display kind.
fn bit_field<T: DisplayType>(first: u64, bits: u64, number: T) -> (u32, DisplayKind<T>) {
    let bytes = u32::try_from(first.saturating_add(bits).div_ceil(8)).unwrap_or(0);
    match (u8::try_from(first), u8::try_from(bits)) {
        (Ok(first), Ok(count)) if bytes <= 8 => {
            let field = BitField {
                first,
                count,
                number,
            };
            (bytes, DisplayKind::Bits(field))
        }
        _ => (bytes, DisplayKind::Bytes),
    }
}
