//! Graphs into CTF version 3 (the version byte is 4).

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};

use crate::archive::{ARCHIVE_MAGIC, SHARED};
use crate::bytes::{Endian, wide};
use crate::elf::{ElfContext, SymbolKind};
use crate::graph::{Graph, Kind, Member, Number, Qualifier, Symbol, Tag, Type, TypeId};
use crate::header::{Flags, MAGIC, Version};
use crate::link::Linked;
use crate::record::{LARGE_STRUCT, kind};

/// In which form it is said which symbols have types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SymbolForm {
    /// By names, which are stored beside the types.
    #[default]
    Names,
    /// For the symbols of `.symtab`, as far as that is smaller in their order. Means nothing any more when that is stripped.
    Symtab,
    /// For the symbols of `.dynsym`, as far as that is smaller in their order.
    Dynsym,
    /// Not at all.
    None,
}

/// Writes CTF.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'e> {
    /// The order of bytes in numbers.
    pub endian: Endian,
    /// Whether dictionaries are compressed where that makes them smaller.
    pub compress: bool,
    /// In which form symbols are written.
    pub symbols: SymbolForm,
    /// The ELF file that it is for, whose strings and symbols are used.
    pub elf: ElfContext<'e>,
}

impl Default for Writer<'_> {
    fn default() -> Self {
        Writer {
            endian: Endian::Little,
            compress: true,
            symbols: SymbolForm::Names,
            elf: ElfContext::default(),
        }
    }
}

/// The best of libdeflate's levels; what there is to compress is small.
const LEVEL: i32 = 12;

impl Writer<'_> {
    /// Writes what was linked: a dictionary, or an archive if there are children.
    #[must_use]
    pub fn write(&self, linked: &Linked<'_>) -> Vec<u8> {
        let external = External::of(self);
        let shared = self.one(&linked.shared, &external);
        if linked.children.is_empty() {
            return shared;
        }
        let mut dicts = vec![(Cow::Borrowed(SHARED), shared)];
        for (name, child) in &linked.children {
            dicts.push((Cow::Borrowed(&**name), self.one(child, &external)));
        }
        archive(dicts, self.elf.pointer_size())
    }

    /// Writes one graph as a dictionary. Of values of enumerators the low 32 bits are kept, of arrays at most 2^32-1 elements, and 2^24-1 members: there is no
    /// room for more.
    #[must_use]
    pub fn dict(&self, graph: &Graph<'_>) -> Vec<u8> {
        self.one(graph, &External::of(self))
    }

    fn one(&self, graph: &Graph<'_>, external: &External<'_>) -> Vec<u8> {
        DictWriter::new(self, graph, external).bytes()
    }
}

/// What the ELF file has already.
struct External<'e> {
    /// Its strings, with their offsets.
    strings: HashMap<&'e [u8], u32>,
    /// The places of its symbols of each kind, by name, and how many there are.
    places: [HashMap<Cow<'e, str>, Vec<usize>>; 2],
}

impl<'e> External<'e> {
    fn of(writer: &Writer<'e>) -> External<'e> {
        let mut external = External {
            strings: HashMap::new(),
            places: [HashMap::new(), HashMap::new()],
        };
        let is_dynamic = match writer.symbols {
            SymbolForm::Names | SymbolForm::None => return external,
            SymbolForm::Symtab => false,
            SymbolForm::Dynsym => true,
        };
        let strings = match is_dynamic {
            true => writer.elf.strings.dynstr,
            false => writer.elf.strings.strtab,
        };
        let mut at = 0;
        for string in strings.split(|byte| *byte == 0) {
            if let Ok(offset) = u32::try_from(at)
                && !string.is_empty()
            {
                external.strings.entry(string).or_insert(offset | 1 << 31);
            }
            at += string.len() + 1;
        }
        let mut counts = [0, 0];
        for symbol in writer.elf.typed_symbols(is_dynamic) {
            let [functions, objects] = &mut external.places;
            let [function_count, object_count] = &mut counts;
            let (places, count) = match symbol.kind {
                SymbolKind::Function => (functions, function_count),
                SymbolKind::Object => (objects, object_count),
            };
            places.entry(symbol.name).or_default().push(*count);
            *count += 1;
        }
        external
    }
}

/// A table of types of symbols: the types, and an index of names if they are not in the order of the ELF file's symbols.
#[derive(Default)]
struct SymbolTable<'g> {
    ids: Vec<u32>,
    names: Vec<&'g str>,
}

