//! Reading a dictionary into a graph.

use std::borrow::Cow;
use std::sync::Arc;

use crate::bytes::size;
use crate::dict::{Dict, TypedName, UNKNOWN_NAME};
use crate::elf::{ElfContext, ORDER_LABEL, SymbolKind};
use crate::error::CtfError;
use crate::graph::{
    Enumerator, Graph, Member, Number, Parameter, Qualifier, Tag, Type, TypeId, TypeKind,
    TypedSymbol,
};
use crate::header::{CtfVersion, Flags};
use crate::record::{CtfRecord, kind};

/// A graph, and the faults of its dictionary.
#[derive(Debug)]
pub struct CtfReading<'d> {
    /// The readable types, functions and variables.
    pub graph: Arc<Graph<'d>>,
    /// One error for each entry that was not read, or only in part. Missing references are
    /// [`TypeId::NONE`], and missing names [`UNKNOWN_NAME`].
    pub problems: Vec<CtfError>,
}

impl<'d> Dict<'d> {
    /// The types of the dictionary as a graph, with the typed symbols. A child needs its parent's
    /// graph.
    ///
    /// # Errors
    ///
    /// [`CtfError::NoParent`] and [`CtfError::StrtabNames`]. Faults of single entries are in
    /// [`CtfReading::problems`].
    pub fn graph(
        &'d self,
        parent: Option<&Arc<Graph<'d>>>,
        elf: ElfContext<'d>,
    ) -> Result<CtfReading<'d>, CtfError> {
        let mut graph = match (self.is_child(), parent) {
            (false, _) => Graph::new(elf.pointer_size()),
            (true, Some(parent)) => Graph::with_parent(Arc::clone(parent)),
            (true, None) => {
                return Err(CtfError::NoParent {
                    offset: self.base(),
                    parent: self.parent_name().unwrap_or_default().into_owned(),
                });
            }
        };
        let base = graph.base();
        let count = self.records().filter(Result::is_ok).count();
        graph.reserve(count);
        let mut reader = CtfGraphReader {
            dict: self,
            parents: base,
            own: u32::try_from(count).unwrap_or(u32::MAX),
            problems: Vec::new(),
            graph,
        };
        for record in self.records() {
            match record {
                Ok(record) => reader.add(&record),
                Err(problem) => reader.problems.push(problem),
            }
        }
        reader.symbols(elf);
        reader.graph.unit = self.unit_name();
        let header = self.header();
        let of_header = [header.unit_name, header.parent_name]
            .map(|name| self.name(name, "header", self.base()).err());
        let mut problems = of_header.iter().flatten().chain(&reader.problems);
        if let Some(refusal) = problems.find(|one| matches!(one, CtfError::StrtabNames { .. })) {
            return Err(refusal.clone());
        }
        Ok(CtfReading {
            graph: Arc::new(reader.graph),
            problems: reader.problems,
        })
    }
}

struct CtfGraphReader<'d> {
    dict: &'d Dict<'d>,
    /// The number of the parent's types.
    parents: u32,
    /// The number of the dictionary's types.
    own: u32,
    graph: Graph<'d>,
    problems: Vec<CtfError>,
}

impl<'d> CtfGraphReader<'d> {
    fn add(&mut self, record: &CtfRecord<'d>) {
        let offset = record.offset;
        let name = self.name(record.name, "type", offset);
        let kind = self.kind(record);
        self.graph.add(Type {
            name,
            is_hidden: !record.is_root,
            kind,
        });
    }

