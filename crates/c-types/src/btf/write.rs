//! Writing graphs as BTF.

use std::fmt::{self, Display, Formatter};

use hashbrown::{HashMap, HashSet};

use super::{BTF_MAGIC, HEADER_BYTES, base::BtfBase, kind};
use crate::bytes::Endian;
use crate::graph::{
    Declaration, Enumerator, Graph, Linkage, Member, Number, Qualifier, Tag, Type, TypeId,
    TypeKind, TypedSymbol,
};
use crate::write::CtfStrings;

/// The maximum number of entries of a type.
const MAX_ENTRIES: usize = 0xffff;
/// The maximum length of a chain of names.
const MAX_TYPEDEFS: usize = 256;
/// The index type of all arrays, under its usual name.
const INDEX_TYPE_NAME: &str = "__ARRAY_SIZE_TYPE__";

/// A writer of BTF.
#[derive(Debug, Clone, Copy, Default)]
pub struct BtfWriter {
    /// The byte order of numbers.
    pub endian: Endian,
}

/// A declaration that BTF cannot represent and that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BtfOmission {
    /// The declaration: a type, `struct x.member`, a function.
    pub what: String,
    /// The reason.
    pub reason: &'static str,
}

impl Display for BtfOmission {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "BTF cannot say {}: {}", self.what, self.reason)
    }
}

impl BtfWriter {
    /// Writes a graph: its named types, functions and data, and all types reachable from them, with
    /// tags and sections. Also returns the declarations that BTF cannot represent. A parent's types
    /// are not written: for split BTF, see [`BtfWriter::write_split`].
    #[must_use]
    pub fn write(&self, graph: &Graph<'_>) -> (Vec<u8>, Vec<BtfOmission>) {
        self.written(BtfPlan::new(graph, None))
    }

    /// Writes the types of a graph that its parent, the graph of a base, does not have, as split
    /// BTF. Also returns the declarations that BTF cannot represent.
    #[must_use]
    pub fn write_split(
        &self,
        graph: &Graph<'_>,
        base: &BtfBase<'_>,
    ) -> (Vec<u8>, Vec<BtfOmission>) {
        self.written(BtfPlan::new(graph, Some(base)))
    }

    fn written(&self, mut plan: BtfPlan<'_, '_>) -> (Vec<u8>, Vec<BtfOmission>) {
        plan.reach();
        let graph = plan.graph;
        let base_strings = plan.base.map(BtfBase::string_offsets).unwrap_or_default();
        let mut names = plan.names();
        names.retain(|name| !base_strings.contains_key(name.as_bytes()));
        let mut written = BtfBytes {
            endian: self.endian,
            base_strings,
            base_size: plan.base.map_or(0, |base| base.strings.len()),
            strings: CtfStrings::new(names),
            bytes: Vec::new(),
        };
        for (id, ty) in graph.types() {
            if plan.ids.contains_key(&id) {
                plan.ty(&mut written, ty);
            }
        }
        if plan.index != 0 {
            written.head(INDEX_TYPE_NAME, (kind::INT, false, 0), 4);
            written.word(32);
        }
        for symbol in plan.symbols(&graph.functions) {
            let linkage = symbol.linkage.unwrap_or(Linkage::Static) as usize;
            let id = plan.id(symbol.ty);
            written.head(&symbol.name, (kind::FUNC, false, linkage), id);
        }
        for symbol in plan.symbols(&graph.objects) {
            let id = plan.id(symbol.ty);
            written.head(&symbol.name, (kind::VAR, false, 0), id);
            written.word(symbol.linkage.unwrap_or(Linkage::Global) as u32);
        }
        plan.sections_and_tags(&mut written);
        let bytes = written.file();
        (bytes, plan.omissions)
    }
}

