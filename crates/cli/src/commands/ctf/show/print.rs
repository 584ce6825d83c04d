//! Values as text and as JSON.

use std::io::Write;

use serde_json::{Value, json};
use unspool_c_types::{Graph, Tag, TypeKind};
use unspool_display_values::{PointerTarget, Scalar, TypedValue, ValueContent};

use super::subject::ValueSubject;
use crate::output::{self, address};

/// The type of a value without the width of a bit-field, as a declaration of a name.
fn declared(graph: &Graph<'_>, value: &TypedValue, name: &str) -> String {
    let ty = value.place.ty;
    let inner = match graph
        .resolve(ty)
        .and_then(|id| graph.get(id))
        .map(|ty| &ty.kind)
    {
        Some(TypeKind::Slice { of, .. }) => *of,
        _ => ty,
    };
    graph.declare(inner, name)
}

/// Prints a value with its type.
pub(super) fn text(graph: &Graph<'_>, name: &str, value: &TypedValue) -> anyhow::Result<()> {
    let mut out = output::text();
    write!(out, "{} = ", declared(graph, value, name))?;
    write_value(&mut out, value, 0)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Prints a value that was written.
pub(super) fn change(
    graph: &Graph<'_>,
    name: &str,
    old: &TypedValue,
    new: &TypedValue,
) -> anyhow::Result<()> {
    let mut out = output::text();
    write!(out, "{} = ", declared(graph, new, name))?;
    write_value(&mut out, new, 0)?;
    out.write_all(b" (was ")?;
    write_value(&mut out, old, 0)?;
    out.write_all(b")\n")?;
    Ok(out.flush()?)
}

fn write_value(out: &mut dyn Write, value: &TypedValue, depth: usize) -> anyhow::Result<()> {
    let indent = "    ".repeat(depth + 1);
    let end = "    ".repeat(depth);
    match &value.content {
        ValueContent::Number(_, text) | ValueContent::Enum(_, text) | ValueContent::Text(text) => {
            out.write_all(text.as_bytes())?;
        }
        ValueContent::Bytes(bytes) if bytes.is_empty() => out.write_all(b"{}")?,
        ValueContent::Bytes(bytes) => write!(out, "bytes {bytes}")?,
        ValueContent::Unreadable => out.write_all(b"<unreadable>")?,
        ValueContent::Pointer { to, text, target } => {
            write!(out, "{to:#x}")?;
            if let Some(text) = text {
                write!(out, " {text}")?;
            }
            match target {
                PointerTarget::NotFollowed => {}
                PointerTarget::Above => out.write_all(b" -> above")?,
                PointerTarget::Value(inner) => {
                    out.write_all(b" -> ")?;
                    write_value(out, inner, depth)?;
                }
            }
        }
        ValueContent::Record(_, members) => {
            out.write_all(b"{\n")?;
            for (name, member) in members {
                out.write_all(indent.as_bytes())?;
                if !name.is_empty() {
                    write!(out, ".{name} = ")?;
                }
                write_value(out, member, depth + 1)?;
                out.write_all(b",\n")?;
            }
            write!(out, "{end}}}")?;
        }
        ValueContent::Array(elements, left_out) => {
            let is_flat = elements.iter().all(is_leaf);
            out.write_all(b"{")?;
            for (index, element) in elements.iter().enumerate() {
                match (is_flat, index) {
                    (true, 0) => {}
                    (true, _) => out.write_all(b", ")?,
                    (false, _) => write!(out, "\n{indent}[{index}] = ")?,
                }
                write_value(out, element, depth + 1)?;
                out.write_all(if is_flat { b"" } else { b"," })?;
            }
            match (left_out, is_flat) {
                (0, _) => {}
                (_, true) => write!(out, ", ... {left_out} more")?,
                (_, false) => write!(out, "\n{indent}... {left_out} more")?,
            }
            if !is_flat {
                write!(out, "\n{end}")?;
            }
            out.write_all(b"}")?;
        }
    }
    Ok(())
}

/// Whether a value is written on one line.
fn is_leaf(value: &TypedValue) -> bool {
    match &value.content {
        ValueContent::Record(..) => false,
        ValueContent::Array(elements, _) => elements.iter().all(is_leaf),
        ValueContent::Pointer { target, .. } => !matches!(target, PointerTarget::Value(_)),
        _ => true,
    }
}

/// Whether all of a value could be read; targets of pointers do not count.
pub(super) fn is_readable(value: &TypedValue) -> bool {
    match &value.content {
        ValueContent::Unreadable => false,
        ValueContent::Record(_, members) => members.iter().all(|(_, member)| is_readable(member)),
        ValueContent::Array(elements, _) => elements.iter().all(is_readable),
        _ => true,
    }
}

/// The document about a value.
pub(super) fn document(
    subject: &ValueSubject<'_>,
    graph: &Graph<'_>,
    name: &str,
    value: &TypedValue,
) -> Value {
    let module = subject.module_at(unspool_rows::RuntimeAddr(value.place.address));
    json!({
        "name": name,
        "file": module.map(|module| module.file.path().to_string_lossy().into_owned()),
        "value": json(graph, value),
    })
}

/// A value with its type and place.
pub(super) fn json(graph: &Graph<'_>, value: &TypedValue) -> Value {
    let place = &value.place;
    let mut object = json!({
        "type": declared(graph, value, ""),
        "address": address(place.address),
    });
    let Some(fields) = object.as_object_mut() else {
        return object;
    };
    if let Some((first, bits)) = place.field {
        fields.insert("bit_offset".to_owned(), json!(first));
        fields.insert("bits".to_owned(), json!(bits));
    }
    let mut insert = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    match &value.content {
        ValueContent::Number(number, text) => {
            insert("number", scalar(*number));
            insert("text", json!(text));
        }
        ValueContent::Enum(number, text) => {
            insert("number", scalar(*number));
            insert("enumerator", json!(text));
        }
        ValueContent::Text(text) => insert("text", json!(text)),
        ValueContent::Bytes(bytes) => insert("bytes", json!(bytes)),
        ValueContent::Unreadable => insert("unreadable", json!(true)),
        ValueContent::Pointer { to, text, target } => {
            insert("pointer", json!(address(*to)));
            if let Some(text) = text {
                insert("text", json!(text));
            }
            match target {
                PointerTarget::NotFollowed => {}
                PointerTarget::Above => insert("target", json!("above")),
                PointerTarget::Value(inner) => insert("target", json(graph, inner)),
            }
        }
        ValueContent::Record(tag, members) => {
            let members = members.iter().map(|(name, member)| {
                let mut value = json(graph, member);
                if let Some(object) = value.as_object_mut() {
                    let name = if name.is_empty() {
                        Value::Null
                    } else {
                        json!(name)
                    };
                    object.insert("name".to_owned(), name);
                }
                value
            });
            insert("union", json!(*tag == Tag::Union));
            insert("members", members.collect());
        }
        ValueContent::Array(elements, left_out) => {
            let elements = elements.iter().map(|element| json(graph, element));
            insert("elements", elements.collect());
            insert("left_out", json!(left_out));
        }
    }
    object
}

/// A number; one of more than 64 bits is text.
fn scalar(number: Scalar) -> Value {
    match number {
        Scalar::Signed(number) => match i64::try_from(number) {
            Ok(number) => json!(number),
            Err(_) => json!(number.to_string()),
        },
        Scalar::Unsigned(number) => match u64::try_from(number) {
            Ok(number) => json!(number),
            Err(_) => json!(number.to_string()),
        },
        Scalar::Float(number) if number.is_finite() => json!(number),
        Scalar::Float(number) => json!(number.to_string()),
        Scalar::Complex(real, imaginary) => json!([real, imaginary]),
    }
}
