//! The type graph: C types as values that refer to each other by ids.
//!
//! It is independent of formats. CTF is read into it and written from it; so are BTF and DWARF. It
//! includes the facts that CTF lacks: names of parameters, members that are bit-fields themselves,
//! enumerators of 64 bits, signed and unsigned.
//!
//! A type may refer to itself through others. So no function here recurses without a bound. A type
//! that contains itself, in a broken file, has no size.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// A type of a graph. 0 is not a type: the producer could not represent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TypeId(pub u32);

impl TypeId {
    /// No type.
    pub const NONE: TypeId = TypeId(0);
}

/// The name of a [`TypeKind::Unknown`] of which nothing is known, as gcc writes it in CTF. Another
/// name says which type it is.
pub const UNKNOWN_TYPE: &str = "unknown";

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Type<'a> {
    /// Its name or tag; empty if it has none.
    pub name: Cow<'a, str>,
    /// Whether look-ups by its name find another type instead.
    pub is_hidden: bool,
    /// Its kind.
    pub kind: TypeKind<'a>,
}

/// The kind of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeKind<'a> {
    /// A type that the producer could not represent.
    Unknown,
    /// An integer, `char`, `_Bool`, and also `void` with a size of 0.
    Integer(Number),
    /// A floating-point number, which can be complex.
    Float(Number),
    /// A pointer.
    Pointer(TypeId),
    /// An array.
    Array {
        /// The type of its elements.
        element: TypeId,
        /// The type of its indexes.
        index: TypeId,
        /// The number of elements; 0 also if that is unknown.
        count: u64,
    },
    /// A function.
    Function {
        /// The return type.
        returns: TypeId,
        /// Its parameters.
        parameters: Vec<Parameter<'a>>,
        /// Whether it takes more parameters (`...`).
        is_variadic: bool,
    },
    /// A structure or a union.
    Record {
        /// Which of the two.
        tag: Tag,
        /// Its size in bytes.
        size: u64,
        /// Its members.
        members: Vec<Member<'a>>,
    },
    /// An enumeration.
    Enum {
        /// Its size in bytes.
        size: u64,
        /// Whether its values are signed. CTF does not record it: there, whether any is negative.
        is_signed: bool,
        /// Its constants.
        enumerators: Vec<Enumerator<'a>>,
    },
    /// A structure, union or enumeration with an unknown definition.
    Forward(Tag),
    /// Another name for a type.
    Typedef(TypeId),
    /// A type with a qualifier.
    Qualified(Qualifier, TypeId),
    /// A type with a tag for programs that check types, as the kernel's `user`: the type's name is
    /// the tag. Only BTF has it.
    TypeTag {
        /// The type.
        of: TypeId,
        /// Whether the tag is an attribute of C (`__attribute__((user))`).
        is_attribute: bool,
    },
    /// A part of an integer, as for a bit-field.
    Slice {
        /// The integer.
        of: TypeId,
        /// Its size in bytes in a structure.
        size: u64,
        /// Its offset in the integer, in bits.
        offset: u16,
        /// Its width in bits.
        bits: u16,
    },
}

/// The format of an integer or a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    /// Its size in bytes.
    pub size: u64,
    /// For integers, [`Number::SIGNED`] and other flags. For floating-point numbers, one of CTF's
    /// twelve formats (1 is `float`, 2 `double`, 6 `long double`; 3, 4 and 5 are these as complex
    /// numbers).
    pub format: u8,
    /// Its offset, in bits.
    pub offset: u8,
    /// Its width in bits.
    pub bits: u16,
}

impl Number {
    /// An integer that can be negative.
    pub const SIGNED: u8 = 1;
    /// An integer that is shown as a character.
    pub const CHAR: u8 = 2;
    /// An integer that is shown as true or false.
    pub const BOOL: u8 = 4;

    /// A number that fills its bytes.
    #[must_use]
    pub fn with_size(size: u8, format: u8) -> Number {
        Number {
            size: u64::from(size),
            format,
            offset: 0,
            bits: u16::from(size) * 8,
        }
    }
}

