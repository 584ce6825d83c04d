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
    /// The nesting of parameters and bodies.
    depth: usize,
    bodies: Bodies,
}

/// Where the bodies of types without a name are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bodies {
    Nowhere,
    /// In parameters, but not of the declaration's own type.
    InParameters,
    Everywhere,
}

/// The replacement for the body of a type without a name.
const NO_BODY: &str = "{…}";

/// The replacement for parts that are too long, or circular.
const TOO_LONG: &str = "/* … */";

impl Graph<'_> {
    /// A declaration in C of a name with a type; with an empty name the type itself, as in a cast.
    #[must_use]
    pub fn declare(&self, id: TypeId, name: &str) -> String {
        self.declare_with(id, name, Bodies::Nowhere)
    }

    /// The same with the bodies of structures, unions and enumerations without a name:
    /// `int f(struct { int a; } *)`.
    #[must_use]
    pub fn declare_with_bodies(&self, id: TypeId, name: &str) -> String {
        self.declare_with(id, name, Bodies::Everywhere)
    }

    fn declare_with(&self, id: TypeId, name: &str, bodies: Bodies) -> String {
        let mut budget = DeclarationBudget {
            steps: 1 << 10,
            depth: MAX_DECLARATORS,
            bodies,
        };
        declare(self, id, name.to_owned(), &mut budget)
    }

    /// The type at the start of a declaration, if it has no name: that of the elements of arrays,
    /// of what pointers lead to, and of what functions return. Also whether a pointer or a function
    /// is between.
    fn unnamed_base(&self, mut id: TypeId) -> Option<(TypeId, bool)> {
        let mut is_behind = false;
        for _ in 0..MAX_DECLARATORS {
            let ty = self.get(id)?;
            match &ty.kind {
                TypeKind::Pointer(to) | TypeKind::Function { returns: to, .. } => {
                    is_behind = true;
                    id = *to;
                }
                TypeKind::Qualified(_, to)
                | TypeKind::TypeTag { of: to, .. }
                | TypeKind::Array { element: to, .. } => id = *to,
                TypeKind::Record { .. } | TypeKind::Enum { .. } if ty.name.is_empty() => {
                    return Some((id, is_behind));
                }
                _ => return None,
            }
        }
        None
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
            _ => {
                let base = match body(graph, ty, budget) {
                    Some(body) => base_name(ty).replace(NO_BODY, &body),
                    None => base_name(ty),
                };
                return join_specifiers(&qualifiers, &(base + &tags), &text);
            }
        }
    }
    join_specifiers(&qualifiers, TOO_LONG, &text)
}