/// The strings of a dictionary.
#[derive(Default)]
struct Strings {
    offsets: HashMap<Box<str>, u32>,
    bytes: Vec<u8>,
}

impl Strings {
    /// Strings in the order of their letters, in which they compress best. One that another ends with needs no bytes of its own.
    fn of(names: HashSet<&str>) -> Strings {
        let mut names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.sort_unstable_by(|one, other| one.bytes().rev().cmp(other.bytes().rev()));
        let mut strings = Strings {
            bytes: vec![0],
            ..Strings::default()
        };
        let mut longest: Vec<(&str, Vec<&str>)> = Vec::new();
        for name in names.into_iter().rev() {
            match longest.last_mut() {
                Some((long, ends)) if long.ends_with(name) => ends.push(name),
                _ => longest.push((name, Vec::new())),
            }
        }
        longest.sort_unstable();
        for (long, ends) in longest {
            let at = strings.bytes.len();
            strings.bytes.extend_from_slice(long.as_bytes());
            strings.bytes.push(0);
            for name in ends.into_iter().chain([long]) {
                let offset = u32::try_from(at + long.len() - name.len()).unwrap_or(0);
                strings.offsets.insert(name.into(), offset);
            }
        }
        strings
    }
}

struct DictWriter<'w, 'a> {
    writer: &'w Writer<'w>,
    graph: Cow<'w, Graph<'a>>,
    external: &'w External<'w>,
    strings: Strings,
}

impl<'w, 'a> DictWriter<'w, 'a> {
    fn new(
        writer: &'w Writer<'w>,
        graph: &'w Graph<'a>,
        external: &'w External<'w>,
    ) -> DictWriter<'w, 'a> {
        DictWriter {
            writer,
            graph: with_slices(graph),
            external,
            strings: Strings::default(),
        }
    }

    fn bytes(mut self) -> Vec<u8> {
        let graph = self.graph.clone();
        let functions = self.table(&graph.functions, 0);
        let objects = self.table(&graph.objects, 1);
        let mut variables: Vec<&Symbol<'_>> = graph.variables.iter().collect();
        variables.sort_by(|one, other| one.name.cmp(&other.name));
        let parent = graph.parent().map_or("", |_| SHARED);
        let unit = graph.unit.as_deref().unwrap_or_default();
        let mut names: HashSet<&str> = HashSet::new();
        for (_, ty) in graph.types() {
            names_of(ty, |name| {
                names.insert(name);
            });
        }
        names.extend(functions.names.iter().chain(&objects.names));
        names.extend(variables.iter().map(|symbol| &*symbol.name));
        names.extend([parent, unit]);
        names.retain(|name| !self.external.strings.contains_key(name.as_bytes()));
        self.strings = Strings::of(names);

        let mut body = Vec::new();
        let mut starts = vec![0, 0]; // no labels
        let mut end_part =
            |body: &Vec<u8>| starts.push(u32::try_from(body.len()).unwrap_or(u32::MAX));
        for table in [&objects, &functions] {
            table.ids.iter().for_each(|id| self.word(&mut body, *id));
            end_part(&body);
        }
        for table in [&objects, &functions] {
            table
                .names
                .iter()
                .for_each(|name| self.word(&mut body, self.name(name)));
            end_part(&body);
        }
        for symbol in variables {
            self.word(&mut body, self.name(&symbol.name));
            self.word(&mut body, self.id(symbol.ty));
        }
        end_part(&body);
        for (_, ty) in graph.types() {
            self.ty(&mut body, ty);
        }
        end_part(&body);
        body.extend_from_slice(&self.strings.bytes);

        let is_dynamic = self.writer.symbols == SymbolForm::Dynsym;
        let mut flags = Flags::NEW_FUNCTION_INFO.with(Flags::INDEX_SORTED);
        if is_dynamic {
            flags = flags.with(Flags::DYNSTR);
        }
        let compressed = if self.writer.compress {
            compressed(&body)
        } else {
            None
        };
        if compressed.is_some() {
            flags = flags.with(Flags::COMPRESSED);
        }
        let mut bytes = self.writer.endian.of_u16(MAGIC).to_vec();
        bytes.extend([Version::V3.byte(), flags.0]);
        let string_size = u32::try_from(self.strings.bytes.len()).unwrap_or(u32::MAX);
        let fields = [0, self.name(parent), self.name(unit)]
            .into_iter()
            .chain(starts);
        for field in fields.chain([string_size]) {
            self.word(&mut bytes, field);
        }
        bytes.extend(compressed.unwrap_or(body));
        bytes
    }

