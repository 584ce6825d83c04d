//! A value in memory as a tree, by its C type.

use unspool_arg_table::{
    DisplayKind, DisplayType as _, FloatText, QuotedText, ValueDisplay, without_padding,
};
use unspool_c_types::{Enumerator, Graph, Number, PathError, PathPart, Tag, TypeId, TypeKind};
use unspool_dwarf_types::GraphType;
use unspool_rows::{Arch, Memory, RuntimeAddr};

/// The maximum nesting of structures and arrays.
const MAX_NESTING: usize = 32;

/// The maximum number of bytes of a text.
const MAX_TEXT_BYTES: u64 = 200;

/// The place of a value in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuePlace {
    /// Its type.
    pub ty: TypeId,
    /// Its first byte.
    pub address: u64,
    /// Its first bit from there and its width in bits, if it is a bit-field.
    pub field: Option<(u64, u64)>,
}

/// A value with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedValue {
    /// Its place.
    pub place: ValuePlace,
    /// What is there.
    pub content: ValueContent,
}

/// The content of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ValueContent {
    /// A number, a truth value or a character, and its text in C notation.
    Number(Scalar, String),
    /// An enumeration's value, and the names of its constants.
    Enum(Scalar, String),
    /// A pointer.
    Pointer {
        /// Where it points.
        to: u64,
        /// The text there, if it points to characters.
        text: Option<String>,
        /// What is there.
        target: PointerTarget,
    },
    /// An array of characters, up to the zeros at its end.
    Text(String),
    /// A structure or a union: all its members.
    Record(Tag, Vec<(String, TypedValue)>),
    /// An array: its first elements, and the number of others.
    Array(Vec<TypedValue>, u64),
    /// Bytes of no known form, in hexadecimal.
    Bytes(String),
    /// It cannot be read.
    Unreadable,
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// One that can be negative.
    Signed(i128),
    /// One that cannot.
    Unsigned(u128),
    /// A floating-point number: one of more bits is rounded.
    Float(f64),
    /// A complex number.
    Complex(f64, f64),
}

/// What a pointer points to.
#[derive(Debug, Clone, PartialEq)]
pub enum PointerTarget {
    /// It was not followed.
    NotFollowed,
    /// A value.
    Value(Box<TypedValue>),
    /// A value that contains the pointer, directly or through others.
    Above,
}

/// Reads values.
#[derive(Clone, Copy)]
pub struct ValueReader<'r, 'g> {
    /// The types.
    pub graph: &'r Graph<'g>,
    /// The memory.
    pub memory: &'r dyn Memory,
    /// The machine, for the form of `long double`.
    pub arch: Arch,
    /// How many pointers to follow from a value, one after the other.
    pub follow: usize,
    /// The maximum number of elements of an array.
    pub elements: u64,
}

