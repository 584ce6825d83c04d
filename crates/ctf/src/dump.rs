//! A dictionary in the lines of `objdump --ctf` (GNU binutils 2.40), so that two readings can be compared line by line.
//!
//! What that program says differently from what is so is said here as it says it: an enumeration has 4 bytes, a structure is aligned as its first member,
//! and names of types are put together by its rules, which are not always C.

use std::fmt::{self, Display, Formatter};

use hashbrown::HashSet;

use crate::dict::Dict;
use crate::graph::{Graph, Kind, Number, Qualifier, Symbol, Tag, Type, TypeId};
use crate::header::{Flags, Version};
use crate::read::Reading;

/// Nothing is nested deeper than this, unless it contains itself.
const DEEPEST: usize = 64;
/// The members of no type take more than this, in bytes: structures within structures can multiply.
const MOST: usize = 1 << 20;
/// No name of a type gets much longer than this, in bytes: functions that take functions can multiply.
const LONGEST: usize = 1 << 12;

/// A member of an archive, to be written by `{}`.
#[derive(Debug)]
pub struct Dump<'d> {
    /// The dictionary.
    pub dict: &'d Dict<'d>,
    /// What was read of it.
    pub reading: &'d Reading<'d>,
}

impl Display for Dump<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  Header:")?;
        self.header(f)?;
        writeln!(f, "\n  Labels:")?;
        for label in self.dict.labels().flatten() {
            let id = TypeId(label.last);
            writeln!(
                f,
                "    {} -> {}",
                label.name,
                self.line(id, References::Shown)
            )?;
        }
        let graph = &self.reading.graph;
        self.symbols(f, "Data objects", &graph.objects)?;
        self.symbols(f, "Function objects", &graph.functions)?;
        self.symbols(f, "Variables", &graph.variables)?;
        writeln!(f, "\n  Types:")?;
        for (id, ty) in graph.types() {
            self.ty(f, id, ty)?;
        }
        writeln!(f, "\n  Strings:")?;
        for (offset, string) in self.dict.strings() {
            writeln!(f, "    {offset:#x}: {string}")?;
        }
        Ok(())
    }
}

/// Whether the types that a type refers to stand behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum References {
    Shown,
    /// Not shown: the type is that of a member.
    Hidden,
}

impl<'d> Dump<'d> {
    fn header(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = self.dict.header();
        writeln!(f, "    Magic number: {:#x}", crate::header::MAGIC)?;
        let version = match header.version {
            Version::V1 => "CTF_VERSION_1",
            Version::V1Upgraded => {
                "CTF_VERSION_1_UPGRADED_3 (latest format, version 1 type boundaries)"
            }
            Version::V2 => "CTF_VERSION_2",
            Version::V3 => "CTF_VERSION_3",
        };
        writeln!(f, "    Version: {} ({version})", header.version.byte())?;
        if header.flags.0 != 0 {
            writeln!(
                f,
                "    Flags: {:#x} ({})",
                header.flags.0,
                flag_names(header.flags)
            )?;
        }
        let names = [
            ("Parent label", self.dict.parent_label()),
            ("Parent name", self.dict.parent_name()),
            ("Compilation unit name", self.dict.unit_name()),
        ];
        for (what, name) in names {
            if let Some(name) = name {
                writeln!(f, "    {what}: {name}")?;
            }
        }
        for (part, range, _) in header.parts() {
            let (start, end) = (range.start, range.end);
            // The string section is said to be one byte longer than it is.
            let end = if part == "string section" {
                end.saturating_add(1)
            } else {
                end
            };
            if let Some(size) = end.checked_sub(start).filter(|size| *size > 0) {
                let mut letters = part.chars();
                let first = letters.next().unwrap_or_default().to_ascii_uppercase();
                let rest = letters.as_str();
                writeln!(
                    f,
                    "    {first}{rest}:\t{start:#x} -- {:#x} ({size:#x} bytes)",
                    end - 1
                )?;
            }
        }
        Ok(())
    }