/// The kind of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// `struct`
    Struct,
    /// `union`
    Union,
    /// `enum`
    Enum,
}

impl Tag {
    /// The keyword in C.
    #[must_use]
    pub fn keyword(self) -> &'static str {
        match self {
            Tag::Struct => "struct",
            Tag::Union => "union",
            Tag::Enum => "enum",
        }
    }
}

/// A qualifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qualifier {
    /// `const`
    Const,
    /// `volatile`
    Volatile,
    /// `restrict`
    Restrict,
}

impl Qualifier {
    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The keyword in C.
    #[must_use]
    pub fn keyword(self) -> &'static str {
        match self {
            Qualifier::Const => "const",
            Qualifier::Volatile => "volatile",
            Qualifier::Restrict => "restrict",
        }
    }
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// Its name; always empty in CTF.
    pub name: Cow<'a, str>,
    /// Its type.
    pub ty: TypeId,
}

/// A member of a structure or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name; empty for an anonymous structure or union: its members count as the containing
    /// type's.
    pub name: Cow<'a, str>,
    /// Its type.
    pub ty: TypeId,
    /// Its offset, in bits.
    pub offset: u64,
    /// Its width in bits, if it is a bit-field and its type lacks the width.
    pub bits: Option<u16>,
}

/// A constant of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumerator<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its value: of 64 bits at most, signed or unsigned.
    pub value: i128,
}

impl Enumerator<'_> {
    /// The low 64 bits of its value, in two's complement.
    #[must_use]
    pub fn bits(&self) -> u64 {
        u64::try_from(self.value & i128::from(u64::MAX)).unwrap_or(0)
    }

    /// Whether any of these is negative.
    #[must_use]
    pub fn any_negative(all: &[Enumerator<'_>]) -> bool {
        all.iter().any(|one| one.value < 0)
    }
}

/// A name with a type: of a function, or of data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypedSymbol<'a> {
    /// The name.
    pub name: Cow<'a, str>,
    /// Its type.
    pub ty: TypeId,
    /// Where it can be used; `None` if that is not known, as in CTF.
    pub linkage: Option<Linkage>,
}

/// Where a function or data can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Linkage {
    /// In its unit only.
    Static,
    /// Everywhere.
    Global,
    /// It is defined elsewhere.
    Extern,
}

impl<'a> TypedSymbol<'a> {
    /// A name with a type, and with an unknown linkage.
    #[must_use]
    pub fn new(name: impl Into<Cow<'a, str>>, ty: TypeId) -> TypedSymbol<'a> {
        TypedSymbol {
            name: name.into(),
            ty,
            linkage: None,
        }
    }

    /// The same name with another type.
    #[must_use]
    pub(crate) fn with_type(&self, ty: TypeId) -> TypedSymbol<'a> {
        TypedSymbol { ty, ..self.clone() }
    }

    fn into_owned(self) -> TypedSymbol<'static> {
        TypedSymbol {
            name: owned(self.name),
            ty: self.ty,
            linkage: self.linkage,
        }
    }
}

/// A type, a function or data, as the target of a tag. Functions and data are found by their names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Declaration<'a> {
    /// A type.
    Type(TypeId),
    /// A function.
    Function(Cow<'a, str>),
    /// Data.
    Object(Cow<'a, str>),
}

impl Declaration<'_> {
    fn into_owned(self) -> Declaration<'static> {
        match self {
            Declaration::Type(id) => Declaration::Type(id),
            Declaration::Function(name) => Declaration::Function(owned(name)),
            Declaration::Object(name) => Declaration::Object(owned(name)),
        }
    }
}

/// A tag of a declaration, for programs that check types. Only BTF has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeclarationTag<'a> {
    /// The tag.
    pub name: Cow<'a, str>,
    /// What has it.
    pub of: Declaration<'a>,
    /// The member or parameter that has it, from 0; `None` for the declaration itself.
    pub component: Option<u32>,
    /// Whether the tag is an attribute of C.
    pub is_attribute: bool,
}

