//! Writing graphs as BTF.

use std::fmt::{self, Display, Formatter};

use hashbrown::{HashMap, HashSet};

use super::{BTF_MAGIC, HEADER_BYTES, kind};
use crate::bytes::Endian;
use crate::graph::{
    Enumerator, Graph, Member, Number, Qualifier, Tag, Type, TypeId, TypeKind, TypedSymbol,
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
    /// Writes a graph that has no parent: its named types, functions and data, and all types
    /// reachable from them. Also returns the declarations that BTF cannot represent.
    #[must_use]
    pub fn write(&self, graph: &Graph<'_>) -> (Vec<u8>, Vec<BtfOmission>) {
        let mut plan = BtfPlan::new(graph);
        plan.reach();
        let mut written = BtfBytes {
            endian: self.endian,
            strings: CtfStrings::new(plan.names()),
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
        for (symbols, kind) in [(&graph.functions, kind::FUNC), (&graph.objects, kind::VAR)] {
            for symbol in symbols
                .iter()
                .filter(|symbol| plan.is_representable(symbol))
            {
                written.head(&symbol.name, (kind, false, 0), plan.id(symbol.ty));
                if kind == kind::VAR {
                    written.word(1); // the graph does not record which are static
                }
            }
        }
        let bytes = written.file();
        (bytes, plan.omissions)
    }
}

/// The part of a graph to write.
struct BtfPlan<'g, 'a> {
    graph: &'g Graph<'a>,
    /// The ids in the file of written types.
    ids: HashMap<TypeId, u32>,
    /// The id of the index type; 0 if there is no array.
    index: u32,
    omissions: Vec<BtfOmission>,
}

impl<'g, 'a> BtfPlan<'g, 'a> {
    /// Finds the unrepresentable declarations.
    fn new(graph: &'g Graph<'a>) -> BtfPlan<'g, 'a> {
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
            ids: HashMap::new(),
            index: 0,
            omissions: unsaid,
        }
    }

    fn is_representable(&self, symbol: &TypedSymbol<'_>) -> bool {
        self.ids.contains_key(&symbol.ty)
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
            if !looked_at.insert(id) {
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
                TypeKind::Array { element, .. } => open.push(*element),
                _ => ty.each_reference(|id| open.push(id)),
            }
        }
        let is_array = |id: &TypeId| {
            matches!(
                graph.get(*id).map(|ty| &ty.kind),
                Some(TypeKind::Array { .. })
            )
        };
        let mut next = 1;
        for (id, _) in graph.types().filter(|(id, _)| reached.contains(id)) {
            self.ids.insert(id, next);
            next += 1;
        }
        if reached.iter().any(is_array) {
            self.index = next;
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
        let symbols = self.graph.functions.iter().chain(&self.graph.objects);
        names.extend(
            symbols
                .filter(|symbol| self.is_representable(symbol))
                .map(|symbol| &*symbol.name),
        );
        if self.index != 0 {
            names.insert(INDEX_TYPE_NAME);
        }
        names
    }

    /// The id in the file; `void`'s for a missing type.
    fn id(&self, id: TypeId) -> u32 {
        self.ids.get(&id).copied().unwrap_or(0)
    }

    fn ty(&self, output: &mut BtfBytes, ty: &Type<'_>) {
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
            TypeKind::Qualified(qualifier, to) => {
                let kind = match qualifier {
                    Qualifier::Const => kind::CONST,
                    Qualifier::Volatile => kind::VOLATILE,
                    Qualifier::Restrict => kind::RESTRICT,
                };
                output.head(name, (kind, false, 0), self.id(*to));
            }
            TypeKind::Array { element, count, .. } => {
                output.head(name, (kind::ARRAY, false, 0), 0);
                for word in [self.id(*element), self.index, low(*count)] {
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
        output: &mut BtfBytes,
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
    output: &mut BtfBytes,
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
struct BtfBytes {
    endian: Endian,
    strings: CtfStrings,
    bytes: Vec<u8>,
}

impl BtfBytes {
    fn word(&mut self, word: u32) {
        self.bytes.extend(self.endian.u32_bytes(word));
    }

    fn name(&mut self, name: &str) {
        let at = self.strings.offset(name);
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