    /// The types of symbols in the smaller of the two forms.
    fn table<'g>(&self, symbols: &'g [Symbol<'_>], kind: usize) -> SymbolTable<'g> {
        let mut indexed = SymbolTable::default();
        if self.writer.symbols == SymbolForm::None {
            return indexed;
        }
        let is_named = self.writer.symbols == SymbolForm::Names;
        let mut ordered: Vec<u32> = Vec::new();
        let mut sorted: Vec<&Symbol<'_>> = symbols.iter().collect();
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        for symbol in sorted {
            let places = self
                .external
                .places
                .get(kind)
                .and_then(|all| all.get(&symbol.name));
            if places.is_none() && !is_named {
                continue; // no symbol of that name is left
            }
            let id = self.id(symbol.ty);
            indexed.ids.push(id);
            indexed.names.push(&symbol.name);
            for &place in places.into_iter().flatten() {
                if ordered.len() <= place {
                    ordered.resize(place + 1, 0);
                }
                if let Some(word) = ordered.get_mut(place) {
                    *word = id;
                }
            }
        }
        match !is_named && ordered.len() <= indexed.ids.len() * 2 {
            true => SymbolTable {
                ids: ordered,
                names: Vec::new(),
            },
            false => indexed,
        }
    }

    fn word(&self, body: &mut Vec<u8>, word: u32) {
        body.extend(self.writer.endian.of_u32(word));
    }

    fn half(&self, body: &mut Vec<u8>, half: u16) {
        body.extend(self.writer.endian.of_u16(half));
    }

    fn name(&self, name: &str) -> u32 {
        let external = self.external.strings.get(name.as_bytes());
        external
            .or_else(|| self.strings.offsets.get(name))
            .copied()
            .unwrap_or(0)
    }

    /// The id that a type has in the file.
    fn id(&self, id: TypeId) -> u32 {
        match id.0.checked_sub(self.graph.base()) {
            Some(own) if own > 0 && self.graph.parent().is_some() => own | Version::V3.child_bit(),
            _ => id.0,
        }
    }

    fn ty(&self, body: &mut Vec<u8>, ty: &Type<'_>) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).min(0xff_ffff);
        match &ty.kind {
            Kind::Unknown => self.fixed(body, ty, kind::UNKNOWN, 0, Small::Reference(0)),
            Kind::Integer(number) => self.number(body, ty, kind::INTEGER, number),
            Kind::Float(number) => self.number(body, ty, kind::FLOAT, number),
            Kind::Pointer(to) => self.reference(body, ty, kind::POINTER, *to),
            Kind::Typedef(to) => self.reference(body, ty, kind::TYPEDEF, *to),
            Kind::Qualified(qualifier, to) => {
                let kind = match qualifier {
                    Qualifier::Const => kind::CONST,
                    Qualifier::Volatile => kind::VOLATILE,
                    Qualifier::Restrict => kind::RESTRICT,
                };
                self.reference(body, ty, kind, *to);
            }
            Kind::Forward(tag) => {
                let of = match tag {
                    Tag::Struct => kind::STRUCT,
                    Tag::Union => kind::UNION,
                    Tag::Enum => kind::ENUM,
                };
                self.fixed(body, ty, kind::FORWARD, 0, Small::Reference(u32::from(of)));
            }
            Kind::Array {
                element,
                index,
                count,
            } => {
                self.fixed(body, ty, kind::ARRAY, 0, Small::Size(0));
                self.word(body, self.id(*element));
                self.word(body, self.id(*index));
                self.word(body, u32::try_from(*count).unwrap_or(u32::MAX));
            }
            Kind::Function {
                returns,
                parameters,
                is_variadic,
            } => {
                let ids = parameters.iter().map(|parameter| self.id(parameter.ty));
                let mut ids: Vec<u32> = ids.chain(is_variadic.then_some(0)).collect();
                ids.truncate(0xff_ffff);
                let returns = Small::Reference(self.id(*returns));
                self.fixed(body, ty, kind::FUNCTION, count(ids.len()), returns);
                if !ids.len().is_multiple_of(2) {
                    ids.push(0);
                }
                ids.into_iter().for_each(|id| self.word(body, id));
            }
            Kind::Record { tag, size, members } => {
                let kind = if *tag == Tag::Union {
                    kind::UNION
                } else {
                    kind::STRUCT
                };
                self.fixed(body, ty, kind, count(members.len()), Small::Size(*size));
                for member in members.iter().take(0xff_ffff) {
                    self.member(body, member, *size);
                }
            }
            Kind::Enum { size, enumerators } => {
                self.fixed(
                    body,
                    ty,
                    kind::ENUM,
                    count(enumerators.len()),
                    Small::Size(*size),
                );
                for enumerator in enumerators.iter().take(0xff_ffff) {
                    self.word(body, self.name(&enumerator.name));
                    self.word(body, low(enumerator.value.cast_unsigned()));
                }
            }
            Kind::Slice {
                of,
                size,
                offset,
                bits,
            } => {
                self.fixed(body, ty, kind::SLICE, 0, Small::Size(*size));
                self.word(body, self.id(*of));
                self.half(body, *offset);
                self.half(body, *bits);
            }
        }
    }

    fn member(&self, body: &mut Vec<u8>, member: &Member<'_>, size: u64) {
        self.word(body, self.name(&member.name));
        if size >= LARGE_STRUCT {
            self.word(body, low(member.offset >> 32));
            self.word(body, self.id(member.ty));
            self.word(body, low(member.offset));
        } else {
            self.word(body, low(member.offset));
            self.word(body, self.id(member.ty));
        }
    }

    fn number(&self, body: &mut Vec<u8>, ty: &Type<'_>, kind: u8, number: &Number) {
        self.fixed(body, ty, kind, 0, Small::Size(number.size));
        let [high, low] = number.bits.to_be_bytes();
        self.word(
            body,
            u32::from_be_bytes([number.format, number.offset, high, low]),
        );
    }

    fn reference(&self, body: &mut Vec<u8>, ty: &Type<'_>, kind: u8, to: TypeId) {
        self.fixed(body, ty, kind, 0, Small::Reference(self.id(to)));
    }

    /// What every type begins with.
    fn fixed(&self, body: &mut Vec<u8>, ty: &Type<'_>, kind: u8, count: u32, small: Small) {
        self.word(body, self.name(&ty.name));
        let root = if ty.is_hidden { 0 } else { 1 << 25 };
        self.word(body, u32::from(kind) << 26 | root | count);
        match small {
            Small::Reference(id) => self.word(body, id),
            Small::Size(size) => match u32::try_from(size) {
                Ok(size) if size != u32::MAX => self.word(body, size),
                _ => {
                    self.word(body, u32::MAX);
                    self.word(body, low(size >> 32));
                    self.word(body, low(size));
                }
            },
        }
    }
}

/// The third number of a type.
#[derive(Clone, Copy)]
enum Small {
    Reference(u32),
    Size(u64),
}

/// The lower half of a number.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

/// Calls a function with each name of a type.
fn names_of<'t>(ty: &'t Type<'_>, mut visit: impl FnMut(&'t str)) {
    visit(&ty.name);
    match &ty.kind {
        Kind::Record { members, .. } => members.iter().for_each(|member| visit(&member.name)),
        Kind::Enum { enumerators, .. } => {
            enumerators
                .iter()
                .for_each(|enumerator| visit(&enumerator.name));
        }
        _ => {}
    }
}

