//! Reading BTF into a graph.

use std::borrow::Cow;
use std::sync::Arc;

use super::{BTF_MAGIC, HEADER_BYTES, base::BtfBase, error::BtfError, kind};
use crate::bytes::{self, Endian, size, wide};
use crate::dict::UNKNOWN_NAME;
use crate::graph::{
    DataSection, Declaration, DeclarationTag, Enumerator, Graph, Linkage, Member, Number,
    Parameter, Qualifier, Tag, Type, TypeId, TypeKind, TypedSymbol,
};

/// A graph, and the faults of its BTF.
#[derive(Debug)]
pub struct BtfReading<'a> {
    /// The readable types, functions and variables. The type `void` is the last; split BTF has its
    /// base's. The base is the graph's parent.
    pub graph: Graph<'a>,
    /// The byte order of numbers.
    pub endian: Endian,
    /// One error for each entry that was not read, or only in part. Missing references are
    /// [`TypeId::NONE`].
    pub problems: Vec<BtfError>,
    /// The graph's counterparts of its own ids, in order.
    pub(super) slots: Vec<BtfSlot>,
    pub(super) void: TypeId,
    pub(super) strings: &'a [u8],
}

/// The linkages, by their numbers.
const LINKAGES: [Linkage; 3] = [Linkage::Static, Linkage::Global, Linkage::Extern];

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BtfSlot {
    Type(TypeId),
    /// The index of a function in the graph's list.
    Function(usize),
    /// The same of data.
    Object(usize),
    /// A section or a tag.
    None,
}

impl<'a> BtfReading<'a> {
    /// Reads BTF of a machine with pointers of that size in bytes. (BTF lacks the size.)
    ///
    /// # Errors
    ///
    /// The header is not one of BTF, its parts are missing, or it needs a base. Faults of single
    /// types are in [`BtfReading::problems`].
    pub fn parse(bytes: &'a [u8], pointer_size: u64) -> Result<BtfReading<'a>, BtfError> {
        BtfReading::read(&BtfSections::parse(bytes)?, pointer_size, None)
    }

    /// Reads all BTF of a section: linkers append the BTF of object files to each other. Split BTF
    /// is read with its base.
    ///
    /// # Errors
    ///
    /// Those of [`BtfReading::parse`].
    pub fn parse_all(
        bytes: &'a [u8],
        pointer_size: u64,
        base: Option<&BtfBase<'a>>,
    ) -> Result<Vec<BtfReading<'a>>, BtfError> {
        let mut readings = Vec::new();
        let mut at = 0;
        loop {
            let sections = BtfSections::parse(bytes.get(at..).unwrap_or_default())?;
            readings.push(BtfReading::read(&sections, pointer_size, base)?);
            // gcc's sections have no alignment, others four bytes.
            let end = at.saturating_add(sections.end);
            let is_next = |at: &usize| {
                let rest = bytes.get(*at..).unwrap_or_default();
                sections.endian.u16(rest, 0) == Some(BTF_MAGIC)
            };
            let mut places = [end, end.saturating_add(3) & !3].into_iter();
            match places.find(is_next) {
                Some(next) => at = next,
                None => {
                    let rest = bytes.get(end..).unwrap_or_default();
                    if let Some(last) = readings.last_mut()
                        && rest.iter().any(|byte| *byte != 0)
                    {
                        last.problems.push(BtfError::Trailing {
                            offset: wide(end),
                            size: wide(rest.len()),
                        });
                    }
                    return Ok(readings);
                }
            }
        }
    }

    /// Whether bytes are split BTF: the strings of other BTF begin with an empty one.
    #[must_use]
    pub fn is_split(bytes: &[u8]) -> bool {
        BtfSections::parse(bytes).is_ok_and(|sections| sections.is_split())
    }

