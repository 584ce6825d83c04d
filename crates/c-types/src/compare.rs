//! Comparing types of two graphs.

use std::fmt::{self, Display, Formatter};

use hashbrown::HashSet;

use crate::graph::{Graph, Member, Number, Tag, Type, TypeId, TypeKind};

/// The strictness of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// Everything: names of types, qualifiers.
    Same,
    /// The agreement that two modules need to pass such values to each other: sizes, offsets, names
    /// of members, kinds of numbers, and the same for all pointed-to types. Typedef names and
    /// qualifiers do not count.
    Abi,
}

/// The first difference of two types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeDifference {
    /// The path in the type: `.next->flags`, with `[]` for elements, `()` for the return value and
    /// `(1)` for the first parameter. Empty for the type itself.
    pub path: String,
    /// The two different properties.
    pub message: String,
}

impl Display for TypeDifference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

impl Graph<'_> {
    /// Whether a type agrees with one of another graph, including all reachable types. A forward
    /// agrees with every type of its tag, since nothing else is known. Cycles end: a pair of types
    /// is compared once.
    ///
    /// # Errors
    ///
    /// The first [`TypeDifference`].
    pub fn agrees(
        &self,
        id: TypeId,
        other: &Self,
        other_id: TypeId,
        agreement: Agreement,
    ) -> Result<(), TypeDifference> {
        let mut comparison = TypeComparison {
            graphs: (self, other),
            agreement,
            visited: HashSet::new(),
            worklist: vec![(id, other_id, 0)],
            steps: vec![(0, String::new())],
        };
        while let Some((one, two, step)) = comparison.worklist.pop() {
            comparison
                .pair(one, two, step)
                .map_err(|what| TypeDifference {
                    path: comparison.path(step),
                    message: what,
                })?;
        }
        Ok(())
    }
}

struct TypeComparison<'g, 'a> {
    graphs: (&'g Graph<'a>, &'g Graph<'a>),
    agreement: Agreement,
    visited: HashSet<(TypeId, TypeId)>,
    worklist: Vec<(TypeId, TypeId, usize)>,
    /// The path to each pair: the previous pair, and the step from it.
    steps: Vec<(usize, String)>,
}

/// Checks that two properties are equal.
fn same<T: PartialEq + Display + Copy>(what: &str, one: T, two: T) -> Result<(), String> {
    if one == two {
        Ok(())
    } else {
        Err(format!("{what} {one} and {two}"))
    }
}

