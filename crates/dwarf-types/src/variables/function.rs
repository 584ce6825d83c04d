//! A function's entry: its variables by address, and its call sites.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use gimli::{AttributeValue, Operation};
use unspool_c_types::{Graph, PassingSignature, TypeId, TypeKind};
use unspool_rows::Vaddr;

use crate::attributes::{flag, text};
use crate::elf::convention;
use crate::error::TypesError;
use crate::index::{DieEntry, DieIndex, DieRef, DwarfReader};
use crate::unit::{DynamicDimension, UnitReader, VariantPart, is_c, is_cpp, language};

use super::type_paths::{TypePaths, is_rust};

pub(super) type Expression<'a> = gimli::Expression<DwarfReader<'a>>;

/// A function with code: its parameters and variables, those of functions inlined there, and its
/// calls.
pub struct DwarfFunction<'a> {
    /// The index of its unit.
    pub(super) index: Rc<DieIndex<'a>>,
    /// Its unit.
    pub(super) root: DieRef,
    /// Its abstract origin, or its own entry.
    pub(super) origin: DieRef,
    /// The base for `DW_OP_fbreg`.
    pub(super) frame_base: Option<AttributeRef<'a>>,
    /// Its body, and the blocks and inlined functions in it, in preorder.
    scopes: Vec<LexicalScope<'a>>,
    variables: Vec<Variable<'a>>,
    pub(super) calls: Vec<DwarfCallSite<'a>>,
    /// The types of its variables. Arrays in `dimensions` have no elements there.
    pub(super) graph: Graph<'a>,
    /// The dimensions of arrays without a constant size.
    pub(super) dimensions: Vec<DynamicDimension<'a>>,
    rust: Option<RustTypes<'a>>,
    /// The passing of its parameters, used if no debug information has their locations at the call.
    signature: Option<PassingSignature>,
    /// Whether it is in C and its definition has no prototype (K&R): then `double` is passed for
    /// `float`.
    pub(super) is_unprototyped: bool,
}

/// Properties of Rust's types that C's types lack.
pub struct RustTypes<'a> {
    /// The variant parts of structures that have one.
    pub variants: HashMap<TypeId, VariantPart<'a>>,
    /// The entries of the types.
    pub(super) places: HashMap<TypeId, DieRef>,
    pub(super) paths: TypePaths,
}

/// An attribute's value, and its entry.
#[derive(Clone, Copy)]
pub(super) struct AttributeRef<'a> {
    pub(super) die: DieRef,
    pub(super) value: AttributeValue<DwarfReader<'a>>,
}

/// A part of a function with its own names.
struct LexicalScope<'a> {
    /// The index of the enclosing scope; for the body its own.
    parent: usize,
    /// Its code, if that is not its parent's.
    ranges: Vec<Range<u64>>,
    /// The name of the function, if it is the body of one.
    function: Option<Cow<'a, str>>,
    /// Its depth of blocks in its function, itself included; 0 for a body.
    block: usize,
}

/// A variable or a parameter.
pub struct Variable<'a> {
    /// Its name; empty if it has none.
    pub name: Cow<'a, str>,
    /// Its type, in the [graph](super::Activation::graph) of an activation of the function.
    pub ty: TypeId,
    /// Whether it is a parameter.
    pub is_parameter: bool,
    /// Its depth of nested blocks in the function; 0 for the body.
    pub block: usize,
    scope: usize,
    /// Its abstract origin, or its own entry.
    pub(super) origin: DieRef,
    pub(super) location: Option<AttributeRef<'a>>,
    pub(super) constant: Option<AttributeValue<DwarfReader<'a>>>,
}

/// The function at an address, or one inlined there, and its variables there.
pub struct FrameFunction<'f, 'a> {
    /// Its name; empty if it has none.
    pub function: &'f str,
    /// Its parameters, in their order.
    pub parameters: Vec<&'f Variable<'a>>,
    /// Its variables, those of the innermost block first.
    pub locals: Vec<&'f Variable<'a>>,
}

