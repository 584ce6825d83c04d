//! The types of one unit as a graph.

use std::borrow::Cow;
use std::collections::HashMap;

use gimli::{AttributeValue, DwAt, DwAte, DwLang, DwTag};
use unspool_c_types::{
    Enumerator, Graph, Linkage, Number, Parameter, Qualifier, Tag, Type, TypeId, TypeKind,
    TypedSymbol, UNKNOWN_TYPE,
};
use unspool_rows::Vaddr;

use crate::attributes::{constant, flag, number, sized_type, storage, text};
use crate::declared_types::DeclaredTypes;
use crate::error::TypesError;
use crate::index::{DieEntry, DieIndex, DieRef};

mod array;
mod cpp;
mod record;
mod variant;

pub(crate) use array::DynamicDimension;
use cpp::CppFacts;
pub use variant::{Variant, VariantPart};

/// The maximum depth of imported units.
const MAX_IMPORT_DEPTH: usize = 16;

/// Reads the types of one unit. A type gets its id with the first reference to it, and is read
/// later, so that types can refer to each other.
pub(crate) struct UnitReader<'d, 'a> {
    index: &'d DieIndex<'a>,
    /// Whether functions without prototypes are C's.
    is_c: bool,
    graph: Graph<'a>,
    ids: HashMap<DieRef, TypeId>,
    /// Types with an id that are not read yet.
    pending: Vec<(DieRef, TypeId)>,
    /// The type `void`.
    void: Option<TypeId>,
    functions: HashMap<Cow<'a, str>, (TypeId, Linkage)>,
    objects: HashMap<Cow<'a, str>, (TypeId, Linkage)>,
    /// The dimensions of arrays without a constant size.
    pub(crate) dimensions: Vec<DynamicDimension<'a>>,
    /// The variant parts of structures that have one.
    pub(crate) variants: HashMap<TypeId, VariantPart<'a>>,
    /// The start addresses of functions.
    pub(crate) entries: Vec<(Vaddr, Cow<'a, str>, TypeId)>,
    pub(crate) problems: Vec<TypesError>,
    /// The files that define types, if they are wanted.
    pub(crate) declared: Option<DeclaredTypes<'a>>,
    /// The facts of C++ that calls depend on, if they are wanted.
    cpp: Option<CppFacts>,
}

impl<'d, 'a> UnitReader<'d, 'a> {
    /// Reads types of the unit with this root.
    pub(crate) fn new(
        index: &'d DieIndex<'a>,
        root: DieRef,
        pointer_size: u64,
    ) -> UnitReader<'d, 'a> {
        UnitReader {
            index,
            is_c: language(index, root).is_some_and(is_c),
            graph: Graph::new(pointer_size),
            ids: HashMap::new(),
            pending: Vec::new(),
            void: None,
            functions: HashMap::new(),
            objects: HashMap::new(),
            dimensions: Vec::new(),
            variants: HashMap::new(),
            entries: Vec::new(),
            problems: Vec::new(),
            declared: None,
            cpp: None,
        }
    }

    /// Reads a unit: all its types, functions and variables, and those that it imports.
    pub(crate) fn unit(&mut self, root: DieRef) {
        self.read_children(root, 0);
        self.finish();
    }

    /// Reads the referenced types.
    pub(crate) fn finish(&mut self) {
        while let Some((place, id)) = self.pending.pop() {
            match self.ty(id, place) {
                Ok(ty) => self.graph.set(id, ty),
                Err(problem) => self.problems.push(problem),
            }
        }
    }

    /// The entries of the types that were read.
    pub(crate) fn places(&self) -> impl Iterator<Item = (TypeId, DieRef)> {
        self.ids.iter().map(|(place, id)| (*id, *place))
    }