impl<'g> TypeComparison<'g, '_> {
    /// The path to a pair of types.
    fn path(&self, mut step: usize) -> String {
        let mut parts = Vec::new();
        while let Some((from, part)) = self.steps.get(step).filter(|_| step != 0) {
            parts.push(part.as_str());
            step = *from;
        }
        parts.into_iter().rev().collect()
    }

    /// Queues the two types that a step reaches.
    fn queue(&mut self, from: usize, step: impl Into<String>, one: TypeId, two: TypeId) {
        self.steps.push((from, step.into()));
        self.worklist.push((one, two, self.steps.len() - 1));
    }

    /// The types without their parts that do not count.
    fn resolved(&self, one: TypeId, two: TypeId) -> (TypeId, TypeId) {
        match self.agreement {
            Agreement::Same => (one, two),
            Agreement::Abi => (
                self.graphs.0.resolve(one).unwrap_or_default(),
                self.graphs.1.resolve(two).unwrap_or_default(),
            ),
        }
    }

    fn pair(&mut self, one: TypeId, two: TypeId, at: usize) -> Result<(), String> {
        let (one, two) = self.resolved(one, two);
        if !self.visited.insert((one, two)) {
            return Ok(());
        }
        let graphs = self.graphs;
        match (graphs.0.get(one), graphs.1.get(two)) {
            (Some(one), Some(two)) => self.types(one, two, at),
            (None, None) => Ok(()),
            (Some(one), None) => Err(format!("{} and no type", noun(one))),
            (None, Some(two)) => Err(format!("no type and {}", noun(two))),
        }
    }

    fn types(&mut self, one: &'g Type<'_>, two: &'g Type<'_>, at: usize) -> Result<(), String> {
        if let (Some(tag), Some(other)) = (one.tag(), two.tag())
            && (matches!(one.kind, TypeKind::Forward(_))
                || matches!(two.kind, TypeKind::Forward(_)))
        {
            same("tag", tag.keyword(), other.keyword())?;
            return same("tag", one.own_name(), two.own_name());
        }
        if self.agreement == Agreement::Same || one.tag().is_some() {
            same("name", one.own_name(), two.own_name())?;
        }
        match (&one.kind, &two.kind) {
            (TypeKind::Unknown, TypeKind::Unknown) => Ok(()),
            (TypeKind::Integer(one), TypeKind::Integer(two))
            | (TypeKind::Float(one), TypeKind::Float(two)) => self.numbers(*one, *two),
            (TypeKind::Pointer(one), TypeKind::Pointer(two)) => {
                self.queue(at, "->", *one, *two);
                Ok(())
            }
            (TypeKind::Typedef(one), TypeKind::Typedef(two))
            | (TypeKind::TypeTag { of: one, .. }, TypeKind::TypeTag { of: two, .. }) => {
                self.queue(at, "", *one, *two);
                Ok(())
            }
            (TypeKind::Qualified(qualifier, one), TypeKind::Qualified(other, two)) => {
                self.queue(at, "", *one, *two);
                same("qualifier", qualifier.keyword(), other.keyword())
            }
            (
                TypeKind::Array { element, count, .. },
                TypeKind::Array {
                    element: other,
                    count: others,
                    ..
                },
            ) => {
                self.queue(at, "[]", *element, *other);
                same("number of elements", count, others)
            }
            (
                TypeKind::Slice {
                    of,
                    size,
                    offset,
                    bits,
                },
                TypeKind::Slice {
                    of: other,
                    size: size2,
                    offset: offset2,
                    bits: bits2,
                },
            ) => {
                self.queue(at, "", *of, *other);
                same("width in bits", bits, bits2)?;
                same("offset in bits", offset, offset2)?;
                same("size", size, size2)
            }
            (TypeKind::Function { .. }, TypeKind::Function { .. }) => self.functions(one, two, at),
            (TypeKind::Record { .. }, TypeKind::Record { .. }) => self.records(one, two, at),
            (TypeKind::Enum { .. }, TypeKind::Enum { .. }) => enums(one, two),
            _ => Err(format!("{} and {}", noun(one), noun(two))),
        }
    }

    fn numbers(&self, one: Number, two: Number) -> Result<(), String> {
        same("size", one.size, two.size)?;
        same("width in bits", one.bits, two.bits)?;
        same("offset in bits", one.offset, two.offset)?;
        same("format", one.format, two.format)
    }

    fn functions(&mut self, one: &Type<'_>, two: &Type<'_>, at: usize) -> Result<(), String> {
        let (
            TypeKind::Function {
                returns,
                parameters,
                is_variadic,
            },
            TypeKind::Function {
                returns: other,
                parameters: others,
                is_variadic: varies,
            },
        ) = (&one.kind, &two.kind)
        else {
            return Ok(());
        };
        same("number of parameters", parameters.len(), others.len())?;
        same("more parameters", is_variadic, varies)?;
        for (nth, (one, two)) in (1..).zip(parameters.iter().zip(others)) {
            self.queue(at, format!("({nth})"), one.ty, two.ty);
        }
        self.queue(at, "()", *returns, *other);
        Ok(())
    }

    fn records(&mut self, one: &Type<'_>, two: &Type<'_>, at: usize) -> Result<(), String> {
        let (
            TypeKind::Record { tag, size, members },
            TypeKind::Record {
                tag: other,
                size: others,
                members: more,
            },
        ) = (&one.kind, &two.kind)
        else {
            return Ok(());
        };
        same("kind", tag.keyword(), other.keyword())?;
        for (one, two) in members.iter().zip(more) {
            member(one, two)?;
        }
        same("number of members", members.len(), more.len())?;
        same("size", size, others)?;
        for (one, two) in members.iter().zip(more).rev() {
            self.queue(at, format!(".{}", one.name), one.ty, two.ty);
        }
        Ok(())
    }
}

fn member(one: &Member<'_>, two: &Member<'_>) -> Result<(), String> {
    same("member", &*one.name, &*two.name)?;
    let name = &one.name;
    same(&format!("offset in bits of {name}"), one.offset, two.offset)?;
    same(
        &format!("width in bits of {name}"),
        one.bits.unwrap_or(0),
        two.bits.unwrap_or(0),
    )
}

