//! Writing graphs as CTF version 3 (the version byte is 4).

mod names;
mod slices;

use std::borrow::Cow;
use std::iter;

use hashbrown::HashSet;

use crate::archive::{SHARED, archive};
use crate::bytes::Endian;
use crate::elf::ElfContext;
use crate::graph::{Graph, Member, Type, TypeId, TypeKind, TypedSymbol};
use crate::header::{CtfVersion, Flags, MAGIC};
use crate::link::LinkOutput;
use crate::record::{LARGE_STRUCT, kind};
pub(crate) use names::CtfStrings;
use names::SymbolOrder;
use slices::with_slices;

/// The form of the list of typed symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SymbolForm {
    /// By names, stored beside the types.
    #[default]
    Names,
    /// In the order of `.symtab`, if that is smaller. A checksum of the order is stored, so a
    /// changed order is an error. `strip` removes the symbols.
    Symtab,
    /// In the order of `.dynsym`, if that is smaller, also with a checksum. `strip` leaves it.
    Dynsym,
    /// No list.
    None,
}

/// The compression of dictionaries, used if it makes them smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compress {
    /// None.
    No,
    /// As small as possible for dictionaries up to so many bytes, at a tenth of a microsecond a
    /// byte. Others take a fifth of the time, for 6 % more bytes.
    SmallestUpTo(usize),
}

/// A writer of CTF.
#[derive(Debug, Clone, Copy)]
pub struct CtfWriter<'e> {
    /// The byte order of numbers.
    pub endian: Endian,
    /// The compression of dictionaries.
    pub compress: Compress,
    /// The form of the list of symbols.
    pub symbols: SymbolForm,
    /// The target ELF file. Only the order of its symbols is used: all names are the dictionary's
    /// own, because `strip`, `objcopy` and linkers write the ELF file's strings anew.
    pub elf: ElfContext<'e>,
    /// A label for all types, or empty. GNU's readers ignore it.
    pub label: &'e str,
    /// The maximum number of threads. The output does not depend on it.
    pub threads: usize,
}

impl Default for CtfWriter<'_> {
    fn default() -> Self {
        CtfWriter {
            endian: Endian::Little,
            compress: Compress::SmallestUpTo(usize::MAX),
            symbols: SymbolForm::Names,
            elf: ElfContext::BARE_64,
            label: "",
            threads: 1,
        }
    }
}

/// The first of libdeflate's twelve levels with near-optimal parsing. The higher ones take twice
/// the time for 0.3 % fewer bytes.
const BEST_LEVEL: i32 = 10;

/// This takes a fifth of the time, for 6 % more bytes.
const FAST_LEVEL: i32 = 7;

impl CtfWriter<'_> {
    /// Writes a linker's result: a dictionary, or an archive if there are children.
    #[must_use]
    pub fn write(&self, output: &LinkOutput<'_>) -> Vec<u8> {
        let order = SymbolOrder::new(self);
        let children = output.children.iter().map(|(name, child)| (&**name, child));
        let graphs = iter::once((SHARED, &*output.shared)).chain(children);
        let write = |(name, graph)| (name, self.one(graph, &order));
        let mut dicts = unspool_parallel::map(graphs.collect(), self.threads, write);
        match dicts.pop() {
            Some((_, shared)) if dicts.is_empty() => shared,
            last => archive(
                dicts.into_iter().chain(last).collect(),
                self.elf.pointer_size(),
            ),
        }
    }

    /// Writes one graph as a dictionary. The format limits values of enumerators to their low 32
    /// bits, arrays to 2^32-1 elements, and records to 2^24-1 members.
    #[must_use]
    pub fn dict(&self, graph: &Graph<'_>) -> Vec<u8> {
        self.one(graph, &SymbolOrder::new(self))
    }

    fn one(&self, graph: &Graph<'_>, order: &SymbolOrder<'_>) -> Vec<u8> {
        DictWriter::new(self, graph, order).bytes()
    }
}

/// A table of symbol types: the types, and an index of names if their order is not that of the ELF
/// file's symbols.
#[derive(Default)]
struct SymbolTypes<'g> {
    ids: Vec<u32>,
    names: Vec<&'g str>,
}