    fn kind(&mut self, record: &CtfRecord<'d>) -> TypeKind<'d> {
        let reference =
            |reader: &mut CtfGraphReader<'d>| reader.id(record.reference, "type", record.offset);
        match record.kind {
            kind::INTEGER => TypeKind::Integer(number(record)),
            kind::FLOAT => TypeKind::Float(number(record)),
            kind::POINTER => TypeKind::Pointer(reference(self)),
            kind::ARRAY => {
                let (element, index, count) = record.array();
                TypeKind::Array {
                    element: self.id(element, "array", record.offset),
                    index: self.id(index, "array", record.offset),
                    count: u64::from(count),
                }
            }
            kind::FUNCTION => self.function(record),
            kind::STRUCT => self.record(record, Tag::Struct),
            kind::UNION => self.record(record, Tag::Union),
            kind::ENUM => self.enumeration(record),
            kind::FORWARD => TypeKind::Forward(match u8::try_from(record.reference) {
                Ok(kind::UNION) => Tag::Union,
                Ok(kind::ENUM) => Tag::Enum,
                // Older producers write 0, from before forwards had a kind.
                _ => Tag::Struct,
            }),
            kind::TYPEDEF => TypeKind::Typedef(reference(self)),
            kind::VOLATILE => TypeKind::Qualified(Qualifier::Volatile, reference(self)),
            kind::CONST => TypeKind::Qualified(Qualifier::Const, reference(self)),
            kind::RESTRICT => TypeKind::Qualified(Qualifier::Restrict, reference(self)),
            kind::SLICE => {
                let (offset, bits) = record.slice();
                TypeKind::Slice {
                    of: self.id(record.sliced(), "slice", record.offset),
                    size: record.size,
                    offset,
                    bits,
                }
            }
            _ => TypeKind::Unknown,
        }
    }

    fn function(&mut self, record: &CtfRecord<'d>) -> TypeKind<'d> {
        let mut ids: Vec<_> = record.arguments().collect();
        // A last argument without a type is `...`.
        let is_variadic = ids.last() == Some(&0);
        if is_variadic {
            ids.pop();
        }
        let parameter = |id| Parameter {
            name: Cow::Borrowed(""),
            ty: self.id(id, "function", record.offset),
        };
        let parameters = ids.into_iter().map(parameter).collect();
        TypeKind::Function {
            returns: self.id(record.reference, "function", record.offset),
            parameters,
            is_variadic,
        }
    }

    fn record(&mut self, record: &CtfRecord<'d>, tag: Tag) -> TypeKind<'d> {
        let member = |(at, name, id, bits): (usize, u32, u32, u64)| {
            let offset = data_offset(record, at);
            Member {
                name: self.name(name, "member", offset),
                ty: self.id(id, "member", offset),
                offset: bits,
                bits: None,
            }
        };
        TypeKind::Record {
            tag,
            size: record.size,
            members: record.members().map(member).collect(),
        }
    }

    fn enumeration(&mut self, record: &CtfRecord<'d>) -> TypeKind<'d> {
        let enumerator = |(at, name, value): (usize, u32, i32)| Enumerator {
            name: self.name(name, "enumerator", data_offset(record, at)),
            value: i128::from(value),
        };
        let enumerators: Vec<_> = record.enumerators().map(enumerator).collect();
        TypeKind::Enum {
            size: record.size,
            is_signed: Enumerator::any_negative(&enumerators),
            enumerators,
        }
    }

    fn name(&mut self, name: u32, what: &'static str, offset: u64) -> Cow<'d, str> {
        self.dict
            .name(name, what, offset)
            .unwrap_or_else(|problem| {
                self.problems.push(problem);
                UNKNOWN_NAME.into()
            })
    }

    /// The graph's id for an id in the dictionary.
    fn id(&mut self, id: u32, what: &'static str, offset: u64) -> TypeId {
        let child_bit = self.dict.header().version.child_bit();
        let is_child = self.dict.is_child();
        let found = match (is_child, id & child_bit != 0) {
            (_, false) if id == 0 => return TypeId::NONE,
            (true, false) => (id <= self.parents).then_some(id),
            (true, true) => {
                let index = id & !child_bit;
                let is_own = index != 0 && index <= self.own;
                is_own.then(|| self.parents.saturating_add(index))
            }
            (false, _) => (id <= self.own).then_some(id),
        };
        match found {
            Some(id) => TypeId(id),
            None => {
                self.problems.push(CtfError::Reference { what, offset, id });
                TypeId::NONE
            }
        }
    }

    /// Functions, data and variables.
    fn symbols(&mut self, elf: ElfContext<'d>) {
        let header = self.dict.header();
        self.graph.variables = self.named(self.dict.pairs(&header.variables), "variable");
        if header.version == CtfVersion::V1 {
            return; // its tables cannot be matched with symbols any more
        }
        self.graph.objects = if header.object_index.is_empty() {
            self.ordered(SymbolKind::Object, elf)
        } else {
            self.indexed(SymbolKind::Object)
        };
        if !header.has_symbol_types() {
            return;
        }
        self.graph.functions = if header.function_index.is_empty() {
            self.ordered(SymbolKind::Function, elf)
        } else {
            self.indexed(SymbolKind::Function)
        };
    }

    fn named(
        &mut self,
        entries: impl Iterator<Item = TypedName>,
        what: &'static str,
    ) -> Vec<TypedSymbol<'d>> {
        let symbol = |entry: TypedName| {
            let name = self.name(entry.name, what, entry.offset);
            TypedSymbol::new(name, self.id(entry.id, what, entry.offset))
        };
        entries.map(symbol).collect()
    }

    /// The symbols with names in an index.
    fn indexed(&mut self, kind: SymbolKind) -> Vec<TypedSymbol<'d>> {
        let header = self.dict.header();
        let (index, types, what) = match kind {
            SymbolKind::Object => (&header.object_index, &header.objects, "data symbol"),
            SymbolKind::Function => (&header.function_index, &header.functions, "function symbol"),
        };
        let (dict, endian) = (self.dict, self.dict.endian());
        let word = move |bytes: &[u8]| endian.u32(bytes, 0).unwrap_or(0);
        let names = dict.part(index).chunks_exact(4).map(word);
        let ids = dict.part(types).chunks_exact(4).map(word);
        let start = size(u64::from(types.start));
        let entries = names
            .zip(ids)
            .enumerate()
            .map(|(nth, (name, id))| TypedName {
                offset: dict.offset(start.saturating_add(nth.saturating_mul(4))),
                name,
                id,
            });
        self.named(entries.filter(|entry| has_type(entry.id)), what)
    }

    /// Why the order of the ELF file's symbols is not that of the types; `None` if it is. Without
    /// a checksum, only GNU ld's order of `.dynsym` counts, because `strip` keeps it.
    fn order_fault(&self, is_dynamic: bool, elf: ElfContext<'d>) -> Option<&'static str> {
        let mut labels = self.dict.labels().flatten();
        match labels.find(|label| label.name.starts_with(ORDER_LABEL)) {
            Some(label) if label.name == elf.symbol_order_label(is_dynamic) => None,
            Some(_) => Some("which has changed since"),
            None => (!is_dynamic).then_some("which may have changed since"),
        }
    }

    /// The symbols in the order of the ELF file's.
    fn ordered(&mut self, kind: SymbolKind, elf: ElfContext<'d>) -> Vec<TypedSymbol<'d>> {
        let header = self.dict.header();
        let (part, what) = match kind {
            SymbolKind::Object => (&header.objects, "data symbol"),
            SymbolKind::Function => (&header.functions, "function symbol"),
        };
        let (dict, endian) = (self.dict, self.dict.endian());
        let start = size(u64::from(part.start));
        let is_dynamic = header.flags.has(Flags::DYNSTR);
        if !part.is_empty()
            && let Some(reason) = self.order_fault(is_dynamic, elf)
        {
            self.problems.push(CtfError::SymbolOrder {
                what,
                offset: dict.base(),
                table: if is_dynamic { ".dynsym" } else { ".symtab" },
                reason,
            });
            return Vec::new();
        }
        let symbols = elf.typed_symbols(is_dynamic);
        let symbols = symbols.filter(|symbol| symbol.kind == kind);
        let ids = dict
            .part(part)
            .chunks_exact(4)
            .map(|bytes| endian.u32(bytes, 0).unwrap_or(0));
        let symbol = |(nth, (id, symbol)): (usize, (u32, crate::elf::ElfSymbol<'d>))| {
            let offset = dict.offset(start.saturating_add(nth.saturating_mul(4)));
            has_type(id).then(|| TypedSymbol::new(symbol.name, self.id(id, what, offset)))
        };
        ids.zip(symbols).enumerate().filter_map(symbol).collect()
    }
}

/// Whether a symbol has a type: zero and all ones mean none.
fn has_type(id: u32) -> bool {
    id != 0 && id != u32::MAX
}

/// The offset in the section of a position in a record's data.
fn data_offset(record: &CtfRecord<'_>, at: usize) -> u64 {
    let is_large = record.size > u64::from(u32::MAX);
    let fixed = match (record.encoding.is_narrow, is_large) {
        (true, _) => 8,
        (false, false) => 12,
        (false, true) => 20,
    };
    record
        .offset
        .saturating_add(fixed)
        .saturating_add(crate::bytes::wide(at))
}

fn number(record: &CtfRecord<'_>) -> Number {
    let word = record.word(0);
    let [high, offset, ..] = word.to_be_bytes();
    Number {
        size: record.size,
        format: high,
        offset,
        bits: u16::try_from(word & 0xffff).unwrap_or(0),
    }
}
