//! A dictionary in the lines of `objdump --ctf` (GNU binutils 2.40), so that two readings can be compared line by line.
//!
//! What that program says differently from what is so is said here as it says it: an enumeration has 4 bytes, a structure is aligned as its first member,
//! and names of types are put together by its rules, which are not always C.

mod facts;
mod name;

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use hashbrown::HashSet;

use crate::dict::Dict;
use crate::graph::{Graph, Kind, Symbol, Type, TypeId};
use crate::header::{Flags, Version};
use crate::plain::plain;
use crate::read::Reading;
use name::name;

/// Nothing is nested deeper than this, unless it contains itself.
const DEEPEST: usize = 64;
/// The members of no type take more than this, in bytes: structures within structures can multiply.
const MOST: usize = 1 << 20;

/// A member of an archive, to be written by `{}`.
#[derive(Debug)]
pub struct Dump<'d> {
    /// The dictionary.
    pub dict: &'d Dict<'d>,
    /// What was read of it.
    pub reading: &'d Reading<'d>,
}

/// Control characters in names are escapes.
impl Display for Dump<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.reading.graph.with_plain_names() {
            Cow::Borrowed(_) => self.all(f),
            Cow::Owned(graph) => {
                let (graph, problems) = (Arc::new(graph), Vec::new());
                let reading = &Reading { graph, problems };
                Dump { reading, ..*self }.all(f)
            }
        }
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
    fn all(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  Header:")?;
        self.header(f)?;
        writeln!(f, "\n  Labels:")?;
        for label in self.dict.labels().flatten() {
            let header = self.dict.header();
            let child_bit = header.version.child_bit();
            let id = match header.is_child() && label.last & child_bit != 0 {
                true => self
                    .reading
                    .graph
                    .base()
                    .saturating_add(label.last & !child_bit),
                false => label.last,
            };
            let id = TypeId(id);
            writeln!(
                f,
                "    {} -> {}",
                plain(&label.name),
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
            writeln!(f, "    {offset:#x}: {}", plain(&string))?;
        }
        Ok(())
    }

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
                writeln!(f, "    {what}: {}", plain(&name))?;
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
        let name = name(self.graph(), id);
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