/// The part of a graph to write.
struct BtfPlan<'g, 'a> {
    graph: &'g Graph<'a>,
    base: Option<&'g BtfBase<'a>>,
    /// The ids in the file of written types.
    ids: HashMap<TypeId, u32>,
    /// The ids of the base's types.
    base_ids: HashMap<TypeId, u32>,
    /// The ids of written functions and data, by their names.
    functions: HashMap<&'g str, u32>,
    objects: HashMap<&'g str, u32>,
    /// The id of the index type; 0 if there is no array.
    index: u32,
    omissions: Vec<BtfOmission>,
}

impl<'g, 'a> BtfPlan<'g, 'a> {
    /// Finds the unrepresentable declarations.
    fn new(graph: &'g Graph<'a>, base: Option<&'g BtfBase<'a>>) -> BtfPlan<'g, 'a> {
        let mut unsaid = Vec::new();
        let mut say = |what: String, reason| unsaid.push(BtfOmission { what, reason });
        for (id, ty) in graph.types() {
            let is_named = ty.name_space().is_some() && !is_void(ty);
            if let (true, Some(reason)) = (is_named, omission_reason(graph, id)) {
                say(graph.declare(id, ""), reason);
            }
            if let TypeKind::Record { members, .. } = &ty.kind {
                let is_flagged = is_flagged(graph, members);
                for member in members {
                    if let Some(reason) = member_omission_reason(graph, member, is_flagged) {
                        say(format!("{}.{}", graph.declare(id, ""), member.name), reason);
                    }
                }
            }
        }
        for symbol in graph.functions.iter().chain(&graph.objects) {
            if let Some(reason) = omission_reason(graph, symbol.ty) {
                say(symbol.name.to_string(), reason);
            }
        }
        BtfPlan {
            graph,
            base,
            ids: HashMap::new(),
            base_ids: base.map(BtfBase::ids).unwrap_or_default(),
            functions: HashMap::new(),
            objects: HashMap::new(),
            index: 0,
            omissions: unsaid,
        }
    }

