//! The stored types of a dictionary, one record after another.

use crate::bytes::{Endian, size, wide};
use crate::dict::Dict;
use crate::error::CtfError;
use crate::header::CtfVersion;

/// The kinds of types, by their numbers.
pub(crate) mod kind {
    use crate::graph::{Qualifier, Tag, TypeKind};

    pub(crate) const UNKNOWN: u8 = 0;
    pub(crate) const INTEGER: u8 = 1;
    pub(crate) const FLOAT: u8 = 2;
    pub(crate) const POINTER: u8 = 3;
    pub(crate) const ARRAY: u8 = 4;
    pub(crate) const FUNCTION: u8 = 5;
    pub(crate) const STRUCT: u8 = 6;
    pub(crate) const UNION: u8 = 7;
    pub(crate) const ENUM: u8 = 8;
    pub(crate) const FORWARD: u8 = 9;
    pub(crate) const TYPEDEF: u8 = 10;
    pub(crate) const VOLATILE: u8 = 11;
    pub(crate) const CONST: u8 = 12;
    pub(crate) const RESTRICT: u8 = 13;
    pub(crate) const SLICE: u8 = 14;

    /// The number of a type's kind.
    pub(crate) fn number(kind: &TypeKind<'_>) -> u8 {
        match kind {
            TypeKind::Unknown => UNKNOWN,
            TypeKind::Integer(_) => INTEGER,
            TypeKind::Float(_) => FLOAT,
            TypeKind::Pointer(_) => POINTER,
            TypeKind::Array { .. } => ARRAY,
            TypeKind::Function { .. } => FUNCTION,
            TypeKind::Record { tag, .. } => of_tag(*tag),
            TypeKind::Enum { .. } => ENUM,
            TypeKind::Forward(_) => FORWARD,
            // CTF has no tags; they can be names.
            TypeKind::Typedef(_) | TypeKind::TypeTag { .. } => TYPEDEF,
            TypeKind::Qualified(Qualifier::Volatile, _) => VOLATILE,
            TypeKind::Qualified(Qualifier::Const, _) => CONST,
            TypeKind::Qualified(Qualifier::Restrict, _) => RESTRICT,
            TypeKind::Slice { .. } => SLICE,
        }
    }

    /// The number of a tag's kind.
    pub(crate) fn of_tag(tag: Tag) -> u8 {
        match tag {
            Tag::Struct => STRUCT,
            Tag::Union => UNION,
            Tag::Enum => ENUM,
        }
    }
}

/// The minimum size of structures with 64-bit member offsets.
pub(crate) const LARGE_STRUCT: u64 = 512 << 20;
/// The same in version 1.
const LARGE_STRUCT_V1: u64 = 8192;

/// A stored type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CtfRecord<'d> {
    /// The type's number in its dictionary, from 1.
    pub(crate) index: u32,
    /// Its offset in the section.
    pub(crate) offset: u64,
    /// The reference of its name.
    pub(crate) name: u32,
    /// The number of its kind.
    pub(crate) kind: u8,
    /// Whether look-ups by name find it.
    pub(crate) is_root: bool,
    /// The number of its members, arguments or enumerators.
    pub(crate) count: u32,
    /// Its size in bytes, if its kind has a size.
    pub(crate) size: u64,
    /// The referenced type, if its kind has one.
    pub(crate) reference: u32,
    /// The data after the fixed part: members, arguments, and the like.
    pub(crate) data: &'d [u8],
    pub(crate) encoding: RecordEncoding,
}

/// The encoding of numbers in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordEncoding {
    pub(crate) endian: Endian,
    /// Whether ids have 16 bits.
    pub(crate) is_narrow: bool,
}

impl RecordEncoding {
    /// An id of 32 or 16 bits.
    fn id(self, bytes: &[u8], at: usize) -> u32 {
        if self.is_narrow {
            self.endian.u16(bytes, at).map_or(0, u32::from)
        } else {
            self.endian.u32(bytes, at).unwrap_or(0)
        }
    }
}