/// The graph with a slice for each member that is a bit-field itself, which CTF cannot say otherwise.
fn with_slices<'g, 'a>(graph: &'g Graph<'a>) -> Cow<'g, Graph<'a>> {
    let is_field = |ty: &Type<'_>| match &ty.kind {
        Kind::Record { members, .. } => members.iter().any(|member| member.bits.is_some()),
        _ => false,
    };
    if !graph.types().any(|(_, ty)| is_field(ty)) {
        return Cow::Borrowed(graph);
    }
    let mut sliced = graph.clone();
    let mut slices: HashMap<(TypeId, u16), TypeId> = HashMap::new();
    let fields = graph.types().filter(|(_, ty)| is_field(ty));
    for (id, ty) in fields {
        let mut ty = ty.clone();
        if let Kind::Record { members, .. } = &mut ty.kind {
            for member in members {
                let Some(bits) = member.bits.take() else {
                    continue;
                };
                let of = member.ty;
                let slice = || Type {
                    is_hidden: true,
                    ..Type::unnamed(Kind::Slice {
                        of,
                        size: u64::from(bits).div_ceil(8).next_power_of_two(),
                        offset: 0,
                        bits,
                    })
                };
                member.ty = *slices
                    .entry((of, bits))
                    .or_insert_with(|| sliced.add(slice()));
            }
        }
        sliced.set(id, ty);
    }
    Cow::Owned(sliced)
}