impl ValueReader<'_, '_> {
    /// The place to which a path leads from another one. Pointers on it are followed.
    ///
    /// # Errors
    ///
    /// The types do not have the path. The inner error is the address of an unreadable pointer.
    pub fn place(
        &self,
        start: ValuePlace,
        path: &[PathPart<'_>],
    ) -> Result<Result<ValuePlace, u64>, PathError> {
        let mut at = start;
        for part in path {
            if let Some(target) = self.pointer_target(at.ty) {
                match self.word(at.address) {
                    Some(address) if matches!(part, PathPart::Member(_)) => {
                        at = ValuePlace {
                            ty: target,
                            address,
                            field: None,
                        };
                    }
                    Some(address) => at.address = address,
                    None => return Ok(Err(at.address)),
                }
            }
            at = match *part {
                PathPart::Member(name) => {
                    let member = self.graph.member(at.ty, name)?;
                    self.member_place(at.address, member.ty, member.offset, member.field_bits)
                }
                PathPart::Index(index) => {
                    let (ty, offset) = self.graph.element(at.ty, index)?;
                    ValuePlace {
                        ty,
                        address: at.address.wrapping_add(offset),
                        field: None,
                    }
                }
            };
        }
        Ok(Ok(at))
    }

    fn member_place(
        &self,
        record: u64,
        ty: TypeId,
        offset: u64,
        field_bits: Option<u64>,
    ) -> ValuePlace {
        ValuePlace {
            ty,
            address: record.wrapping_add(offset / 8),
            field: field_bits.map(|bits| (offset % 8, bits)),
        }
    }

    /// The value at a place.
    #[must_use]
    pub fn read(&self, place: ValuePlace) -> TypedValue {
        let own = self.graph.resolve(place.ty).unwrap_or(place.ty);
        self.read_within(place, &mut vec![(place.address, own)], MAX_NESTING)
    }

    /// The same, inside of the values that pointers have led through.
    fn read_within(
        &self,
        place: ValuePlace,
        above: &mut Vec<(u64, TypeId)>,
        depth: usize,
    ) -> TypedValue {
        let content = self.content(place, above, depth);
        TypedValue {
            place,
            content: content.unwrap_or(ValueContent::Unreadable),
        }
    }

    fn content(
        &self,
        place: ValuePlace,
        above: &mut Vec<(u64, TypeId)>,
        depth: usize,
    ) -> Option<ValueContent> {
        let graph = self.graph;
        let Some(id) = graph.resolve(place.ty) else {
            return Some(ValueContent::Bytes(String::new()));
        };
        let kind = &graph.get(id)?.kind;
        if let TypeKind::Slice {
            of, bits, offset, ..
        } = kind
        {
            let field = place.field.or(Some((u64::from(*offset), u64::from(*bits))));
            let inner = ValuePlace {
                ty: *of,
                field,
                ..place
            };
            return self.content(inner, above, depth.checked_sub(1)?);
        }
        match kind {
            TypeKind::Integer(number) if number.size > 0 => {
                let bits = self.bits(place, number.size)?;
                let is_signed = number.format & Number::SIGNED != 0;
                Some(ValueContent::Number(
                    scalar(bits, self.width(place, number.size), is_signed),
                    self.leaf_text(place, number.size, is_signed)?,
                ))
            }
            TypeKind::Enum {
                size,
                is_signed,
                enumerators,
            } => {
                let is_signed = *is_signed || Enumerator::any_negative(enumerators);
                let bits = self.bits(place, *size)?;
                Some(ValueContent::Enum(
                    scalar(bits, self.width(place, *size), is_signed),
                    self.leaf_text(place, *size, is_signed)?,
                ))
            }
            TypeKind::Float(number) => self.float(place, *number),
            TypeKind::Pointer(to) => {
                let address = self.word(place.address)?;
                let target = self.follow(address, *to, above);
                let text = self.is_char(*to).then(|| self.text(address)).flatten();
                Some(ValueContent::Pointer {
                    to: address,
                    text,
                    target,
                })
            }
            TypeKind::Array { element, count, .. } => {
                let depth = depth.checked_sub(1)?;
                if self.is_char(*element) && *count > 0 {
                    let bytes = self.bytes(place.address, (*count).min(MAX_TEXT_BYTES))?;
                    let is_whole = bytes.len() as u64 == *count;
                    return Some(ValueContent::Text(quoted(
                        without_padding(&bytes),
                        is_whole,
                    )));
                }
                let size = graph.size(*element)?;
                let shown = (*count).min(self.elements);
                let elements = (0..shown).map(|index| {
                    let inner = ValuePlace {
                        ty: *element,
                        address: place.address.wrapping_add(size.wrapping_mul(index)),
                        field: None,
                    };
                    self.read_within(inner, above, depth)
                });
                Some(ValueContent::Array(elements.collect(), count - shown))
            }
            TypeKind::Record { tag, .. } => {
                let depth = depth.checked_sub(1)?;
                let members = graph.layout(id)?.members.into_iter().map(|member| {
                    let field = member.bits.filter(|_| member.is_bit_field);
                    let inner = self.member_place(place.address, member.ty, member.offset, field);
                    (
                        member.name.into_owned(),
                        self.read_within(inner, above, depth),
                    )
                });
                Some(ValueContent::Record(*tag, members.collect()))
            }
            _ => {
                let size = graph.size(place.ty).unwrap_or(0).min(MAX_TEXT_BYTES);
                Some(ValueContent::Bytes(hex(&self.bytes(place.address, size)?)))
            }
        }
    }

    /// The value behind a pointer, as far as pointers are followed.
    fn follow(&self, address: u64, ty: TypeId, above: &mut Vec<(u64, TypeId)>) -> PointerTarget {
        let Some(resolved) = self.graph.resolve(ty) else {
            return PointerTarget::NotFollowed;
        };
        let is_sized = self.graph.size(resolved).is_some_and(|size| size > 0);
        if address == 0 || !is_sized || self.is_char(ty) || above.len() > self.follow {
            return PointerTarget::NotFollowed;
        }
        if above.contains(&(address, resolved)) {
            return PointerTarget::Above;
        }
        above.push((address, resolved));
        let place = ValuePlace {
            ty,
            address,
            field: None,
        };
        let value = self.read_within(place, above, MAX_NESTING);
        above.pop();
        PointerTarget::Value(Box::new(value))
    }

    /// The type behind a pointer.
    fn pointer_target(&self, ty: TypeId) -> Option<TypeId> {
        match self.graph.get(self.graph.resolve(ty)?)?.kind {
            TypeKind::Pointer(to) => Some(to),
            _ => None,
        }
    }

    fn is_char(&self, ty: TypeId) -> bool {
        let resolved = self.graph.resolve(ty).and_then(|id| self.graph.get(id));
        matches!(resolved.map(|ty| &ty.kind), Some(TypeKind::Integer(number))
            if number.format & Number::CHAR != 0 && number.size == 1)
    }

    /// The width of a number in bits.
    fn width(&self, place: ValuePlace, size: u64) -> u32 {
        let bits = place.field.map_or(size.saturating_mul(8), |(_, bits)| bits);
        u32::try_from(bits.min(128)).unwrap_or(128)
    }

    /// The bits of a number of at most 16 bytes.
    fn bits(&self, place: ValuePlace, size: u64) -> Option<u128> {
        let (first, width) = place.field.unwrap_or((0, size.checked_mul(8)?));
        let bytes = first.checked_add(width)?.div_ceil(8);
        let bytes = self
            .bytes(place.address, bytes)
            .filter(|bytes| bytes.len() <= 16)?;
        let all = bytes
            .iter()
            .rev()
            .fold(0, |bits, byte| bits << 8 | u128::from(*byte));
        let unused = 128 - self.width(place, size);
        (all >> first).checked_shl(unused)?.checked_shr(unused)
    }

    /// The text of a number or an enumeration's value.
    fn leaf_text(&self, place: ValuePlace, size: u64, is_signed: bool) -> Option<String> {
        let bits = self.bits(place, size)?;
        let whole = match scalar(bits, self.width(place, size), is_signed) {
            Scalar::Signed(number) => number.cast_unsigned(),
            _ => bits,
        };
        let bytes = whole.to_le_bytes();
        let bytes = bytes.get(..usize::try_from(size).ok()?)?;
        let kind = match GraphType::new(self.graph, place.ty).kind() {
            DisplayKind::Bits(field) => field.number.kind(),
            kind => kind,
        };
        Some(ValueDisplay::from_kind(kind, bytes).to_string())
    }

    fn float(&self, place: ValuePlace, number: Number) -> Option<ValueContent> {
        let bytes = self.bytes(place.address, number.size.min(64))?;
        let half = bytes.len() / 2;
        let parts = match number.format {
            3..=5 => bytes
                .split_at_checked(half)
                .map(|(real, imaginary)| (real, Some(imaginary)))?,
            _ => (&*bytes, None),
        };
        let is_x86 = matches!(self.arch, Arch::X86_64 | Arch::I386);
        let real = float(parts.0, is_x86);
        let imaginary = parts.1.map(|part| float(part, is_x86));
        Some(match (real, imaginary) {
            (Some((real, text)), None) => ValueContent::Number(Scalar::Float(real), text),
            (Some((real, text)), Some(Some((imaginary, rest)))) => ValueContent::Number(
                Scalar::Complex(real, imaginary),
                format!("{text} + {rest}i"),
            ),
            _ => ValueContent::Bytes(hex(&bytes)),
        })
    }

    /// A pointer's value.
    fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(address, self.graph.pointer_size.min(8))?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte)),
        )
    }

    fn bytes(&self, address: u64, count: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(count).ok()?];
        self.memory.read(RuntimeAddr(address), &mut bytes).ok()?;
        Some(bytes)
    }

    /// The text at an address, if there is one.
    fn text(&self, address: u64) -> Option<String> {
        /// No mapping ends between two addresses with the same multiple.
        const PIECE_BYTES: u64 = 64;
        let mut text = Vec::new();
        let mut at = address;
        while text.len() as u64 <= MAX_TEXT_BYTES && !text.contains(&0) {
            let count = PIECE_BYTES - at % PIECE_BYTES;
            text.extend(self.bytes(at, count)?);
            at = at.checked_add(count)?;
        }
        let most = usize::try_from(MAX_TEXT_BYTES).unwrap_or(usize::MAX);
        let end = text.iter().position(|byte| *byte == 0);
        let shown = end.unwrap_or(text.len()).min(most);
        text.truncate(shown);
        (address != 0).then(|| quoted(&text, end == Some(shown)))
    }
}

