//! Values in C notation.

use core::fmt;
use core::fmt::Write as _;

use crate::display_type::{Array, BitField, DisplayKind, DisplayType};
use crate::enum_text::write_enum;
use crate::table::{TableParameter, TableType};

/// Reads a byte of memory; `None` if it is unreadable.
pub type ByteAt<'a> = &'a dyn Fn(u64) -> Option<u8>;

/// A value, displayed in C notation.
pub struct ValueDisplay<'a, T: DisplayType> {
    bytes: PartialBytes<'a>,
    display_kind: DisplayKind<T>,
    is_by_reference: bool,
    memory: Option<ByteAt<'a>>,
}

impl<'a, 't> ValueDisplay<'a, TableType<'t>> {
    /// An argument with its bytes ([`read_argument`](crate::read_argument)).
    #[must_use]
    pub fn new(parameter: &TableParameter<'t>, bytes: &'a [u8]) -> Self {
        ValueDisplay {
            bytes: PartialBytes { bytes, known: None },
            display_kind: parameter.display_kind,
            is_by_reference: parameter.is_by_reference,
            memory: None,
        }
    }
}

impl<'a, T: DisplayType> ValueDisplay<'a, T> {
    /// A value of this display kind.
    #[must_use]
    pub fn from_kind(display_kind: DisplayKind<T>, bytes: &'a [u8]) -> Self {
        ValueDisplay {
            bytes: PartialBytes { bytes, known: None },
            display_kind,
            is_by_reference: false,
            memory: None,
        }
    }

    /// The same for a partly known value, with a mask of known bits for each byte.
    #[must_use]
    pub fn with_known(self, known: &'a [u8]) -> Self {
        let bytes = PartialBytes {
            known: Some(known),
            ..self.bytes
        };
        ValueDisplay { bytes, ..self }
    }

    /// The same with the characters at a pointer to characters.
    #[must_use]
    pub fn with_text(self, memory: ByteAt<'a>) -> Self {
        ValueDisplay {
            memory: Some(memory),
            ..self
        }
    }
}

impl<T: DisplayType> fmt::Display for ValueDisplay<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_by_reference {
            write!(f, "at {:#x}", unsigned(self.bytes.bytes))
        } else {
            let mut display = ValueWriter {
                f,
                memory: self.memory,
                left: MAX_VALUES,
            };
            display.show(self.bytes, &self.display_kind)
        }
    }
}

impl<T: DisplayType> fmt::Debug for ValueDisplay<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number in the first eight bytes.
#[must_use]
pub fn unsigned(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The number in sixteen bytes.
fn wide(bytes: &[u8]) -> Option<u128> {
    bytes.try_into().ok().map(u128::from_le_bytes)
}

/// The number of bits in these bytes, up to 64.
#[must_use]
pub fn bits_of(bytes: &[u8]) -> u32 {
    8 * u32::try_from(bytes.len().clamp(1, 8)).unwrap_or(8)
}

fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - bits_of(bytes);
    unsigned(bytes).cast_signed() << unused >> unused
}

/// Some bytes of a value, and their known bits.
#[derive(Clone, Copy)]
struct PartialBytes<'a> {
    bytes: &'a [u8],
    /// `None` if all are known.
    known: Option<&'a [u8]>,
}

impl<'a> PartialBytes<'a> {
    /// A part of it; `None` if it does not have that many bytes.
    fn get(&self, start: u64, size: u32) -> Option<PartialBytes<'a>> {
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        Some(PartialBytes {
            bytes: self.bytes.get(start..end)?,
            known: match self.known {
                Some(known) => Some(known.get(start..end)?),
                None => None,
            },
        })
    }

    /// Whether no bit is known.
    fn is_lost(&self) -> bool {
        self.known
            .is_some_and(|known| known.iter().all(|known| *known == 0))
    }

    fn is_known(&self) -> bool {
        self.known
            .is_none_or(|known| known.iter().all(|known| *known == 0xff))
    }
}

/// The maximum number of elements of an array to show.
const MAX_ELEMENTS: u64 = 32;

/// The maximum number of values in a value. Types share parts: a few of them can have more members
/// together than memory has bytes.
const MAX_VALUES: u32 = 1 << 12;

struct ValueWriter<'f, 'b, 'a> {
    f: &'f mut fmt::Formatter<'b>,
    memory: Option<ByteAt<'a>>,
    /// The remaining number of values.
    left: u32,
}