/// The body of a type without a name, on one line, where bodies are wanted.
fn body(graph: &Graph<'_>, ty: &Type<'_>, budget: &mut DeclarationBudget) -> Option<String> {
    let is_wanted = match budget.bodies {
        Bodies::Nowhere => false,
        Bodies::InParameters => budget.depth < MAX_DECLARATORS,
        Bodies::Everywhere => true,
    };
    let depth = budget.depth.checked_sub(1);
    let depth = depth.filter(|_| is_wanted && ty.name.is_empty())?;
    let parts: Vec<String> = match &ty.kind {
        TypeKind::Record { members, .. } => {
            budget.depth = depth;
            let mut parts = Vec::new();
            let mut left = MAX_DECLARATION_BYTES;
            for member in members {
                let mut part = declare(graph, member.ty, member.name.to_string(), budget);
                if let Some(bits) = member.bits {
                    part += &format!(" : {bits}");
                }
                left = left.saturating_sub(part.len());
                if left == 0 || budget.steps == 0 {
                    parts.push(TOO_LONG.to_owned());
                    break;
                }
                parts.push(part + ";");
            }
            budget.depth += 1;
            parts
        }
        TypeKind::Enum { enumerators, .. } => {
            let all = enumerators.iter().take(MAX_DECLARATORS);
            let mut parts: Vec<_> = all
                .map(|one| format!("{} = {},", one.name, one.value))
                .collect();
            if parts.len() < enumerators.len() {
                parts.push(TOO_LONG.to_owned());
            }
            parts
        }
        _ => return None,
    };
    Some(format!("{{ {} }}", parts.join(" ")))
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
            format!("{} {NO_BODY}", tag.keyword())
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
                write!(f, "}}")?;
                self.end(f, self.id)
            }
            TypeKind::Enum { enumerators, .. } => {
                writeln!(f, "{} {{", base_tag(ty))?;
                for enumerator in enumerators {
                    writeln!(f, "    {} = {},", enumerator.name, enumerator.value)?;
                }
                write!(f, "}}")?;
                self.end(f, self.id)
            }
            TypeKind::Typedef(to) => {
                let text = graph.declare_with(*to, &ty.name, Bodies::InParameters);
                let mut left = MAX_DEFINITION_BYTES;
                write!(f, "typedef ")?;
                self.with_body(f, *to, &text, (0, 0), &mut left)?;
                match graph.unnamed_base(*to) {
                    Some(_) => self.end(f, *to),
                    None => writeln!(f, ";"),
                }
            }
            _ => {
                write!(f, "{}", graph.declare(self.id, ""))?;
                self.end(f, self.id)
            }
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
    /// The end of a definition, with the type's size, and a structure's alignment and holes.
    fn end(&self, f: &mut Formatter<'_>, id: TypeId) -> fmt::Result {
        let Some(size) = self.graph.size(id) else {
            return writeln!(f, ";");
        };
        write!(f, "; /* size {size}")?;
        if let Some(layout) = self.graph.layout(id) {
            write!(f, ", align {}", layout.align)?;
            match layout.holes.iter().map(|hole| hole.bits).sum() {
                0 => {}
                holes => write!(f, ", holes {}", BitCount(holes))?,
            }
        }
        writeln!(f, " */")
    }

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
        let mut text = graph.declare_with(member.ty, &member.name, Bodies::InParameters);
        let ty = graph.get(member.ty).map(|ty| &ty.kind);
        // The declaration of a slice already has the width.
        if member.is_bit_field
            && !matches!(ty, Some(TypeKind::Slice { .. }))
            && let Some(bits) = member.bits
        {
            text.push_str(&format!(" : {bits}"));
        }
        *left = left.saturating_sub(text.len());
        write!(f, "{:indent$}", "")?;
        if graph.unnamed_base(member.ty).is_some() {
            self.with_body(f, member.ty, &text, (depth, at), left)?;
            return writeln!(f, "; /* at {place}, {size} */");
        }
        text.push(';');
        let width = 44usize.saturating_sub(indent);
        writeln!(f, "{text:width$} /* at {place}, {size} */")
    }

    /// A declaration. If its type has no name, its body is written; offsets behind pointers begin
    /// at 0.
    fn with_body(
        &self,
        f: &mut Formatter<'_>,
        ty: TypeId,
        text: &str,
        (depth, at): (usize, u64),
        left: &mut usize,
    ) -> fmt::Result {
        let base = self.graph.unnamed_base(ty);
        let (Some((id, is_behind)), Some((before, after))) = (base, text.split_once(NO_BODY))
        else {
            return write!(f, "{text}");
        };
        writeln!(f, "{before}{{")?;
        let at = if is_behind { 0 } else { at };
        match self.graph.get(id).map(|ty| &ty.kind) {
            Some(TypeKind::Enum { enumerators, .. }) => {
                for one in enumerators {
                    let indent = (depth + 1) * 4;
                    let line = format!("{} = {},", one.name, one.value);
                    let Some(rest) = left.checked_sub(line.len()) else {
                        writeln!(f, "{:indent$}{TOO_LONG}", "")?;
                        break;
                    };
                    *left = rest;
                    writeln!(f, "{:indent$}{line}", "")?;
                }
            }
            _ => self.body(f, id, (depth + 1, at), left)?,
        }
        write!(f, "{:1$}}}{after}", "", depth * 4)
    }
}

/// A graph as C: its named types, then its functions, data and variables. Control characters in names
/// are escaped.
#[derive(Debug, Clone, Copy)]
pub struct Declarations<'g, 'a>(pub &'g Graph<'a>);

impl Display for Declarations<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let graph = self.0.with_escaped_names();
        for (id, ty) in graph.types() {
            let is_defined = matches!(
                ty.kind,
                TypeKind::Record { .. } | TypeKind::Enum { .. } | TypeKind::Typedef(_)
            );
            if is_defined && !ty.name.is_empty() {
                writeln!(f, "{}", graph.define(id))?;
            }
        }
        let lists = [
            ("functions", &graph.functions),
            ("data", &graph.objects),
            ("variables", &graph.variables),
        ];
        for (what, symbols) in lists {
            if !symbols.is_empty() {
                writeln!(f, "/* {what} */")?;
            }
            for symbol in symbols {
                let declared = graph.declare_with_bodies(symbol.ty, &symbol.name);
                writeln!(f, "{declared};")?;
            }
        }
        Ok(())
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