struct DictWriter<'w, 'a> {
    writer: &'w CtfWriter<'w>,
    graph: Cow<'w, Graph<'a>>,
    order: &'w SymbolOrder<'w>,
    strings: CtfStrings,
}

impl<'w, 'a> DictWriter<'w, 'a> {
    fn new(
        writer: &'w CtfWriter<'w>,
        graph: &'w Graph<'a>,
        order: &'w SymbolOrder<'w>,
    ) -> DictWriter<'w, 'a> {
        DictWriter {
            writer,
            graph: with_slices(graph),
            order,
            strings: CtfStrings::default(),
        }
    }

    fn bytes(mut self) -> Vec<u8> {
        let graph = self.graph.clone();
        let functions = self.table(&graph.functions, 0);
        let objects = self.table(&graph.objects, 1);
        let mut variables: Vec<&TypedSymbol<'_>> = graph.variables.iter().collect();
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
        let is_ordered = |table: &SymbolTypes<'_>| table.names.len() < table.ids.len();
        let has_order = [&functions, &objects].into_iter().any(is_ordered);
        let labels = [
            Some(self.writer.label),
            has_order.then_some(&*self.order.label),
        ];
        let labels = || {
            labels
                .into_iter()
                .flatten()
                .filter(|label| !label.is_empty())
        };
        names.extend([parent, unit]);
        names.extend(labels());
        self.strings = CtfStrings::new(names);

        let mut body = Vec::new();
        for label in labels() {
            self.word(&mut body, self.name(label));
            self.word(&mut body, self.id(TypeId(graph.last())));
        }
        // Labels, and data symbols.
        let mut starts = vec![0, u32::try_from(body.len()).unwrap_or(0)];
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
        body.extend_from_slice(self.strings.bytes());

        let is_dynamic = self.writer.symbols == SymbolForm::Dynsym;
        let mut flags = Flags::NEW_FUNCTION_INFO.with(Flags::INDEX_SORTED);
        if is_dynamic {
            flags = flags.with(Flags::DYNSTR);
        }
        let compressed = match self.writer.compress {
            Compress::No => None,
            Compress::SmallestUpTo(most) if body.len() <= most => compressed(&body, BEST_LEVEL),
            Compress::SmallestUpTo(_) => compressed(&body, FAST_LEVEL),
        };
        if compressed.is_some() {
            flags = flags.with(Flags::COMPRESSED);
        }
        let mut bytes = self.writer.endian.u16_bytes(MAGIC).to_vec();
        bytes.extend([CtfVersion::V3.byte(), flags.0]);
        let string_size = u32::try_from(self.strings.bytes().len()).unwrap_or(u32::MAX);
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
    fn table<'g>(&self, symbols: &'g [TypedSymbol<'_>], kind: usize) -> SymbolTypes<'g> {
        let mut indexed = SymbolTypes::default();
        if self.writer.symbols == SymbolForm::None {
            return indexed;
        }
        let is_named = self.writer.symbols == SymbolForm::Names;
        let mut ordered: Vec<u32> = Vec::new();
        let mut sorted: Vec<&TypedSymbol<'_>> = symbols.iter().collect();
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        for symbol in sorted {
            let places = self
                .order
                .indexes
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
        if !is_named && ordered.len() <= indexed.ids.len() * 2 {
            SymbolTypes {
                ids: ordered,
                names: Vec::new(),
            }
        } else {
            indexed
        }
    }

    fn word(&self, body: &mut Vec<u8>, word: u32) {
        body.extend(self.writer.endian.u32_bytes(word));
    }

    fn half(&self, body: &mut Vec<u8>, half: u16) {
        body.extend(self.writer.endian.u16_bytes(half));
    }

    fn name(&self, name: &str) -> u32 {
        self.strings.offset(name)
    }

    /// The id of a type in the file.
    fn id(&self, id: TypeId) -> u32 {
        match id.0.checked_sub(self.graph.base()) {
            Some(own) if own > 0 && self.graph.parent().is_some() => {
                own | CtfVersion::V3.child_bit()
            }
            _ => id.0,
        }
    }

    fn ty(&self, body: &mut Vec<u8>, ty: &Type<'_>) {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).min(0xff_ffff);
        match &ty.kind {
            TypeKind::Unknown => self.fixed(body, ty, 0, SizeOrType::Reference(0)),
            TypeKind::Integer(number) | TypeKind::Float(number) => {
                self.fixed(body, ty, 0, SizeOrType::Size(number.size));
                let [high, low] = number.bits.to_be_bytes();
                let word = [number.format, number.offset, high, low];
                self.word(body, u32::from_be_bytes(word));
            }
            TypeKind::Pointer(to)
            | TypeKind::Typedef(to)
            | TypeKind::Qualified(_, to)
            | TypeKind::TypeTag { of: to, .. } => {
                self.fixed(body, ty, 0, SizeOrType::Reference(self.id(*to)));
            }
            TypeKind::Forward(tag) => {
                let of = u32::from(kind::of_tag(*tag));
                self.fixed(body, ty, 0, SizeOrType::Reference(of));
            }
            TypeKind::Array {
                element,
                index,
                count,
            } => {
                self.fixed(body, ty, 0, SizeOrType::Size(0));
                self.word(body, self.id(*element));
                self.word(body, self.id(*index));
                self.word(body, u32::try_from(*count).unwrap_or(u32::MAX));
            }
            TypeKind::Function {
                returns,
                parameters,
                is_variadic,
            } => {
                let ids = parameters.iter().map(|parameter| self.id(parameter.ty));
                let mut ids: Vec<u32> = ids.chain(is_variadic.then_some(0)).collect();
                ids.truncate(0xff_ffff);
                let returns = SizeOrType::Reference(self.id(*returns));
                self.fixed(body, ty, count(ids.len()), returns);
                if !ids.len().is_multiple_of(2) {
                    ids.push(0);
                }
                ids.into_iter().for_each(|id| self.word(body, id));
            }
            TypeKind::Record { size, members, .. } => {
                self.fixed(body, ty, count(members.len()), SizeOrType::Size(*size));
                for member in members.iter().take(0xff_ffff) {
                    self.member(body, member, *size);
                }
            }
            TypeKind::Enum {
                size, enumerators, ..
            } => {
                self.fixed(body, ty, count(enumerators.len()), SizeOrType::Size(*size));
                for enumerator in enumerators.iter().take(0xff_ffff) {
                    self.word(body, self.name(&enumerator.name));
                    self.word(body, low(enumerator.bits()));
                }
            }
            TypeKind::Slice {
                of,
                size,
                offset,
                bits,
            } => {
                self.fixed(body, ty, 0, SizeOrType::Size(*size));
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

    /// Writes the fixed part of a type.
    fn fixed(&self, body: &mut Vec<u8>, ty: &Type<'_>, count: u32, small: SizeOrType) {
        self.word(body, self.name(&ty.name));
        let root = if ty.is_hidden { 0 } else { 1 << 25 };
        let kind = u32::from(kind::number(&ty.kind));
        self.word(body, kind << 26 | root | count);
        match small {
            SizeOrType::Reference(id) => self.word(body, id),
            SizeOrType::Size(size) => match u32::try_from(size) {
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
enum SizeOrType {
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
        TypeKind::Record { members, .. } => members.iter().for_each(|member| visit(&member.name)),
        TypeKind::Enum { enumerators, .. } => {
            enumerators
                .iter()
                .for_each(|enumerator| visit(&enumerator.name));
        }
        _ => {}
    }
}

/// The zlib stream of the bytes, if that is smaller.
fn compressed(body: &[u8], level: i32) -> Option<Vec<u8>> {
    let level = libdeflater::CompressionLvl::new(level).ok()?;
    let mut compressor = libdeflater::Compressor::new(level);
    let mut bytes = vec![0; compressor.zlib_compress_bound(body.len())];
    let size = compressor.zlib_compress(body, &mut bytes).ok()?;
    bytes.truncate(size);
    (size < body.len()).then_some(bytes)
}
