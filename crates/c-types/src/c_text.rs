//! Types as C text.

use std::fmt::{self, Display, Formatter};

use crate::graph::{Graph, Parameter, Tag, Type, TypeId, TypeKind};
use crate::layout::{Hole, MemberLayout};

/// The maximum length of a declaration in bytes. [`MAX_DECLARATORS`] limits the parts around its
/// name.
const MAX_DECLARATION_BYTES: usize = 1 << 12;
const MAX_DECLARATORS: usize = 64;
/// The maximum length of a definition in bytes: nested structures can multiply.
const MAX_DEFINITION_BYTES: usize = 1 << 18;

/// The minimum length of a line, in bytes.
const MIN_LINE_BYTES: usize = 16;

/// The remaining budget of a declaration, since functions with function parameters can multiply.
struct DeclarationBudget {
    steps: usize,
    /// The nesting of parameters.
    depth: usize,
}

/// The replacement for parts that are too long, or circular.
const TOO_LONG: &str = "/* … */";

impl Graph<'_> {
    /// A declaration in C of a name with a type; with an empty name the type itself, as in a cast.
    #[must_use]
    pub fn declare(&self, id: TypeId, name: &str) -> String {
        declare(
            self,
            id,
            name.to_owned(),
            &mut DeclarationBudget {
                steps: 1 << 10,
                depth: MAX_DECLARATORS,
            },
        )
    }

    /// The definition of a type in C, formatted by `{}`: for a structure or union each member with
    /// its offset and size, and the holes.
    #[must_use]
    pub fn define(&self, id: TypeId) -> Definition<'_> {
        Definition { graph: self, id }
    }
}

fn declare(
    graph: &Graph<'_>,
    mut id: TypeId,
    mut text: String,
    budget: &mut DeclarationBudget,
) -> String {
    let mut qualifiers: Vec<&str> = Vec::new();
    let mut tags = String::new();
    // Pointers bind less tightly than arrays and parameters.
    let mut is_pointer = false;
    for _ in 0..MAX_DECLARATORS {
        let is_short = text.len() <= MAX_DECLARATION_BYTES;
        let Some(steps) = budget.steps.checked_sub(1).filter(|_| is_short) else {
            break;
        };
        budget.steps = steps;
        let Some(ty) = graph.get(id) else {
            return join_specifiers(&qualifiers, "void /* not represented */", &text);
        };
        match &ty.kind {
            TypeKind::Qualified(qualifier, to) => {
                // An array and its elements can both have it; it is written once (C17 §6.7.3).
                let word = qualifier.keyword();
                if !qualifiers.contains(&word) {
                    qualifiers.push(word);
                }
                id = *to;
            }
            TypeKind::TypeTag { of, is_attribute } => {
                tags += &if *is_attribute {
                    format!(" __attribute__(({}))", ty.name)
                } else {
                    format!(" __attribute__((btf_type_tag(\"{}\")))", ty.name)
                };
                id = *of;
            }
            TypeKind::Pointer(to) => {
                text = format!("{}{text}", std::mem::take(&mut tags).trim_start());
                let space = if qualifiers.is_empty() || text.is_empty() {
                    ""
                } else {
                    " "
                };
                text = format!("*{}{space}{text}", qualifiers.join(" "));
                qualifiers.clear();
                is_pointer = true;
                id = *to;
            }
            TypeKind::Array { element, count, .. } => {
                text = format!("{}[{count}]", parenthesized(text, is_pointer));
                is_pointer = false;
                id = *element;
            }
            TypeKind::Function {
                returns,
                parameters,
                is_variadic,
            } => {
                let mut list: Vec<String> = Vec::new();
                let mut left = MAX_DECLARATION_BYTES.saturating_sub(text.len());
                for parameter in parameters {
                    let one = parameter_of(graph, parameter, budget);
                    left = left.saturating_sub(one.len() + 2);
                    if left == 0 {
                        list.push(TOO_LONG.to_owned());
                        break;
                    }
                    list.push(one);
                }
                if *is_variadic {
                    list.push("...".to_owned());
                }
                if list.is_empty() {
                    list.push("void".to_owned());
                }
                text = format!("{}({})", parenthesized(text, is_pointer), list.join(", "));
                qualifiers.clear();
                is_pointer = false;
                id = *returns;
            }
            TypeKind::Slice { of, bits, .. } => {
                text = format!("{text} : {bits}");
                id = *of;
            }
            _ => return join_specifiers(&qualifiers, &(base_name(ty) + &tags), &text),
        }
    }
    join_specifiers(&qualifiers, TOO_LONG, &text)
}

