//! What functions take: their parameters, with where the calling convention puts them, and how their values are shown.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_ctf::{Convention, Graph, Kind, Number, Passing, TypeId};

/// A function's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The parameters, in their order.
    pub parameters: Vec<Parameter>,
    /// Whether any is passed in memory, as far as that is known.
    pub takes_stack: Option<bool>,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; empty if it is not known.
    pub name: String,
    /// Its type, as C has it.
    pub type_name: String,
    /// How its value is shown.
    pub shape: Shape,
    /// Its size in bytes.
    pub bytes: u32,
    /// Where its bytes are at entry; `None` if that is not known.
    pub passing: Option<Passing>,
    /// Whether it is a `float` for which a `double` may be passed: CTF does not tell definitions without a prototype.
    pub may_be_double: bool,
}

/// How a value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Shape {
    /// A number that can be negative.
    Signed,
    /// A number.
    Unsigned,
    /// True or false.
    Bool,
    /// A character.
    Char,
    /// A character that is no negative number.
    UnsignedChar,
    /// An address.
    Pointer,
    /// The address of characters that end with a zero.
    Text,
    /// A floating-point number.
    Float,
    /// One of some constants, or several of them together.
    Enum(Vec<(i64, String)>),
    /// Members, each with its name, its offset and its size in bytes.
    Record(Vec<Member>),
    /// So many elements, of so many bytes each.
    Array(u64, u32, Box<Shape>),
    /// A bit-field: its first bit, how many bits it has, and how the number is shown that it is.
    Bits(u8, u8, Box<Shape>),
    /// Bytes.
    Bytes,
}

/// A member of a structure.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it begins, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub bytes: u32,
    /// How it is shown.
    pub shape: Shape,
}

/// Members of members are shown so deep.
const DEEPEST: u32 = 7;

/// The most members of a structure, or constants of an enumeration, that are kept.
const MOST: usize = 256;

impl Prototype {
    /// The prototype that a function type is.
    #[must_use]
    pub fn of(graph: &Graph<'_>, function: TypeId, convention: Convention) -> Option<Prototype> {
        let signature = graph.signature(function, convention)?;
        let Kind::Function { parameters, .. } = &graph.get(graph.resolve(function)?)?.kind else {
            return None;
        };
        let parameters = parameters.iter().zip(signature.parameters);
        let parameters = parameters.map(|(parameter, passing)| {
            Parameter::of(graph, &parameter.name, parameter.ty, passing)
        });
        Some(Prototype {
            parameters: parameters.collect(),
            takes_stack: signature.takes_stack,
        })
    }
}

impl Prototype {
    /// Has those that are `float` be `double` perhaps.
    fn doubt_floats(&mut self, graph: &Graph<'_>, function: TypeId) {
        let function = graph.resolve(function).and_then(|ty| graph.get(ty));
        if let Some(Kind::Function { parameters, .. }) = function.map(|ty| &ty.kind) {
            for (own, parameter) in self.parameters.iter_mut().zip(parameters) {
                own.may_be_double = graph.is_float(parameter.ty);
            }
        }
    }
}

impl Parameter {
    /// One with a name and a type, which is passed so.
    pub(crate) fn of(
        graph: &Graph<'_>,
        name: &str,
        ty: TypeId,
        passing: Option<Passing>,
    ) -> Parameter {
        Parameter {
            name: name.to_owned(),
            type_name: graph.declare(ty, "").trim_end().to_owned(),
            shape: shape(graph, ty, DEEPEST),
            bytes: size(graph, ty),
            passing,
            may_be_double: false,
        }
    }
}

fn size(graph: &Graph<'_>, ty: TypeId) -> u32 {
    let size = graph.size(ty).and_then(|size| u32::try_from(size).ok());
    size.unwrap_or(0)
}

fn shape(graph: &Graph<'_>, ty: TypeId, depth: u32) -> Shape {
    let resolved = graph.resolve(ty).and_then(|id| graph.get(id));
    match resolved.map(|ty| &ty.kind) {
        Some(Kind::Integer(number)) => number_shape(*number),
        // A complex number is two.
        Some(Kind::Float(number)) if matches!(number.format, 3..=5) => Shape::Bytes,
        Some(Kind::Float(_)) => Shape::Float,
        Some(Kind::Pointer(to)) => {
            let target = graph.resolve(*to).and_then(|id| graph.get(id));
            match target.map(|ty| &ty.kind) {
                Some(Kind::Integer(number)) if number.format & Number::CHAR != 0 => Shape::Text,
                _ => Shape::Pointer,
            }
        }
        Some(Kind::Enum { enumerators, .. }) => {
            // The negative ones first: where there are more than are kept, they tell that values have a sign.
            let of_sign = |is_negative| {
                let all = enumerators.iter();
                all.filter(move |constant| (constant.value < 0) == is_negative)
            };
            let constants = of_sign(true).chain(of_sign(false)).take(MOST);
            Shape::Enum(
                constants
                    .map(|constant| (constant.value, constant.name.clone().into_owned()))
                    .collect(),
            )
        }
        Some(Kind::Slice { of, .. }) => match depth.checked_sub(1) {
            Some(depth) => shape(graph, *of, depth),
            None => Shape::Bytes,
        },
        Some(Kind::Record { .. }) => record(graph, ty, depth),
        Some(Kind::Array { element, count, .. }) => match depth.checked_sub(1) {
            Some(depth) => {
                let element = (size(graph, *element), shape(graph, *element, depth));
                Shape::Array(*count, element.0, Box::new(element.1))
            }
            None => Shape::Bytes,
        },
        _ => Shape::Bytes,
    }
}

