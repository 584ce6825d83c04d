//! What the C interface of code in C++ depends on.
//!
//! Functions and data with C linkage have no name for the linker besides their own. Classes have
//! more than members: a table of virtual functions is a structure that they point to, a virtual base
//! is a member at the offset that the table has. An object of a class that has a destructor or a
//! constructor for copies of its own is passed by its address (Itanium C++ ABI §3.1.2.3).

use std::collections::HashMap;

use gimli::Operation;
use unspool_c_types::{Member, Tag, Type, TypeId, TypeKind};

use super::UnitReader;
use crate::attributes::{flag, number};
use crate::error::TypesError;
use crate::index::{DieEntry, DieRef};

/// The maximum depth of classes in classes.
const MAX_CLASS_DEPTH: usize = 64;

/// What is known of the classes of a unit.
#[derive(Debug, Default)]
pub(super) struct CppFacts {
    /// Whether objects of classes are passed by their address.
    is_passed_by_address: HashMap<DieRef, bool>,
}

/// The parts of a class that are not members.
#[derive(Default)]
pub(super) struct ClassParts<'a> {
    virtual_functions: Vec<Member<'a>>,
    virtual_bases: Vec<Member<'a>>,
}

impl<'a> UnitReader<'_, 'a> {
    /// Reads a unit in C++: its functions and data with C linkage, and the types they lead to.
    pub(crate) fn unit_of_cpp(&mut self, root: DieRef) {
        self.cpp = Some(CppFacts::default());
        let index = self.index;
        let read = index.descendants(root, |place, _, entry| {
            let read = match entry.tag() {
                gimli::DW_TAG_namespace => return Ok(true),
                gimli::DW_TAG_subprogram | gimli::DW_TAG_variable => self.c_linkage(place, entry),
                _ => Ok(()),
            };
            self.problems.extend(read.err());
            Ok(false)
        });
        self.problems.extend(read.err());
        self.finish();
    }

    fn c_linkage(&mut self, die: DieRef, entry: &DieEntry<'a>) -> Result<(), TypesError> {
        let (_, origin) = self.index.origin(die, entry)?;
        let names = [gimli::DW_AT_linkage_name, gimli::DW_AT_MIPS_linkage_name];
        let has = |name| entry.has_attr(name) || origin.has_attr(name);
        if names.into_iter().any(has) || !flag(&origin, gimli::DW_AT_external) {
            return Ok(());
        }
        match entry.tag() {
            gimli::DW_TAG_subprogram => self.function(die, entry),
            _ => self.variable(die, entry),
        }
    }

    /// Reads an entry of a class that is not a member. Returns whether it is one.
    pub(super) fn part_of_class(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
        class: &mut ClassParts<'a>,
    ) -> Result<bool, TypesError> {
        if number(entry, gimli::DW_AT_virtuality).is_none_or(|virtuality| virtuality == 0) {
            return Ok(false);
        }
        let position = |name| self.last_constant(die, entry, name);
        match entry.tag() {
            gimli::DW_TAG_subprogram => {
                let slot = position(gimli::DW_AT_vtable_elem_location);
                let function = self.id(die);
                class.virtual_functions.push(Member {
                    name: self.text(die, entry, gimli::DW_AT_name).unwrap_or_default(),
                    ty: self.pointer_to(function),
                    offset: slot
                        .unwrap_or(0)
                        .saturating_mul(self.graph.pointer_size.saturating_mul(8)),
                    bits: None,
                });
            }
            gimli::DW_TAG_inheritance => {
                let place = position(gimli::DW_AT_data_member_location);
                let base = self.type_of(die, entry);
                let name = self.graph_name(die, entry);
                class.virtual_bases.push(Member {
                    name: format!("virtual base {name}").into(),
                    ty: base,
                    offset: place.unwrap_or(0).saturating_mul(8),
                    bits: None,
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The parts of a class as members: the table of virtual functions, and virtual bases.
    pub(super) fn members_of_class(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
        class: ClassParts<'a>,
    ) -> Vec<Member<'a>> {
        let ClassParts {
            virtual_functions,
            virtual_bases,
        } = class;
        let mut members = virtual_bases;
        let last = virtual_functions
            .iter()
            .map(|function| function.offset)
            .max();
        if let Some(last) = last {
            let name = self.text(die, entry, gimli::DW_AT_name).unwrap_or_default();
            let table = self.graph.add(Type::named(
                format!("{name}::virtual functions"),
                TypeKind::Record {
                    tag: Tag::Struct,
                    size: (last / 8).saturating_add(self.graph.pointer_size),
                    members: virtual_functions,
                },
            ));
            members.push(Member {
                name: "virtual functions".into(),
                ty: self.pointer_to(table),
                offset: 0,
                bits: None,
            });
        }
        members
    }

    /// The type of a parameter or of what a function returns, as it is passed.
    pub(super) fn passed_type(&mut self, die: DieRef, entry: &DieEntry<'a>) -> TypeId {
        let ty = self.type_of(die, entry);
        if self.cpp.is_some()
            && let Ok(Some(class)) = self.class_of(die, entry)
            && self.is_passed_by_address(class, 0).unwrap_or(false)
        {
            return self.pointer_to(ty);
        }
        ty
    }

    fn pointer_to(&mut self, to: TypeId) -> TypeId {
        self.graph.add(Type::unnamed(TypeKind::Pointer(to)))
    }

    /// The name of an entry's type, behind typedefs.
    fn graph_name(&self, die: DieRef, entry: &DieEntry<'a>) -> String {
        let class = self.class_of(die, entry).ok().flatten();
        let entry = class.and_then(|class| Some((class, self.index.entry(class).ok()?)));
        let name = entry.and_then(|(class, entry)| self.text(class, &entry, gimli::DW_AT_name));
        name.unwrap_or_default().into_owned()
    }

    /// The class that an entry's type is: behind typedefs, qualifiers, and arrays.
    fn class_of(&self, die: DieRef, entry: &DieEntry<'a>) -> Result<Option<DieRef>, TypesError> {
        let (mut die, mut entry) = (die, entry.clone());
        for _ in 0..MAX_CLASS_DEPTH {
            let Some(value) = entry.attr_value(gimli::DW_AT_type) else {
                return Ok(None);
            };
            die = self.index.resolve_reference(die, &value)?;
            entry = self.index.entry(die)?;
            if let Some(value) = entry.attr_value(gimli::DW_AT_signature) {
                die = self.index.resolve_reference(die, &value)?;
                entry = self.index.entry(die)?;
            }
            match entry.tag() {
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type => return Ok(Some(die)),
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_array_type => {}
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn is_passed_by_address(&mut self, class: DieRef, depth: usize) -> Result<bool, TypesError> {
        let facts = self.cpp.get_or_insert_default();
        if let Some(known) = facts.is_passed_by_address.get(&class) {
            return Ok(*known);
        }
        // A class that contains itself is broken.
        facts.is_passed_by_address.insert(class, false);
        let index = self.index;
        let name = self.text(class, &index.entry(class)?, gimli::DW_AT_name);
        let (mut is_by_address, mut parts) = (false, Vec::new());
        index.children(class, |place, child| {
            let is_virtual = number(child, gimli::DW_AT_virtuality).is_some_and(|kind| kind > 0);
            match child.tag() {
                gimli::DW_TAG_subprogram => {
                    is_by_address |=
                        is_virtual || self.makes_copies(place, child, name.as_deref())?;
                }
                gimli::DW_TAG_member if flag(child, gimli::DW_AT_external) => {}
                gimli::DW_TAG_inheritance | gimli::DW_TAG_member => {
                    is_by_address |= is_virtual;
                    parts.extend(self.class_of(place, child)?);
                }
                _ => {}
            }
            Ok(())
        })?;
        for part in parts {
            is_by_address = is_by_address
                || depth < MAX_CLASS_DEPTH && self.is_passed_by_address(part, depth + 1)?;
        }
        let facts = self.cpp.get_or_insert_default();
        facts.is_passed_by_address.insert(class, is_by_address);
        Ok(is_by_address)
    }

    /// Whether a member function is a destructor, or a constructor from a reference to an object of
    /// the class, that is not the compiler's.
    fn makes_copies(
        &self,
        die: DieRef,
        entry: &DieEntry<'a>,
        class: Option<&str>,
    ) -> Result<bool, TypesError> {
        let is_compilers = flag(entry, gimli::DW_AT_artificial)
            || number(entry, gimli::DW_AT_defaulted)
                == Some(u64::from(gimli::DW_DEFAULTED_in_class.0))
            || flag(entry, gimli::DW_AT_deleted);
        let name = self.text(die, entry, gimli::DW_AT_name).unwrap_or_default();
        if is_compilers {
            return Ok(false);
        }
        if name.starts_with('~') {
            return Ok(true);
        }
        // A constructor of `list<int>` is `list`.
        let template = class.and_then(|class| class.split('<').next());
        if template != Some(&*name) {
            return Ok(false);
        }
        let mut parameters = Vec::new();
        self.index.children(die, |place, child| {
            if child.tag() == gimli::DW_TAG_formal_parameter
                && !flag(child, gimli::DW_AT_artificial)
            {
                parameters.push((place, child.clone()));
            }
            Ok(())
        })?;
        let [(place, parameter)] = &*parameters else {
            return Ok(false);
        };
        let Some(value) = parameter.attr_value(gimli::DW_AT_type) else {
            return Ok(false);
        };
        let reference = self.index.resolve_reference(*place, &value)?;
        let entry = self.index.entry(reference)?;
        let is_reference = matches!(
            entry.tag(),
            gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type
        );
        let of = self.class_of(reference, &entry)?;
        let of = of.map(|of| Ok::<_, TypesError>((of, self.index.entry(of)?)));
        let of = of.transpose()?;
        let of = of.and_then(|(die, entry)| self.text(die, &entry, gimli::DW_AT_name));
        Ok(is_reference && of.as_deref() == class)
    }

    /// The last constant of an expression: a slot in a table, or an offset from one.
    fn last_constant(&self, die: DieRef, entry: &DieEntry<'a>, name: gimli::DwAt) -> Option<u64> {
        let expression = entry.attr(name)?.exprloc_value()?;
        let (unit, _) = self.index.unit(die).ok()?;
        let mut operations = expression.operations(unit.encoding());
        let mut last = None;
        while let Ok(Some(operation)) = operations.next() {
            if let Operation::UnsignedConstant { value } | Operation::PlusConstant { value } =
                operation
            {
                last = Some(value);
            }
        }
        last
    }
}
