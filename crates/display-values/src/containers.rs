//! Values with containers of the GNU C++ library (libstdc++): what they contain, in place of their
//! members.

use std::cell::Cell;
use std::fmt::Write as _;

use unspool_arg_table::{
    DisplayKind, DisplayType as _, QuotedText, TextPreview, ValueDisplay, unsigned,
};
use unspool_c_types::{Graph, Number, TypeId, TypeKind};
use unspool_dwarf_types::GraphType;
use unspool_rows::{Memory, RuntimeAddr};

use crate::MAX_VALUE_BYTES;
use crate::frame_values::format_value;
use crate::rust::{MAX_ELEMENTS, MAX_NESTING, MAX_PARTS};

/// Formats values with containers.
pub(crate) struct ContainerFormatter<'v, 'g> {
    graph: &'v Graph<'g>,
    /// The memory of contents.
    memory: &'v dyn Memory,
    /// The memory of texts at pointers, if these are shown.
    text: Option<&'v dyn Memory>,
    /// The number of parts that may still be looked at.
    left: Cell<u32>,
    has_container: Cell<bool>,
}

/// The text of a part, or `None` if it is not what its type's name says.
type ShownPart = Option<String>;

/// A part of a value.
#[derive(Clone, Copy)]
struct Part<'b> {
    ty: TypeId,
    bytes: &'b [u8],
}

impl<'b> Part<'b> {
    /// Some of its bytes; `None` if it does not have that many.
    fn get(self, start: u64, count: u64) -> Option<&'b [u8]> {
        let rest = self.bytes.get(usize::try_from(start).ok()?..)?;
        rest.get(..usize::try_from(count).ok()?)
    }
}

/// A pointer in a value: where it points, and to what.
#[derive(Clone, Copy)]
struct PointerPart {
    address: u64,
    to: TypeId,
}

impl<'v, 'g> ContainerFormatter<'v, 'g> {
    pub(crate) fn new(
        graph: &'v Graph<'g>,
        memory: &'v dyn Memory,
        text: Option<&'v dyn Memory>,
    ) -> Self {
        ContainerFormatter {
            graph,
            memory,
            text,
            left: Cell::new(MAX_PARTS),
            has_container: Cell::new(false),
        }
    }

    /// A value; `None` if it has no container.
    pub(crate) fn show(&self, ty: TypeId, bytes: &[u8]) -> Option<String> {
        self.left.set(MAX_PARTS);
        self.has_container.set(false);
        let mut text = String::new();
        self.put(&mut text, Part { ty, bytes }, MAX_NESTING);
        self.has_container.get().then_some(text)
    }