fn enums(one: &Type<'_>, two: &Type<'_>) -> Result<(), String> {
    let (
        TypeKind::Enum {
            size, enumerators, ..
        },
        TypeKind::Enum {
            size: other,
            enumerators: others,
            ..
        },
    ) = (&one.kind, &two.kind)
    else {
        return Ok(());
    };
    for (one, two) in enumerators.iter().zip(others) {
        same("enumerator", &*one.name, &*two.name)?;
        same(&format!("value of {}", one.name), one.value, two.value)?;
    }
    same("number of enumerators", enumerators.len(), others.len())?;
    same("size", size, other)
}

impl Type<'_> {
    /// Whether two types are equal, ignoring the referenced types and whether names are hidden.
    pub(crate) fn equals_shallow(&self, other: &Type<'_>) -> bool {
        let is_same = match (&self.kind, &other.kind) {
            (TypeKind::Unknown, TypeKind::Unknown)
            | (TypeKind::Pointer(_), TypeKind::Pointer(_))
            | (TypeKind::Typedef(_), TypeKind::Typedef(_)) => true,
            (TypeKind::Integer(one), TypeKind::Integer(two))
            | (TypeKind::Float(one), TypeKind::Float(two)) => one == two,
            (TypeKind::Qualified(one, _), TypeKind::Qualified(two, _)) => one == two,
            (
                TypeKind::TypeTag { is_attribute, .. },
                TypeKind::TypeTag {
                    is_attribute: other,
                    ..
                },
            ) => is_attribute == other,
            (TypeKind::Forward(one), TypeKind::Forward(two)) => one == two,
            (TypeKind::Array { count: one, .. }, TypeKind::Array { count: two, .. }) => one == two,
            (
                TypeKind::Function {
                    parameters: one,
                    is_variadic,
                    ..
                },
                TypeKind::Function {
                    parameters: two,
                    is_variadic: other_variadic,
                    ..
                },
            ) => {
                (is_variadic, one.len()) == (other_variadic, two.len())
                    && one
                        .iter()
                        .zip(two)
                        .all(|(one, two)| is_same_name(&one.name, &two.name))
            }
            (
                TypeKind::Record { tag, size, members },
                TypeKind::Record {
                    tag: other_tag,
                    size: other_size,
                    members: others,
                },
            ) => {
                (tag, size, members.len()) == (other_tag, other_size, others.len())
                    && members.iter().zip(others).all(|(one, two)| {
                        (one.offset, one.bits) == (two.offset, two.bits)
                            && is_same_name(&one.name, &two.name)
                    })
            }
            (
                TypeKind::Enum {
                    size,
                    is_signed,
                    enumerators,
                },
                TypeKind::Enum {
                    size: other_size,
                    is_signed: other_signed,
                    enumerators: others,
                },
            ) => (size, is_signed, enumerators) == (other_size, other_signed, others),
            (
                TypeKind::Slice {
                    size, offset, bits, ..
                },
                TypeKind::Slice {
                    size: other_size,
                    offset: other_offset,
                    bits: other_bits,
                    ..
                },
            ) => (size, offset, bits) == (other_size, other_offset, other_bits),
            _ => false,
        };
        is_same && is_same_name(self.own_name(), other.own_name())
    }
}

/// Whether names are equal. Most names are empty, so that case avoids a call.
fn is_same_name(one: &str, two: &str) -> bool {
    one.len() == two.len() && (one.is_empty() || one == two)
}

/// The kind of a type, in C's terms.
fn noun(ty: &Type<'_>) -> String {
    let word = match &ty.kind {
        TypeKind::Unknown => "an unknown type",
        TypeKind::Integer(_) => "an integer",
        TypeKind::Float(_) => "a floating-point number",
        TypeKind::Pointer(_) => "a pointer",
        TypeKind::Array { .. } => "an array",
        TypeKind::Function { .. } => "a function",
        TypeKind::Record {
            tag: Tag::Union, ..
        } => "a union",
        TypeKind::Record { .. } => "a structure",
        TypeKind::Enum { .. } => "an enumeration",
        TypeKind::Forward(_) => "a forward",
        TypeKind::Typedef(_) => "another name",
        TypeKind::TypeTag { .. } => "a type with a tag",
        TypeKind::Qualified(qualifier, _) => qualifier.keyword(),
        TypeKind::Slice { .. } => "a bit-field",
    };
    match ty.own_name() {
        "" => word.to_owned(),
        name => format!("{word} ({name})"),
    }
}
