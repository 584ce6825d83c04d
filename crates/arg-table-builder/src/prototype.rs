//! Prototypes of functions: their parameters, with their passing by the calling convention, and the
//! display of their values.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_arg_table::{DisplayKind, DisplayType};
use unspool_c_types::{Convention, Graph, Passing, TypeId, TypeKind};
use unspool_dwarf_types::GraphType;

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

/// A [`DisplayKind`] with all its parts.
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
    fn from_type(
        graph: &Graph<'_>,
        name: &str,
        ty: TypeId,
        passing: Option<Passing>,
    ) -> OwnedParameter {
        let graph_type = GraphType::new(graph, ty);
        OwnedParameter {
            name: name.to_owned(),
            type_name: graph.declare(ty, "").trim_end().to_owned(),
            display_kind: graph_type.kind().into(),
            bytes: graph_type.bytes(),
            passing,
            is_float_or_double: false,
        }
    }
}

impl<T: DisplayType> From<DisplayKind<T>> for OwnedDisplayKind {
    fn from(kind: DisplayKind<T>) -> OwnedDisplayKind {
        match kind {
            DisplayKind::Signed => OwnedDisplayKind::Signed,
            DisplayKind::Unsigned => OwnedDisplayKind::Unsigned,
            DisplayKind::Bool => OwnedDisplayKind::Bool,
            DisplayKind::Char => OwnedDisplayKind::Char,
            DisplayKind::UnsignedChar => OwnedDisplayKind::UnsignedChar,
            DisplayKind::Pointer => OwnedDisplayKind::Pointer,
            DisplayKind::CharPointer => OwnedDisplayKind::CharPointer,
            DisplayKind::Float => OwnedDisplayKind::Float,
            DisplayKind::Bytes => OwnedDisplayKind::Bytes,
            DisplayKind::Enum(constants) => OwnedDisplayKind::Enum(
                constants
                    .map(|(value, name)| (value, name.as_ref().to_owned()))
                    .collect(),
            ),
            DisplayKind::Record(members) => {
                let members = members.map(|member| OwnedMember {
                    name: member.name.as_ref().to_owned(),
                    offset: member.offset,
                    bytes: member.bytes,
                    display_kind: member.display_kind.into(),
                });
                OwnedDisplayKind::Record(members.collect())
            }
            DisplayKind::Array(array) => {
                let element = Box::new(array.element.kind().into());
                OwnedDisplayKind::Array(array.count, array.bytes, element)
            }
            DisplayKind::Bits(field) => {
                let number = Box::new(field.number.kind().into());
                OwnedDisplayKind::Bits(field.first, field.count, number)
            }
        }
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