fn number_shape(number: Number) -> Shape {
    match number.format {
        format if format & Number::BOOL != 0 => Shape::Bool,
        format if format & Number::CHAR != 0 => match format & Number::SIGNED {
            0 => Shape::UnsignedChar,
            _ => Shape::Char,
        },
        format if format & Number::SIGNED != 0 => Shape::Signed,
        _ => Shape::Unsigned,
    }
}

/// The shape of a structure; bytes if it has too many members or none that are known, or is too deep inside others.
fn record(graph: &Graph<'_>, ty: TypeId, depth: u32) -> Shape {
    let layout = graph.layout(ty);
    let layout = layout.filter(|layout| (1..=MOST).contains(&layout.members.len()));
    let (Some(depth), Some(layout)) = (depth.checked_sub(1), layout) else {
        return Shape::Bytes;
    };
    let members = layout.members.iter().map(|member| {
        let shape = shape(graph, member.ty, depth);
        let (bytes, shape) = match member.bits {
            Some(bits) if member.is_bit_field => bit_field(member.offset % 8, bits, shape),
            _ => (size(graph, member.ty), shape),
        };
        Member {
            name: member.name.clone().into_owned(),
            offset: u32::try_from(member.offset / 8).unwrap_or(u32::MAX),
            bytes,
            shape,
        }
    });
    Shape::Record(members.collect())
}

/// The bytes that a bit-field has a part of, and its shape.
fn bit_field(first: u64, bits: u64, of: Shape) -> (u32, Shape) {
    let bytes = u32::try_from(first.saturating_add(bits).div_ceil(8)).unwrap_or(0);
    match (u8::try_from(first), u8::try_from(bits)) {
        (Ok(first), Ok(bits)) if bytes <= 8 => (bytes, Shape::Bits(first, bits, Box::new(of))),
        _ => (bytes, Shape::Bytes),
    }
}

/// What functions of a name take.
#[derive(Debug)]
struct Named {
    /// `None` if they take different things.
    prototype: Option<Rc<Prototype>>,
    /// How many of them have types.
    functions: usize,
}

/// The prototypes of a file's functions.
#[derive(Debug, Default)]
pub struct Prototypes {
    /// By the functions' names.
    by_name: HashMap<String, Named>,
    /// By the addresses of functions.
    by_address: HashMap<u64, Rc<Prototype>>,
}

impl Prototypes {
    /// Takes in the functions of a graph that does not tell which of them have no prototype.
    pub fn add(&mut self, graph: &Graph<'_>, convention: Convention) {
        for function in &graph.functions {
            let Some(mut prototype) = Prototype::of(graph, function.ty, convention) else {
                continue;
            };
            prototype.doubt_floats(graph, function.ty);
            let known = self.by_name.entry(function.name.clone().into_owned());
            let known = known.or_insert_with(|| Named {
                prototype: Some(Rc::new(prototype.clone())),
                functions: 0,
            });
            known.functions += 1;
            if known.prototype.as_deref() != Some(&prototype) {
                known.prototype = None;
            }
        }
    }

    /// Takes in the function at an address.
    pub fn add_at(&mut self, address: u64, prototype: Prototype) {
        self.by_address.insert(address, Rc::new(prototype));
    }

    /// The prototype of the function at an address, or of that name.
    #[must_use]
    pub fn get(&self, address: u64, name: &str) -> Option<&Rc<Prototype>> {
        let known = self.by_address.get(&address);
        known.or_else(|| self.by_name.get(name)?.prototype.as_ref())
    }

    /// Whether that is certain of the function at an address, if so many functions are called by its name: one of them might have
    /// no type.
    #[must_use]
    pub fn is_certain(&self, address: u64, name: &str, functions: usize) -> bool {
        let named = self.by_name.get(name);
        self.by_address.contains_key(&address)
            || named.is_some_and(|named| named.functions >= functions)
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.by_address.is_empty()
    }
}