    /// The symbols whose type can be represented.
    fn symbols(&self, symbols: &'g [TypedSymbol<'a>]) -> impl Iterator<Item = &'g TypedSymbol<'a>> {
        let is_void_type = |id| self.graph.get(id).is_some_and(is_void);
        symbols
            .iter()
            .filter(move |symbol| self.id(symbol.ty) != 0 || is_void_type(symbol.ty))
    }

    /// Gives ids to named types, types of functions and data, and all types reachable from them.
    /// Unrepresentable types become `void`, and are reported.
    fn reach(&mut self) {
        let graph = self.graph;
        // Enumerators of an enumeration without a tag are names, too.
        let is_found =
            |ty: &Type<'_>| ty.name_space().is_some() || matches!(ty.kind, TypeKind::Enum { .. });
        let named = graph.types().filter(|(_, ty)| is_found(ty));
        let symbols = graph.functions.iter().chain(&graph.objects);
        let mut open: Vec<TypeId> = named.map(|(id, _)| id).collect();
        open.extend(symbols.map(|symbol| symbol.ty));
        // Their reason is known already.
        open.retain(|id| omission_reason(graph, *id).is_none());
        let mut looked_at = HashSet::new();
        let mut reached = HashSet::new();
        while let Some(id) = open.pop() {
            let Some(ty) = graph.get(id).filter(|ty| !is_void(ty)) else {
                continue;
            };
            if self.base_ids.contains_key(&id) || !looked_at.insert(id) {
                continue;
            }
            if let Some(reason) = omission_reason(graph, id) {
                if ty.name_space().is_none() {
                    let what = graph.declare(id, "");
                    self.omissions.push(BtfOmission { what, reason });
                }
                continue;
            }
            reached.insert(id);
            match &ty.kind {
                TypeKind::Record { members, .. } => {
                    let said = representable_members(graph, members);
                    open.extend(said.map(|(_, ty, ..)| ty));
                }
                TypeKind::Array { element, index, .. } => {
                    open.push(*element);
                    open.extend(index_type(graph, *index));
                }
                _ => ty.each_reference(|id| open.push(id)),
            }
        }
        let first = self.base.map_or(0, |base| base.slots.len());
        let mut ids = u32::try_from(first + 1).unwrap_or(u32::MAX)..;
        let mut next = || ids.next().unwrap_or(u32::MAX);
        for (id, _) in graph.types().filter(|(id, _)| reached.contains(id)) {
            self.ids.insert(id, next());
        }
        let has_no_index = |id: &TypeId| {
            let kind = graph.get(*id).map(|ty| &ty.kind);
            matches!(kind, Some(TypeKind::Array { index, .. }) if index_type(graph, *index).is_none())
        };
        if reached.iter().any(has_no_index) {
            self.index = next();
        }
        for symbol in self.symbols(&graph.functions).collect::<Vec<_>>() {
            let id = next();
            self.functions.entry(&*symbol.name).or_insert(id);
        }
        for symbol in self.symbols(&graph.objects).collect::<Vec<_>>() {
            let id = next();
            self.objects.entry(&*symbol.name).or_insert(id);
        }
    }

    fn names(&self) -> HashSet<&'g str> {
        let mut names: HashSet<&str> = HashSet::new();
        let written = self
            .graph
            .types()
            .filter(|(id, _)| self.ids.contains_key(id));
        for (_, ty) in written {
            names.insert(ty.own_name());
            match &ty.kind {
                TypeKind::Record { members, .. } => {
                    names.extend(members.iter().map(|one| &*one.name));
                }
                TypeKind::Enum { enumerators, .. } => {
                    names.extend(enumerators.iter().map(|one| &*one.name));
                }
                TypeKind::Function { parameters, .. } => {
                    names.extend(parameters.iter().map(|one| &*one.name));
                }
                _ => {}
            }
        }
        names.extend(self.functions.keys().chain(self.objects.keys()));
        names.extend(self.graph.sections.iter().map(|one| &*one.name));
        names.extend(self.graph.declaration_tags.iter().map(|one| &*one.name));
        if self.index != 0 {
            names.insert(INDEX_TYPE_NAME);
        }
        names
    }

    /// The id in the file; `void`'s for a missing type.
    fn id(&self, id: TypeId) -> u32 {
        let own = self.ids.get(&id).or_else(|| self.base_ids.get(&id));
        own.copied().unwrap_or(0)
    }

    /// The id of a declaration; `None` if it is not written.
    fn declaration(&self, declaration: &Declaration<'_>) -> Option<u32> {
        match declaration {
            Declaration::Type(id) => Some(self.id(*id)).filter(|id| *id != 0),
            Declaration::Function(name) => self.functions.get(&**name).copied(),
            Declaration::Object(name) => self.objects.get(&**name).copied(),
        }
    }

    /// Writes sections and tags, without what is not written otherwise.
    fn sections_and_tags(&self, output: &mut BtfBytes<'_>) {
        for section in &self.graph.sections {
            let entries = section.entries.iter();
            let entries = entries
                .filter_map(|(of, offset, size)| Some([self.declaration(of)?, *offset, *size]));
            let entries: Vec<_> = entries.take(MAX_ENTRIES).collect();
            let size = low(section.size);
            output.head(&section.name, (kind::DATASEC, false, entries.len()), size);
            entries
                .into_iter()
                .flatten()
                .for_each(|word| output.word(word));
        }
        for tag in &self.graph.declaration_tags {
            if let Some(id) = self.declaration(&tag.of) {
                output.head(&tag.name, (kind::DECL_TAG, tag.is_attribute, 0), id);
                output.word(tag.component.unwrap_or(u32::MAX));
            }
        }
    }

    fn ty(&self, output: &mut BtfBytes<'_>, ty: &Type<'_>) {
        let name = ty.own_name();
        match &ty.kind {
            TypeKind::Integer(number) => {
                output.head(name, (kind::INT, false, 0), low(number.size));
                let encoding = encoding(number.format) << 24 | u32::from(number.offset) << 16;
                output.word(encoding | u32::from(number.bits));
            }
            TypeKind::Float(number) => {
                output.head(name, (kind::FLOAT, false, 0), low(number.size));
            }
            TypeKind::Pointer(to) => output.head(name, (kind::PTR, false, 0), self.id(*to)),
            TypeKind::Typedef(to) => output.head(name, (kind::TYPEDEF, false, 0), self.id(*to)),
            TypeKind::TypeTag { of, is_attribute } => {
                output.head(name, (kind::TYPE_TAG, *is_attribute, 0), self.id(*of));
            }
            TypeKind::Qualified(qualifier, to) => {
                let kind = match qualifier {
                    Qualifier::Const => kind::CONST,
                    Qualifier::Volatile => kind::VOLATILE,
                    Qualifier::Restrict => kind::RESTRICT,
                };
                output.head(name, (kind, false, 0), self.id(*to));
            }
            TypeKind::Array {
                element,
                index,
                count,
            } => {
                output.head(name, (kind::ARRAY, false, 0), 0);
                let index = index_type(self.graph, *index);
                let index = index.map_or(self.index, |index| self.id(index));
                for word in [self.id(*element), index, low(*count)] {
                    output.word(word);
                }
            }
            TypeKind::Forward(Tag::Enum) => output.head(name, (kind::ENUM, false, 0), 4),
            TypeKind::Forward(tag) => {
                output.head(name, (kind::FWD, *tag == Tag::Union, 0), 0);
            }
            TypeKind::Function {
                returns,
                parameters,
                is_variadic,
            } => {
                let count = parameters.len() + usize::from(*is_variadic);
                output.head(name, (kind::FUNC_PROTO, false, count), self.id(*returns));
                for parameter in parameters {
                    output.name(&parameter.name);
                    output.word(self.id(parameter.ty));
                }
                if *is_variadic {
                    output.word(0);
                    output.word(0);
                }
            }
            TypeKind::Record { tag, size, members } => {
                self.record(output, name, (*tag, *size), members);
            }
            TypeKind::Enum {
                size,
                is_signed,
                enumerators,
            } => enumeration(output, name, (*size, *is_signed), enumerators),
            TypeKind::Unknown | TypeKind::Slice { .. } => {}
        }
    }

    fn record(
        &self,
        output: &mut BtfBytes<'_>,
        name: &str,
        (tag, size): (Tag, u64),
        members: &[Member<'_>],
    ) {
        let kind = if tag == Tag::Union {
            kind::UNION
        } else {
            kind::STRUCT
        };
        let is_flagged = is_flagged(self.graph, members);
        let said: Vec<_> = representable_members(self.graph, members).collect();
        output.head(name, (kind, is_flagged, said.len()), low(size));
        for (name, ty, offset, bits) in said {
            output.name(name);
            output.word(self.id(ty));
            let bits = u32::from(bits.unwrap_or(0));
            output.word(low(offset) | bits << 24);
        }
    }
}

