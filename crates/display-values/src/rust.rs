//! Values of Rust's types, in the notation of Rust and gdb.

use std::cell::Cell;
use std::fmt::{self, Write};

use unspool_arg_table::{DisplayKind, TextPreview, ValueDisplay, bits_of, unsigned, write_enum};
use unspool_c_types::{Graph, Member, Number, TypeId, TypeKind};
use unspool_dwarf_types::GraphType;
use unspool_dwarf_types::variables::{Activation, PartialValue, RustTypes, VariantPart};
use unspool_rows::{Memory, RuntimeAddr};

use crate::MAX_VALUE_BYTES;

/// The maximum number of elements of an array or a slice to show.
pub(crate) const MAX_ELEMENTS: usize = 32;

/// The maximum number of parts of a value to show, including the elements of slices.
pub(crate) const MAX_PARTS: u32 = 2000;

/// The maximum nesting of arrays in the name of a type.
const MAX_DIMENSIONS: usize = 32;

/// The maximum nesting of parts.
pub(crate) const MAX_NESTING: u32 = 32;

/// Formats values of a Rust function.
pub(crate) struct RustFormatter<'v, 'a> {
    activation: &'v Activation<'v, 'a>,
    graph: &'v Graph<'a>,
    rust: &'v RustTypes<'a>,
    /// The memory of slices' elements, if these are shown.
    memory: Option<&'v dyn Memory>,
    /// The number of parts that may still be shown.
    left: Cell<u32>,
}

/// Some bytes of a value.
#[derive(Clone, Copy)]
struct PartialBytes<'b> {
    bytes: &'b [u8],
    /// The mask of their known bits.
    known: &'b [u8],
    /// The remaining nesting depth.
    depth: u32,
}

impl<'b> PartialBytes<'b> {
    /// A part of it; `None` if it does not have that many bytes, or is nested too deep.
    fn get(self, start: u64, size: u64) -> Option<PartialBytes<'b>> {
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        Some(PartialBytes {
            bytes: self.bytes.get(start..end)?,
            known: self.known.get(start..end)?,
            depth: self.depth.checked_sub(1)?,
        })
    }

    fn is_known(self) -> bool {
        self.known.iter().all(|known| *known == 0xff)
    }

    fn is_lost(self) -> bool {
        !self.known.is_empty() && self.known.iter().all(|known| *known == 0)
    }
}

impl<'v, 'a> RustFormatter<'v, 'a> {
    /// A formatter for a function's activation. With memory, the elements of slices are shown, too.
    pub(crate) fn new(
        activation: &'v Activation<'v, 'a>,
        rust: &'v RustTypes<'a>,
        memory: Option<&'v dyn Memory>,
    ) -> RustFormatter<'v, 'a> {
        RustFormatter {
            activation,
            graph: activation.graph(),
            rust,
            memory,
            left: Cell::new(MAX_PARTS),
        }
    }

    /// The name of a type.
    pub(crate) fn type_name(&self, ty: TypeId) -> String {
        let in_c = |ty| self.graph.declare(ty, "").trim_end().to_owned();
        let name = |ty| match self.activation.path(ty) {
            Some(path) => path,
            None => match self.graph.get(ty) {
                Some(own) if !own.name.is_empty() => own.name.clone().into_owned(),
                _ => in_c(ty),
            },
        };
        let (mut element, mut counts) = (ty, Vec::new());
        let array = |ty| match self.graph.get(ty).map(|own| &own.kind) {
            Some(TypeKind::Array { element, count, .. }) => Some((*element, *count)),
            _ => None,
        };
        while let Some((inner, count)) = array(element).filter(|_| counts.len() < MAX_DIMENSIONS) {
            counts.push(count);
            element = inner;
        }
        let outwards = counts.iter().rev();
        outwards.fold(name(element), |inner, count| format!("[{inner}; {count}]"))
    }

    /// A value.
    pub(crate) fn show(&self, ty: TypeId, value: &PartialValue) -> String {
        self.left.set(MAX_PARTS);
        let part = PartialBytes {
            bytes: &value.bytes,
            known: &value.known,
            depth: MAX_NESTING,
        };
        let mut text = String::new();
        // Writing to a string never fails.
        let _ = self.put(&mut text, ty, part);
        text
    }

