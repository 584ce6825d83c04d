//! Types as JSON (docs/json.md).

use serde_json::{Value, json};
use unspool_c_types::{Enumerator, Graph, RecordLayout, TypeId, TypeKind, TypedSymbol};
use unspool_dwarf_types::NamedDict;

/// A dictionary with all its types.
pub(super) fn dictionary(dictionary: &NamedDict<'_>) -> Value {
    let graph = &dictionary.graph;
    let ctf = dictionary.ctf.as_ref();
    let types: Vec<_> = graph.types().map(|(id, _)| definition(graph, id)).collect();
    json!({
        "name": dictionary.name,
        "unit": graph.unit,
        "parent": ctf.and_then(|unit| unit.dict.parent_name()),
        "types": types,
        "functions": symbols(graph, &graph.functions),
        "objects": symbols(graph, &graph.objects),
        "variables": symbols(graph, &graph.variables),
    })
}

fn symbols(graph: &Graph<'_>, symbols: &[TypedSymbol<'_>]) -> Vec<Value> {
    symbols
        .iter()
        .map(|symbol| self::symbol(graph, symbol))
        .collect()
}

/// A name and its type.
pub(super) fn symbol(graph: &Graph<'_>, symbol: &TypedSymbol<'_>) -> Value {
    json!({
        "name": symbol.name,
        "type": symbol.ty.0,
        "declaration": graph.declare(symbol.ty, &symbol.name),
    })
}

/// A type with its parts.
pub(super) fn definition(graph: &Graph<'_>, id: TypeId) -> Value {
    let Some(ty) = graph.get(id) else {
        return Value::Null;
    };
    let mut value = json!({
        "id": id.0,
        "kind": kind(&ty.kind),
        "name": if ty.name.is_empty() { Value::Null } else { json!(ty.name) },
        "type": graph.declare(id, ""),
        "size": graph.size(id),
        "align": graph.align(id),
    });
    let mut references = Vec::new();
    let layout = match &ty.kind {
        TypeKind::Record { .. } => graph.layout(id),
        _ => {
            ty.each_reference(|id| references.push(id.0));
            None
        }
    };
    let Some(object) = value.as_object_mut() else {
        return value;
    };
    if !references.is_empty() {
        object.insert("references".to_owned(), json!(references));
    }
    if let Some(layout) = layout {
        object.insert("members".to_owned(), members(graph, &layout));
        object.insert("holes".to_owned(), holes(&layout));
    }
    match &ty.kind {
        TypeKind::Enum { enumerators, .. } => {
            let all = enumerators.iter();
            let value = |one: &Enumerator<'_>| match i64::try_from(one.value) {
                Ok(value) => json!(value),
                Err(_) => json!(one.bits()),
            };
            let all = all.map(|one| json!({ "name": one.name, "value": value(one) }));
            object.insert("enumerators".to_owned(), all.collect());
        }
        TypeKind::Array { count, .. } => {
            object.insert("count".to_owned(), json!(count));
        }
        TypeKind::Function { is_variadic, .. } => {
            object.insert("variadic".to_owned(), json!(is_variadic));
        }
        TypeKind::Slice { offset, bits, .. } => {
            object.insert("bit_offset".to_owned(), json!(offset));
            object.insert("bits".to_owned(), json!(bits));
        }
        _ => {}
    }
    value
}

fn members(graph: &Graph<'_>, layout: &RecordLayout<'_>) -> Value {
    let member = |member: &unspool_c_types::MemberLayout<'_>| {
        json!({
            "name": if member.name.is_empty() { Value::Null } else { json!(member.name) },
            "type": member.ty.0,
            "declaration": graph.declare(member.ty, &member.name),
            "bit_offset": member.offset,
            "bits": member.bits,
            "bit_field": member.is_bit_field,
        })
    };
    layout.members.iter().map(member).collect()
}

fn holes(layout: &RecordLayout<'_>) -> Value {
    let hole = |hole: &unspool_c_types::Hole| json!({ "bit_offset": hole.offset, "bits": hole.bits, "padding": hole.is_padding });
    layout.holes.iter().map(hole).collect()
}

fn kind(kind: &TypeKind<'_>) -> &'static str {
    match kind {
        TypeKind::Unknown => "unknown",
        TypeKind::Integer(_) => "integer",
        TypeKind::Float(_) => "float",
        TypeKind::Pointer(_) => "pointer",
        TypeKind::Array { .. } => "array",
        TypeKind::Function { .. } => "function",
        TypeKind::Record { tag, .. } => tag.keyword(),
        TypeKind::Enum { .. } => "enum",
        TypeKind::Forward(_) => "forward",
        TypeKind::Typedef(_) => "typedef",
        TypeKind::Qualified(qualifier, _) => qualifier.keyword(),
        TypeKind::TypeTag { .. } => "type_tag",
        TypeKind::Slice { .. } => "slice",
    }
}