impl ValueWriter<'_, '_, '_> {
    fn show<T: DisplayType>(
        &mut self,
        partial: PartialBytes<'_>,
        display_kind: &DisplayKind<T>,
    ) -> fmt::Result {
        let bytes = partial.bytes;
        let Some(left) = self.left.checked_sub(1) else {
            return self.f.write_str("...");
        };
        self.left = left;
        match display_kind {
            _ if bytes.is_empty() => self.f.write_str("{}"),
            _ if partial.is_lost() => self.f.write_str("<lost>"),
            DisplayKind::Record(members) => {
                self.f.write_str("{")?;
                for (index, member) in members.clone().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    self.f.write_str(separator)?;
                    if self.left == 0 {
                        self.f.write_str("...")?;
                        break;
                    }
                    // Members of an unnamed member are the structure's own.
                    let name = member.name.as_ref();
                    if !name.is_empty() {
                        write!(self.f, ".{name} = ")?;
                    }
                    match partial.get(member.offset.into(), member.bytes) {
                        Some(own) => self.show(own, &member.display_kind)?,
                        None => self.f.write_str("...")?,
                    }
                }
                self.f.write_str("}")
            }
            DisplayKind::Array(array) => self.show_array(partial, array),
            DisplayKind::Bits(field) => self.show_bits(partial, field),
            _ if !partial.is_known() => self.f.write_str("<lost>"),
            _ => show_number(self.f, bytes, display_kind, self.memory),
        }
    }

    fn show_array<T: DisplayType>(
        &mut self,
        partial: PartialBytes<'_>,
        array: &Array<T>,
    ) -> fmt::Result {
        let element = match array.element.kind() {
            DisplayKind::Char if array.bytes == 1 && partial.is_known() => {
                let text = TextPreview::from_array(partial.bytes, array.count);
                return write!(self.f, "{text}");
            }
            element => element,
        };
        self.f.write_str("{")?;
        for index in 0..array.count {
            let separator = if index == 0 { "" } else { ", " };
            self.f.write_str(separator)?;
            let own = partial.get(index.saturating_mul(array.bytes.into()), array.bytes);
            match own.filter(|_| index < MAX_ELEMENTS && self.left > 0) {
                Some(own) => self.show(own, &element)?,
                None => {
                    self.f.write_str("...")?;
                    break;
                }
            }
        }
        self.f.write_str("}")
    }

    fn show_bits<T: DisplayType>(
        &mut self,
        partial: PartialBytes<'_>,
        field: &BitField<T>,
    ) -> fmt::Result {
        let unused = 64 - u32::from(field.count.clamp(1, 64));
        let own = |bytes| unsigned(bytes) >> field.first.min(63) << unused >> unused;
        let all = u64::MAX << unused >> unused;
        if partial.known.is_some_and(|known| own(known) != all) {
            return self.f.write_str("<lost>");
        }
        let number = own(partial.bytes);
        let inner = field.number.kind();
        let number = match &inner {
            DisplayKind::Enum(constants) => {
                return write_enum(self.f, constants.clone(), number, 64 - unused);
            }
            DisplayKind::Signed | DisplayKind::Char => {
                (number.cast_signed() << unused >> unused).cast_unsigned()
            }
            _ => number,
        };
        show_number(self.f, &number.to_le_bytes(), &inner, self.memory)
    }
}

/// The shortest digits of a number, with an exponent if it is very small or large.
pub struct FloatText<T>(pub T);

impl<T: Copy + Into<f64> + fmt::Display + fmt::LowerExp> fmt::Display for FloatText<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number: f64 = self.0.into();
        if number == 0.0 || !number.is_finite() || (1e-5..1e16).contains(&number.abs()) {
            fmt::Display::fmt(&self.0, f)
        } else {
            fmt::LowerExp::fmt(&self.0, f)
        }
    }
}