/// A section of a BPF program, and the places of its data. Only BTF has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSection<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its size in bytes.
    pub size: u64,
    /// The data or functions in it, each with its offset and size in bytes.
    pub entries: Vec<(Declaration<'a>, u32, u32)>,
}

fn owned(name: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(name.into_owned())
}

/// C's name spaces: equal names in different ones are different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameSpace {
    /// Type names: those of `typedef` and the basic types.
    Ordinary,
    /// Tags. C has one space for all three kinds. Tools have one for each, since they look a type
    /// up by its kind and tag.
    Tags(Tag),
}

impl Type<'_> {
    /// A type that has no name.
    #[must_use]
    pub fn unnamed(kind: TypeKind<'_>) -> Type<'_> {
        Type::named("", kind)
    }

    /// A type with a name or tag.
    #[must_use]
    pub fn named<'a>(name: impl Into<Cow<'a, str>>, kind: TypeKind<'a>) -> Type<'a> {
        Type {
            name: name.into(),
            is_hidden: false,
            kind,
        }
    }

    /// The name space of its name; `None` if it has no name, or its kind does not use names.
    #[must_use]
    pub fn name_space(&self) -> Option<NameSpace> {
        let space = match self.kind {
            TypeKind::Integer(_) | TypeKind::Float(_) | TypeKind::Typedef(_) => NameSpace::Ordinary,
            _ => NameSpace::Tags(self.tag()?),
        };
        (!self.name.is_empty()).then_some(space)
    }

    /// The kind of its tag, even if it has none; `None` if types of its kind have no tags.
    pub(crate) fn tag(&self) -> Option<Tag> {
        match self.kind {
            TypeKind::Record { tag, .. } | TypeKind::Forward(tag) => Some(tag),
            TypeKind::Enum { .. } => Some(Tag::Enum),
            _ => None,
        }
    }

    /// Its name, if that is a part of the type. gcc gives function types the name of a function
    /// with that type; that does not count.
    #[must_use]
    pub fn own_name(&self) -> &str {
        match self.kind {
            TypeKind::Unknown | TypeKind::TypeTag { .. } => &self.name,
            _ if self.name_space().is_some() => &self.name,
            _ => "",
        }
    }

    fn is_tag(&self) -> bool {
        matches!(self.kind, TypeKind::TypeTag { .. })
    }

    fn into_owned(self) -> Type<'static> {
        let kind = match self.kind {
            TypeKind::Unknown => TypeKind::Unknown,
            TypeKind::Integer(number) => TypeKind::Integer(number),
            TypeKind::Float(number) => TypeKind::Float(number),
            TypeKind::Pointer(to) => TypeKind::Pointer(to),
            TypeKind::Array {
                element,
                index,
                count,
            } => TypeKind::Array {
                element,
                index,
                count,
            },
            TypeKind::Function {
                returns,
                parameters,
                is_variadic,
            } => TypeKind::Function {
                returns,
                is_variadic,
                parameters: parameters
                    .into_iter()
                    .map(|one| Parameter {
                        name: owned(one.name),
                        ty: one.ty,
                    })
                    .collect(),
            },
            TypeKind::Record { tag, size, members } => TypeKind::Record {
                tag,
                size,
                members: members
                    .into_iter()
                    .map(|one| Member {
                        name: owned(one.name),
                        ty: one.ty,
                        offset: one.offset,
                        bits: one.bits,
                    })
                    .collect(),
            },
            TypeKind::Enum {
                size,
                is_signed,
                enumerators,
            } => TypeKind::Enum {
                size,
                is_signed,
                enumerators: enumerators
                    .into_iter()
                    .map(|one| Enumerator {
                        name: owned(one.name),
                        value: one.value,
                    })
                    .collect(),
            },
            TypeKind::Forward(tag) => TypeKind::Forward(tag),
            TypeKind::Typedef(to) => TypeKind::Typedef(to),
            TypeKind::Qualified(qualifier, to) => TypeKind::Qualified(qualifier, to),
            TypeKind::TypeTag { of, is_attribute } => TypeKind::TypeTag { of, is_attribute },
            TypeKind::Slice {
                of,
                size,
                offset,
                bits,
            } => TypeKind::Slice {
                of,
                size,
                offset,
                bits,
            },
        };
        Type {
            name: owned(self.name),
            is_hidden: self.is_hidden,
            kind,
        }
    }

    /// The number of its members, parameters or enumerators.
    pub(crate) fn parts(&self) -> usize {
        match &self.kind {
            TypeKind::Record { members, .. } => members.len(),
            TypeKind::Function { parameters, .. } => parameters.len(),
            TypeKind::Enum { enumerators, .. } => enumerators.len(),
            _ => 0,
        }
    }

    /// Calls a function with each referenced type, in order.
    pub fn each_reference(&self, mut visit: impl FnMut(TypeId)) {
        match &self.kind {
            TypeKind::Unknown
            | TypeKind::Integer(_)
            | TypeKind::Float(_)
            | TypeKind::Enum { .. }
            | TypeKind::Forward(_) => {}
            TypeKind::Pointer(to) | TypeKind::Typedef(to) | TypeKind::Qualified(_, to) => {
                visit(*to);
            }
            TypeKind::Slice { of, .. } | TypeKind::TypeTag { of, .. } => visit(*of),
            TypeKind::Array { element, index, .. } => {
                visit(*element);
                visit(*index);
            }
            TypeKind::Function {
                returns,
                parameters,
                ..
            } => {
                visit(*returns);
                parameters.iter().for_each(|parameter| visit(parameter.ty));
            }
            TypeKind::Record { members, .. } => members.iter().for_each(|member| visit(member.ty)),
        }
    }

    /// The same type with other references.
    #[must_use]
    pub(crate) fn with_references(mut self, mut other: impl FnMut(TypeId) -> TypeId) -> Self {
        match &mut self.kind {
            TypeKind::Unknown
            | TypeKind::Integer(_)
            | TypeKind::Float(_)
            | TypeKind::Enum { .. }
            | TypeKind::Forward(_) => {}
            TypeKind::Pointer(to) | TypeKind::Typedef(to) | TypeKind::Qualified(_, to) => {
                *to = other(*to);
            }
            TypeKind::Slice { of, .. } | TypeKind::TypeTag { of, .. } => *of = other(*of),
            TypeKind::Array { element, index, .. } => {
                *element = other(*element);
                *index = other(*index);
            }
            TypeKind::Function {
                returns,
                parameters,
                ..
            } => {
                *returns = other(*returns);
                for parameter in parameters {
                    parameter.ty = other(parameter.ty);
                }
            }
            TypeKind::Record { members, .. } => {
                for member in members {
                    member.ty = other(member.ty);
                }
            }
        }
        self
    }
}

