//! Prototypes of functions: their parameters, with their passing by the calling convention, and the
//! display of their values.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_c_types::{Convention, Graph, Number, Passing, TypeId, TypeKind};

/// A function's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The parameters, in order.
    pub parameters: Vec<OwnedParameter>,
    /// Whether any is passed in memory, if that is known.
    pub takes_stack: Option<bool>,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedParameter {
    /// Its name; empty if it is not known.
    pub name: String,
    /// Its type, in C notation.
    pub type_name: String,
    /// Its display kind.
    pub display_kind: OwnedDisplayKind,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its location at entry; `None` if that is unknown.
    pub passing: Option<Passing>,
    /// Whether it is a `float` for which a `double` may be passed: CTF does not mark definitions
    /// without a prototype.
    pub is_float_or_double: bool,
}

/// The form of a value's display.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OwnedDisplayKind {
    /// A number that can be negative.
    Signed,
    /// A number.
    Unsigned,
    /// True or false.
    Bool,
    /// A character.
    Char,
    /// A character without a sign.
    UnsignedChar,
    /// An address.
    Pointer,
    /// The address of zero-terminated characters.
    CharPointer,
    /// A floating-point number.
    Float,
    /// One of some constants, or several of them combined.
    Enum(Vec<(i64, String)>),
    /// Members, each with its name, its offset and its size in bytes.
    Record(Vec<OwnedMember>),
    /// The number of elements, and the size of one in bytes.
    Array(u64, u32, Box<OwnedDisplayKind>),
    /// A bit-field: its first bit, its number of bits, and the display kind of the number.
    Bits(u8, u8, Box<OwnedDisplayKind>),
    /// Bytes.
    Bytes,
}

/// A member of a structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnedMember {
    /// Its name.
    pub name: String,
    /// Its offset, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its display kind.
    pub display_kind: OwnedDisplayKind,
}

/// The maximum nesting of members.
const MAX_NESTING: u32 = 7;

/// The maximum number of members of a structure, or constants of an enumeration, in the table.
const MAX_MEMBERS: usize = 256;

impl Prototype {
    /// The prototype of a function type.
    #[must_use]
    pub fn from_type(
        graph: &Graph<'_>,
        function: TypeId,
        convention: Convention,
    ) -> Option<Prototype> {
        let signature = graph.signature(function, convention)?;
        let TypeKind::Function { parameters, .. } = &graph.get(graph.resolve(function)?)?.kind
        else {
            return None;
        };
        let parameters = parameters.iter().zip(signature.parameters);
        let parameters = parameters.map(|(parameter, passing)| {
            OwnedParameter::from_type(graph, &parameter.name, parameter.ty, passing)
        });
        Some(Prototype {
            parameters: parameters.collect(),
            takes_stack: signature.takes_stack,
        })
    }
}

impl Prototype {
    /// Marks parameters that are `float` as possibly `double`.
    fn mark_float_or_double(&mut self, graph: &Graph<'_>, function: TypeId) {
        let function = graph.resolve(function).and_then(|ty| graph.get(ty));
        if let Some(TypeKind::Function { parameters, .. }) = function.map(|ty| &ty.kind) {
            for (own, parameter) in self.parameters.iter_mut().zip(parameters) {
                own.is_float_or_double = graph.is_float(parameter.ty);
            }
        }
    }
}

impl OwnedParameter {
    /// A parameter with this name, type and passing.
    pub(crate) fn from_type(
        graph: &Graph<'_>,
        name: &str,
        ty: TypeId,
        passing: Option<Passing>,
    ) -> OwnedParameter {
        OwnedParameter {
            name: name.to_owned(),
            type_name: graph.declare(ty, "").trim_end().to_owned(),
            display_kind: shape(graph, ty, MAX_NESTING),
            bytes: size(graph, ty),
            passing,
            is_float_or_double: false,
        }
    }
}

fn size(graph: &Graph<'_>, ty: TypeId) -> u32 {
    let size = graph.size(ty).and_then(|size| u32::try_from(size).ok());
    size.unwrap_or(0)
}

fn shape(graph: &Graph<'_>, ty: TypeId, depth: u32) -> OwnedDisplayKind {
    let resolved = graph.resolve(ty).and_then(|id| graph.get(id));
    match resolved.map(|ty| &ty.kind) {
        Some(TypeKind::Integer(number)) => number_shape(*number),
        // A complex number consists of two.
        Some(TypeKind::Float(number)) if matches!(number.format, 3..=5) => OwnedDisplayKind::Bytes,
        Some(TypeKind::Float(_)) => OwnedDisplayKind::Float,
        Some(TypeKind::Pointer(to)) => {
            let target = graph.resolve(*to).and_then(|id| graph.get(id));
            match target.map(|ty| &ty.kind) {
                Some(TypeKind::Integer(number)) if number.format & Number::CHAR != 0 => {
                    OwnedDisplayKind::CharPointer
                }
                _ => OwnedDisplayKind::Pointer,
            }
        }
        Some(TypeKind::Enum { enumerators, .. }) => {
            // The negative ones first: if there are too many to keep, they still show that values
            // are signed.
            let of_sign = |is_negative| {
                let all = enumerators.iter();
                all.filter(move |constant| (constant.value < 0) == is_negative)
            };
            let constants = of_sign(true).chain(of_sign(false)).take(MAX_MEMBERS);
            OwnedDisplayKind::Enum(
                constants
                    .map(|constant| (constant.value, constant.name.clone().into_owned()))
                    .collect(),
            )
        }
        Some(TypeKind::Slice { of, .. }) => match depth.checked_sub(1) {
            Some(depth) => shape(graph, *of, depth),
            None => OwnedDisplayKind::Bytes,
        },
        Some(TypeKind::Record { .. }) => record(graph, ty, depth),
        Some(TypeKind::Array { element, count, .. }) => match depth.checked_sub(1) {
            Some(depth) => {
                let element = (size(graph, *element), shape(graph, *element, depth));
                OwnedDisplayKind::Array(*count, element.0, Box::new(element.1))
            }
            None => OwnedDisplayKind::Bytes,
        },
        _ => OwnedDisplayKind::Bytes,
    }
}