    fn put(&self, f: &mut String, ty: TypeId, partial: PartialBytes<'_>) -> fmt::Result {
        self.left.set(self.left.get().saturating_sub(1));
        if partial.is_lost() {
            return f.write_str("<lost>");
        }
        let Some(own) = self.graph.resolve(ty).and_then(|ty| self.graph.get(ty)) else {
            return scalar(f, DisplayKind::Bytes, partial);
        };
        match &own.kind {
            TypeKind::Record { members, .. } => match self.rust.variants.get(&ty) {
                Some(variants) => self.variant(f, variants, partial),
                None => match self.slice(f, ty, members, partial) {
                    Some(shown) => shown,
                    None => self.record(f, ty, partial, " "),
                },
            },
            TypeKind::Array { element, count, .. } => {
                let size = self.graph.size(*element).unwrap_or(0);
                let elements = (0..*count).map(|nth| partial.get(nth.checked_mul(size)?, size));
                f.write_str("[")?;
                self.list(f, MAX_ELEMENTS, elements, |f, own| {
                    self.put(f, *element, own)
                })?;
                f.write_str("]")
            }
            _ if !partial.is_known() => f.write_str("<lost>"),
            TypeKind::Integer(_) if own.name == "()" => f.write_str("()"),
            // Rust's `char` has four bytes.
            TypeKind::Integer(_) if own.name == "char" => {
                scalar(f, DisplayKind::UnsignedChar, partial)
            }
            TypeKind::Integer(number) if number.format & Number::BOOL != 0 => {
                scalar(f, DisplayKind::Bool, partial)
            }
            TypeKind::Integer(number) if number.format & Number::SIGNED != 0 => {
                scalar(f, DisplayKind::Signed, partial)
            }
            TypeKind::Integer(_) => scalar(f, DisplayKind::Unsigned, partial),
            TypeKind::Float(_) => scalar(f, DisplayKind::Float, partial),
            TypeKind::Pointer(_) => scalar(f, DisplayKind::Pointer, partial),
            TypeKind::Enum { enumerators, .. } => {
                let path = self.type_name(ty);
                let path = |name: &str| format!("{path}::{name}");
                let names: Vec<_> = enumerators.iter().map(|own| path(&own.name)).collect();
                let constants = enumerators.iter().zip(&names);
                let constants =
                    constants.map(|(own, name)| (own.bits().cast_signed(), name.as_str()));
                write_enum(
                    f,
                    constants,
                    unsigned(partial.bytes),
                    bits_of(partial.bytes),
                )
            }
            _ => scalar(f, DisplayKind::Bytes, partial),
        }
    }

    /// Shows parts up to a maximum, and up to one that is missing.
    fn list<P>(
        &self,
        f: &mut String,
        most: usize,
        parts: impl Iterator<Item = Option<P>>,
        mut show: impl FnMut(&mut String, P) -> fmt::Result,
    ) -> fmt::Result {
        for (nth, part) in parts.enumerate() {
            f.write_str(if nth == 0 { "" } else { ", " })?;
            match part.filter(|_| nth < most && self.left.get() > 0) {
                Some(part) => show(f, part)?,
                None => return f.write_str("..."),
            }
        }
        Ok(())
    }

    /// Shows a structure with its members, without the discriminant.
    fn record(
        &self,
        f: &mut String,
        ty: TypeId,
        partial: PartialBytes<'_>,
        space: &str,
    ) -> fmt::Result {
        let resolved = self.graph.resolve(ty).and_then(|ty| self.graph.get(ty));
        let Some(TypeKind::Record { members, .. }) = resolved.map(|ty| &ty.kind) else {
            return self.put(f, ty, partial);
        };
        let name = self.type_name(ty);
        let is_tuple = name.starts_with('(');
        if !is_tuple {
            f.write_str(&name)?;
            if members.is_empty() {
                return Ok(());
            }
            f.write_str(space)?;
        }
        let has_names = !is_tuple && !members.iter().all(|member| member.name.starts_with("__"));
        f.write_str(if has_names { "{" } else { "(" })?;
        let parts = members
            .iter()
            .map(|member| Some((member, self.member(member, partial)?)));
        self.list(f, usize::MAX, parts, |f, (member, part)| {
            if has_names {
                write!(f, "{}: ", member.name)?;
            }
            self.put(f, member.ty, part)
        })?;
        f.write_str(if has_names { "}" } else { ")" })
    }