/// A call and its parameters (DWARF 5 §3.4, and the GNU extension before that).
pub(super) struct DwarfCallSite<'a> {
    /// Its return address; for a tail call, its approximate own address.
    pub(super) at: Option<u64>,
    /// The entry of the function called, if it is known.
    pub(super) callee: Option<DieRef>,
    /// The expression for the address of the function called.
    pub(super) target: Option<Expression<'a>>,
    pub(super) is_tail: bool,
    pub(super) parameters: Vec<CallSiteParameter<'a>>,
}

/// A call site parameter: a value, and its location.
pub(super) struct CallSiteParameter<'a> {
    pub(super) target: EntryLocation,
    pub(super) value: Expression<'a>,
}

/// The location of a parameter when its function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryLocation {
    Register(u16),
    /// The offset from the CFA of the function called, in bytes.
    Stack(i64),
    /// The parameter with this entry, which is not passed at all.
    Parameter(DieRef),
}

impl<'a> DwarfFunction<'a> {
    /// The function and the inlined ones at an address, innermost first.
    #[must_use]
    pub fn frame_functions(&self, address: Vaddr) -> Vec<FrameFunction<'_, 'a>> {
        let is_in =
            |scope: &LexicalScope<'_>| scope.ranges.iter().any(|range| range.contains(&address.0));
        // The level of each scope at the address.
        let mut level_of: Vec<Option<usize>> = Vec::with_capacity(self.scopes.len());
        let mut functions: Vec<FrameFunction<'_, 'a>> = Vec::new();
        for (number, scope) in self.scopes.iter().enumerate() {
            let around = match number {
                0 => Some(0),
                _ => level_of.get(scope.parent).copied().flatten(),
            };
            let around = around.filter(|_| number == 0 || is_in(scope));
            level_of.push(around.map(|around| match &scope.function {
                Some(function) => {
                    functions.push(FrameFunction {
                        function,
                        parameters: Vec::new(),
                        locals: Vec::new(),
                    });
                    functions.len() - 1
                }
                None => around,
            }));
        }
        for (scope, level) in level_of.into_iter().enumerate().rev() {
            let Some(level) = level.and_then(|level| functions.get_mut(level)) else {
                continue;
            };
            let first = self.variables.partition_point(|own| own.scope < scope);
            let own = self.variables.get(first..).unwrap_or_default();
            let own = own.iter().take_while(|own| own.scope == scope);
            let (parameters, locals): (Vec<_>, Vec<_>) = own.partition(|own| own.is_parameter);
            level.parameters.extend(parameters);
            level.locals.extend(locals);
        }
        for level in &mut functions {
            // Compilers write the parameters of inlined functions in another order.
            let order = |own: &&Variable<'a>| own.origin.offset;
            level.parameters.sort_by_key(order);
        }
        functions.reverse();
        functions
    }

    /// Its code ranges, as linked, the one with its entry first.
    #[must_use]
    pub fn code(&self) -> &[Range<u64>] {
        self.scopes.first().map_or(&[], |body| &body.ranges)
    }

    /// Its entry address, as linked.
    pub(super) fn entry(&self) -> Option<u64> {
        self.code().first().map(|part| part.start)
    }

    /// Whether the calling convention may pass a parameter in a register. `true` also without a
    /// signature: gcc's location at the start is right even in functions that it changed, and the
    /// passing in languages other than C's family is unknown.
    pub(super) fn may_be_passed_in(&self, parameter: &Variable<'a>, register: u16) -> bool {
        let Some(signature) = &self.signature else {
            return true;
        };
        let own = self.variables.iter();
        let own = own.filter(|own| own.is_parameter && own.scope == 0);
        if own.clone().count() != signature.parameters.len() {
            return true;
        }
        let position = own.filter(|own| own.origin.offset < parameter.origin.offset);
        let passing = signature.parameters.get(position.count());
        let Some(Some(passing)) = passing else {
            return true;
        };
        let first = passing.pieces.first().map(|piece| piece.location);
        match first {
            Some(
                unspool_c_types::PassingLocation::Register(own)
                | unspool_c_types::PassingLocation::Vector(own),
            ) => u16::from(own) == register,
            _ => false,
        }
    }

