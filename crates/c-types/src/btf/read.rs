//! Reading BTF into a graph.

use std::borrow::Cow;

use super::{BTF_MAGIC, HEADER_BYTES, error::BtfError, kind};
use crate::bytes::{Endian, size, wide};
use crate::dict::UNKNOWN_NAME;
use crate::graph::{
    Enumerator, Graph, Member, Number, Parameter, Qualifier, Tag, Type, TypeId, TypeKind,
    TypedSymbol,
};

/// A graph, and the faults of its BTF.
#[derive(Debug)]
pub struct BtfReading<'a> {
    /// The readable types, functions and variables. The type `void` is the last.
    pub graph: Graph<'a>,
    /// The byte order of numbers.
    pub endian: Endian,
    /// One error for each entry that was not read, or only in part. Missing references are
    /// [`TypeId::NONE`].
    pub problems: Vec<BtfError>,
}

/// A stored type.
#[derive(Clone, Copy)]
struct BtfRecord<'a> {
    id: u32,
    offset: u64,
    name: u32,
    kind: u8,
    flag: bool,
    count: u32,
    /// Its size, or the referenced type.
    word: u32,
    data: &'a [u8],
}

/// The graph's counterpart of an id of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BtfTypeRef {
    Type(TypeId),
    /// A tag; its target replaces it.
    Alias(u32),
    /// A function, a variable or a section.
    NoType,
}

impl<'a> BtfReading<'a> {
    /// Reads BTF of a machine with pointers of that size in bytes. (BTF lacks the size.)
    ///
    /// # Errors
    ///
    /// The header is not one of BTF, or its parts are missing. Faults of single types are in
    /// [`BtfReading::problems`].
    pub fn parse(bytes: &'a [u8], pointer_size: u64) -> Result<BtfReading<'a>, BtfError> {
        let parts = BtfSections::parse(bytes)?;
        let mut problems = Vec::new();
        let mut records = Vec::new();
        for record in parts.records() {
            match record {
                Ok(record) => records.push(record),
                Err(problem) => problems.push(problem),
            }
        }
        let mut slots = vec![BtfTypeRef::NoType];
        let mut next = 1;
        for record in &records {
            slots.push(match record.kind {
                kind::FUNC | kind::VAR | kind::DATASEC | kind::DECL_TAG => BtfTypeRef::NoType,
                kind::TYPE_TAG => BtfTypeRef::Alias(record.word),
                _ => BtfTypeRef::Type(TypeId(next)),
            });
            next += u32::from(matches!(slots.last(), Some(BtfTypeRef::Type(_))));
        }
        let mut reader = BtfGraphReader {
            sections: &parts,
            slots: &slots,
            void: TypeId(next),
            graph: Graph::new(pointer_size),
            problems,
        };
        for record in &records {
            reader.add(record);
        }
        let void = TypeKind::Integer(Number::with_size(0, Number::SIGNED));
        reader.graph.add(Type::named("void", void));
        Ok(BtfReading {
            graph: reader.graph,
            endian: parts.endian,
            problems: reader.problems,
        })
    }
}

/// The parts of a file, by its header.
struct BtfSections<'a> {
    endian: Endian,
    types: &'a [u8],
    /// The offset of the types in the file.
    start: usize,
    strings: &'a [u8],
}

impl<'a> BtfSections<'a> {
    fn parse(bytes: &'a [u8]) -> Result<BtfSections<'a>, BtfError> {
        let found = Endian::Little.u16(bytes, 0).unwrap_or(0);
        let endian = match found {
            BTF_MAGIC => Endian::Little,
            _ if found.swap_bytes() == BTF_MAGIC => Endian::Big,
            _ => return Err(BtfError::Magic { found }),
        };
        let truncated = |what, offset: usize, needed: usize| BtfError::Truncated {
            what,
            offset: wide(offset),
            needed: wide(needed),
            end: wide(bytes.len()),
        };
        let word = |at| {
            endian
                .u32(bytes, at)
                .ok_or(truncated("header", 0, HEADER_BYTES))
        };
        match bytes.get(2) {
            Some(1) => {}
            Some(version) => return Err(BtfError::Version { version: *version }),
            None => return Err(truncated("header", 0, HEADER_BYTES)),
        }
        let header = size(u64::from(word(4)?));
        let part = |what, at, length| {
            let start = header.saturating_add(size(u64::from(word(at)?)));
            let length = size(u64::from(word(length)?));
            let part = bytes.get(start..start.saturating_add(length));
            part.map(|part| (start, part))
                .ok_or(truncated(what, start, length))
        };
        let (start, types) = part("types", 8, 12)?;
        let (_, strings) = part("strings", 16, 20)?;
        Ok(BtfSections {
            endian,
            types,
            start,
            strings,
        })
    }

    /// The types, up to the first of unknown size.
    fn records(&self) -> impl Iterator<Item = Result<BtfRecord<'a>, BtfError>> {
        let mut at = 0;
        let mut id = 0;
        std::iter::from_fn(move || {
            if at >= self.types.len() {
                return None;
            }
            id += 1;
            let record = self.record(id, at);
            at = match &record {
                Ok((_, end)) => *end,
                Err(_) => self.types.len(),
            };
            Some(record.map(|(record, _)| record))
        })
    }