/// The declaration of a parameter.
fn parameter_of(
    graph: &Graph<'_>,
    parameter: &Parameter<'_>,
    budget: &mut DeclarationBudget,
) -> String {
    let Some(depth) = budget.depth.checked_sub(1) else {
        return TOO_LONG.to_owned();
    };
    budget.depth = depth;
    let declaration = declare(graph, parameter.ty, parameter.name.to_string(), budget);
    budget.depth += 1;
    declaration
}

fn parenthesized(text: String, is_pointer: bool) -> String {
    if is_pointer {
        format!("({text})")
    } else {
        text
    }
}

/// Qualifiers, a type, and the declarator.
fn join_specifiers(qualifiers: &[&str], base: &str, text: &str) -> String {
    let mut parts: Vec<&str> = qualifiers.to_vec();
    parts.push(base);
    if !text.is_empty() {
        parts.push(text);
    }
    parts.join(" ")
}

/// The name of a type that is not derived from another.
fn base_name(ty: &Type<'_>) -> String {
    let tagged = |tag: Tag| {
        if ty.name.is_empty() {
            format!("{} {{…}}", tag.keyword())
        } else {
            format!("{} {}", tag.keyword(), ty.name)
        }
    };
    match &ty.kind {
        TypeKind::Record { tag, .. } | TypeKind::Forward(tag) => tagged(*tag),
        TypeKind::Enum { .. } => tagged(Tag::Enum),
        _ if ty.name.is_empty() => "/* unknown */".to_owned(),
        _ => ty.name.to_string(),
    }
}

/// The definition of a type.
#[derive(Debug)]
pub struct Definition<'g> {
    graph: &'g Graph<'g>,
    id: TypeId,
}

impl Display for Definition<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let graph = self.graph;
        let Some(ty) = graph.get(self.id) else {
            return writeln!(f, "/* not represented */");
        };
        match &ty.kind {
            TypeKind::Record { .. } => {
                writeln!(f, "{} {{", base_tag(ty))?;
                let mut left = MAX_DEFINITION_BYTES;
                self.body(f, self.id, (1, 0), &mut left)?;
                let layout = graph.layout(self.id);
                let size = layout.as_ref().map_or(0, |layout| layout.size);
                let align = layout.as_ref().map_or(1, |layout| layout.align);
                let holes =
                    layout.map_or(0, |layout| layout.holes.iter().map(|hole| hole.bits).sum());
                write!(f, "}}; /* size {size}, align {align}")?;
                match holes {
                    0 => writeln!(f, " */"),
                    holes => writeln!(f, ", holes {} */", BitCount(holes)),
                }
            }
            TypeKind::Enum {
                size, enumerators, ..
            } => {
                writeln!(f, "{} {{", base_tag(ty))?;
                for enumerator in enumerators {
                    writeln!(f, "    {} = {},", enumerator.name, enumerator.value)?;
                }
                writeln!(f, "}}; /* size {size} */")
            }
            TypeKind::Typedef(to) => {
                let inner = graph.get(*to).filter(|ty| {
                    ty.name.is_empty()
                        && matches!(ty.kind, TypeKind::Record { .. } | TypeKind::Enum { .. })
                });
                match inner {
                    Some(_) => write!(f, "typedef … {};\n{}", ty.name, graph.define(*to)),
                    None => writeln!(f, "typedef {};", graph.declare(*to, &ty.name)),
                }
            }
            _ => match graph.size(self.id) {
                Some(size) => writeln!(f, "{}; /* size {size} */", graph.declare(self.id, "")),
                None => writeln!(f, "{};", graph.declare(self.id, "")),
            },
        }
    }
}