/// The number in bits of a width.
fn scalar(bits: u128, width: u32, is_signed: bool) -> Scalar {
    let unused = 128 - width.clamp(1, 128);
    if is_signed {
        Scalar::Signed(bits.cast_signed() << unused >> unused)
    } else {
        Scalar::Unsigned(bits)
    }
}

/// Characters in quotes; dots stand for others.
fn quoted(characters: &[u8], is_whole: bool) -> String {
    let rest = if is_whole { "" } else { "..." };
    format!("{}{rest}", QuotedText(characters))
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

/// A floating-point number and its text; `None` for an unknown form.
fn float(bytes: &[u8], is_x86: bool) -> Option<(f64, String)> {
    let (number, text) = match *bytes {
        [a, b, c, d] => {
            let number = f32::from_le_bytes([a, b, c, d]);
            (f64::from(number), FloatText(number).to_string())
        }
        [a, b, c, d, e, f, g, h] => {
            let number = f64::from_le_bytes([a, b, c, d, e, f, g, h]);
            (number, FloatText(number).to_string())
        }
        [a, b, c, d, e, f, g, h, low, high, ..] if is_x86 => {
            let significand = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let number = extended(significand, u16::from_le_bytes([low, high]));
            (number, FloatText(number).to_string())
        }
        _ => return None,
    };
    Some((number, text))
}

/// The x87's extended precision, rounded: a sign, 15 bits of exponent, and 64 of significand.
fn extended(significand: u64, sign_and_exponent: u16) -> f64 {
    const BIAS: i32 = 16383;
    let exponent = i32::from(sign_and_exponent & 0x7fff);
    // Exact, unless the result is subnormal.
    #[expect(clippy::cast_precision_loss, reason = "it is rounded to 53 bits")]
    let magnitude = match exponent {
        0x7fff if significand << 1 == 0 => f64::INFINITY,
        0x7fff => f64::NAN,
        _ => significand as f64 * 2_f64.powi(-63) * 2_f64.powi(exponent - BIAS),
    };
    if sign_and_exponent >> 15 == 0 {
        magnitude
    } else {
        -magnitude
    }
}
