//! A dictionary printed in the format of `objdump --ctf` (GNU binutils 2.40), for comparison line
//! by line.
//!
//! The errors of that program are reproduced: an enumeration has 4 bytes, a structure is aligned as
//! its first member, and names of types follow its rules, which are not always C.

mod name;
mod type_info;

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Display, Formatter};

use crate::dict::Dict;
use crate::escaped_names::escape;
use crate::graph::{Graph, Member, Type, TypeId, TypeKind, TypedSymbol};
use crate::header::{CtfVersion, Flags};
use crate::read::CtfReading;

/// The length up to which a chain of types is always followed.
const MAX_CHAIN: usize = 64;
/// The budget for all chains beyond [`MAX_CHAIN`] together, in steps and bytes. objdump writes all
/// of it, which takes the cube of a chain's length.
const MAX_DEEP_BYTES: usize = 1 << 26;
/// The maximum size of a type's members in bytes: nested structures can multiply.
const MAX_MEMBERS_BYTES: usize = 1 << 20;

/// A member of an archive, formatted by `{}`.
#[derive(Debug)]
pub struct ObjdumpText<'d> {
    /// The dictionary.
    pub dict: &'d Dict<'d>,
    /// Its contents.
    pub reading: &'d CtfReading<'d>,
}

/// Control characters in names are escaped.
impl Display for ObjdumpText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.reading.graph.with_escaped_names() {
            Cow::Borrowed(graph) => ObjdumpLines::new(self.dict, graph).all(f),
            Cow::Owned(graph) => ObjdumpLines::new(self.dict, &graph).all(f),
        }
    }
}

/// The lines of a dictionary.
struct ObjdumpLines<'l, 'd> {
    dict: &'l Dict<'l>,
    graph: &'l Graph<'d>,
    /// The rest of the budget [`MAX_DEEP_BYTES`].
    left: Cell<usize>,
}

/// Whether a type's references follow it in its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReferenceDisplay {
    Shown,
    /// Not shown: the type is a member's.
    Hidden,
}

impl<'l, 'd> ObjdumpLines<'l, 'd> {
    fn new(dict: &'l Dict<'l>, graph: &'l Graph<'d>) -> ObjdumpLines<'l, 'd> {
        let left = Cell::new(MAX_DEEP_BYTES);
        ObjdumpLines { dict, graph, left }
    }