    fn read(
        parts: &BtfSections<'a>,
        pointer_size: u64,
        base: Option<&BtfBase<'a>>,
    ) -> Result<BtfReading<'a>, BtfError> {
        if parts.is_split() && base.is_none() {
            return Err(BtfError::Split);
        }
        let base = base.filter(|_| parts.is_split());
        let (graph, inherited) = match base {
            Some(base) => (Graph::with_parent(Arc::clone(&base.graph)), &*base.slots),
            None => (Graph::new(pointer_size), &[][..]),
        };
        let first = u32::try_from(inherited.len()).unwrap_or(u32::MAX);
        let mut problems = Vec::new();
        let mut records = Vec::new();
        for record in parts.records(first) {
            match record {
                Ok(record) => records.push(record),
                Err(problem) => problems.push(problem),
            }
        }
        let mut slots = Vec::with_capacity(records.len());
        let mut next = graph.last().saturating_add(1);
        let (mut functions, mut objects) = (0.., 0..);
        for record in &records {
            slots.push(match record.kind {
                kind::FUNC => functions.next().map_or(BtfSlot::None, BtfSlot::Function),
                kind::VAR => objects.next().map_or(BtfSlot::None, BtfSlot::Object),
                kind::DATASEC | kind::DECL_TAG => BtfSlot::None,
                _ => BtfSlot::Type(TypeId(next)),
            });
            next += u32::from(matches!(slots.last(), Some(BtfSlot::Type(_))));
        }
        let mut reader = BtfGraphReader {
            sections: parts,
            base_strings: base.map_or(&[], |base| base.strings),
            inherited,
            slots: &slots,
            void: base.map_or(TypeId(next), |base| base.void),
            graph,
            problems,
            misfit: None,
        };
        for record in &records {
            reader.add(record);
        }
        // Their targets can be behind them.
        for record in &records {
            reader.add_section_or_tag(record);
        }
        if let Some(id) = reader.misfit {
            return Err(BtfError::WrongBase { id });
        }
        if base.is_none() {
            let void = TypeKind::Integer(Number::with_size(0, Number::SIGNED));
            reader.graph.add(Type::named("void", void));
        }
        Ok(BtfReading {
            void: reader.void,
            graph: reader.graph,
            endian: parts.endian,
            problems: reader.problems,
            slots,
            strings: parts.strings,
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
    /// The number of bytes of all.
    end: usize,
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
        let (strings_start, strings) = part("strings", 16, 20)?;
        let ends = [
            start + types.len(),
            strings_start + strings.len(),
            HEADER_BYTES,
        ];
        Ok(BtfSections {
            endian,
            types,
            start,
            strings,
            end: ends.into_iter().max().unwrap_or(header),
        })
    }

    fn is_split(&self) -> bool {
        self.strings.first() != Some(&0)
    }

    /// The types, up to the first of unknown size. `id` is the id before the first.
    fn records(&self, mut id: u32) -> impl Iterator<Item = Result<BtfRecord<'a>, BtfError>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at >= self.types.len() {
                return None;
            }
            id = id.saturating_add(1);
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
    base_strings: &'a [u8],
    /// The counterparts of the base's ids, from 1 on, and of the own ones behind them.
    inherited: &'p [BtfSlot],
    slots: &'p [BtfSlot],
    void: TypeId,
    graph: Graph<'a>,
    problems: Vec<BtfError>,
    /// The first type that does not fit the base.
    misfit: Option<u32>,
}

