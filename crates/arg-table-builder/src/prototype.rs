//! Prototypes of functions: their parameters, with their passing by the calling convention, and the
//! display of their values.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_c_types::{Convention, Graph, Passing, TypeId, TypeKind};
use unspool_dwarf_types::GraphType;

use crate::type_pool::{DisplayKindNumber, GraphKinds, NameNumber, TypePool};

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
    pub name: NameNumber,
    /// Its type, in C notation.
    pub type_name: NameNumber,
    /// Its display kind.
    pub display_kind: DisplayKindNumber,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its location at entry; `None` if that is unknown.
    pub passing: Option<Passing>,
    /// Whether it is a `float` for which a `double` may be passed: CTF does not mark definitions
    /// without a prototype.
    pub is_float_or_double: bool,
}

impl Prototype {
    /// The prototype of a function type. `kinds` are those of its graph.
    pub(crate) fn from_type(
        kinds: &mut GraphKinds<'_>,
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
            OwnedParameter::from_type(kinds, graph, &parameter.name, parameter.ty, passing)
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
        kinds: &mut GraphKinds<'_>,
        graph: &Graph<'_>,
        name: &str,
        ty: TypeId,
        passing: Option<Passing>,
    ) -> OwnedParameter {
        let graph_type = GraphType::new(graph, ty);
        OwnedParameter {
            name: kinds.pool.name(name),
            type_name: kinds.pool.name(graph.declare(ty, "").trim_end()),
            display_kind: kinds.number(graph_type),
            bytes: graph_type.bytes(),
            passing,
            is_float_or_double: false,
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
    types: TypePool,
}

impl Prototypes {
    /// Adds the functions of a graph that does not mark functions without a prototype.
    pub fn add(&mut self, graph: &Graph<'_>, convention: Convention) {
        let mut kinds = self.types.graph();
        for function in &graph.functions {
            let found = Prototype::from_type(&mut kinds, graph, function.ty, convention);
            let Some(mut prototype) = found else {
                continue;
            };
            prototype.mark_float_or_double(graph, function.ty);
            let prototype = Rc::new(prototype);
            let known = self.by_name.entry(function.name.clone().into_owned());
            let known = known.or_insert_with(|| NamedPrototype {
                prototype: Some(Rc::clone(&prototype)),
                functions: 0,
            });
            known.functions += 1;
            if known.prototype.as_ref() != Some(&prototype) {
                known.prototype = None;
            }
        }
    }

    /// Adds functions of a graph, with their addresses.
    pub(crate) fn add_at(
        &mut self,
        graph: &Graph<'_>,
        functions: impl IntoIterator<Item = (u64, TypeId)>,
        convention: Convention,
    ) {
        let mut kinds = self.types.graph();
        for (address, ty) in functions {
            let prototype = Prototype::from_type(&mut kinds, graph, ty, convention);
            let prototype = prototype.map(|prototype| (address, Rc::new(prototype)));
            self.by_address.extend(prototype);
        }
    }

    /// The names and types of all.
    #[must_use]
    pub fn types(&self) -> &TypePool {
        &self.types
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