/// Shows a value without parts.
fn show_number<T: DisplayType>(
    f: &mut fmt::Formatter<'_>,
    bytes: &[u8],
    display_kind: &DisplayKind<T>,
    memory: Option<ByteAt<'_>>,
) -> fmt::Result {
    let number = unsigned(bytes);
    match (display_kind, wide(bytes)) {
        (DisplayKind::Signed, Some(wide)) => return write!(f, "{}", wide.cast_signed()),
        (DisplayKind::Unsigned, Some(wide)) => return write!(f, "{wide}"),
        _ => {}
    }
    match display_kind {
        DisplayKind::Signed if bytes.len() <= 8 => write!(f, "{}", signed(bytes)),
        DisplayKind::Unsigned if bytes.len() <= 8 => write!(f, "{number}"),
        DisplayKind::Bool => match number {
            0 => f.write_str("false"),
            1 => f.write_str("true"),
            other => write!(f, "{other}"),
        },
        DisplayKind::Char | DisplayKind::UnsignedChar => {
            match display_kind {
                DisplayKind::Char => write!(f, "{}", signed(bytes))?,
                _ => write!(f, "{number}")?,
            }
            match u8::try_from(number) {
                Ok(byte) if byte.is_ascii_graphic() || byte == b' ' => {
                    write!(f, " '{}'", char::from(byte))
                }
                _ => Ok(()),
            }
        }
        DisplayKind::Pointer => write!(f, "{number:#x}"),
        DisplayKind::CharPointer => {
            write!(f, "{number:#x}")?;
            match memory.and_then(|memory| TextPreview::read(number, memory)) {
                Some(text) => write!(f, " {text}"),
                None => Ok(()),
            }
        }
        DisplayKind::Float if bytes.len() == 4 => {
            let bits = u32::try_from(number).unwrap_or_default();
            write!(f, "{}", FloatText(f32::from_bits(bits)))
        }
        DisplayKind::Float if bytes.len() == 8 => {
            write!(f, "{}", FloatText(f64::from_bits(number)))
        }
        DisplayKind::Enum(constants) => write_enum(f, constants.clone(), number, bits_of(bytes)),
        _ => {
            f.write_str("bytes")?;
            bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
        }
    }
}

/// Characters in quotes, as in C.
pub struct QuotedText<'a>(pub &'a [u8]);

impl fmt::Display for QuotedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for byte in self.0 {
            match byte {
                b'"' | b'\\' | b'\n' | b'\r' | b'\t' => write!(f, "{}", byte.escape_ascii())?,
                7 => f.write_str("\\a")?,
                8 => f.write_str("\\b")?,
                11 => f.write_str("\\v")?,
                12 => f.write_str("\\f")?,
                b' '..=b'~' => f.write_char(char::from(*byte))?,
                // Of hexadecimal digits, C takes as many as there are.
                _ => write!(f, "\\{byte:03o}")?,
            }
        }
        f.write_char('"')
    }
}

/// The characters of an array without the zeros at its end.
#[must_use]
pub fn without_padding(characters: &[u8]) -> &[u8] {
    let last = characters.iter().rposition(|byte| *byte != 0);
    let length = last.map_or(0, |last| last + 1);
    characters.get(..length).unwrap_or_default()
}

/// Characters up to a zero or, of an array, up to the zeros at its end: the first 80.
#[derive(Debug, Clone, Copy)]
pub struct TextPreview {
    bytes: [u8; TextPreview::MAX_TEXT_BYTES],
    length: usize,
    is_whole: bool,
}

impl TextPreview {
    /// The maximum number of characters.
    pub const MAX_TEXT_BYTES: usize = 80;

    /// The text at an address; `None` if a part of it cannot be read.
    #[must_use]
    pub fn read(at: u64, memory: ByteAt<'_>) -> Option<TextPreview> {
        let mut text = TextPreview {
            bytes: [0; TextPreview::MAX_TEXT_BYTES],
            length: 0,
            is_whole: false,
        };
        for (offset, place) in (0..).zip(&mut text.bytes) {
            let byte = memory(at.checked_add(offset)?)?;
            if byte == 0 {
                text.is_whole = true;
                break;
            }
            *place = byte;
            text.length += 1;
        }
        Some(text)
    }

    /// The characters of an array of `count`, with its first bytes.
    fn from_array(bytes: &[u8], count: u64) -> TextPreview {
        let characters = without_padding(bytes);
        let mut text = TextPreview {
            bytes: [0; TextPreview::MAX_TEXT_BYTES],
            length: characters.len().min(TextPreview::MAX_TEXT_BYTES),
            is_whole: characters.len() <= TextPreview::MAX_TEXT_BYTES
                && bytes.len() as u64 == count,
        };
        for (place, byte) in text.bytes.iter_mut().zip(characters) {
            *place = *byte;
        }
        text
    }

    /// The characters.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// In quotes, followed by dots if there are more characters.
impl fmt::Display for TextPreview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.is_whole { "" } else { "..." };
        write!(f, "{}{rest}", QuotedText(self.bytes()))
    }
}