    fn record(&self, id: u32, at: usize) -> Result<(BtfRecord<'a>, usize), BtfError> {
        let offset = wide(self.start.saturating_add(at));
        let truncated = |needed: usize| BtfError::Truncated {
            what: "type",
            offset,
            needed: wide(needed),
            end: wide(self.start.saturating_add(self.types.len())),
        };
        let word = |index: usize| {
            let word = self.endian.u32(self.types, at.saturating_add(index * 4));
            word.ok_or_else(|| truncated(12))
        };
        let (name, info, last) = (word(0)?, word(1)?, word(2)?);
        let kind = u8::try_from(info >> 24 & 0x1f).unwrap_or(0);
        let count = info & 0xffff;
        let width = width(kind, count).ok_or(BtfError::Kind { id, offset, kind })?;
        let end = at.saturating_add(12).saturating_add(width);
        let data = self.types.get(at.saturating_add(12)..end);
        let record = BtfRecord {
            id,
            offset,
            name,
            kind,
            flag: info >> 31 != 0,
            count,
            word: last,
            data: data.ok_or_else(|| truncated(width.saturating_add(12)))?,
        };
        Ok((record, end))
    }

    fn name(&self, at: u32) -> Option<Cow<'a, str>> {
        let rest = self.strings.get(size(u64::from(at))..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(rest.get(..end)?))
    }
}

/// The size in bytes of the data behind the three common numbers; `None` for an unknown kind.
fn width(kind: u8, count: u32) -> Option<usize> {
    let count = size(u64::from(count));
    Some(match kind {
        kind::PTR | kind::FWD..=kind::FUNC | kind::FLOAT | kind::TYPE_TAG => 0,
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => count * 12,
        kind::ENUM | kind::FUNC_PROTO => count * 8,
        _ => return None,
    })
}

struct BtfGraphReader<'p, 'a> {
    sections: &'p BtfSections<'a>,
    slots: &'p [BtfTypeRef],
    void: TypeId,
    graph: Graph<'a>,
    problems: Vec<BtfError>,
}