/// The result of following typedefs and qualifiers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResolvedType {
    /// The type, if that id exists.
    pub(crate) id: TypeId,
    /// The bits of the qualifiers on the path.
    pub(crate) qualifiers: u8,
}

impl ResolvedType {
    fn new(id: TypeId) -> ResolvedType {
        ResolvedType { id, qualifiers: 0 }
    }

    /// The qualifiers.
    pub(crate) fn qualifiers(self) -> impl Iterator<Item = Qualifier> {
        let all = [Qualifier::Const, Qualifier::Volatile, Qualifier::Restrict];
        all.into_iter()
            .filter(move |one| self.qualifiers & one.bit() != 0)
    }
}

/// The types of a unit or a program, or of the remainder when its shared types are in a parent.
///
/// The ids of a child begin behind those of its parent. The child can use the parent's types.
#[derive(Debug, Clone, Default)]
pub struct Graph<'a> {
    parent: Option<Arc<Graph<'a>>>,
    types: Vec<Type<'a>>,
    /// The resolved type of each type, for long chains; computed on demand.
    behind: OnceLock<Vec<Option<ResolvedType>>>,
    /// The C functions with definitions without a prototype (K&R's), ascending: they receive
    /// `double` for `float`. Only DWARF records this.
    pub unprototyped: BTreeSet<TypeId>,
    /// Its source file.
    pub unit: Option<Cow<'a, str>>,
    /// The size of a pointer in bytes.
    pub pointer_size: u64,
    /// Functions. Their types are [`TypeKind::Function`].
    pub functions: Vec<TypedSymbol<'a>>,
    /// Data.
    pub objects: Vec<TypedSymbol<'a>>,
    /// Other names with a type: data that is in no symbol table.
    pub variables: Vec<TypedSymbol<'a>>,
    /// The tags of declarations.
    pub declaration_tags: Vec<DeclarationTag<'a>>,
    /// The sections with data.
    pub sections: Vec<DataSection<'a>>,
}

