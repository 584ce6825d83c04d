//! Argument passing by a machine's calling convention: from a function's type to registers and
//! stack slots.
//!
//! The conventions are the System V ABI of AMD64 (§3.2.3, "Parameter Passing") and the procedure
//! call standard of AArch64 (AAPCS64, §6.8.2). Registers are by their DWARF numbers. The compiler
//! may change the parameters of a function that others cannot call: then its type differs from the
//! source's.

mod aarch64;
mod amd64;

use std::ops::Range;

use crate::graph::{Graph, TypeId, TypeKind};

/// A calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// System V, AMD64.
    Amd64,
    /// AAPCS64, as Linux uses it.
    Aarch64,
}

/// The location of bytes of an argument when a function is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassingLocation {
    /// In the low bytes of a general-purpose register.
    Register(u8),
    /// In the low bytes of a vector register.
    Vector(u8),
    /// In memory, that many bytes above the CFA.
    Stack(u32),
}

/// Some bytes of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassingPiece {
    /// The offset in the argument.
    pub offset: u32,
    /// The number of bytes.
    pub bytes: u32,
    /// The location.
    pub location: PassingLocation,
}

/// How an argument is passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passing {
    /// The pieces of its value, or if it is passed by reference those of its address.
    pub pieces: Vec<PassingPiece>,
    /// Whether its address is passed.
    pub is_by_reference: bool,
}

/// How the arguments of a function are passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassingSignature {
    /// The passing of each parameter. `None` from the first parameter on with an incomplete type.
    /// Also `None` for `float` in a function [without a prototype](Graph::unprototyped), which
    /// receives `double` there.
    pub parameters: Vec<Option<Passing>>,
    /// Whether any parameter is passed in memory; `None` if that is unknown, as for a variadic
    /// function.
    pub takes_stack: Option<bool>,
}

/// The class of a part of a value in a calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScalarClass {
    Integer,
    Float,
    LongDouble,
}

/// A number or pointer at its offset in a value.
#[derive(Debug, Clone, Copy)]
struct Scalar {
    offset: u64,
    bytes: u64,
    class: ScalarClass,
}

/// The maximum number of parts of a value that is passed in registers; values with more are passed
/// in memory.
const MAX_SCALARS: usize = 64;

/// The maximum nesting of a type; a broken file can make a type contain itself.
const MAX_NESTING: u32 = 64;