/// As a stream of zlib, if that is smaller.
fn compressed(body: &[u8]) -> Option<Vec<u8>> {
    let level = libdeflater::CompressionLvl::new(LEVEL).ok()?;
    let mut compressor = libdeflater::Compressor::new(level);
    let mut bytes = vec![0; compressor.zlib_compress_bound(body.len())];
    let size = compressor.zlib_compress(body, &mut bytes).ok()?;
    bytes.truncate(size);
    (size < body.len()).then_some(bytes)
}

/// An archive of dictionaries.
fn archive(mut dicts: Vec<(Cow<'_, str>, Vec<u8>)>, pointer_size: u64) -> Vec<u8> {
    dicts.sort_by(|(one, _), (other, _)| one.cmp(other));
    let count = dicts.len();
    let start = 40 + count * 16;
    let (mut names, mut bodies, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    for (name, dict) in &dicts {
        entries.extend([wide(names.len()), wide(bodies.len())]);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        bodies.extend(wide(dict.len()).to_le_bytes());
        bodies.extend_from_slice(dict);
        bodies.resize(bodies.len().next_multiple_of(8), 0);
    }
    // 1 is a machine with pointers of 4 bytes, 2 one with 8.
    let model = if pointer_size == 4 { 1 } else { 2 };
    let names_at = wide(start + bodies.len());
    let header = [ARCHIVE_MAGIC, model, wide(count), names_at, wide(start)];
    let numbers = header.into_iter().chain(entries);
    let mut bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    bytes.extend(bodies);
    bytes.extend(names);
    bytes
}