/// A keyword and its tag; for a type without tag only the keyword.
fn base_tag(ty: &Type<'_>) -> String {
    let word = match &ty.kind {
        TypeKind::Record { tag, .. } => tag.keyword(),
        _ => Tag::Enum.keyword(),
    };
    format!("{word} {}", ty.name).trim_end().to_owned()
}

impl Definition<'_> {
    /// The members, with the holes between them; also the members of unnamed ones.
    fn body(
        &self,
        f: &mut Formatter<'_>,
        id: TypeId,
        (depth, base): (usize, u64),
        left: &mut usize,
    ) -> fmt::Result {
        let Some(layout) = self.graph.layout(id).filter(|_| depth < MAX_DECLARATORS) else {
            return Ok(());
        };
        let mut holes = layout.holes.iter().peekable();
        for member in &layout.members {
            while let Some(hole) = holes.next_if(|hole| hole.offset < member.offset) {
                self.hole(f, *hole, depth)?;
            }
            let Some(rest) = left.checked_sub(MIN_LINE_BYTES) else {
                return writeln!(f, "{:1$}{TOO_LONG}", "", depth * 4);
            };
            *left = rest;
            self.member(f, member, (depth, base), left)?;
        }
        holes.try_for_each(|hole| self.hole(f, *hole, depth))
    }

    fn hole(&self, f: &mut Formatter<'_>, hole: Hole, depth: usize) -> fmt::Result {
        let what = if hole.is_padding { "padding" } else { "hole" };
        writeln!(
            f,
            "{:1$}/* {what}: {2} */",
            "",
            depth * 4,
            BitCount(hole.bits)
        )
    }

    fn member(
        &self,
        f: &mut Formatter<'_>,
        member: &MemberLayout<'_>,
        (depth, base): (usize, u64),
        left: &mut usize,
    ) -> fmt::Result {
        let at = base.saturating_add(member.offset);
        let place = match at % 8 {
            _ if member.is_bit_field => format!("{}:{}", at / 8, at % 8),
            0 => (at / 8).to_string(),
            bit => format!("{}:{bit}", at / 8),
        };
        let size = member.bits.map_or("?".to_owned(), |bits| {
            if member.is_bit_field {
                format!("{bits} bits")
            } else {
                BitCount(bits).to_string()
            }
        });
        let indent = depth * 4;
        let graph = self.graph;
        let inner = graph.get(member.ty).filter(|ty| ty.name.is_empty());
        if let Some(inner) = inner.filter(|ty| matches!(ty.kind, TypeKind::Record { .. })) {
            writeln!(f, "{:indent$}{} {{", "", base_tag(inner))?;
            self.body(f, member.ty, (depth + 1, at), left)?;
            let end = format!("}} {}", member.name);
            return writeln!(
                f,
                "{:indent$}{}; /* at {place}, {size} */",
                "",
                end.trim_end()
            );
        }
        let mut declaration = graph.declare(member.ty, &member.name);
        let ty = graph.get(member.ty).map(|ty| &ty.kind);
        // The declaration of a slice already has the width.
        if member.is_bit_field
            && !matches!(ty, Some(TypeKind::Slice { .. }))
            && let Some(bits) = member.bits
        {
            declaration.push_str(&format!(" : {bits}"));
        }
        declaration.push(';');
        *left = left.saturating_sub(declaration.len());
        let width = 44usize.saturating_sub(indent);
        writeln!(
            f,
            "{:indent$}{declaration:width$} /* at {place}, {size} */",
            ""
        )
    }
}

/// A number of bits, printed as bytes if they are whole.
struct BitCount(u64);

impl Display for BitCount {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0 / 8, self.0 % 8) {
            (1, 0) => write!(f, "1 byte"),
            (bytes, 0) => write!(f, "{bytes} bytes"),
            _ => write!(f, "{} bits", self.0),
        }
    }
}