fn enumeration(
    output: &mut BtfBytes<'_>,
    name: &str,
    (size, is_signed): (u64, bool),
    enumerators: &[Enumerator<'_>],
) {
    let is_signed = is_signed || Enumerator::any_negative(enumerators);
    let has_32_bits = |one: &Enumerator<'_>| {
        if is_signed {
            i32::try_from(one.value).is_ok()
        } else {
            u32::try_from(one.value).is_ok()
        }
    };
    let is_narrow = size <= 4 && enumerators.iter().all(has_32_bits);
    let kind = if is_narrow { kind::ENUM } else { kind::ENUM64 };
    output.head(name, (kind, is_signed, enumerators.len()), low(size));
    for one in enumerators {
        let value = one.bits();
        output.name(&one.name);
        output.word(low(value));
        if !is_narrow {
            output.word(low(value >> 32));
        }
    }
}

/// The type of an array's indexes, if BTF can represent it: it is an integer.
fn index_type(graph: &Graph<'_>, id: TypeId) -> Option<TypeId> {
    let ty = graph.get(id)?;
    let is_integer = matches!(ty.kind, TypeKind::Integer(_)) && !is_void(ty);
    (is_integer && omission_reason(graph, id).is_none()).then_some(id)
}

fn is_void(ty: &Type<'_>) -> bool {
    matches!(ty.kind, TypeKind::Integer(Number { size: 0, .. }))
}