    /// Takes `much` from the budget for chains beyond [`MAX_CHAIN`]; returns whether that much was
    /// left.
    fn spend(&self, much: usize) -> bool {
        let left = self.left.get().checked_sub(much);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Whether a chain has no end, or exceeds the budget.
    fn is_endless(&self, start: TypeId, next: impl Fn(TypeId) -> Option<TypeId>) -> bool {
        // Brent's cycle detection: the point to wait for moves on at doubling distances.
        let (mut at, mut waiting, mut until) = (start, start, 1);
        for step in 0.. {
            let Some(to) = next(at) else {
                return false;
            };
            if to == waiting || step >= MAX_CHAIN && !self.spend(1) {
                return true;
            }
            at = to;
            if step == until {
                (waiting, until) = (at, until * 2);
            }
        }
        true
    }

    fn all(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  Header:")?;
        self.header(f)?;
        writeln!(f, "\n  Labels:")?;
        for label in self.dict.labels().flatten() {
            let header = self.dict.header();
            let child_bit = header.version.child_bit();
            let id = if header.is_child() && label.last & child_bit != 0 {
                self.graph.base().saturating_add(label.last & !child_bit)
            } else {
                label.last
            };
            let id = TypeId(id);
            writeln!(
                f,
                "    {} -> {}",
                escape(&label.name),
                self.line(id, ReferenceDisplay::Shown)
            )?;
        }
        let graph = self.graph;
        self.symbols(f, "Data objects", &graph.objects)?;
        self.symbols(f, "Function objects", &graph.functions)?;
        self.symbols(f, "Variables", &graph.variables)?;
        writeln!(f, "\n  Types:")?;
        for (id, ty) in graph.types() {
            self.ty(f, id, ty)?;
        }
        writeln!(f, "\n  Strings:")?;
        for (offset, string) in self.dict.strings() {
            writeln!(f, "    {offset:#x}: {}", escape(&string))?;
        }
        Ok(())
    }

    fn header(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let header = self.dict.header();
        writeln!(f, "    Magic number: {:#x}", crate::header::MAGIC)?;
        let version = match header.version {
            CtfVersion::V1 => "CTF_VERSION_1",
            CtfVersion::V1Upgraded => {
                "CTF_VERSION_1_UPGRADED_3 (latest format, version 1 type boundaries)"
            }
            CtfVersion::V2 => "CTF_VERSION_2",
            CtfVersion::V3 => "CTF_VERSION_3",
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
                writeln!(f, "    {what}: {}", escape(&name))?;
            }
        }
        for (part, range, _) in header.parts() {
            let (start, end) = (range.start, range.end);
            // objdump prints an end of the string section that is one byte too high.
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

    fn symbols(
        &self,
        f: &mut Formatter<'_>,
        title: &str,
        symbols: &[TypedSymbol<'_>],
    ) -> fmt::Result {
        writeln!(f, "\n  {title}:")?;
        for symbol in symbols {
            writeln!(
                f,
                "    {} -> {}",
                symbol.name,
                self.line(symbol.ty, ReferenceDisplay::Shown)
            )?;
        }
        Ok(())
    }

    /// A type, its members or enumerators.
    fn ty(&self, f: &mut Formatter<'_>, id: TypeId, ty: &Type<'_>) -> fmt::Result {
        let number = format!("{:x}", self.shown_id(id));
        let indent = format!("    {:1$}", "", number.len());
        writeln!(f, "    {}", self.line(id, ReferenceDisplay::Shown))?;
        // A slice of an enumeration is shown with its enumerators.
        let shown = match ty.kind {
            TypeKind::Slice { of, .. } => self.graph.get(of).unwrap_or(ty),
            _ => ty,
        };
        match &shown.kind {
            TypeKind::Record { .. } => self.members(f, id, &format!("    {indent}")),
            TypeKind::Enum { enumerators, .. } => {
                let count = enumerators.len();
                // Of a long list, the first five and the last five are shown, but a slice is shown
                // completely.
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

    /// The members, and those of structure members.
    fn members(&self, f: &mut Formatter<'_>, id: TypeId, indent: &str) -> fmt::Result {
        let mut left = MAX_MEMBERS_BYTES;
        let mut open = Vec::from_iter(self.nested(id, 0));
        while let Some(level) = open.last_mut() {
            let base = level.base;
            let Some(member) = level.members.next() else {
                open.pop();
                continue;
            };
            if left == 0 {
                return Ok(());
            }
            let offset = base.saturating_add(member.offset);
            let line = self.line(member.ty, ReferenceDisplay::Hidden);
            left = left.saturating_sub(line.len());
            let depth = (open.len() - 1) * 4;
            let line = format!(
                "{indent}{:depth$}[{offset:#x}] {}: {line}\n",
                "", member.name
            );
            f.write_str(&line)?;
            let Some(inner) = self.nested(member.ty, offset) else {
                continue;
            };
            // A type that contains itself would recurse endlessly.
            let contains_itself = || open.iter().any(|outer| outer.id == inner.id);
            if open.len() < MAX_CHAIN || !contains_itself() && self.spend(line.len()) {
                open.push(inner);
            }
        }
        Ok(())
    }

    /// The members of a type, if it has any.
    fn nested(&self, id: TypeId, base: u64) -> Option<Nested<'l, 'd>> {
        let id = self.graph.resolve(id)?;
        match &self.graph.get(id)?.kind {
            TypeKind::Record { members, .. } => Some(Nested {
                id,
                members: members.iter(),
                base,
            }),
            _ => None,
        }
    }

    /// The id in the file.
    fn shown_id(&self, id: TypeId) -> u32 {
        let base = self.graph.base();
        if self.dict.is_child() && id.0 > base {
            (id.0 - base) | self.dict.header().version.child_bit()
        } else {
            id.0
        }
    }

    /// A type and, if wanted, its references.
    fn line(&self, id: TypeId, references: ReferenceDisplay) -> String {
        const NONE: &str = "(type not represented in CTF)";
        let next = |id| self.graph.get(id).and_then(refers_to);
        let is_endless = references == ReferenceDisplay::Shown && self.is_endless(id, next);
        let mut line = String::new();
        let mut at = id;
        for step in 0.. {
            let before = line.len();
            let Some(ty) = self.graph.get(at) else {
                return if line.is_empty() {
                    format!(" {NONE}")
                } else {
                    line + " " + NONE
                };
            };
            self.put_type(&mut line, at, ty, references);
            let (Some(next), ReferenceDisplay::Shown) = (refers_to(ty), references) else {
                break;
            };
            line.push_str(" -> ");
            if step + 1 >= MAX_CHAIN && (is_endless || !self.spend(line.len() - before)) {
                break;
            }
            at = next;
        }
        line
    }

    fn put_type(&self, line: &mut String, id: TypeId, ty: &Type<'_>, references: ReferenceDisplay) {
        let word = match references {
            ReferenceDisplay::Shown => "",
            ReferenceDisplay::Hidden => "ID ",
        };
        let id_text = self.shown_id(id);
        let kind = self.kind_number(ty);
        let name = self.name(id);
        line.push_str(&format!("{word}{id_text:#x}: (kind {kind}) {name}"));
        let size = self.size(id);
        if let Some((number, is_slice)) = self.encoding(ty) {
            let bits = u64::from(number.bits);
            let is_partial = size.is_none_or(|size| size.saturating_mul(8) != bits);
            if is_partial && references == ReferenceDisplay::Hidden {
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
        if let Some(align) = self.align(id) {
            line.push_str(&format!(" (aligned at {align:#x})"));
        }
    }
}

/// A structure while its members are shown.
struct Nested<'l, 'd> {
    id: TypeId,
    /// The members still to show.
    members: std::slice::Iter<'l, Member<'d>>,
    /// The offset of the structure in the outermost one, in bits.
    base: u64,
}

/// The type printed after one in a line.
fn refers_to(ty: &Type<'_>) -> Option<TypeId> {
    match ty.kind {
        TypeKind::Array { element: to, .. }
        | TypeKind::Pointer(to)
        | TypeKind::Typedef(to)
        | TypeKind::Qualified(_, to)
        | TypeKind::Slice { of: to, .. } => Some(to),
        _ => None,
    }
}

fn flag_names(flags: Flags) -> String {
    let names = [
        (Flags::COMPRESSED, "CTF_F_COMPRESS"),
        (Flags::NEW_FUNCTION_INFO, "CTF_F_NEWFUNCINFO"),
        (Flags::INDEX_SORTED, "CTF_F_IDXSORTED"),
        (Flags::DYNSTR, "CTF_F_DYNSTR"),
    ];
    let set = names.iter().filter(|(flag, _)| flags.has(*flag));
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}