    /// The part of a value that belongs to a member.
    fn member<'b>(
        &self,
        member: &Member<'a>,
        partial: PartialBytes<'b>,
    ) -> Option<PartialBytes<'b>> {
        partial.get(member.offset / 8, self.graph.size(member.ty)?)
    }

    /// Shows the variant of a value.
    fn variant(
        &self,
        f: &mut String,
        variants: &VariantPart<'a>,
        partial: PartialBytes<'_>,
    ) -> fmt::Result {
        let variant = match &variants.discriminant {
            None => variants.variants.first(),
            Some(discriminant) => match self.member(discriminant, partial) {
                Some(own) if !own.is_known() => return f.write_str("<lost>"),
                Some(own) if own.bytes.len() <= 8 => {
                    variants.select(unsigned(own.bytes), bits_of(own.bytes))
                }
                _ => None,
            },
        };
        let own = variant.and_then(|own| Some((own.member.ty, self.member(&own.member, partial)?)));
        match own {
            Some((ty, part)) => self.record(f, ty, part, ""),
            None => scalar(f, DisplayKind::Bytes, partial),
        }
    }

    /// Shows a slice with its elements; `None` if it is not a slice, or the elements are not shown
    /// or unreadable.
    fn slice(
        &self,
        f: &mut String,
        ty: TypeId,
        members: &[Member<'a>],
        partial: PartialBytes<'_>,
    ) -> Option<fmt::Result> {
        let memory = self.memory?;
        let member = |name| {
            let mut all = members.iter();
            all.find(|member| members.len() == 2 && member.name == name)
        };
        let number = |member| {
            let part = self.member(member, partial)?;
            part.is_known().then(|| unsigned(part.bytes))
        };
        let data = member("data_ptr")?;
        let (start, count) = (number(data)?, number(member("length")?)?);
        let TypeKind::Pointer(element) = self.graph.get(self.graph.resolve(data.ty)?)?.kind else {
            return None;
        };
        let name = self.type_name(ty);
        if matches!(&*name, "&str" | "&mut str") {
            let shown = count.min(TextPreview::MAX_TEXT_BYTES as u64);
            let mut bytes = vec![0; usize::try_from(shown).ok()?];
            memory.read(RuntimeAddr(start), &mut bytes).ok()?;
            let rest = if shown < count { "..." } else { "" };
            let text = String::from_utf8_lossy(&bytes);
            return Some(write!(f, "{text:?}{rest}"));
        }
        let size = self.graph.size(element)?;
        let length = usize::try_from(size).ok()?;
        let depth = partial.depth.checked_sub(1)?;
        let read = |nth: u64| {
            let mut bytes = vec![0; Some(length).filter(|length| *length <= MAX_VALUE_BYTES)?];
            let at = start.checked_add(nth.checked_mul(size)?)?;
            memory.read(RuntimeAddr(at), &mut bytes).ok()?;
            Some(bytes)
        };
        let elements = (0..count).map(read);
        let shown = write!(f, "{name} [").and_then(|()| {
            self.list(f, MAX_ELEMENTS, elements, |f, bytes| {
                let known = vec![0xff; bytes.len()];
                let part = PartialBytes {
                    bytes: &bytes,
                    known: &known,
                    depth,
                };
                self.put(f, element, part)
            })
        });
        Some(shown.and_then(|()| f.write_str("]")))
    }
}

/// Shows a value without parts.
fn scalar(
    f: &mut String,
    display_kind: DisplayKind<GraphType<'_, '_>>,
    partial: PartialBytes<'_>,
) -> fmt::Result {
    if partial.is_known() {
        write!(
            f,
            "{}",
            ValueDisplay::from_kind(display_kind, partial.bytes)
        )
    } else {
        f.write_str("<lost>")
    }
}