impl<'a> BtfGraphReader<'_, 'a> {
    fn add(&mut self, record: &BtfRecord<'a>) {
        match record.kind {
            kind::DATASEC | kind::DECL_TAG | kind::TYPE_TAG => {}
            kind::FUNC | kind::VAR => {
                let symbol = TypedSymbol {
                    name: self.name(record, record.name),
                    ty: self.id(record, record.word),
                };
                match record.kind {
                    kind::FUNC => self.graph.functions.push(symbol),
                    _ => self.graph.objects.push(symbol),
                }
            }
            _ => {
                let name = self.name(record, record.name);
                let kind = self.kind(record, &name);
                self.graph.add(Type::named(name, kind));
            }
        }
    }

    fn kind(&mut self, record: &BtfRecord<'a>, name: &str) -> TypeKind<'a> {
        let bytes = u64::from(record.word);
        match record.kind {
            kind::INT => TypeKind::Integer(self.number(record, name)),
            kind::FLOAT => TypeKind::Float(Number {
                size: bytes,
                format: match (bytes, name.contains("omplex")) {
                    (2 | 4, false) => 1,
                    (8, false) => 2,
                    (8, true) => 3,
                    (16, true) => 4,
                    _ => 6,
                },
                offset: 0,
                bits: u16::try_from(bytes.saturating_mul(8)).unwrap_or(u16::MAX),
            }),
            kind::PTR => TypeKind::Pointer(self.id(record, record.word)),
            kind::TYPEDEF => TypeKind::Typedef(self.id(record, record.word)),
            kind::VOLATILE => self.qualified(Qualifier::Volatile, record),
            kind::CONST => self.qualified(Qualifier::Const, record),
            kind::RESTRICT => self.qualified(Qualifier::Restrict, record),
            kind::ARRAY => TypeKind::Array {
                element: self.id(record, self.word(record, 0)),
                index: self.id(record, self.word(record, 1)),
                count: u64::from(self.word(record, 2)),
            },
            kind::FUNC_PROTO => self.prototype(record),
            kind::STRUCT => self.record(record, Tag::Struct),
            kind::UNION => self.record(record, Tag::Union),
            kind::FWD if record.flag => TypeKind::Forward(Tag::Union),
            kind::FWD => TypeKind::Forward(Tag::Struct),
            // BTF has no other encoding for a tag without a definition.
            kind::ENUM | kind::ENUM64 if record.count == 0 && !name.is_empty() => {
                TypeKind::Forward(Tag::Enum)
            }
            kind::ENUM => self.enumeration(record, 8),
            kind::ENUM64 => self.enumeration(record, 12),
            _ => TypeKind::Unknown,
        }
    }

    fn qualified(&mut self, qualifier: Qualifier, record: &BtfRecord<'a>) -> TypeKind<'a> {
        TypeKind::Qualified(qualifier, self.id(record, record.word))
    }

    /// A number in the data of a type.
    fn word(&self, record: &BtfRecord<'a>, index: usize) -> u32 {
        let word = self.sections.endian.u32(record.data, index * 4);
        word.unwrap_or(0)
    }

    fn number(&self, record: &BtfRecord<'a>, name: &str) -> Number {
        let [format, offset, _, bits] = self.word(record, 0).to_be_bytes();
        // Producers do not use the encoding for characters: it excludes a sign.
        let is_char = matches!(name, "char" | "signed char" | "unsigned char");
        Number {
            size: u64::from(record.word),
            format: format | if is_char { Number::CHAR } else { 0 },
            offset,
            bits: u16::from(bits),
        }
    }

    fn prototype(&mut self, record: &BtfRecord<'a>) -> TypeKind<'a> {
        let mut pairs: Vec<(u32, u32)> = self
            .entries(record, 2)
            .map(|entry| (entry[0], entry[1]))
            .collect();
        // A last parameter without a type is `...`.
        let is_variadic = pairs.last() == Some(&(0, 0));
        if is_variadic {
            pairs.pop();
        }
        let parameter = |(name, id)| Parameter {
            name: self.name(record, name),
            ty: self.id(record, id),
        };
        let parameters = pairs.into_iter().map(parameter).collect();
        TypeKind::Function {
            returns: self.id(record, record.word),
            parameters,
            is_variadic,
        }
    }

    fn record(&mut self, record: &BtfRecord<'a>, tag: Tag) -> TypeKind<'a> {
        let entries: Vec<[u32; 3]> = self.entries(record, 3).collect();
        let member = |[name, id, place]: [u32; 3]| {
            let (bits, offset) = if record.flag {
                (place >> 24, place & 0xff_ffff)
            } else {
                (0, place)
            };
            Member {
                name: self.name(record, name),
                ty: self.id(record, id),
                offset: u64::from(offset),
                bits: (bits != 0).then(|| u16::try_from(bits).unwrap_or(0)),
            }
        };
        TypeKind::Record {
            tag,
            size: u64::from(record.word),
            members: entries.into_iter().map(member).collect(),
        }
    }

    fn enumeration(&mut self, record: &BtfRecord<'a>, width: usize) -> TypeKind<'a> {
        let entries: Vec<[u32; 3]> = self.entries(record, width / 4).collect();
        let enumerator = |[name, low, high]: [u32; 3]| Enumerator {
            name: self.name(record, name),
            value: match (width, record.flag) {
                (8, true) => i128::from(low.cast_signed()),
                (8, false) => i128::from(low),
                (_, true) => i128::from((u64::from(high) << 32 | u64::from(low)).cast_signed()),
                (_, false) => i128::from(u64::from(high) << 32 | u64::from(low)),
            },
        };
        TypeKind::Enum {
            size: u64::from(record.word),
            is_signed: record.flag,
            enumerators: entries.into_iter().map(enumerator).collect(),
        }
    }

    /// The entries of a type's data: `width` numbers each, at most three.
    fn entries(
        &self,
        record: &BtfRecord<'a>,
        words: usize,
    ) -> impl Iterator<Item = [u32; 3]> + use<'a> {
        let endian = self.sections.endian;
        let entries = record.data.chunks_exact(words * 4);
        entries.map(move |entry| [0, 4, 8].map(|at| endian.u32(entry, at).unwrap_or(0)))
    }

    fn name(&mut self, record: &BtfRecord<'a>, name: u32) -> Cow<'a, str> {
        self.sections.name(name).unwrap_or_else(|| {
            self.problems.push(BtfError::Name {
                id: record.id,
                offset: record.offset,
                name,
                size: wide(self.sections.strings.len()),
            });
            UNKNOWN_NAME.into()
        })
    }

    /// The graph's id for an id in the file.
    fn id(&mut self, record: &BtfRecord<'a>, id: u32) -> TypeId {
        let mut at = id;
        let what = 'wrong: {
            // Tags can be chained, and in a broken file be circular.
            for _ in 0..self.slots.len() {
                match self.slots.get(size(u64::from(at))) {
                    _ if at == 0 => return self.void,
                    Some(BtfTypeRef::Type(id)) => return *id,
                    Some(BtfTypeRef::Alias(to)) => at = *to,
                    Some(BtfTypeRef::NoType) => break 'wrong "no type",
                    None => break 'wrong "not there",
                }
            }
            "a tag of itself"
        };
        self.problems.push(BtfError::Reference {
            from: record.id,
            offset: record.offset,
            id,
            what,
        });
        TypeId::NONE
    }
}