impl<'a> BtfGraphReader<'_, 'a> {
    fn add(&mut self, record: &BtfRecord<'a>) {
        match record.kind {
            kind::DATASEC | kind::DECL_TAG => {}
            kind::FUNC | kind::VAR => {
                let linkage = match record.kind {
                    kind::FUNC => record.count,
                    _ => self.word(record, 0),
                };
                let symbol = TypedSymbol {
                    name: self.name(record, record.name),
                    ty: self.id(record, record.word),
                    linkage: LINKAGES.get(size(u64::from(linkage))).copied(),
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

    fn add_section_or_tag(&mut self, record: &BtfRecord<'a>) {
        match record.kind {
            kind::DATASEC => {
                let entries: Vec<[u32; 3]> = self.entries(record, 3).collect();
                let entries = entries.into_iter().filter_map(|[id, offset, size]| {
                    Some((self.declaration(record, id)?, offset, size))
                });
                let entries = entries.collect();
                let name = self.name(record, record.name);
                self.graph.sections.push(DataSection {
                    name,
                    size: u64::from(record.word),
                    entries,
                });
            }
            kind::DECL_TAG => {
                let component = self.word(record, 0);
                if let Some(of) = self.declaration(record, record.word) {
                    let tag = DeclarationTag {
                        name: self.name(record, record.name),
                        of,
                        component: Some(component).filter(|index| *index != u32::MAX),
                        is_attribute: record.flag,
                    };
                    self.graph.declaration_tags.push(tag);
                }
            }
            _ => {}
        }
    }

    /// The type, function or data with an id.
    fn declaration(&mut self, record: &BtfRecord<'a>, id: u32) -> Option<Declaration<'a>> {
        let is_own = size(u64::from(id)) > self.inherited.len();
        let graph = if is_own {
            Some(&self.graph)
        } else {
            self.graph.parent()
        };
        let name = |all: &[TypedSymbol<'a>], index: usize| Some(all.get(index)?.name.clone());
        let found = match self.slot(id) {
            Some(BtfSlot::Type(id)) => Some(Declaration::Type(id)),
            Some(BtfSlot::Function(index)) => graph
                .and_then(|graph| name(&graph.functions, index))
                .map(Declaration::Function),
            Some(BtfSlot::Object(index)) => graph
                .and_then(|graph| name(&graph.objects, index))
                .map(Declaration::Object),
            _ => None,
        };
        if found.is_none() {
            self.refuse(record, id, "no declaration");
        }
        found
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
            kind::TYPE_TAG => TypeKind::TypeTag {
                of: self.id(record, record.word),
                is_attribute: record.flag,
            },
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
        let at = size(u64::from(name));
        let (strings, start) = match at.checked_sub(self.base_strings.len()) {
            Some(own) => (self.sections.strings, own),
            None => (self.base_strings, at),
        };
        // pahole writes each name once, whole. With another base, offsets are elsewhere in a name.
        let before = start.checked_sub(1).and_then(|before| strings.get(before));
        if !self.base_strings.is_empty() && before.is_some_and(|byte| *byte != 0) {
            self.misfit.get_or_insert(record.id);
        }
        let found = strings.get(start..).and_then(bytes::name);
        found.unwrap_or_else(|| {
            self.problems.push(BtfError::Name {
                id: record.id,
                offset: record.offset,
                name,
                size: wide(self.base_strings.len() + self.sections.strings.len()),
            });
            UNKNOWN_NAME.into()
        })
    }

    /// The counterpart of an id; `None` if there is no such id.
    fn slot(&self, id: u32) -> Option<BtfSlot> {
        let index = size(u64::from(id.checked_sub(1)?));
        match index.checked_sub(self.inherited.len()) {
            Some(own) => self.slots.get(own).copied(),
            None => self.inherited.get(index).copied(),
        }
    }

    /// The graph's id for an id in the file.
    fn id(&mut self, record: &BtfRecord<'a>, id: u32) -> TypeId {
        let what = match self.slot(id) {
            _ if id == 0 => return self.void,
            Some(BtfSlot::Type(id)) => return id,
            Some(_) => "no type",
            None => "not there",
        };
        self.refuse(record, id, what);
        TypeId::NONE
    }

    /// Reports a wrong reference.
    fn refuse(&mut self, record: &BtfRecord<'a>, id: u32, what: &'static str) {
        if !self.inherited.is_empty() {
            self.misfit.get_or_insert(record.id);
        }
        self.problems.push(BtfError::Reference {
            from: record.id,
            offset: record.offset,
            id,
            what,
        });
    }
}