fn number_shape(number: Number) -> OwnedDisplayKind {
    match number.format {
        format if format & Number::BOOL != 0 => OwnedDisplayKind::Bool,
        format if format & Number::CHAR != 0 => match format & Number::SIGNED {
            0 => OwnedDisplayKind::UnsignedChar,
            _ => OwnedDisplayKind::Char,
        },
        format if format & Number::SIGNED != 0 => OwnedDisplayKind::Signed,
        _ => OwnedDisplayKind::Unsigned,
    }
}

/// The display kind of a structure; bytes if it has too many or no known members, or is nested too
/// deep.
fn record(graph: &Graph<'_>, ty: TypeId, depth: u32) -> OwnedDisplayKind {
    let layout = graph.layout(ty);
    let layout = layout.filter(|layout| (1..=MAX_MEMBERS).contains(&layout.members.len()));
    let (Some(depth), Some(layout)) = (depth.checked_sub(1), layout) else {
        return OwnedDisplayKind::Bytes;
    };
    let members = layout.members.iter().map(|member| {
        let display_kind = shape(graph, member.ty, depth);
        let (bytes, display_kind) = match member.bits {
            Some(bits) if member.is_bit_field => bit_field(member.offset % 8, bits, display_kind),
            _ => (size(graph, member.ty), display_kind),
        };
        OwnedMember {
            name: member.name.clone().into_owned(),
            offset: u32::try_from(member.offset / 8).unwrap_or(u32::MAX),
            bytes,
            display_kind,
        }
    });
    OwnedDisplayKind::Record(members.collect())
}

/// The bytes that contain a bit-field, and its display kind.
fn bit_field(first: u64, bits: u64, of: OwnedDisplayKind) -> (u32, OwnedDisplayKind) {
    let bytes = u32::try_from(first.saturating_add(bits).div_ceil(8)).unwrap_or(0);
    match (u8::try_from(first), u8::try_from(bits)) {
        (Ok(first), Ok(bits)) if bytes <= 8 => {
            (bytes, OwnedDisplayKind::Bits(first, bits, Box::new(of)))
        }
        _ => (bytes, OwnedDisplayKind::Bytes),
    }
}

/// The prototype of functions with one name.
#[derive(Debug)]
struct NamedPrototype {
    /// `None` if they have different prototypes.
    prototype: Option<Rc<Prototype>>,
    /// The number of those with types.
    functions: usize,
}

/// The prototypes of a file's functions.
#[derive(Debug, Default)]
pub struct Prototypes {
    /// By the functions' names.
    by_name: HashMap<String, NamedPrototype>,
    /// By the addresses of functions.
    by_address: HashMap<u64, Rc<Prototype>>,
}

impl Prototypes {
    /// Adds the functions of a graph that does not mark functions without a prototype.
    pub fn add(&mut self, graph: &Graph<'_>, convention: Convention) {
        for function in &graph.functions {
            let Some(mut prototype) = Prototype::from_type(graph, function.ty, convention) else {
                continue;
            };
            prototype.mark_float_or_double(graph, function.ty);
            let known = self.by_name.entry(function.name.clone().into_owned());
            let known = known.or_insert_with(|| NamedPrototype {
                prototype: Some(Rc::new(prototype.clone())),
                functions: 0,
            });
            known.functions += 1;
            if known.prototype.as_deref() != Some(&prototype) {
                known.prototype = None;
            }
        }
    }

    /// Adds the function at an address.
    pub fn add_at(&mut self, address: u64, prototype: Prototype) {
        self.by_address.insert(address, Rc::new(prototype));
    }

    /// The prototype of the function at an address, or else with that name.
    #[must_use]
    pub fn get(&self, address: u64, name: &str) -> Option<&Rc<Prototype>> {
        let known = self.by_address.get(&address);
        known.or_else(|| self.by_name.get(name)?.prototype.as_ref())
    }

    /// Whether that prototype is certain for the function at an address, given the number of
    /// functions with its name: one of them might have no type.
    #[must_use]
    pub fn is_certain(&self, address: u64, name: &str, functions: usize) -> bool {
        let named = self.by_name.get(name);
        self.by_address.contains_key(&address)
            || named.is_some_and(|named| named.functions >= functions)
    }

    /// Whether there are no prototypes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.by_address.is_empty()
    }
}