impl<'a> Graph<'a> {
    /// An empty graph for a machine with pointers of that size in bytes.
    #[must_use]
    pub fn new(pointer_size: u64) -> Graph<'a> {
        Graph {
            pointer_size,
            ..Graph::default()
        }
    }

    /// An empty graph with a parent.
    #[must_use]
    pub fn with_parent(parent: Arc<Graph<'a>>) -> Graph<'a> {
        Graph {
            pointer_size: parent.pointer_size,
            parent: Some(parent),
            ..Graph::default()
        }
    }

    /// The parent graph.
    #[must_use]
    pub fn parent(&self) -> Option<&Graph<'a>> {
        self.parent.as_deref()
    }

    /// The highest id of the parent's types; 0 without a parent.
    #[must_use]
    pub fn base(&self) -> u32 {
        self.parent.as_deref().map_or(0, Graph::last)
    }

    /// The highest id.
    #[must_use]
    pub fn last(&self) -> u32 {
        let own = u32::try_from(self.types.len()).unwrap_or(u32::MAX);
        self.base().saturating_add(own)
    }

    /// Reserves room for as many more types.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.types.reserve_exact(count);
    }

    /// Adds a type, which may refer to later types.
    pub fn add(&mut self, ty: Type<'a>) -> TypeId {
        self.behind.take();
        self.types.push(ty);
        TypeId(self.last())
    }

    /// Removes what CTF lacks: tags, and the names of parameters and of types that it cannot
    /// represent. Types that differ only in them are the same there.
    pub fn reduce_to_ctf(&mut self) {
        self.declaration_tags.clear();
        self.sections.clear();
        // A tag becomes a copy of the type behind it.
        let tags = self.types().filter(|(_, ty)| ty.is_tag());
        let behind = tags.map(|(id, _)| (id, self.get(self.untagged(id)).cloned()));
        for (id, behind) in behind.collect::<Vec<_>>() {
            self.set(
                id,
                behind.unwrap_or(Type::named(UNKNOWN_TYPE, TypeKind::Unknown)),
            );
        }
        for ty in &mut self.types {
            match &mut ty.kind {
                TypeKind::Function { parameters, .. } => {
                    let names = parameters.iter_mut();
                    names.for_each(|parameter| parameter.name = Cow::Borrowed(""));
                }
                TypeKind::Unknown => ty.name = Cow::Borrowed(UNKNOWN_TYPE),
                _ => {}
            }
        }
    }

    /// The same graph with owned names, independent of the source's lifetime.
    #[must_use]
    pub fn into_owned(self) -> Graph<'static> {
        Graph {
            parent: self
                .parent
                .map(|parent| Arc::new(Arc::unwrap_or_clone(parent).into_owned())),
            types: self.types.into_iter().map(Type::into_owned).collect(),
            behind: self.behind,
            unprototyped: self.unprototyped,
            unit: self.unit.map(owned),
            pointer_size: self.pointer_size,
            functions: self
                .functions
                .into_iter()
                .map(TypedSymbol::into_owned)
                .collect(),
            objects: self
                .objects
                .into_iter()
                .map(TypedSymbol::into_owned)
                .collect(),
            variables: self
                .variables
                .into_iter()
                .map(TypedSymbol::into_owned)
                .collect(),
            declaration_tags: self
                .declaration_tags
                .into_iter()
                .map(|tag| DeclarationTag {
                    name: owned(tag.name),
                    of: tag.of.into_owned(),
                    ..tag
                })
                .collect(),
            sections: self
                .sections
                .into_iter()
                .map(|section| DataSection {
                    name: owned(section.name),
                    size: section.size,
                    entries: section
                        .entries
                        .into_iter()
                        .map(|(of, offset, size)| (of.into_owned(), offset, size))
                        .collect(),
                })
                .collect(),
        }
    }

    /// Replaces its parent, if it has one, by one with as many types.
    pub(crate) fn change_parent(&mut self, change: impl FnOnce(Graph<'a>) -> Graph<'a>) {
        let parent = self.parent.take().map(Arc::unwrap_or_clone);
        self.parent = parent.map(|parent| Arc::new(change(parent)));
    }

    /// Its own types, to change their names.
    pub(crate) fn types_mut(&mut self) -> impl Iterator<Item = &mut Type<'a>> {
        self.types.iter_mut()
    }

    /// Replaces one of its own types; does nothing if the id is not its own.
    pub fn set(&mut self, id: TypeId, ty: Type<'a>) {
        let index = id.0.checked_sub(self.base() + 1);
        let place = index.and_then(|index| self.types.get_mut(usize::try_from(index).ok()?));
        if let Some(place) = place {
            *place = ty;
            self.behind.take();
        }
    }

    /// A type, its own or its parent's; `None` for [`TypeId::NONE`] and unknown ids.
    #[must_use]
    pub fn get(&self, id: TypeId) -> Option<&Type<'a>> {
        match id.0.checked_sub(self.base().saturating_add(1)) {
            Some(index) => self.types.get(usize::try_from(index).ok()?),
            None => self.parent.as_deref()?.get(id),
        }
    }

    /// Its own types, without its parent's, in the order of their ids.
    pub fn types(&self) -> impl Iterator<Item = (TypeId, &Type<'a>)> {
        let first = self.base().saturating_add(1);
        (first..).map(TypeId).zip(&self.types)
    }

    /// The types that a name refers to in C: `struct node`, `node`, `size_t`. Its own before its
    /// parent's.
    pub fn named<'s>(
        &'s self,
        name: &str,
    ) -> impl Iterator<Item = (TypeId, &'s Type<'a>)> + use<'s, 'a> {
        let tag = match name.split_whitespace().next() {
            Some("struct") => Some(("struct", Tag::Struct)),
            Some("union") => Some(("union", Tag::Union)),
            Some("enum") => Some(("enum", Tag::Enum)),
            _ => None,
        };
        let behind = tag.and_then(|(word, _)| name.trim_start().strip_prefix(word));
        let behind = behind.filter(|behind| !behind.trim().is_empty());
        let space = tag.filter(|_| behind.is_some());
        let space = space.map(|(_, tag)| NameSpace::Tags(tag));
        // As typed, or with other spaces between its words.
        let typed = behind.map_or(name, str::trim_start).to_owned();
        let name = typed.split_whitespace().collect::<Vec<_>>().join(" ");
        let parents = self.parent.as_deref().into_iter().flat_map(Graph::types);
        let visible = self.types().chain(parents).filter(|(_, ty)| !ty.is_hidden);
        visible.filter(move |(_, ty)| {
            let is_in_space = space.is_none() || ty.name_space() == space;
            (ty.name == name || ty.name == typed) && !name.is_empty() && is_in_space
        })
    }

    /// The type behind typedefs and qualifiers; `None` if there is none, or if they are circular.
    #[must_use]
    pub fn resolve(&self, id: TypeId) -> Option<TypeId> {
        let behind = self.resolve_qualified(id)?.id;
        let is_known = |ty: &Type<'_>| !matches!(ty.kind, TypeKind::Unknown);
        self.get(behind).is_some_and(is_known).then_some(behind)
    }

    /// The result of following typedefs and qualifiers, even if that is no type; `None` if they are
    /// circular.
    pub(crate) fn resolve_qualified(&self, id: TypeId) -> Option<ResolvedType> {
        /// The maximum length of a chain to follow directly. For longer chains, all are resolved
        /// together.
        const MAX_FOLLOWED: usize = 32;
        let mut at = ResolvedType::new(id);
        for _ in 0..MAX_FOLLOWED {
            let Some((next, qualifier)) = self.qualified_target(at.id) else {
                return Some(at);
            };
            at = ResolvedType {
                id: next,
                qualifiers: at.qualifiers | qualifier,
            };
        }
        let rest = match self.own_index(at.id) {
            Some(place) => *self.behind.get_or_init(|| self.resolve_all()).get(place)?,
            None => self.parent.as_deref()?.resolve_qualified(at.id),
        };
        rest.map(|rest| ResolvedType {
            qualifiers: at.qualifiers | rest.qualifiers,
            ..rest
        })
    }

    /// The target of a typedef or a qualifier, and the qualifier's bit.
    fn qualified_target(&self, id: TypeId) -> Option<(TypeId, u8)> {
        match self.get(id)?.kind {
            TypeKind::Typedef(to) => Some((to, 0)),
            TypeKind::Qualified(qualifier, to) => Some((to, qualifier.bit())),
            TypeKind::TypeTag { of, .. } => Some((of, 0)),
            _ => None,
        }
    }

    /// The type behind tags; no type if they are circular.
    fn untagged(&self, id: TypeId) -> TypeId {
        let mut at = id;
        for _ in 0..=self.types.len() {
            match self.get(at).map(|ty| &ty.kind) {
                Some(TypeKind::TypeTag { of, .. }) => at = *of,
                _ => return at,
            }
        }
        TypeId::NONE
    }

    /// The index of one of its own types.
    fn own_index(&self, id: TypeId) -> Option<usize> {
        let place = id.0.checked_sub(self.base().saturating_add(1))?;
        let place = usize::try_from(place).ok()?;
        (place < self.types.len()).then_some(place)
    }

    /// The resolved type of each of its own types, in order.
    fn resolve_all(&self) -> Vec<Option<ResolvedType>> {
        // A type being visited has no result yet: so circular types have none.
        let mut found: Vec<Option<Option<ResolvedType>>> = vec![None; self.types.len()];
        let mut way = Vec::new();
        for (id, _) in self.types() {
            let mut at = id;
            let mut behind = loop {
                let Some(own) = self.own_index(at).and_then(|place| found.get_mut(place)) else {
                    break match self.parent.as_deref() {
                        Some(parent) if at.0 <= self.base() => parent.resolve_qualified(at),
                        _ => Some(ResolvedType::new(at)),
                    };
                };
                if let Some(known) = *own {
                    break known;
                }
                *own = Some(None);
                match self.qualified_target(at) {
                    Some((next, qualifier)) => {
                        way.push((at, qualifier));
                        at = next;
                    }
                    None => {
                        way.push((at, 0));
                        break Some(ResolvedType::new(at));
                    }
                }
            };
            for (at, qualifier) in way.drain(..).rev() {
                if let Some(behind) = &mut behind {
                    behind.qualifiers |= qualifier;
                }
                if let Some(own) = self.own_index(at).and_then(|place| found.get_mut(place)) {
                    *own = Some(behind);
                }
            }
        }
        found.into_iter().map(Option::flatten).collect()
    }

    /// Calls a function once with each type reachable from some, including these.
    pub fn walk(&self, from: impl IntoIterator<Item = TypeId>, mut visit: impl FnMut(TypeId)) {
        let last = usize::try_from(self.last()).unwrap_or(usize::MAX);
        let mut seen = vec![false; last.saturating_add(1)];
        let mut open: Vec<_> = from.into_iter().collect();
        while let Some(id) = open.pop() {
            let Some(ty) = self.get(id) else { continue };
            let place = usize::try_from(id.0)
                .ok()
                .and_then(|index| seen.get_mut(index));
            if place.is_none_or(|seen| std::mem::replace(seen, true)) {
                continue;
            }
            visit(id);
            let first = open.len();
            ty.each_reference(|reference| open.push(reference));
            if let Some(new) = open.get_mut(first..) {
                new.reverse();
            }
        }
    }
}