impl<'d> CtfRecord<'d> {
    /// A number in the data.
    pub(crate) fn word(&self, at: usize) -> u32 {
        self.encoding.endian.u32(self.data, at).unwrap_or(0)
    }

    /// Element type, index type and count of an array.
    pub(crate) fn array(&self) -> (u32, u32, u32) {
        if self.encoding.is_narrow {
            (
                self.encoding.id(self.data, 0),
                self.encoding.id(self.data, 2),
                self.word(4),
            )
        } else {
            (self.word(0), self.word(4), self.word(8))
        }
    }

    /// The types of the arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = u32> {
        let (layout, width) = (self.encoding, self.id_width());
        let count = size(u64::from(self.count));
        self.data
            .chunks_exact(width)
            .take(count)
            .map(move |bytes| layout.id(bytes, 0))
    }

    /// Name, type and offset in bits of each member, and its position in the data.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, u32, u32, u64)> {
        let RecordEncoding { endian, is_narrow } = self.encoding;
        let layout = self.encoding;
        let is_large = self.has_large_members();
        let width = member_width(is_narrow, is_large);
        self.data
            .chunks_exact(width)
            .enumerate()
            .map(move |(index, bytes)| {
                let word = |at| endian.u32(bytes, at).unwrap_or(0);
                let (id, offset) = match (is_narrow, is_large) {
                    (false, false) => (word(8), u64::from(word(4))),
                    (false, true) => (word(8), u64::from(word(4)) << 32 | u64::from(word(12))),
                    (true, false) => (layout.id(bytes, 4), u64::from(layout.id(bytes, 6))),
                    (true, true) => (
                        layout.id(bytes, 4),
                        u64::from(word(8)) << 32 | u64::from(word(12)),
                    ),
                };
                (index.saturating_mul(width), word(0), id, offset)
            })
    }

    /// Name and value of each enumerator, and its position in the data.
    pub(crate) fn enumerators(&self) -> impl Iterator<Item = (usize, u32, i32)> {
        let endian = self.encoding.endian;
        self.data
            .chunks_exact(8)
            .enumerate()
            .map(move |(index, bytes)| {
                let value = endian.u32(bytes, 4).unwrap_or(0).cast_signed();
                (
                    index.saturating_mul(8),
                    endian.u32(bytes, 0).unwrap_or(0),
                    value,
                )
            })
    }

    /// Offset and width in bits of a slice.
    pub(crate) fn slice(&self) -> (u16, u16) {
        let at = if self.encoding.is_narrow { 2 } else { 4 };
        let half = |at| self.encoding.endian.u16(self.data, at).unwrap_or(0);
        (half(at), half(at + 2))
    }

    /// The integer type of a slice.
    pub(crate) fn sliced(&self) -> u32 {
        self.encoding.id(self.data, 0)
    }

    fn id_width(&self) -> usize {
        if self.encoding.is_narrow { 2 } else { 4 }
    }

    fn has_large_members(&self) -> bool {
        self.size >= large_struct(self.encoding.is_narrow)
    }
}

fn large_struct(is_narrow: bool) -> u64 {
    if is_narrow {
        LARGE_STRUCT_V1
    } else {
        LARGE_STRUCT
    }
}

fn member_width(is_narrow: bool, is_large: bool) -> usize {
    match (is_narrow, is_large) {
        (_, true) => 16,
        (true, false) => 8,
        (false, false) => 12,
    }
}

/// The types of a dictionary. Ends at the first of unknown size.
#[derive(Debug, Clone)]
pub(crate) struct Records<'d> {
    dict: &'d Dict<'d>,
    bytes: &'d [u8],
    at: usize,
    index: u32,
}

