//! Paths into types: `.member[index]->member`.

use crate::graph::{Graph, TypeId, TypeKind};

/// A part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathPart<'p> {
    /// `.name` or `->name`: a member of a structure or union, or of the one behind a pointer.
    Member(&'p str),
    /// `[number]`: an element of an array, or of the one behind a pointer.
    Index(u64),
}

impl<'p> PathPart<'p> {
    /// The parts of a path; an empty text has none.
    ///
    /// # Errors
    ///
    /// It is not a path.
    pub fn parse(text: &'p str) -> Result<Vec<PathPart<'p>>, PathError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let syntax = || PathError::Syntax {
                rest: rest.to_owned(),
            };
            if let Some(inner) = rest.strip_prefix('[') {
                let (number, after) = inner.split_once(']').ok_or_else(syntax)?;
                parts.push(PathPart::Index(
                    number.trim().parse().map_err(|_| syntax())?,
                ));
                rest = after;
            } else {
                let name = rest.strip_prefix('.').or_else(|| rest.strip_prefix("->"));
                let name = name.ok_or_else(syntax)?;
                let end = name.find(['.', '[', '-']).unwrap_or(name.len());
                let (name, after) = name.split_at_checked(end).ok_or_else(syntax)?;
                if name.is_empty() {
                    return Err(syntax());
                }
                parts.push(PathPart::Member(name));
                rest = after;
            }
        }
        Ok(parts)
    }
}

/// Why a path leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It is not written as a path.
    #[error("`{rest}` is not `.member`, `->member` or `[number]`")]
    Syntax {
        /// The rest of it.
        rest: String,
    },
    /// The type has no such member.
    #[error("`{ty}` has no member `{name}`; it has {}", .members.join(", "))]
    NoMember {
        /// The type.
        ty: String,
        /// The name.
        name: String,
        /// The members that there are.
        members: Vec<String>,
    },
    /// A member is asked of a type without members.
    #[error("`{ty}` has no members, so no `{name}`")]
    NoRecord {
        /// The type.
        ty: String,
        /// The name.
        name: String,
    },
    /// An element is asked of a type without elements, or of unknown size.
    #[error("`{ty}` has no elements")]
    NoElements {
        /// The type.
        ty: String,
    },
    /// The array is shorter.
    #[error("`{ty}` has no element {index}")]
    TooFar {
        /// The type.
        ty: String,
        /// The index.
        index: u64,
    },
}

/// A member's place in a structure or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberPlace {
    /// Its type.
    pub ty: TypeId,
    /// Its offset, in bits.
    pub offset: u64,
    /// Its width in bits, if it is a bit-field.
    pub field_bits: Option<u64>,
}

impl Graph<'_> {
    /// A member by its name. Members of anonymous members count as the structure's own.
    ///
    /// # Errors
    ///
    /// The type is not a structure or union, or has no such member.
    pub fn member(&self, record: TypeId, name: &str) -> Result<MemberPlace, PathError> {
        /// The maximum nesting of anonymous members.
        const MAX_NESTING: u32 = 64;
        let mut members = Vec::new();
        let found = self.find_member(record, name, MAX_NESTING, &mut members);
        found.ok_or_else(|| {
            let (ty, name) = (self.declare(record, ""), name.to_owned());
            if members.is_empty() {
                PathError::NoRecord { ty, name }
            } else {
                PathError::NoMember { ty, name, members }
            }
        })
    }

    fn find_member(
        &self,
        record: TypeId,
        name: &str,
        depth: u32,
        others: &mut Vec<String>,
    ) -> Option<MemberPlace> {
        let depth = depth.checked_sub(1)?;
        for member in self.layout(record)?.members {
            if member.name == name && !name.is_empty() {
                return Some(MemberPlace {
                    ty: member.ty,
                    offset: member.offset,
                    field_bits: member.bits.filter(|_| member.is_bit_field),
                });
            }
            if !member.name.is_empty() {
                others.push(member.name.into_owned());
            } else if let Some(inner) = self.find_member(member.ty, name, depth, others) {
                return Some(MemberPlace {
                    offset: inner.offset.checked_add(member.offset)?,
                    ..inner
                });
            }
        }
        None
    }

    /// The type of an element, and its offset in bytes. A pointer's elements begin at its target.
    ///
    /// # Errors
    ///
    /// The type has no elements, or not so many. An array without a number of elements has all.
    pub fn element(&self, of: TypeId, index: u64) -> Result<(TypeId, u64), PathError> {
        let ty = || self.declare(of, "");
        let resolved = self.resolve(of).and_then(|id| self.get(id));
        let element = match resolved.map(|ty| &ty.kind) {
            Some(TypeKind::Array { count, .. }) if *count != 0 && index >= *count => {
                return Err(PathError::TooFar { ty: ty(), index });
            }
            Some(TypeKind::Array { element, .. } | TypeKind::Pointer(element)) => *element,
            _ => return Err(PathError::NoElements { ty: ty() }),
        };
        let offset = self.size(element).and_then(|size| size.checked_mul(index));
        offset
            .map(|offset| (element, offset))
            .ok_or_else(|| PathError::NoElements { ty: ty() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_in_c() {
        let parts = PathPart::parse(".a[12]->b_2.c").unwrap();
        let member = PathPart::Member;
        let expected = [member("a"), PathPart::Index(12), member("b_2"), member("c")];
        assert_eq!(parts, expected);
        assert_eq!(PathPart::parse(""), Ok(Vec::new()));
        for wrong in [
            "a", ".", ".a[", ".a[-1]", ".a[x]", "->", ".a-b", ".a..b", "[1]2",
        ] {
            assert!(PathPart::parse(wrong).is_err(), "{wrong}");
        }
    }
}