    /// Takes one of the parts that may be looked at.
    fn take_part(&self) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(())
    }

    fn put(&self, f: &mut String, part: Part<'_>, depth: u32) {
        let (Some(depth), Some(())) = (depth.checked_sub(1), self.take_part()) else {
            return f.push_str("...");
        };
        match self.compound(part, depth) {
            Some(shown) => f.push_str(&shown),
            None => f.push_str(&self.leaf(GraphType::new(self.graph, part.ty).kind(), part.bytes)),
        }
    }

    /// A container, a pointer to one, or a value with members; `None` for others.
    fn compound(&self, part: Part<'_>, depth: u32) -> ShownPart {
        if let Some(shown) = self.container(part, depth) {
            self.has_container.set(true);
            return Some(shown);
        }
        match self.kind(part.ty)? {
            TypeKind::Record { .. } => self.record(part, depth),
            TypeKind::Array { element, count, .. } => {
                let size = usize::try_from(self.graph.size(*element)?).ok()?;
                matches!(self.kind(*element)?, TypeKind::Record { .. }).then_some(())?;
                let ty = *element;
                self.list(*count, depth, |nth| {
                    let bytes = part.bytes.get(nth.checked_mul(size)?..)?.get(..size)?;
                    Some((ty, bytes.to_vec()))
                })
            }
            TypeKind::Pointer(to) => {
                let address = unsigned(part.bytes);
                let size = self.graph.size(*to).filter(|size| *size > 0)?;
                self.container_name(*to)?;
                let bytes = self.read(address, size)?;
                let target = Part {
                    ty: *to,
                    bytes: &bytes,
                };
                let shown = self.container(target, depth)?;
                self.has_container.set(true);
                Some(format!("{address:#x} {shown}"))
            }
            _ => None,
        }
    }

    fn leaf(&self, kind: DisplayKind<GraphType<'_, '_>>, bytes: &[u8]) -> String {
        format_value(ValueDisplay::from_kind(kind, bytes), self.text)
    }

    /// Members in braces, as other structures have them. Empty base classes are left out.
    fn record(&self, part: Part<'_>, depth: u32) -> ShownPart {
        let DisplayKind::Record(displayed) = GraphType::new(self.graph, part.ty).kind() else {
            return None;
        };
        let members = self.graph.layout(part.ty)?.members;
        let mut f = String::from("{");
        for (member, displayed) in members.iter().zip(displayed) {
            let is_base = member.name.is_empty();
            let is_empty = || {
                let layout = self.graph.layout(member.ty);
                layout.is_some_and(|layout| layout.members.is_empty())
            };
            if is_base && is_empty() {
                continue;
            }
            if f.len() > 1 {
                f.push_str(", ");
            }
            if !is_base {
                let _ = write!(f, ".{} = ", member.name);
            }
            let bytes = part.get(displayed.offset.into(), displayed.bytes.into());
            match bytes {
                None => f.push_str("..."),
                Some(bytes) if member.is_bit_field => {
                    f.push_str(&self.leaf(displayed.display_kind, bytes));
                }
                Some(bytes) => {
                    let ty = member.ty;
                    self.put(&mut f, Part { ty, bytes }, depth);
                }
            }
        }
        f.push('}');
        Some(f)
    }

    /// The name of a type, if it can be a container's: without its template arguments.
    fn container_name(&self, ty: TypeId) -> Option<&str> {
        let own = self.graph.get(self.graph.resolve(ty)?)?;
        let TypeKind::Record { .. } = own.kind else {
            return None;
        };
        own.name.split('<').next().filter(|name| !name.is_empty())
    }

    /// A container. Which one it is, its name says, and that its members are the library's.
    fn container(&self, part: Part<'_>, depth: u32) -> ShownPart {
        let name = self.container_name(part.ty)?;
        let number = |path: &[&str]| self.number(part, path);
        let pointer = |path: &[&str]| self.pointer(part, path);
        let counted = |path: &[&str]| Some(format!("{name} of {}", number(path)?));
        match name {
            "basic_string" => self.string(
                pointer(&["_M_dataplus", "_M_p"])?,
                number(&["_M_string_length"])?,
            ),
            "basic_string_view" => self.string(pointer(&["_M_str"])?, number(&["_M_len"])?),
            "vector" => {
                let start = pointer(&["_M_impl", "_M_start"])?;
                let end = pointer(&["_M_impl", "_M_finish"])?;
                let size = self.graph.size(start.to).filter(|size| *size > 0)?;
                let bytes = end.address.checked_sub(start.address)?;
                let count = (bytes % size == 0).then_some(bytes / size)?;
                self.elements(name, start, count, depth)
            }
            "array" => {
                let elements = self.part(part, &["_M_elems"], &|_| true)?;
                let mut shown = String::new();
                self.put(&mut shown, elements, depth);
                Some(shown)
            }
            "deque" => Some(format!("{name} of {}", self.deque_length(part)?)),
            "list" => counted(&["_M_impl", "_M_node", "_M_size"]),
            "map" | "multimap" | "set" | "multiset" => {
                counted(&["_M_t", "_M_impl", "_M_node_count"])
            }
            "unordered_map" | "unordered_multimap" | "unordered_set" | "unordered_multiset" => {
                counted(&["_M_h", "_M_element_count"])
            }
            "unique_ptr" => {
                let to = pointer(&["_M_t", "_M_t", "_M_head_impl"])?.address;
                Some(format!("{name} {to:#x}"))
            }
            "shared_ptr" | "weak_ptr" => self.shared_pointer(name, part),
            "optional" => match number(&["_M_payload", "_M_engaged"])? {
                0 => Some(format!("{name}: empty")),
                1 => {
                    let path = ["_M_payload", "_M_payload", "_M_value"];
                    let value = self.part(part, &path, &|_| true)?;
                    let mut shown = format!("{name}: ");
                    self.put(&mut shown, value, depth);
                    Some(shown)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The number of elements between two iterators. They are in arrays of one length, whose
    /// addresses are in another array.
    fn deque_length(&self, part: Part<'_>) -> Option<u64> {
        let iterator = |name| {
            ["_M_cur", "_M_first", "_M_last", "_M_node"]
                .map(|pointer| self.pointer(part, &["_M_impl", name, pointer]))
        };
        let [Some(start), Some(first), Some(last), Some(node)] = iterator("_M_start") else {
            return None;
        };
        let [Some(end), Some(end_first), _, Some(end_node)] = iterator("_M_finish") else {
            return None;
        };
        let between = |from: PointerPart, to: PointerPart, size: u64| {
            to.address.checked_sub(from.address)?.checked_div(size)
        };
        let size = self.graph.size(start.to)?;
        match between(node, end_node, self.graph.pointer_size)? {
            0 => between(start, end, size),
            arrays => (between(first, last, size)?.checked_mul(arrays - 1)?)
                .checked_add(between(start, last, size)?)?
                .checked_add(between(end_first, end, size)?),
        }
    }

    /// A pointer that counts its users.
    fn shared_pointer(&self, name: &str, part: Part<'_>) -> ShownPart {
        let to = self.pointer(part, &["_M_ptr"])?.address;
        let counts = self.pointer(part, &["_M_refcount", "_M_pi"])?;
        if counts.address == 0 {
            return Some(format!("{name} {to:#x}"));
        }
        let bytes = self.read(counts.address, self.graph.size(counts.to)?)?;
        let counts = Part {
            ty: counts.to,
            bytes: &bytes,
        };
        let uses = self.number(counts, &["_M_use_count"])?;
        Some(format!("{name} {to:#x} (use count {uses})"))
    }

    /// The characters of a string of `char`.
    fn string(&self, start: PointerPart, count: u64) -> ShownPart {
        let is_char = matches!(self.kind(start.to)?, TypeKind::Integer(number)
            if number.size == 1 && number.format & Number::CHAR != 0);
        is_char.then_some(())?;
        let shown = count.min(TextPreview::MAX_TEXT_BYTES as u64);
        let bytes = self.read(start.address, shown)?;
        let rest = if shown < count { "..." } else { "" };
        Some(format!("{}{rest}", QuotedText(&bytes)))
    }

    /// Elements in memory, one after another; `None` if the first is unreadable.
    fn elements(&self, name: &str, start: PointerPart, count: u64, depth: u32) -> ShownPart {
        if count == 0 {
            return Some(format!("{name} of 0"));
        }
        let size = self.graph.size(start.to)?;
        let read = |nth: usize| {
            let at = u64::try_from(nth).ok()?.checked_mul(size)?;
            self.read(start.address.checked_add(at)?, size)
        };
        read(0)?;
        let list = self.list(count, depth, |nth| Some((start.to, read(nth)?)))?;
        Some(format!("{name} of {count}: {list}"))
    }

    /// Elements in braces, up to a maximum, and up to one that is missing.
    fn list(
        &self,
        count: u64,
        depth: u32,
        element: impl Fn(usize) -> Option<(TypeId, Vec<u8>)>,
    ) -> ShownPart {
        let mut f = String::from("{");
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        for nth in 0..count {
            f.push_str(if nth == 0 { "" } else { ", " });
            let own = element(nth).filter(|_| nth < MAX_ELEMENTS && self.left.get() > 0);
            let Some((ty, bytes)) = own else {
                f.push_str("...");
                break;
            };
            let bytes = bytes.as_slice();
            self.put(&mut f, Part { ty, bytes }, depth);
        }
        f.push('}');
        Some(f)
    }

    fn kind(&self, ty: TypeId) -> Option<&TypeKind<'g>> {
        let own = self.graph.get(self.graph.resolve(ty)?)?;
        Some(&own.kind)
    }

    fn number(&self, of: Part<'_>, path: &[&str]) -> Option<u64> {
        let is_number = |kind: &TypeKind<'_>| matches!(kind, TypeKind::Integer(_));
        let part = self.part(of, path, &is_number)?;
        (part.bytes.len() <= 8).then(|| unsigned(part.bytes))
    }

    fn pointer(&self, of: Part<'_>, path: &[&str]) -> Option<PointerPart> {
        let is_pointer = |kind: &TypeKind<'_>| matches!(kind, TypeKind::Pointer(_));
        let part = self.part(of, path, &is_pointer)?;
        let TypeKind::Pointer(to) = *self.kind(part.ty)? else {
            return None;
        };
        let address = unsigned(part.bytes);
        Some(PointerPart { address, to })
    }

    /// The first part to which names of members lead, and which is wanted. Base classes, which have
    /// no name, are looked into.
    fn part<'b>(
        &self,
        of: Part<'b>,
        path: &[&str],
        is_wanted: &dyn Fn(&TypeKind<'_>) -> bool,
    ) -> Option<Part<'b>> {
        self.part_within(of, path, is_wanted, MAX_NESTING)
    }

    fn part_within<'b>(
        &self,
        of: Part<'b>,
        path: &[&str],
        is_wanted: &dyn Fn(&TypeKind<'_>) -> bool,
        depth: u32,
    ) -> Option<Part<'b>> {
        let depth = depth.checked_sub(1)?;
        self.take_part()?;
        let Some((name, rest)) = path.split_first() else {
            return self.kind(of.ty).is_some_and(is_wanted).then_some(of);
        };
        let members = self.graph.layout(of.ty)?.members.into_iter();
        let mut members = members.filter(|member| !member.is_bit_field);
        members.find_map(|member| {
            let path = match &*member.name {
                "" => path,
                own if own == *name => rest,
                _ => return None,
            };
            let bytes = of.get(member.offset / 8, self.graph.size(member.ty)?)?;
            let ty = member.ty;
            self.part_within(Part { ty, bytes }, path, is_wanted, depth)
        })
    }

    fn read(&self, address: u64, count: u64) -> Option<Vec<u8>> {
        let count = usize::try_from(count).ok()?;
        let mut bytes = vec![0; Some(count).filter(|count| *count <= MAX_VALUE_BYTES)?];
        self.memory.read(RuntimeAddr(address), &mut bytes).ok()?;
        Some(bytes)
    }
}