    /// The Rust properties of its types, if it is in Rust.
    #[must_use]
    pub fn rust(&self) -> Option<&RustTypes<'a>> {
        self.rust.as_ref()
    }

    /// Reads the entry of a function in a unit, and all its descendants.
    pub(super) fn read(
        index: &Rc<DieIndex<'a>>,
        root: DieRef,
        die: DieRef,
    ) -> Result<DwarfFunction<'a>, TypesError> {
        let entry = index.entry(die)?;
        let (origin, said) = index.origin(die, &entry)?;
        let (unit, _) = index.unit(root)?;
        let convention = convention(index.arch()).filter(|_| !is_by_gcc(index, root));
        let mut reader = FunctionReader {
            index,
            types: UnitReader::new(index, root, u64::from(unit.header.address_size())),
            scopes: vec![LexicalScope {
                parent: 0,
                ranges: index.ranges(die, &entry)?,
                function: Some(text(index, origin, &said, gimli::DW_AT_name).unwrap_or_default()),
                block: 0,
            }],
            open: vec![(0, 0)],
            variables: Vec::new(),
            calls: Vec::new(),
        };
        index.descendants(die, |place, depth, entry| reader.entry(place, depth, entry))?;
        let types = &mut reader.types;
        let own = convention.map(|convention| (convention, types.type_of_function(origin)));
        types.finish();
        let mut variables = reader.variables;
        variables.sort_by_key(|variable| variable.scope);
        let rust = is_rust(index, root).then(|| RustTypes {
            paths: TypePaths::default(),
            places: reader.types.places().collect(),
            variants: std::mem::take(&mut reader.types.variants),
        });
        let frame_base = entry.attr_value(gimli::DW_AT_frame_base);
        let dimensions = std::mem::take(&mut reader.types.dimensions);
        let graph = reader.types.graph();
        let own = own.filter(|(_, ty)| is_as_in_c(index, root, &graph, *ty));
        Ok(DwarfFunction {
            index: Rc::clone(index),
            root,
            origin,
            frame_base: frame_base.map(|value| AttributeRef { die, value }),
            scopes: reader.scopes,
            variables,
            calls: reader.calls,
            rust,
            dimensions,
            is_unprototyped: language(index, root).is_some_and(is_c)
                && !flag(&said, gimli::DW_AT_prototyped),
            signature: own.and_then(|(convention, ty)| graph.signature(ty, convention)),
            graph,
        })
    }
}

/// Whether gcc made a unit.
fn is_by_gcc(index: &DieIndex<'_>, root: DieRef) -> bool {
    let entry = index.entry(root);
    let producer = entry.map(|entry| text(index, root, &entry, gimli::DW_AT_producer));
    producer.is_ok_and(|producer| producer.is_some_and(|name| name.starts_with("GNU ")))
}

/// Whether the functions of a type are passed their parameters as in C: in C++, this requires that
/// there are no structures.
fn is_as_in_c(index: &DieIndex<'_>, root: DieRef, graph: &Graph<'_>, function: TypeId) -> bool {
    let Some(language) = language(index, root) else {
        return false;
    };
    let Some(TypeKind::Function {
        returns,
        parameters,
        ..
    }) = graph.get(function).map(|ty| &ty.kind)
    else {
        return false;
    };
    let is_record = |ty: TypeId| {
        let ty = graph.resolve(ty).and_then(|ty| graph.get(ty));
        ty.is_none_or(|ty| matches!(ty.kind, TypeKind::Record { .. } | TypeKind::Unknown))
    };
    let mut all = parameters.iter().map(|own| own.ty).chain([*returns]);
    is_c(language) || is_cpp(language) && !all.any(is_record)
}