    /// The graph, after all is read.
    pub(crate) fn graph(self) -> Graph<'a> {
        let mut graph = self.graph;
        let sorted = |symbols: HashMap<Cow<'a, str>, (TypeId, Linkage)>| {
            let symbols = symbols.into_iter();
            let symbols = symbols.map(|(name, (ty, linkage))| TypedSymbol {
                name,
                ty,
                linkage: Some(linkage),
            });
            let mut symbols: Vec<_> = symbols.collect();
            symbols.sort_unstable();
            symbols
        };
        graph.functions = sorted(self.functions);
        graph.objects = sorted(self.objects);
        graph
    }

    /// Reads the children of a unit's entry.
    fn read_children(&mut self, root: DieRef, depth: usize) {
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
            if depth < MAX_IMPORT_DEPTH && !self.ids.contains_key(&import) {
                self.ids.insert(import, TypeId::NONE);
                self.read_children(import, depth + 1);
            }
        }
    }

    fn top(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
        imports: &mut Vec<DieRef>,
    ) -> Result<(), TypesError> {
        match entry.tag() {
            gimli::DW_TAG_subprogram => self.function(die, entry),
            gimli::DW_TAG_variable => self.variable(die, entry),
            gimli::DW_TAG_imported_unit => {
                if let Some(value) = entry.attr_value(gimli::DW_AT_import) {
                    imports.push(self.index.resolve_reference(die, &value)?);
                }
                Ok(())
            }
            tag if is_type(tag) => {
                self.id(die);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The id of a function's type, by its defining entry.
    pub(crate) fn type_of_function(&mut self, origin: DieRef) -> TypeId {
        self.id(origin)
    }

    /// The id of the type of an entry.
    fn id(&mut self, die: DieRef) -> TypeId {
        if let Some(id) = self.ids.get(&die) {
            return *id;
        }
        let id = self.graph.add(Type::unnamed(TypeKind::Unknown));
        self.ids.insert(die, id);
        self.pending.push((die, id));
        id
    }

    /// The type that an entry refers to; `void` if it has none.
    pub(crate) fn type_of(&mut self, die: DieRef, entry: &DieEntry<'a>) -> TypeId {
        let Some(value) = entry.attr_value(gimli::DW_AT_type) else {
            return self.void();
        };
        match self.index.resolve_reference(die, &value) {
            Ok(place) => self.id(place),
            Err(problem) => {
                self.problems.push(problem);
                TypeId::NONE
            }
        }
    }

    fn void(&mut self) -> TypeId {
        let void = || {
            Type::named(
                "void",
                TypeKind::Integer(Number::with_size(0, Number::SIGNED)),
            )
        };
        *self.void.get_or_insert_with(|| self.graph.add(void()))
    }

    fn function(&mut self, die: DieRef, entry: &DieEntry<'a>) -> Result<(), TypesError> {
        let (origin, said) = self.index.origin(die, entry)?;
        let Some(name) = self.text(origin, &said, gimli::DW_AT_name) else {
            return Ok(());
        };
        let id = self.id(origin);
        let linkage = linkage([entry, &said]);
        self.functions.entry(name.clone()).or_insert((id, linkage));
        if let Some(address) = self.address(die, entry) {
            self.entries.push((address, name, id));
        }
        Ok(())
    }

    fn variable(&mut self, die: DieRef, entry: &DieEntry<'a>) -> Result<(), TypesError> {
        let (origin, said) = self.index.origin(die, entry)?;
        let Some(name) = self.text(origin, &said, gimli::DW_AT_name) else {
            return Ok(());
        };
        // An array declared without a size is completed by its specification.
        let typed = if entry.has_attr(gimli::DW_AT_type) {
            self.type_of(die, entry)
        } else {
            self.type_of(origin, &said)
        };
        let is_definition = !flag(entry, gimli::DW_AT_declaration);
        let typed = (typed, linkage([entry, &said]));
        let known = self.objects.entry(name).or_insert(typed);
        if is_definition {
            *known = typed;
        }
        Ok(())
    }

    /// The start of a function's code: if it has several parts, the first is the one that is
    /// called.
    fn address(&self, die: DieRef, entry: &DieEntry<'a>) -> Option<Vaddr> {
        let (unit, _) = self.index.unit(die).ok()?;
        let dwarf = self.index.dwarf(die.section);
        let single = [gimli::DW_AT_low_pc, gimli::DW_AT_entry_pc]
            .into_iter()
            .find_map(|name| dwarf.attr_address(unit, entry.attr_value(name)?).ok()?);
        let first = || {
            let ranges = dwarf.attr_ranges(unit, entry.attr_value(gimli::DW_AT_ranges)?);
            Some(ranges.ok()??.next().ok()??.begin)
        };
        single.or_else(first).map(Vaddr)
    }

    fn text(&self, die: DieRef, entry: &DieEntry<'a>, name: DwAt) -> Option<Cow<'a, str>> {
        text(self.index, die, entry, name).filter(|name| !name.is_empty())
    }

    fn ty(&mut self, id: TypeId, die: DieRef) -> Result<Type<'a>, TypesError> {
        let entry = self.index.entry(die)?;
        let signature = entry.attr_value(gimli::DW_AT_signature);
        if let Some(value) = signature {
            // A declaration of a type in a unit of its own: the same type.
            let place = self.index.resolve_reference(die, &value)?;
            let entry = self.index.entry(place)?;
            return if entry.has_attr(gimli::DW_AT_signature) {
                Err(place.missing_attribute("a type unit that is another one"))
            } else {
                self.ty_of(id, place, &entry)
            };
        }
        self.ty_of(id, die, &entry)
    }

    fn ty_of(
        &mut self,
        id: TypeId,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<Type<'a>, TypesError> {
        let tag = entry.tag();
        let name = if has_own_name(tag) {
            self.text(die, entry, gimli::DW_AT_name).unwrap_or_default()
        } else {
            Cow::Borrowed("")
        };
        let kind = match tag {
            gimli::DW_TAG_base_type => basic(die, entry)?,
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => TypeKind::Pointer(self.type_of(die, entry)),
            gimli::DW_TAG_typedef => TypeKind::Typedef(self.type_of(die, entry)),
            gimli::DW_TAG_const_type => self.qualified(Qualifier::Const, die, entry),
            gimli::DW_TAG_volatile_type => self.qualified(Qualifier::Volatile, die, entry),
            gimli::DW_TAG_restrict_type => self.qualified(Qualifier::Restrict, die, entry),
            // CTF has no qualifier for it, and gcc skips it as well.
            gimli::DW_TAG_atomic_type => return self.inner_type(id, die, entry),
            gimli::DW_TAG_array_type if flag(entry, gimli::DW_AT_GNU_vector) => {
                return Ok(self.vector(die, entry));
            }
            gimli::DW_TAG_array_type => self.array(id, die, entry)?,
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_subprogram => {
                self.prototype(id, die, entry)?
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                self.record(Tag::Struct, id, die, entry)?
            }
            gimli::DW_TAG_union_type => self.record(Tag::Union, id, die, entry)?,
            gimli::DW_TAG_enumeration_type => self.enumeration(die, entry)?,
            gimli::DW_TAG_ptr_to_member_type => return self.member_pointer(die, entry),
            _ => TypeKind::Unknown,
        };
        let ty = match kind {
            TypeKind::Unknown => Type::named(UNKNOWN_TYPE, kind),
            _ => Type::named(name, kind),
        };
        if let Some(declared) = &mut self.declared {
            declared.add(self.index, die, entry, &ty);
        }
        Ok(ty)
    }

    fn qualified(
        &mut self,
        qualifier: Qualifier,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> TypeKind<'a> {
        TypeKind::Qualified(qualifier, self.type_of(die, entry))
    }

    /// The type behind an entry without a meaning here. A typedef would be superfluous, so its
    /// target is read in its place.
    fn inner_type(
        &mut self,
        id: TypeId,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<Type<'a>, TypesError> {
        let Some(value) = entry.attr_value(gimli::DW_AT_type) else {
            return Ok(Type::named(
                "void",
                TypeKind::Integer(Number::with_size(0, Number::SIGNED)),
            ));
        };
        let behind = self.index.resolve_reference(die, &value)?;
        let entry = self.index.entry(behind)?;
        match entry.tag() {
            gimli::DW_TAG_atomic_type => {
                Err(die.missing_attribute("an atomic type of an atomic type"))
            }
            _ => self.ty_of(id, behind, &entry),
        }
    }

    fn prototype(
        &mut self,
        id: TypeId,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<TypeKind<'a>, TypesError> {
        // A call by another convention than the platform's passes other values than the parameters'
        // types say. The convention of a Fortran program's main function is the platform's.
        let convention = number(entry, gimli::DW_AT_calling_convention);
        let platform = [gimli::DW_CC_normal, gimli::DW_CC_program].map(|known| u64::from(known.0));
        if convention.is_some_and(|convention| !platform.contains(&convention)) {
            return Ok(TypeKind::Unknown);
        }
        let returns = self.passed_type(die, entry);
        let (mut parameters, mut is_variadic) = (Vec::new(), false);
        let index = self.index;
        index.children(die, |place, child| {
            match child.tag() {
                gimli::DW_TAG_formal_parameter => parameters.push(Parameter {
                    name: self
                        .text(place, child, gimli::DW_AT_name)
                        .unwrap_or_default(),
                    ty: self.passed_type(place, child),
                }),
                gimli::DW_TAG_unspecified_parameters => is_variadic = true,
                _ => {}
            }
            Ok(())
        })?;
        if self.is_c && !flag(entry, gimli::DW_AT_prototyped) && !parameters.is_empty() {
            self.graph.unprototyped.insert(id);
        }
        Ok(TypeKind::Function {
            returns,
            parameters,
            is_variadic,
        })
    }

    fn enumeration(
        &mut self,
        die: DieRef,
        entry: &DieEntry<'a>,
    ) -> Result<TypeKind<'a>, TypesError> {
        if flag(entry, gimli::DW_AT_declaration) {
            return Ok(TypeKind::Forward(Tag::Enum));
        }
        let size =
            number(entry, gimli::DW_AT_byte_size).or_else(|| storage(self.index, die, entry));
        let size = size.ok_or_else(|| die.missing_attribute("an enumeration without a size"))?;
        // The sign is that of the enumeration (gcc), or of its underlying type (clang, DWARF 4).
        let declared = encoding(entry)
            .or_else(|| encoding(&sized_type(self.index, die, entry)?.1))
            .map(|encoding| {
                encoding == gimli::DW_ATE_signed || encoding == gimli::DW_ATE_signed_char
            });
        let mut enumerators = Vec::new();
        let index = self.index;
        index.children(die, |place, child| {
            if child.tag() == gimli::DW_TAG_enumerator {
                match constant(child, gimli::DW_AT_const_value) {
                    Some(value) => enumerators.push(Enumerator {
                        name: self
                            .text(place, child, gimli::DW_AT_name)
                            .unwrap_or_default(),
                        value,
                    }),
                    None => {
                        let problem = place
                            .missing_attribute("an enumerator whose value does not fit 64 bits");
                        self.problems.push(problem);
                    }
                }
            }
            Ok(())
        })?;
        Ok(TypeKind::Enum {
            size,
            is_signed: declared.unwrap_or_else(|| Enumerator::any_negative(&enumerators)),
            enumerators,
        })
    }
}

/// The linkage of a function or of data, by its own entry and its declaration's.
fn linkage(entries: [&DieEntry<'_>; 2]) -> Linkage {
    let is_external = |entry| flag(entry, gimli::DW_AT_external);
    if entries.into_iter().any(is_external) {
        Linkage::Global
    } else {
        Linkage::Static
    }
}

/// The encoding of a basic type or an enumeration.
fn encoding(entry: &DieEntry<'_>) -> Option<DwAte> {
    match entry.attr_value(gimli::DW_AT_encoding)? {
        AttributeValue::Encoding(encoding) => Some(encoding),
        _ => None,
    }
}

/// The language of the unit with this root.
pub(crate) fn language(index: &DieIndex<'_>, root: DieRef) -> Option<DwLang> {
    language_of(&index.entry(root).ok()?)
}

/// The language in a unit's entry.
pub(crate) fn language_of(entry: &DieEntry<'_>) -> Option<DwLang> {
    match entry.attr_value(gimli::DW_AT_language)? {
        AttributeValue::Language(language) => Some(language),
        _ => None,
    }
}

/// Whether a language is C before C23. (In C23 every function has a prototype.)
pub(crate) fn is_c(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
    )
}

/// Whether a language is C++.
pub(crate) fn is_cpp(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
    )
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

/// Whether the name of an entry is the type's: a function's is not.
fn has_own_name(tag: DwTag) -> bool {
    !matches!(
        tag,
        gimli::DW_TAG_subprogram | gimli::DW_TAG_subroutine_type
    )
}

/// A basic type (DWARF 5 §5.1).
fn basic<'a>(die: DieRef, entry: &DieEntry<'a>) -> Result<TypeKind<'a>, TypesError> {
    let encoding =
        encoding(entry).ok_or_else(|| die.missing_attribute("a basic type without an encoding"))?;
    let size = number(entry, gimli::DW_AT_byte_size)
        .and_then(|size| u8::try_from(size).ok())
        .ok_or_else(|| die.missing_attribute("a basic type without a size"))?;
    let integer = |format| Ok(TypeKind::Integer(Number::with_size(size, format)));
    let float = |format| Ok(TypeKind::Float(Number::with_size(size, format)));
    match encoding {
        gimli::DW_ATE_boolean => integer(Number::BOOL),
        gimli::DW_ATE_signed => integer(Number::SIGNED),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_UTF | gimli::DW_ATE_address => integer(0),
        gimli::DW_ATE_signed_char => integer(Number::SIGNED | Number::CHAR),
        gimli::DW_ATE_unsigned_char => integer(Number::CHAR),
        gimli::DW_ATE_float => float(match size {
            2 | 4 => 1, // CTF can only represent the size of `_Float16`
            8 => 2,
            _ => 6,
        }),
        gimli::DW_ATE_complex_float => float(match size {
            8 => 3,
            16 => 4,
            _ => 5,
        }),
        _ => Ok(TypeKind::Unknown),
    }
}
