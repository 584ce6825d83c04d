//! Values to write, from text.

use anyhow::{anyhow, bail};
use unspool_c_types::{Graph, Number, TypeId, TypeKind};
use unspool_display_values::{ValuePlace, ValueReader};
use unspool_rows::RuntimeAddr;

/// The bytes of a value in the place's form: a number, the name of an enumerator, `true` or
/// `false`, or text in quotes for an array of characters. Of a bit-field, the bits around it are
/// kept.
pub(super) fn encoded(
    reader: &ValueReader<'_, '_>,
    place: &ValuePlace,
    text: &str,
) -> anyhow::Result<Vec<u8>> {
    let graph = reader.graph;
    let kind = kind(graph, place.ty).ok_or_else(|| unwritable(graph, place.ty))?;
    let size = graph.size(place.ty).unwrap_or(0);
    let (bytes, is_signed) = match kind {
        TypeKind::Integer(number) if number.size > 0 => {
            let is_signed = number.format & Number::SIGNED != 0;
            let value = match text {
                "true" => 1,
                "false" => 0,
                _ => number_of(text)?,
            };
            if number.format & Number::BOOL != 0 && !matches!(value, 0 | 1) {
                bail!("a truth value is 0 or 1, not {text}");
            }
            (value, is_signed)
        }
        TypeKind::Enum {
            is_signed,
            enumerators,
            ..
        } => {
            let named = enumerators.iter().find(|one| one.name == text);
            let value = named.map_or_else(|| number_of(text), |one| Ok(one.value))?;
            let is_signed = *is_signed || unspool_c_types::Enumerator::any_negative(enumerators);
            (value, is_signed)
        }
        TypeKind::Pointer(_) => (number_of(text)?, false),
        TypeKind::Float(number) => {
            let value: f64 = text
                .parse()
                .map_err(|_| anyhow!("{text:?} is not a number"))?;
            #[expect(clippy::cast_possible_truncation, reason = "as C converts it")]
            return match (number.format, number.size) {
                (1, 4) => Ok((value as f32).to_le_bytes().to_vec()),
                (2, 8) => Ok(value.to_le_bytes().to_vec()),
                _ => Err(unwritable(graph, place.ty)),
            };
        }
        TypeKind::Array { element, count, .. } if graph.size(*element) == Some(1) => {
            return characters(text, *count);
        }
        _ => return Err(unwritable(graph, place.ty)),
    };
    let (first, width) = place.field.unwrap_or((0, size.saturating_mul(8)));
    number_bytes(reader, place, bytes, is_signed, first, width)
}

fn unwritable(graph: &Graph<'_>, ty: TypeId) -> anyhow::Error {
    anyhow!(
        "a value of type `{}` is not written as a whole: name a member or an element",
        graph.declare(ty, "")
    )
}

/// The type behind typedefs, qualifiers and slices.
fn kind<'g, 'a>(graph: &'g Graph<'a>, ty: TypeId) -> Option<&'g TypeKind<'a>> {
    match &graph.get(graph.resolve(ty)?)?.kind {
        TypeKind::Slice { of, .. } => Some(&graph.get(graph.resolve(*of)?)?.kind),
        kind => Some(kind),
    }
}

/// A number in decimal, hexadecimal or octal notation, or a character.
fn number_of(text: &str) -> anyhow::Result<i128> {
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or((1, text), |digits| (-1, digits));
    let number = match digits.as_bytes() {
        [b'0', b'x' | b'X', rest @ ..] => i128::from_str_radix(str::from_utf8(rest)?, 16),
        [b'0', rest @ ..] if !rest.is_empty() => i128::from_str_radix(str::from_utf8(rest)?, 8),
        [b'\'', character, b'\''] => Ok(i128::from(*character)),
        _ => digits.parse(),
    };
    Ok(sign * number.map_err(|_| anyhow!("{text:?} is not a number"))?)
}

/// The characters in quotes, with zeros behind them.
fn characters(text: &str, count: u64) -> anyhow::Result<Vec<u8>> {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let inner = inner.ok_or_else(|| anyhow!("write characters in quotes: '\"text\"'"))?;
    let count = usize::try_from(count)?;
    if inner.len() > count {
        bail!("{} characters do not fit into {count}", inner.len());
    }
    let mut bytes = inner.as_bytes().to_vec();
    bytes.resize(count, 0);
    Ok(bytes)
}

/// The bytes that contain a number's bits.
fn number_bytes(
    reader: &ValueReader<'_, '_>,
    place: &ValuePlace,
    value: i128,
    is_signed: bool,
    first: u64,
    width: u64,
) -> anyhow::Result<Vec<u8>> {
    if !(1..=64).contains(&width) || first > 7 {
        bail!("numbers of {width} bits are not written");
    }
    let range = if is_signed {
        -(1_i128 << (width - 1))..1_i128 << (width - 1)
    } else {
        0..1_i128 << width
    };
    if !range.contains(&value) {
        bail!(
            "{value} does not fit: it can be from {} to {}",
            range.start,
            range.end - 1
        );
    }
    let count = usize::try_from((first + width).div_ceil(8))?;
    let mut bytes = [0; 16];
    let bytes_read = bytes.get_mut(..count).unwrap_or_default();
    reader.memory.read(RuntimeAddr(place.address), bytes_read)?;
    let mask = ((1_u128 << width) - 1) << first;
    let others = u128::from_le_bytes(bytes) & !mask;
    let whole = others | value.cast_unsigned() << first & mask;
    Ok(whole
        .to_le_bytes()
        .get(..count)
        .unwrap_or_default()
        .to_vec())
}