/// Why a type, or a part of it, cannot be represented.
fn omission_reason(graph: &Graph<'_>, id: TypeId) -> Option<&'static str> {
    let mut at = id;
    for _ in 0..MAX_TYPEDEFS {
        let Some(behind) = graph.resolve_qualified(at) else {
            return Some("it is a name for itself");
        };
        match &graph.get(behind.id)?.kind {
            TypeKind::Array { count, .. } if *count > u64::from(u32::MAX) => {
                return Some("an array of more than 2^32-1 elements");
            }
            TypeKind::Array { element, .. } => {
                at = *element;
                let element = graph.resolve(at).and_then(|id| graph.get(id));
                match element.map(|ty| &ty.kind) {
                    // C has none, and checking their parameters could recurse endlessly.
                    Some(TypeKind::Function { .. }) => return Some("an array of functions"),
                    _ if element.is_none_or(is_void) => return Some("an array of no type"),
                    _ => {}
                }
            }
            TypeKind::Function {
                returns,
                parameters,
                ..
            } => {
                if parameters.len() >= MAX_ENTRIES {
                    return Some("it has too many parameters");
                }
                let mut values = parameters.iter().map(|one| one.ty).chain([*returns]);
                return values.find_map(|id| parameter_omission_reason(graph, id));
            }
            kind => return kind_omission_reason(kind),
        }
    }
    Some("an array within more than 256 others, or within itself")
}

/// Why a parameter cannot be represented. C has no function parameters of function type, so nothing
/// is visited twice.
fn parameter_omission_reason(graph: &Graph<'_>, id: TypeId) -> Option<&'static str> {
    let behind = graph.resolve(id).and_then(|id| graph.get(id));
    match behind.map(|ty| &ty.kind) {
        Some(TypeKind::Function { .. }) => Some("a parameter is a function"),
        _ if id == TypeId::NONE => Some("a parameter has no type"),
        _ => omission_reason(graph, id),
    }
}

fn kind_omission_reason(kind: &TypeKind<'_>) -> Option<&'static str> {
    const FLOATS: [u64; 5] = [2, 4, 8, 12, 16];
    match kind {
        TypeKind::Unknown => Some("its type is one that has no name in C, such as a vector"),
        TypeKind::Integer(number)
            if number.size > 16 || (number.size != 0 && !number.size.is_power_of_two()) =>
        {
            Some("an integer of that size")
        }
        TypeKind::Float(number) if !FLOATS.contains(&number.size) => {
            Some("a floating-point number of that size")
        }
        TypeKind::Record { size, .. } if *size > u64::from(u32::MAX) => {
            Some("it has more than 2^32-1 bytes")
        }
        TypeKind::Record { members, .. } if members.len() > MAX_ENTRIES => {
            Some("it has more than 65,535 members")
        }
        TypeKind::Enum { enumerators, .. } if enumerators.len() > MAX_ENTRIES => {
            Some("it has more than 65,535 enumerators")
        }
        TypeKind::Slice { .. } => Some("a bit-field that is not a member"),
        _ => None,
    }
}

/// A member in BTF's terms: type, offset and width in bits.
fn btf_member(graph: &Graph<'_>, member: &Member<'_>) -> (TypeId, u64, Option<u16>) {
    match graph.get(member.ty).map(|ty| &ty.kind) {
        Some(TypeKind::Slice {
            of, offset, bits, ..
        }) => (
            *of,
            member.offset.saturating_add(u64::from(*offset)),
            Some(*bits),
        ),
        _ => (member.ty, member.offset, member.bits),
    }
}

/// Whether a member is a bit-field: this leaves 24 bits for all offsets.
fn is_flagged(graph: &Graph<'_>, members: &[Member<'_>]) -> bool {
    members
        .iter()
        .any(|member| btf_member(graph, member).2.is_some())
}

fn member_omission_reason(
    graph: &Graph<'_>,
    member: &Member<'_>,
    is_flagged: bool,
) -> Option<&'static str> {
    let (ty, offset, bits) = btf_member(graph, member);
    let most = if is_flagged { 1 << 24 } else { 1 << 32 };
    match offset < most && bits.is_none_or(|bits| bits < 256) {
        false => Some("it is too far behind the start of what has bit-fields, or too wide"),
        true if graph.get(ty).is_none_or(is_void) => Some("it has no type"),
        true => omission_reason(graph, ty),
    }
}

/// The representable members: name, type, offset and width in bits.
fn representable_members<'m>(
    graph: &Graph<'_>,
    members: &'m [Member<'_>],
) -> impl Iterator<Item = (&'m str, TypeId, u64, Option<u16>)> {
    let is_flagged = is_flagged(graph, members);
    let said = members
        .iter()
        .filter(move |member| member_omission_reason(graph, member, is_flagged).is_none());
    said.map(move |member| {
        let (ty, offset, bits) = btf_member(graph, member);
        (&*member.name, ty, offset, bits)
    })
}