impl Graph<'_> {
    /// The argument passing of a function of this type; `None` if the type is not that of a
    /// function, or lacks its parameters.
    #[must_use]
    pub fn signature(&self, function: TypeId, convention: Convention) -> Option<PassingSignature> {
        let function = self.resolve(function)?;
        let TypeKind::Function {
            returns,
            parameters,
            is_variadic,
        } = &self.get(function)?.kind
        else {
            return None;
        };
        let types = parameters.iter().map(|parameter| parameter.ty);
        let (mut passed, takes_stack) = match convention {
            Convention::Amd64 => amd64::pass(self, *returns, types),
            Convention::Aarch64 => aarch64::pass(self, types),
        };
        let is_known = passed.iter().all(Option::is_some);
        if self.unprototyped.contains(&function) {
            let floats = parameters.iter().zip(&mut passed);
            let floats = floats.filter(|(parameter, _)| self.is_float(parameter.ty));
            floats.for_each(|(_, passing)| *passing = None);
        }
        Some(PassingSignature {
            parameters: passed,
            takes_stack: (takes_stack || is_known && !is_variadic).then_some(takes_stack),
        })
    }

    /// Whether a type is `float`. A caller without a prototype passes `double` for it, in an equal
    /// slot.
    #[must_use]
    pub fn is_float(&self, ty: TypeId) -> bool {
        let ty = self.resolve(ty).and_then(|ty| self.get(ty));
        ty.is_some_and(
            |ty| matches!(ty.kind, TypeKind::Float(number) if (number.format, number.size) == (1, 4)),
        )
    }

    /// The numbers and pointers of a value; `None` if a part is unknown, or there are too many.
    fn scalars(&self, ty: TypeId) -> Option<Vec<Scalar>> {
        let mut leaves = Vec::new();
        self.add_scalars(ty, 0, MAX_NESTING, &mut leaves)?;
        Some(leaves)
    }

    fn add_scalars(&self, ty: TypeId, at: u64, depth: u32, leaves: &mut Vec<Scalar>) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut leaf = |offset: u64, bytes: u64, class: ScalarClass| {
            (leaves.len() < MAX_SCALARS).then(|| {
                leaves.push(Scalar {
                    offset,
                    bytes,
                    class,
                });
            })
        };
        let ty = self.resolve(ty)?;
        let of = self.get(ty)?;
        match &of.kind {
            TypeKind::Integer(number) => leaf(at, number.size, ScalarClass::Integer),
            TypeKind::Pointer(_) => leaf(at, self.pointer_size, ScalarClass::Integer),
            TypeKind::Enum { size, .. } | TypeKind::Slice { size, .. } => {
                leaf(at, *size, ScalarClass::Integer)
            }
            TypeKind::Float(number) => {
                // A 16-byte floating-point number may also be IEEE's, which is passed in a vector
                // register; it has another name.
                let is_long = of.name.contains("long double");
                let (parts, class) = match (number.format, number.size) {
                    (1 | 2, _) | (6, 8) => (1, ScalarClass::Float),
                    (6, _) if is_long => (1, ScalarClass::LongDouble),
                    (3 | 4, _) | (5, 16) => (2, ScalarClass::Float),
                    (5, _) if is_long => (2, ScalarClass::LongDouble),
                    _ => return None,
                };
                let bytes = number.size / parts;
                for part in 0..parts {
                    leaf(at.checked_add(part * bytes)?, bytes, class)?;
                }
                Some(())
            }
            TypeKind::Array { element, count, .. } => {
                let size = self.size(*element)?;
                let before = leaves.len();
                for index in 0..*count {
                    let place = at.checked_add(index.checked_mul(size)?)?;
                    self.add_scalars(*element, place, depth, leaves)?;
                    // Elements without a value, in any number.
                    if leaves.len() == before {
                        break;
                    }
                }
                Some(())
            }
            TypeKind::Record { .. } => {
                for member in self.layout(ty)?.members {
                    let place = at.checked_add(member.offset / 8)?;
                    match member.bits.filter(|_| member.is_bit_field) {
                        None => self.add_scalars(member.ty, place, depth, leaves)?,
                        // Only the eightbyte matters.
                        Some(bits) => {
                            let last = (member.offset + bits.saturating_sub(1)) / 8;
                            for offset in [place, at.checked_add(last)?] {
                                if leaves.len() >= MAX_SCALARS {
                                    return None;
                                }
                                leaves.push(Scalar {
                                    offset,
                                    bytes: 1,
                                    class: ScalarClass::Integer,
                                });
                            }
                        }
                    }
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Whether a type is a structure, a union or an array.
    fn is_aggregate(&self, ty: TypeId) -> bool {
        let kind = self.resolve(ty).and_then(|ty| self.get(ty));
        kind.is_some_and(|ty| matches!(ty.kind, TypeKind::Record { .. } | TypeKind::Array { .. }))
    }

    /// Whether a structure ends with an array without a size, directly or in a structure at its
    /// end.
    fn ends_without_size(&self, ty: TypeId) -> bool {
        let ends = |ty: TypeId| {
            let ty = self.resolve(ty)?;
            match &self.get(ty)?.kind {
                TypeKind::Array { count: 0, .. } => Some(Err(true)),
                TypeKind::Record { members, .. } => Some(Ok(members.last()?.ty)),
                _ => None,
            }
        };
        let mut ty = ty;
        for _ in 0..MAX_NESTING {
            match ends(ty) {
                Some(Ok(last)) => ty = last,
                Some(Err(_)) => return true,
                None => return false,
            }
        }
        true
    }

    /// The bytes of a value that belong to none of its parts and are not padding for the alignment
    /// of a part or the whole. They belong to an unknown part: compilers write transparent unions
    /// without members, and no structure with its unnamed bit-fields.
    fn unknown_bytes(leaves: &[Scalar], bytes: u64) -> Vec<Range<u64>> {
        let align = |leaf: &Scalar| leaf.bytes.clamp(1, 16);
        let mut parts: Vec<&Scalar> = leaves.iter().collect();
        parts.sort_by_key(|leaf| leaf.offset);
        let starts = parts.iter().map(|leaf| (leaf.offset, align(leaf)));
        let whole = leaves.iter().map(align).max().unwrap_or(1);
        let mut end = 0_u64;
        let mut ends = Vec::new();
        for leaf in &parts {
            ends.push(end);
            end = end.max(leaf.offset.saturating_add(leaf.bytes));
        }
        ends.push(end);
        let nexts = starts.chain([(bytes, whole)]);
        let holes = ends.into_iter().zip(nexts).filter(|(end, (next, align))| {
            let expected = end.checked_next_multiple_of(*align);
            expected.is_some_and(|expected| expected < *next)
        });
        holes.map(|(end, (next, _))| end..next).collect()
    }

    /// Whether a part of a value is not at a multiple of its size, as in packed structures.
    fn is_packed(leaves: &[Scalar]) -> bool {
        leaves
            .iter()
            .any(|leaf| leaf.bytes != 0 && leaf.offset % leaf.bytes.min(16) != 0)
    }
}

/// The location of a value in memory behind the earlier ones, and the next free offset.
fn on_stack(next: u32, bytes: u64, align: u64) -> Option<(Passing, u32)> {
    let bytes = u32::try_from(bytes).ok()?;
    let align = u32::try_from(align.max(8)).ok()?;
    let at = next.checked_next_multiple_of(align)?;
    let end = at.checked_add(bytes)?.checked_next_multiple_of(8)?;
    let piece = PassingPiece {
        offset: 0,
        bytes,
        location: PassingLocation::Stack(at),
    };
    Some((Passing::by_value(vec![piece]), end))
}

impl Passing {
    /// Passed by value.
    fn by_value(pieces: Vec<PassingPiece>) -> Passing {
        Passing {
            pieces,
            is_by_reference: false,
        }
    }
}
