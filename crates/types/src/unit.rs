//! The types of one unit as a graph.

use std::borrow::Cow;
use std::collections::HashMap;

use gimli::{AttributeValue, DwAt, DwTag};
use unspool_ctf::{
    Enumerator, Graph, Kind, Member, Number, Parameter, Qualifier, Symbol, Tag, Type, TypeId,
};
use unspool_ir::Vaddr;

use crate::entry::{flag, location, number, signed, text};
use crate::error::TypesError;
use crate::index::{Entry, Index, Place};

/// Units that are imported by units that are imported, at most.
const DEEPEST_IMPORT: usize = 16;

/// Reads the types of one unit. A type gets its id when something refers to it, and is read afterwards, so that types that lead to
/// each other are no problem.
pub(crate) struct UnitReader<'d, 'a> {
    index: &'d Index<'a>,
    graph: Graph<'a>,
    ids: HashMap<Place, TypeId>,
    /// Types that have an id and are not read yet.
    open: Vec<(Place, TypeId)>,
    /// The type of no type.
    void: Option<TypeId>,
    functions: HashMap<Cow<'a, str>, TypeId>,
    objects: HashMap<Cow<'a, str>, TypeId>,
    /// Where the code of functions begins.
    pub(crate) entries: Vec<(Vaddr, Cow<'a, str>, TypeId)>,
    pub(crate) problems: Vec<TypesError>,
}

impl<'d, 'a> UnitReader<'d, 'a> {
    pub(crate) fn new(index: &'d Index<'a>, pointer_size: u64) -> UnitReader<'d, 'a> {
        UnitReader {
            index,
            graph: Graph::new(pointer_size),
            ids: HashMap::new(),
            open: Vec::new(),
            void: None,
            functions: HashMap::new(),
            objects: HashMap::new(),
            entries: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Reads a unit: all its types, functions and variables, and those that it imports.
    pub(crate) fn unit(&mut self, root: Place) {
        self.below(root, 0);
        self.finish();
    }

    /// Reads the types that something refers to.
    pub(crate) fn finish(&mut self) {
        while let Some((place, id)) = self.open.pop() {
            match self.ty(place) {
                Ok(ty) => self.graph.set(id, ty),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    /// The graph, when all is read.
    pub(crate) fn graph(self) -> Graph<'a> {
        let mut graph = self.graph;
        let sorted = |symbols: HashMap<Cow<'a, str>, TypeId>| {
            let symbols = symbols.into_iter();
            let mut symbols: Vec<_> = symbols.map(|(name, ty)| Symbol { name, ty }).collect();
            symbols.sort_unstable();
            symbols
        };
        graph.functions = sorted(self.functions);
        graph.objects = sorted(self.objects);
        graph
    }

    /// Looks at what a unit consists of.
    fn below(&mut self, root: Place, depth: usize) {
        let index = self.index;
        let mut imports = Vec::new();
        let read = index.children(root, |place, entry| {
            if let Err(problem) = self.top(place, entry, &mut imports) {
                self.problems.push(problem);
            }
            Ok(())
        });
        self.problems.extend(read.err());
        for import in imports {
            if depth < DEEPEST_IMPORT && !self.ids.contains_key(&import) {
                self.ids.insert(import, TypeId::NONE);
                self.below(import, depth + 1);
            }
        }
    }

    fn top(
        &mut self,
        place: Place,
        entry: &Entry<'a>,
        imports: &mut Vec<Place>,
    ) -> Result<(), TypesError> {
        match entry.tag() {
            gimli::DW_TAG_subprogram => self.function(place, entry),
            gimli::DW_TAG_variable => self.variable(place, entry),
            gimli::DW_TAG_imported_unit => {
                if let Some(value) = entry.attr_value(gimli::DW_AT_import) {
                    imports.push(self.index.referred(place, &value)?);
                }
                Ok(())
            }
            tag if is_type(tag) => {
                self.id(place);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The id of the type at a place.
    fn id(&mut self, place: Place) -> TypeId {
        if let Some(id) = self.ids.get(&place) {
            return *id;
        }
        let id = self.graph.add(Type::unnamed(Kind::Unknown));
        self.ids.insert(place, id);
        self.open.push((place, id));
        id
    }

    /// The type that an entry is of; `void` if it says none.
    pub(crate) fn type_of(&mut self, place: Place, entry: &Entry<'a>) -> TypeId {
        let Some(value) = entry.attr_value(gimli::DW_AT_type) else {
            return self.void();
        };
        match self.index.referred(place, &value) {
            Ok(place) => self.id(place),
            Err(problem) => {
                self.problems.push(problem);
                TypeId::NONE
            }
        }
    }

    fn void(&mut self) -> TypeId {
        let void = || Type::named("void", Kind::Integer(Number::of_bytes(0, Number::SIGNED)));
        *self.void.get_or_insert_with(|| self.graph.add(void()))
    }

    fn function(&mut self, place: Place, entry: &Entry<'a>) -> Result<(), TypesError> {
        let (origin, said) = self.index.origin(place, entry)?;
        let Some(name) = self.text(origin, &said, gimli::DW_AT_name) else {
            return Ok(());
        };
        let id = self.id(origin);
        self.functions.entry(name.clone()).or_insert(id);
        if let Some(address) = self.address(place, entry) {
            self.entries.push((address, name, id));
        }
        Ok(())
    }

    fn variable(&mut self, place: Place, entry: &Entry<'a>) -> Result<(), TypesError> {
        let (origin, said) = self.index.origin(place, entry)?;
        let Some(name) = self.text(origin, &said, gimli::DW_AT_name) else {
            return Ok(());
        };
        // An array that was declared without a size is completed by the entry that specifies it.
        let typed = match entry.has_attr(gimli::DW_AT_type) {
            true => self.type_of(place, entry),
            false => self.type_of(origin, &said),
        };
        let is_definition = !flag(entry, gimli::DW_AT_declaration);
        let known = self.objects.entry(name).or_insert(typed);
        if is_definition {
            *known = typed;
        }
        Ok(())
    }

    /// Where the code of a function begins: if it has several parts, the first is the one that is called.
    fn address(&self, place: Place, entry: &Entry<'a>) -> Option<Vaddr> {
        let (unit, _) = self.index.unit(place).ok()?;
        let dwarf = self.index.dwarf(place.part);
        let single = [gimli::DW_AT_low_pc, gimli::DW_AT_entry_pc]
            .into_iter()
            .find_map(|name| dwarf.attr_address(unit, entry.attr_value(name)?).ok()?);
        let first = || {
            let ranges = dwarf.attr_ranges(unit, entry.attr_value(gimli::DW_AT_ranges)?);
            Some(ranges.ok()??.next().ok()??.begin)
        };
        single.or_else(first).map(Vaddr)
    }

    fn text(&self, place: Place, entry: &Entry<'a>, name: DwAt) -> Option<Cow<'a, str>> {
        text(self.index, place, entry, name).filter(|name| !name.is_empty())
    }

    fn ty(&mut self, place: Place) -> Result<Type<'a>, TypesError> {
        let entry = self.index.entry(place)?;
        let signature = entry.attr_value(gimli::DW_AT_signature);
        if let Some(value) = signature {
            // A declaration of a type that is a unit of its own: the same type.
            let place = self.index.referred(place, &value)?;
            let entry = self.index.entry(place)?;
            return match entry.has_attr(gimli::DW_AT_signature) {
                true => Err(place.lacks("a type unit that is another one")),
                false => self.ty_of(place, &entry),
            };
        }
        self.ty_of(place, &entry)
    }

    fn ty_of(&mut self, place: Place, entry: &Entry<'a>) -> Result<Type<'a>, TypesError> {
        let tag = entry.tag();
        let name = match has_own_name(tag) {
            true => self
                .text(place, entry, gimli::DW_AT_name)
                .unwrap_or_default(),
            false => Cow::Borrowed(""),
        };
        let kind = match tag {
            gimli::DW_TAG_base_type => basic(place, entry)?,
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Kind::Pointer(self.type_of(place, entry)),
            gimli::DW_TAG_typedef => Kind::Typedef(self.type_of(place, entry)),
            gimli::DW_TAG_const_type => self.qualified(Qualifier::Const, place, entry),
            gimli::DW_TAG_volatile_type => self.qualified(Qualifier::Volatile, place, entry),
            gimli::DW_TAG_restrict_type => self.qualified(Qualifier::Restrict, place, entry),
            // CTF has no word for it, and gcc passes over it as well.
            gimli::DW_TAG_atomic_type => return self.behind(place, entry),
            gimli::DW_TAG_array_type => self.array(place, entry)?,
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => {
                self.prototype(place, entry)?
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                self.record(Tag::Struct, place, entry)?
            }
            gimli::DW_TAG_union_type => self.record(Tag::Union, place, entry)?,
            gimli::DW_TAG_enumeration_type => self.enumeration(place, entry)?,
            _ => Kind::Unknown,
        };
        Ok(match kind {
            Kind::Unknown => Type::named("unknown", kind),
            _ => Type::named(name, kind),
        })
    }

    fn qualified(&mut self, qualifier: Qualifier, place: Place, entry: &Entry<'a>) -> Kind<'a> {
        Kind::Qualified(qualifier, self.type_of(place, entry))
    }

    /// The type behind an entry that has no meaning here. A name would be one too many, so its type is read in its place.
    fn behind(&mut self, place: Place, entry: &Entry<'a>) -> Result<Type<'a>, TypesError> {
        let Some(value) = entry.attr_value(gimli::DW_AT_type) else {
            return Ok(Type::named(
                "void",
                Kind::Integer(Number::of_bytes(0, Number::SIGNED)),
            ));
        };
        let behind = self.index.referred(place, &value)?;
        let entry = self.index.entry(behind)?;
        match entry.tag() {
            gimli::DW_TAG_atomic_type => Err(place.lacks("an atomic type of an atomic type")),
            _ => self.ty_of(behind, &entry),
        }
    }

    /// An array, with a type for each of its dimensions but the first.
    fn array(&mut self, place: Place, entry: &Entry<'a>) -> Result<Kind<'a>, TypesError> {
        if flag(entry, gimli::DW_AT_GNU_vector) {
            return Ok(Kind::Unknown);
        }
        let mut element = self.type_of(place, entry);
        let mut dimensions = Vec::new();
        self.index.children(place, |place, child| {
            if child.tag() == gimli::DW_TAG_subrange_type {
                dimensions.push((place, child.clone(), count(child)));
            }
            Ok(())
        })?;
        let mut dimensions = dimensions.into_iter();
        let first = dimensions.next();
        for (place, entry, count) in dimensions.rev() {
            let index = self.index_type(place, &entry);
            let kind = Kind::Array {
                element,
                index,
                count,
            };
            element = self.graph.add(Type::unnamed(kind));
        }
        let (index, count) = match first {
            Some((place, entry, count)) => (self.index_type(place, &entry), count),
            None => (TypeId::NONE, 0),
        };
        Ok(Kind::Array {
            element,
            index,
            count,
        })
    }

    /// The type of a dimension's indexes; no type if it is not said.
    fn index_type(&mut self, place: Place, entry: &Entry<'a>) -> TypeId {
        match entry.has_attr(gimli::DW_AT_type) {
            true => self.type_of(place, entry),
            false => TypeId::NONE,
        }
    }

    fn prototype(&mut self, place: Place, entry: &Entry<'a>) -> Result<Kind<'a>, TypesError> {
        let returns = self.type_of(place, entry);
        let (mut parameters, mut is_variadic) = (Vec::new(), false);
        let index = self.index;
        index.children(place, |place, child| {
            match child.tag() {
                gimli::DW_TAG_formal_parameter => parameters.push(Parameter {
                    name: self
                        .text(place, child, gimli::DW_AT_name)
                        .unwrap_or_default(),
                    ty: self.type_of(place, child),
                }),
                gimli::DW_TAG_unspecified_parameters => is_variadic = true,
                _ => {}
            }
            Ok(())
        })?;
        Ok(Kind::Function {
            returns,
            parameters,
            is_variadic,
        })
    }

    fn record(
        &mut self,
        tag: Tag,
        place: Place,
        entry: &Entry<'a>,
    ) -> Result<Kind<'a>, TypesError> {
        let size = number(entry, gimli::DW_AT_byte_size);
        if flag(entry, gimli::DW_AT_declaration) {
            return Ok(Kind::Forward(tag));
        }
        let size = size.ok_or_else(|| place.lacks("a structure without a size"))?;
        let mut members = Vec::new();
        let index = self.index;
        index.children(place, |place, child| {
            // What a class inherits is a part of it that has no name.
            let is_part = matches!(
                child.tag(),
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance
            );
            if is_part && !flag(child, gimli::DW_AT_declaration) {
                match self.member(place, child) {
                    Ok(member) => members.push(member),
                    Err(problem) => self.problems.push(problem),
                }
            }
            Ok(())
        })?;
        Ok(Kind::Record { tag, size, members })
    }

    fn member(&mut self, place: Place, entry: &Entry<'a>) -> Result<Member<'a>, TypesError> {
        let (unit, _) = self.index.unit(place)?;
        let start = location(entry, unit.encoding())
            .ok_or_else(|| place.lacks("a member whose place is not a number"))?;
        let start = start.saturating_mul(8);
        let bits = number(entry, gimli::DW_AT_bit_size);
        let bits = bits.map(|bits| u16::try_from(bits).unwrap_or(u16::MAX));
        let offset = match (number(entry, gimli::DW_AT_data_bit_offset), bits) {
            (Some(offset), _) => start.saturating_add(offset),
            (None, Some(bits)) => start.saturating_add(self.old_offset(place, entry, bits)?),
            (None, None) => start,
        };
        Ok(Member {
            name: self
                .text(place, entry, gimli::DW_AT_name)
                .unwrap_or_default(),
            ty: self.type_of(place, entry),
            offset,
            bits,
        })
    }

    /// Where a bit-field begins, in bits behind its storage unit's start: before DWARF 4, and still by gcc for it, that is counted from the most
    /// significant bit of the storage unit.
    fn old_offset(&self, place: Place, entry: &Entry<'a>, bits: u16) -> Result<u64, TypesError> {
        let Some(offset) = entry.attr(gimli::DW_AT_bit_offset) else {
            return Ok(0);
        };
        let lacks = || place.lacks("a bit-field whose storage unit has no size");
        let offset = offset.sdata_value().ok_or_else(lacks)?;
        if self.index.is_big() {
            return Ok(offset.cast_unsigned());
        }
        let size = number(entry, gimli::DW_AT_byte_size).or_else(|| self.storage(place, entry));
        let size = size.ok_or_else(lacks)?.saturating_mul(8);
        let behind = i64::try_from(size)
            .ok()
            .and_then(|size| size.checked_sub(offset)?.checked_sub(i64::from(bits)));
        Ok(behind.ok_or_else(lacks)?.cast_unsigned())
    }

    /// The size in bytes of the integer that a bit-field is declared as, behind names and qualifiers.
    fn storage(&self, place: Place, entry: &Entry<'a>) -> Option<u64> {
        let (mut place, mut entry) = (place, entry.clone());
        for _ in 0..DEEPEST_IMPORT {
            let value = entry.attr_value(gimli::DW_AT_type)?;
            place = self.index.referred(place, &value).ok()?;
            entry = self.index.entry(place).ok()?;
            if let Some(size) = number(&entry, gimli::DW_AT_byte_size) {
                return Some(size);
            }
        }
        None
    }

    fn enumeration(&mut self, place: Place, entry: &Entry<'a>) -> Result<Kind<'a>, TypesError> {
        if flag(entry, gimli::DW_AT_declaration) {
            return Ok(Kind::Forward(Tag::Enum));
        }
        let size = number(entry, gimli::DW_AT_byte_size).or_else(|| self.storage(place, entry));
        let size = size.ok_or_else(|| place.lacks("an enumeration without a size"))?;
        let mut enumerators = Vec::new();
        let index = self.index;
        index.children(place, |place, child| {
            if child.tag() == gimli::DW_TAG_enumerator {
                match signed(child, gimli::DW_AT_const_value) {
                    Some(value) => enumerators.push(Enumerator {
                        name: self
                            .text(place, child, gimli::DW_AT_name)
                            .unwrap_or_default(),
                        value,
                    }),
                    None => {
                        let problem =
                            place.lacks("an enumerator whose value is no number of 64 bits");
                        self.problems.push(problem);
                    }
                }
            }
            Ok(())
        })?;
        Ok(Kind::Enum { size, enumerators })
    }
}

/// Whether an entry is a type of C.
fn is_type(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_base_type
            | gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_array_type
            | gimli::DW_TAG_subroutine_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}

/// Whether the name of an entry is the type's: that of a function is not.
fn has_own_name(tag: DwTag) -> bool {
    !matches!(
        tag,
        gimli::DW_TAG_subprogram | gimli::DW_TAG_subroutine_type
    )
}

/// How many elements a dimension has; 0 if that is not known.
fn count(entry: &Entry<'_>) -> u64 {
    number(entry, gimli::DW_AT_count)
        .or_else(|| {
            Some(
                signed(entry, gimli::DW_AT_upper_bound)?
                    .wrapping_add(1)
                    .cast_unsigned(),
            )
        })
        .unwrap_or(0)
}

/// A basic type (DWARF 5 §5.1).
fn basic<'a>(place: Place, entry: &Entry<'a>) -> Result<Kind<'a>, TypesError> {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(gimli::DW_AT_encoding) else {
        return Err(place.lacks("a basic type without an encoding"));
    };
    let size = number(entry, gimli::DW_AT_byte_size)
        .and_then(|size| u8::try_from(size).ok())
        .ok_or_else(|| place.lacks("a basic type without a size"))?;
    let integer = |format| Ok(Kind::Integer(Number::of_bytes(size, format)));
    let float = |format| Ok(Kind::Float(Number::of_bytes(size, format)));
    match encoding {
        gimli::DW_ATE_boolean => integer(Number::BOOL),
        gimli::DW_ATE_signed => integer(Number::SIGNED),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_UTF | gimli::DW_ATE_address => integer(0),
        gimli::DW_ATE_signed_char => integer(Number::SIGNED | Number::CHAR),
        gimli::DW_ATE_unsigned_char => integer(Number::CHAR),
        gimli::DW_ATE_float => float(match size {
            2 | 4 => 1, // CTF has no word for `_Float16` but its size
            8 => 2,
            _ => 6,
        }),
        gimli::DW_ATE_complex_float => float(match size {
            8 => 3,
            16 => 4,
            _ => 5,
        }),
        _ => Ok(Kind::Unknown),
    }
}