/// An integer's encoding. The kernel allows only one of the three. As with other producers, a
/// character has only its sign.
fn encoding(format: u8) -> u32 {
    match format {
        _ if format & Number::BOOL != 0 => u32::from(Number::BOOL),
        _ => u32::from(format & Number::SIGNED),
    }
}

/// The lower half of a number.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

/// Types as bytes.
struct BtfBytes<'b> {
    endian: Endian,
    base_strings: HashMap<&'b [u8], u32>,
    /// The size of the base's strings in bytes.
    base_size: usize,
    strings: CtfStrings,
    bytes: Vec<u8>,
}

impl BtfBytes<'_> {
    fn word(&mut self, word: u32) {
        self.bytes.extend(self.endian.u32_bytes(word));
    }

    fn name(&mut self, name: &str) {
        let at = match (self.base_strings.get(name.as_bytes()), self.base_size) {
            (Some(at), _) => *at,
            (None, 0) => self.strings.offset(name),
            // Own strings follow the base's, without an empty one at their beginning.
            (None, base) => {
                let behind = u32::try_from(base - 1).unwrap_or(u32::MAX);
                self.strings.offset(name).saturating_add(behind)
            }
        };
        self.word(at);
    }

    /// The three common numbers of every type.
    fn head(&mut self, name: &str, (kind, flag, count): (u8, bool, usize), word: u32) {
        self.name(name);
        let count = u32::try_from(count).unwrap_or(0);
        self.word(u32::from(flag) << 31 | u32::from(kind) << 24 | count);
        self.word(word);
    }

    /// The whole file.
    fn file(self) -> Vec<u8> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let strings = self.strings.bytes();
        let strings = strings
            .get(usize::from(self.base_size > 0)..)
            .unwrap_or_default();
        let mut file = self.endian.u16_bytes(BTF_MAGIC).to_vec();
        file.extend([1, 0]);
        let types = length(&self.bytes);
        let header = u32::try_from(HEADER_BYTES).unwrap_or(0);
        for word in [header, 0, types, types, length(strings)] {
            file.extend(self.endian.u32_bytes(word));
        }
        file.extend_from_slice(&self.bytes);
        file.extend_from_slice(strings);
        file
    }
}