    fn symbols(&self, f: &mut Formatter<'_>, title: &str, symbols: &[Symbol<'_>]) -> fmt::Result {
        writeln!(f, "\n  {title}:")?;
        for symbol in symbols {
            writeln!(
                f,
                "    {} -> {}",
                symbol.name,
                self.line(symbol.ty, References::Shown)
            )?;
        }
        Ok(())
    }

    /// A type, its members or enumerators.
    fn ty(&self, f: &mut Formatter<'_>, id: TypeId, ty: &Type<'_>) -> fmt::Result {
        let number = format!("{:x}", self.shown_id(id));
        let indent = format!("    {:1$}", "", number.len());
        writeln!(f, "    {}", self.line(id, References::Shown))?;
        // A slice of an enumeration is shown with its constants.
        let shown = match ty.kind {
            Kind::Slice { of, .. } => self.graph().get(of).unwrap_or(ty),
            _ => ty,
        };
        match &shown.kind {
            Kind::Record { .. } => self.members(f, ty, &mut Nesting::new(format!("    {indent}"))),
            Kind::Enum { enumerators, .. } => {
                let count = enumerators.len();
                // Of a long list it shows the first five and the last five, but all of that of a slice.
                let is_long = count > 10 && std::ptr::eq(shown, ty);
                for (index, enumerator) in (1..).zip(enumerators) {
                    if is_long && index > 5 && index + 4 < count {
                        continue;
                    }
                    writeln!(f, "    {indent}{}: {}", enumerator.name, enumerator.value)?;
                    if is_long && index == 5 {
                        writeln!(f, "    {indent}...")?;
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The members, and those of members that are structures.
    fn members(&self, f: &mut Formatter<'_>, ty: &Type<'_>, nesting: &mut Nesting) -> fmt::Result {
        let Kind::Record { members, .. } = &ty.kind else {
            return Ok(());
        };
        let graph = self.graph();
        for member in members {
            let offset = nesting.base.saturating_add(member.offset);
            if nesting.left == 0 || nesting.depth == DEEPEST {
                return Ok(());
            }
            let line = self.line(member.ty, References::Hidden);
            nesting.left = nesting.left.saturating_sub(line.len());
            let (indent, depth) = (&nesting.indent, nesting.depth * 4);
            writeln!(
                f,
                "{indent}{:depth$}[{offset:#x}] {}: {line}",
                "", member.name
            )?;
            if let Some(inner) = graph.resolve(member.ty).and_then(|id| graph.get(id)) {
                let base = std::mem::replace(&mut nesting.base, offset);
                nesting.depth += 1;
                self.members(f, inner, nesting)?;
                nesting.depth -= 1;
                nesting.base = base;
            }
        }
        Ok(())
    }

    fn graph(&self) -> &Graph<'d> {
        &self.reading.graph
    }

    /// The id as the file has it.
    fn shown_id(&self, id: TypeId) -> u32 {
        let base = self.graph().base();
        match self.dict.header().is_child() && id.0 > base {
            true => (id.0 - base) | self.dict.header().version.child_bit(),
            false => id.0,
        }
    }

    /// A type and, if wanted, those that it refers to.
    fn line(&self, id: TypeId, references: References) -> String {
        const NONE: &str = "(type not represented in CTF)";
        let mut line = String::new();
        let mut at = id;
        for _ in 0..DEEPEST {
            let Some(ty) = self.graph().get(at) else {
                return if line.is_empty() {
                    format!(" {NONE}")
                } else {
                    line + " " + NONE
                };
            };
            self.one(&mut line, at, ty, references);
            let next = match &ty.kind {
                Kind::Array { element, .. } => *element,
                Kind::Pointer(to)
                | Kind::Typedef(to)
                | Kind::Qualified(_, to)
                | Kind::Slice { of: to, .. } => *to,
                _ => break,
            };
            if references == References::Hidden {
                break;
            }
            line.push_str(" -> ");
            at = next;
        }
        line
    }

    fn one(&self, line: &mut String, id: TypeId, ty: &Type<'_>, references: References) {
        let word = match references {
            References::Shown => "",
            References::Hidden => "ID ",
        };
        let id_text = self.shown_id(id);
        let kind = self.kind_number(ty);
        let name = name(
            self.graph(),
            id,
            &mut Limits {
                left: LONGEST,
                depth: DEEPEST,
            },
        );
        line.push_str(&format!("{word}{id_text:#x}: (kind {kind}) {name}"));
        let size = self.size(id);
        if let Some((number, is_slice)) = self.encoding(ty) {
            let bits = u64::from(number.bits);
            let is_partial = size.is_none_or(|size| size.saturating_mul(8) != bits);
            if is_partial && references == References::Hidden {
                line.push_str(&format!(":{bits}"));
            }
            if is_partial || number.offset != 0 {
                let slice = if is_slice { "slice " } else { "" };
                line.push_str(&format!(" [{slice}{:#x}:{bits:#x}]", number.offset));
            }
            line.push_str(&format!(" (format {:#x})", number.format));
        }
        if let Some(size) = size.filter(|_| kind != 5) {
            line.push_str(&format!(" (size {size:#x})"));
        }
        if let Some(align) = self.align(id, &mut HashSet::new()) {
            line.push_str(&format!(" (aligned at {align:#x})"));
        }
    }

    fn kind_number(&self, ty: &Type<'_>) -> u8 {
        use crate::record::kind;
        match &ty.kind {
            Kind::Unknown => kind::UNKNOWN,
            Kind::Integer(_) => kind::INTEGER,
            Kind::Float(_) => kind::FLOAT,
            Kind::Pointer(_) => kind::POINTER,
            Kind::Array { .. } => kind::ARRAY,
            Kind::Function { .. } => kind::FUNCTION,
            Kind::Record { tag, .. } if *tag == Tag::Union => kind::UNION,
            Kind::Record { .. } => kind::STRUCT,
            Kind::Enum { .. } => kind::ENUM,
            Kind::Forward(_) => kind::FORWARD,
            Kind::Typedef(_) => kind::TYPEDEF,
            Kind::Qualified(Qualifier::Volatile, _) => kind::VOLATILE,
            Kind::Qualified(Qualifier::Const, _) => kind::CONST,
            Kind::Qualified(Qualifier::Restrict, _) => kind::RESTRICT,
            // A slice counts as what it is a part of.
            Kind::Slice { of, .. } => match self.graph().get(*of) {
                Some(inner) if !matches!(inner.kind, Kind::Slice { .. }) => self.kind_number(inner),
                _ => kind::SLICE,
            },
        }
    }

    /// How the bits of a number are taken, and whether it is a slice.
    fn encoding(&self, ty: &Type<'_>) -> Option<(Number, bool)> {
        match ty.kind {
            Kind::Integer(number) | Kind::Float(number) => Some((number, false)),
            Kind::Slice {
                of,
                offset,
                bits,
                size,
            } => {
                let inner = self.graph().get(self.graph().resolve(of)?)?;
                let format = match inner.kind {
                    Kind::Integer(number) | Kind::Float(number) => number.format,
                    Kind::Enum { .. } => Number::SIGNED,
                    _ => return None,
                };
                let offset = u8::try_from(offset).unwrap_or(u8::MAX);
                Some((
                    Number {
                        size,
                        format,
                        offset,
                        bits,
                    },
                    true,
                ))
            }
            _ => None,
        }
    }

    fn size(&self, id: TypeId) -> Option<u64> {
        let graph = self.graph();
        match graph.get(graph.resolve(id)?)?.kind {
            Kind::Enum { .. } => Some(4),
            Kind::Function { .. } => Some(0),
            Kind::Array { element, count, .. } => self.size_of_array(element, count),
            _ => graph.size(id),
        }
    }

    fn size_of_array(&self, mut element: TypeId, mut count: u64) -> Option<u64> {
        let graph = self.graph();
        for _ in 0..DEEPEST {
            match graph.get(graph.resolve(element)?)?.kind {
                Kind::Enum { .. } => return count.checked_mul(4),
                Kind::Function { .. } => return Some(0),
                Kind::Array {
                    element: inner,
                    count: more,
                    ..
                } => {
                    element = inner;
                    count = count.checked_mul(more)?;
                }
                _ => return graph.size(element)?.checked_mul(count),
            }
        }
        None
    }

    fn align(&self, id: TypeId, seen: &mut HashSet<TypeId>) -> Option<u64> {
        let graph = self.graph();
        let id = graph.resolve(id)?;
        if !seen.insert(id) {
            return Some(0); // it counts already
        }
        match &graph.get(id)?.kind {
            Kind::Pointer(_) | Kind::Function { .. } => Some(graph.pointer_size),
            Kind::Array { element, .. } => self.align(*element, seen),
            Kind::Enum { .. } => Some(4),
            Kind::Record { tag, members, .. } => {
                let counted = if *tag == Tag::Struct {
                    1
                } else {
                    members.len()
                };
                let mut most = 0;
                for member in members.iter().take(counted) {
                    if seen.len() > DEEPEST {
                        return None;
                    }
                    most = most.max(self.align(member.ty, seen)?);
                }
                Some(most)
            }
            _ => graph.size(id),
        }
    }
}

/// Where in a type members are shown.
struct Nesting {
    indent: String,
    /// The offset of the structure in the outermost one, in bits.
    base: u64,
    depth: usize,
    /// How many bytes may still be shown.
    left: usize,
}

impl Nesting {
    fn new(indent: String) -> Nesting {
        Nesting {
            indent,
            base: 0,
            depth: 0,
            left: MOST,
        }
    }
}

/// The names of flags, with the commas that objdump has: one too many if only the third is missing.
fn flag_names(flags: Flags) -> String {
    let names = [
        (Flags::COMPRESSED, "CTF_F_COMPRESS"),
        (Flags::NEW_FUNCTION_INFO, "CTF_F_NEWFUNCINFO"),
        (Flags::INDEX_SORTED, "CTF_F_IDXSORTED"),
        (Flags::DYNSTR, "CTF_F_DYNSTR"),
    ];
    let mut text = String::new();
    for (flag, name) in names {
        let is_set = flags.has(flag);
        if is_set {
            text.push_str(name);
        }
        let has_more = flags.0 >= flag.0 << 1;
        if has_more && (is_set || flag == Flags::INDEX_SORTED) {
            text.push_str(", ");
        }
    }
    text
}

/// The places that parts of a declaration have in a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Base,
    Pointer,
    Array,
    Function,
}

/// The parts of a name, each list in its order.
#[derive(Default)]
struct Parts {
    lists: [Vec<TypeId>; 4],
    /// In which order places were come to, from the innermost type.
    order: Vec<Place>,
}

impl Parts {
    fn list(&mut self, place: Place) -> Option<&mut Vec<TypeId>> {
        self.lists.get_mut(place as usize)
    }

    fn rank(&self, place: Place) -> Option<usize> {
        self.order.iter().position(|other| *other == place)
    }

    /// The parts of a type: the chain from it to its innermost type, taken from that end.
    fn of(graph: &Graph<'_>, id: TypeId) -> Option<Parts> {
        let mut chain = Vec::new();
        let mut next = Some(id);
        for _ in 0..DEEPEST {
            let Some(id) = next else { break };
            let ty = graph.get(id)?;
            let (is_shown, inner) = match &ty.kind {
                Kind::Slice { of, .. } => (false, Some(*of)),
                Kind::Typedef(to) if ty.name.is_empty() => (false, Some(*to)),
                Kind::Array { element: to, .. }
                | Kind::Function { returns: to, .. }
                | Kind::Pointer(to)
                | Kind::Qualified(_, to) => (true, Some(*to)),
                _ => (true, None),
            };
            if is_shown {
                chain.push((id, ty));
            }
            next = inner;
        }
        if next.is_some() {
            return None; // it leads in a circle
        }
        let mut parts = Parts::default();
        let mut qualified = Place::Base;
        for (id, ty) in chain.into_iter().rev() {
            let place = match ty.kind {
                Kind::Array { .. } => Place::Array,
                Kind::Function { .. } => Place::Function,
                Kind::Pointer(_) => Place::Pointer,
                Kind::Qualified(..) => qualified,
                _ => Place::Base,
            };
            if parts.rank(place).is_none() {
                parts.order.push(place);
            }
            if place == Place::Pointer {
                qualified = Place::Pointer;
            }
            let is_first = matches!(ty.kind, Kind::Qualified(..)) && place == Place::Base;
            let list = parts.list(place)?;
            let at = if is_first { 0 } else { list.len() };
            list.insert(at, id);
        }
        Some(parts)
    }
}

/// What a name may still take.
struct Limits {
    /// Bytes of parameters.
    left: usize,
    /// Parameters within parameters.
    depth: usize,
}

/// A type's name, put together by libctf's rules.
fn name(graph: &Graph<'_>, id: TypeId, limits: &mut Limits) -> String {
    let Some(parts) = Parts::of(graph, id) else {
        return String::new();
    };
    let is_late = |place: Place| parts.rank(place).is_some_and(|rank| rank > place as usize);
    let (pointer, array) = (is_late(Place::Pointer), is_late(Place::Array));
    let (open, close) = match (pointer, array) {
        (true, true) => (Some(Place::Pointer), Some(Place::Array)),
        (true, false) => (Some(Place::Pointer), Some(Place::Pointer)),
        (false, true) => (Some(Place::Array), Some(Place::Array)),
        (false, false) => (None, None),
    };
    let mut text = String::new();
    let mut needs_space = false;
    let places = [Place::Base, Place::Pointer, Place::Array, Place::Function];
    for (place, list) in places.into_iter().zip(&parts.lists) {
        for (nth, id) in list.iter().enumerate() {
            let Some(ty) = graph.get(*id) else { continue };
            if needs_space {
                text.push(' ');
            }
            if open == Some(place) && nth == 0 {
                text.push('(');
            }
            one_part(graph, ty, &mut text, limits);
            needs_space = !matches!(ty.kind, Kind::Pointer(_) | Kind::Array { .. });
        }
        if close == Some(place) {
            text.push(')');
        }
    }
    text
}

fn one_part(graph: &Graph<'_>, ty: &Type<'_>, text: &mut String, limits: &mut Limits) {
    let name_of = &ty.name;
    match &ty.kind {
        Kind::Pointer(_) => text.push('*'),
        Kind::Array { count, .. } => text.push_str(&format!("[{count}]")),
        Kind::Qualified(qualifier, _) => text.push_str(qualifier.word()),
        Kind::Function {
            parameters,
            is_variadic,
            ..
        } => {
            let mut arguments: Vec<String> = Vec::new();
            for parameter in parameters {
                // A parameter takes a byte at least, also one that is a function with such parameters.
                let next = limits.left.checked_sub(1).zip(limits.depth.checked_sub(1));
                let Some((left, depth)) = next else { break };
                *limits = Limits { left, depth };
                let argument = name(graph, parameter.ty, limits);
                limits.left = limits.left.saturating_sub(argument.len());
                limits.depth += 1;
                arguments.push(argument);
            }
            if *is_variadic {
                arguments.push("...".to_owned());
            }
            text.push_str(&format!("(*) ({})", arguments.join(", ")));
        }
        Kind::Record { tag, .. } | Kind::Forward(tag) => {
            text.push_str(&format!("{} {name_of}", tag.word()));
        }
        Kind::Enum { .. } => text.push_str(&format!("enum {name_of}")),
        Kind::Unknown if name_of.is_empty() => text.push_str("(nonrepresentable type)"),
        Kind::Unknown => text.push_str(&format!("(nonrepresentable type {name_of})")),
        Kind::Integer(_) | Kind::Float(_) | Kind::Typedef(_) => text.push_str(name_of),
        Kind::Slice { .. } => {}
    }
}