/// The external name of a function.
pub(super) fn linkage_name<'a>(
    index: &DieIndex<'a>,
    die: DieRef,
    entry: &DieEntry<'a>,
) -> Option<Cow<'a, str>> {
    let named = [
        gimli::DW_AT_linkage_name,
        gimli::DW_AT_MIPS_linkage_name,
        gimli::DW_AT_name,
    ];
    flag(entry, gimli::DW_AT_external)
        .then(|| {
            let mut names = named.into_iter();
            names.find_map(|name| text(index, die, entry, name))
        })
        .flatten()
}

struct FunctionReader<'d, 'a> {
    index: &'d DieIndex<'a>,
    types: UnitReader<'d, 'a>,
    scopes: Vec<LexicalScope<'a>>,
    /// The scopes around an entry, with their depths.
    open: Vec<(usize, usize)>,
    variables: Vec<Variable<'a>>,
    calls: Vec<DwarfCallSite<'a>>,
}

impl<'a> FunctionReader<'_, 'a> {
    /// Reads an entry; returns whether its children must be read, too.
    fn entry(
        &mut self,
        die: DieRef,
        depth: usize,
        entry: &DieEntry<'a>,
    ) -> Result<bool, TypesError> {
        while self.open.len() > 1 && self.open.last().is_some_and(|(_, at)| *at >= depth) {
            self.open.pop();
        }
        match entry.tag() {
            gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block => self.scope(die, depth, entry)?,
            gimli::DW_TAG_formal_parameter | gimli::DW_TAG_variable => {
                // An unreadable variable does not affect the others.
                if let Ok(Some(variable)) = self.variable(die, entry) {
                    self.variables.push(variable);
                }
            }
            gimli::DW_TAG_call_site | gimli::DW_TAG_GNU_call_site => {
                let call = self.call(die, entry)?;
                self.calls.push(call);
            }
            gimli::DW_TAG_call_site_parameter | gimli::DW_TAG_GNU_call_site_parameter => {
                let given = self.read_parameter(die, entry);
                if let (Some(call), Some(given)) = (self.calls.last_mut(), given) {
                    call.parameters.push(given);
                }
            }
            gimli::DW_TAG_GNU_formal_parameter_pack => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn enclosing_scope(&self) -> usize {
        self.open.last().map_or(0, |(scope, _)| *scope)
    }

    fn block(&self, scope: usize) -> usize {
        self.scopes.get(scope).map_or(0, |scope| scope.block)
    }

    fn scope(&mut self, die: DieRef, depth: usize, entry: &DieEntry<'a>) -> Result<(), TypesError> {
        let index = self.index;
        let parent = self.enclosing_scope();
        let mut ranges = index.ranges(die, entry)?;
        let function = match entry.tag() {
            gimli::DW_TAG_inlined_subroutine => {
                let (origin, said) = index.origin(die, entry)?;
                Some(text(index, origin, &said, gimli::DW_AT_name).unwrap_or_default())
            }
            _ => {
                // A block without addresses only groups names.
                if ranges.is_empty()
                    && let Some(around) = self.scopes.get(parent)
                {
                    ranges.clone_from(&around.ranges);
                }
                None
            }
        };
        let block = match &function {
            Some(_) => 0,
            None => self.block(parent) + 1,
        };
        self.open.push((self.scopes.len(), depth));
        self.scopes.push(LexicalScope {
            parent,
            ranges,
            function,
            block,
        });
        Ok(())
    }

    fn variable(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<Option<Variable<'a>>, TypesError> {
        let index = self.index;
        let (origin, said) = index.origin(die, entry)?;
        if flag(entry, gimli::DW_AT_declaration) {
            return Ok(None);
        }
        let ty = if entry.has_attr(gimli::DW_AT_type) {
            self.types.type_of(die, entry)
        } else {
            self.types.type_of(origin, &said)
        };
        let (location, constant) = location_or_constant((die, entry), (origin, &said));
        Ok(Some(Variable {
            name: text(index, origin, &said, gimli::DW_AT_name).unwrap_or_default(),
            ty,
            is_parameter: entry.tag() == gimli::DW_TAG_formal_parameter,
            block: self.block(self.enclosing_scope()),
            scope: self.enclosing_scope(),
            origin,
            location,
            constant,
        }))
    }

    fn call(&self, die: DieRef, entry: &DieEntry<'a>) -> Result<DwarfCallSite<'a>, TypesError> {
        let index = self.index;
        let (unit, _) = index.unit(die)?;
        let is_tail =
            flag(entry, gimli::DW_AT_call_tail_call) || flag(entry, gimli::DW_AT_GNU_tail_call);
        let address = |name| {
            let value = entry.attr_value(name)?;
            index.dwarf(die.section).attr_address(unit, value).ok()?
        };
        let at = [
            gimli::DW_AT_call_return_pc,
            gimli::DW_AT_call_pc,
            gimli::DW_AT_low_pc,
        ]
        .into_iter()
        .find_map(address);
        let callee = [gimli::DW_AT_call_origin, gimli::DW_AT_abstract_origin]
            .into_iter()
            .find_map(|name| entry.attr_value(name))
            .and_then(|value| index.resolve_reference(die, &value).ok());
        Ok(DwarfCallSite {
            at,
            callee,
            target: expression(
                entry,
                [gimli::DW_AT_call_target, gimli::DW_AT_GNU_call_site_target],
            ),
            is_tail,
            parameters: Vec::new(),
        })
    }

    fn read_parameter(&self, die: DieRef, entry: &DieEntry<'a>) -> Option<CallSiteParameter<'a>> {
        let index = self.index;
        let value = expression(
            entry,
            [gimli::DW_AT_call_value, gimli::DW_AT_GNU_call_site_value],
        )?;
        let target = match expression(entry, [gimli::DW_AT_location]) {
            Some(location) => {
                let (unit, _) = index.unit(die).ok()?;
                match single_operation(location, unit.encoding())? {
                    Operation::Register { register } => EntryLocation::Register(register.0),
                    // The stack pointer at the call: the CFA of the function called.
                    Operation::RegisterOffset {
                        register, offset, ..
                    } if register.0 == index.arch().spec().stack_pointer.0 => {
                        EntryLocation::Stack(offset)
                    }
                    _ => return None,
                }
            }
            None => {
                let parameter = [gimli::DW_AT_call_parameter, gimli::DW_AT_abstract_origin]
                    .into_iter()
                    .find_map(|name| entry.attr_value(name))?;
                let parameter = index.resolve_reference(die, &parameter).ok()?;
                let (origin, _) = index
                    .origin(parameter, &index.entry(parameter).ok()?)
                    .ok()?;
                EntryLocation::Parameter(origin)
            }
        };
        Some(CallSiteParameter { target, value })
    }
}

/// The location or constant value of a variable, from its entry or its origin.
pub(super) fn location_or_constant<'a>(
    own: (DieRef, &DieEntry<'a>),
    origin: (DieRef, &DieEntry<'a>),
) -> (
    Option<AttributeRef<'a>>,
    Option<AttributeValue<DwarfReader<'a>>>,
) {
    let location = |(die, entry): (DieRef, &DieEntry<'a>)| {
        let value = entry.attr_value(gimli::DW_AT_location)?;
        Some(AttributeRef { die, value })
    };
    let constant = |entry: &DieEntry<'a>| entry.attr_value(gimli::DW_AT_const_value);
    (
        location(own).or_else(|| location(origin)),
        constant(own.1).or_else(|| constant(origin.1)),
    )
}

/// The expression of the first attribute that has one.
fn expression<'a, const N: usize>(
    entry: &DieEntry<'a>,
    names: [gimli::DwAt; N],
) -> Option<Expression<'a>> {
    names
        .into_iter()
        .find_map(|name| entry.attr(name)?.exprloc_value())
}

/// The operation of an expression with a single one.
pub(super) fn single_operation<'a>(
    expression: Expression<'a>,
    encoding: gimli::Encoding,
) -> Option<Operation<DwarfReader<'a>>> {
    let mut operations = expression.operations(encoding);
    let first = operations.next().ok()??;
    matches!(operations.next(), Ok(None)).then_some(first)
}