impl<'d> Records<'d> {
    pub(crate) fn new(dict: &'d Dict<'_>) -> Records<'d> {
        Records {
            bytes: dict.part(&dict.header().types),
            dict,
            at: 0,
            index: 0,
        }
    }

    /// The offset in the section of a position among the types.
    fn offset(&self, at: usize) -> u64 {
        let start = size(u64::from(self.dict.header().types.start));
        self.dict.offset(start.saturating_add(at))
    }

    fn read(&mut self) -> Result<CtfRecord<'d>, CtfError> {
        let layout = RecordEncoding {
            endian: self.dict.endian(),
            is_narrow: self.dict.header().version == CtfVersion::V1,
        };
        let offset = self.offset(self.at);
        let fixed = if layout.is_narrow { 8 } else { 12 };
        let truncated = |needed: usize| CtfError::Truncated {
            what: "type",
            offset,
            needed: wide(needed),
            end: self.offset(self.bytes.len()),
        };
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.len() < fixed {
            return Err(truncated(fixed));
        }
        let name = layout.endian.u32(rest, 0).unwrap_or(0);
        let (kind, is_root, count, small) = info(layout, rest);
        let is_large = small == if layout.is_narrow { 0xffff } else { u32::MAX };
        let has_size = !matches!(
            kind,
            kind::POINTER | kind::FUNCTION | kind::FORWARD..=kind::RESTRICT
        );
        let (size_of, start) = if is_large && has_size {
            let word = |at| {
                layout
                    .endian
                    .u32(rest, at)
                    .ok_or_else(|| truncated(fixed + 8))
            };
            (
                u64::from(word(fixed)?) << 32 | u64::from(word(fixed + 4)?),
                fixed + 8,
            )
        } else {
            (u64::from(small), fixed)
        };
        let width = data_width(kind, count, layout.is_narrow, size_of).ok_or(CtfError::Kind {
            id: self.index,
            offset,
            kind,
        })?;
        let end = start.saturating_add(width);
        let data = rest.get(start..end).ok_or_else(|| truncated(end))?;
        self.at = self.at.saturating_add(end);
        Ok(CtfRecord {
            index: self.index,
            offset,
            name,
            kind,
            is_root,
            count,
            size: size_of,
            reference: small,
            data,
            encoding: layout,
        })
    }
}

/// Kind, root flag, count, and size or type, from the fixed part of a record.
fn info(encoding: RecordEncoding, bytes: &[u8]) -> (u8, bool, u32, u32) {
    let low = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    if encoding.is_narrow {
        let half = |at| encoding.endian.u16(bytes, at).map_or(0, u32::from);
        let info = half(4);
        return (low(info >> 11), info & 0x400 != 0, info & 0x3ff, half(6));
    }
    let word = |at| encoding.endian.u32(bytes, at).unwrap_or(0);
    let info = word(4);
    (
        low(info >> 26),
        info & 0x200_0000 != 0,
        info & 0xff_ffff,
        word(8),
    )
}

/// The size of the data after the fixed part, in bytes; `None` for an unknown kind.
fn data_width(kind: u8, count: u32, is_narrow: bool, size_of: u64) -> Option<usize> {
    let count = size(u64::from(count));
    let id = if is_narrow { 2 } else { 4 };
    Some(match kind {
        kind::UNKNOWN | kind::POINTER | kind::FORWARD..=kind::RESTRICT => 0,
        kind::INTEGER | kind::FLOAT => 4,
        kind::ARRAY => id * 2 + 4,
        kind::FUNCTION => (count + (count & 1)).saturating_mul(id),
        kind::STRUCT | kind::UNION => {
            let is_large = size_of >= large_struct(is_narrow);
            count.saturating_mul(member_width(is_narrow, is_large))
        }
        kind::ENUM => count.saturating_mul(8),
        kind::SLICE => id + 4,
        _ => return None,
    })
}

impl<'d> Iterator for Records<'d> {
    type Item = Result<CtfRecord<'d>, CtfError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        self.index = self.index.saturating_add(1);
        let record = self.read();
        if record.is_err() {
            self.at = self.bytes.len();
        }
        Some(record)
    }
}
