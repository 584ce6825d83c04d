//! Values as C would have them.

use core::fmt;

use crate::table::{Parameter, Shape};

/// Reads a byte of memory; `None` if it is not there.
pub type ByteAt<'a> = &'a dyn Fn(u64) -> Option<u8>;

/// A value, shown as C would have it.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    bytes: &'a [u8],
    shape: Shape<'a>,
    is_by_reference: bool,
    memory: Option<ByteAt<'a>>,
}

impl<'a> Shown<'a> {
    /// An argument whose bytes were found ([`whole`](crate::whole)).
    #[must_use]
    pub fn new(parameter: &Parameter<'a>, bytes: &'a [u8]) -> Shown<'a> {
        Shown {
            bytes,
            shape: parameter.shape,
            is_by_reference: parameter.is_by_reference,
            memory: None,
        }
    }

    /// The same with the characters that a pointer to characters leads to.
    #[must_use]
    pub fn with_text(self, memory: ByteAt<'a>) -> Shown<'a> {
        Shown {
            memory: Some(memory),
            ..self
        }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_by_reference {
            true => write!(f, "at {:#x}", unsigned(self.bytes)),
            false => show(f, self.bytes, self.shape, self.memory),
        }
    }
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The number that the first eight of some bytes are.
#[must_use]
pub fn unsigned(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len().clamp(1, 8);
    unsigned(bytes).cast_signed() << unused >> unused
}

fn show(
    f: &mut fmt::Formatter<'_>,
    bytes: &[u8],
    shape: Shape<'_>,
    memory: Option<ByteAt<'_>>,
) -> fmt::Result {
    let number = unsigned(bytes);
    match shape {
        _ if bytes.is_empty() => f.write_str("{}"),
        Shape::Signed if bytes.len() <= 8 => write!(f, "{}", signed(bytes)),
        Shape::Unsigned if bytes.len() <= 8 => write!(f, "{number}"),
        Shape::Bool => match number {
            0 => f.write_str("false"),
            1 => f.write_str("true"),
            other => write!(f, "{other}"),
        },
        Shape::Char => match u8::try_from(number) {
            Ok(byte) if byte.is_ascii_graphic() || byte == b' ' => {
                write!(f, "{} '{}'", signed(bytes), char::from(byte))
            }
            _ => write!(f, "{}", signed(bytes)),
        },
        Shape::Pointer => write!(f, "{number:#x}"),
        Shape::Text => {
            write!(f, "{number:#x}")?;
            match memory.and_then(|memory| Text::read(number, memory)) {
                Some(text) => write!(f, " {text}"),
                None => Ok(()),
            }
        }
        Shape::Float if bytes.len() == 4 => {
            let bits = u32::try_from(number).unwrap_or_default();
            write!(f, "{}", f32::from_bits(bits))
        }
        Shape::Float if bytes.len() == 8 => write!(f, "{}", f64::from_bits(number)),
        Shape::Enum(mut constants) => {
            let value = signed(bytes);
            match constants.find(|(constant, _)| *constant == value) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "{value}"),
            }
        }
        Shape::Record(members) => {
            f.write_str("{")?;
            for (index, member) in members.enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                write!(f, "{separator}.{} = ", member.name)?;
                let start = usize::try_from(member.offset).unwrap_or(usize::MAX);
                let size = usize::try_from(member.bytes).unwrap_or(usize::MAX);
                match bytes.get(start..start.saturating_add(size)) {
                    Some(own) => show(f, own, member.shape, memory)?,
                    None => f.write_str("...")?,
                }
            }
            f.write_str("}")
        }
        _ => {
            f.write_str("bytes")?;
            bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
        }
    }
}

/// Characters up to a zero, or the first 80.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    bytes: [u8; Text::LONGEST],
    length: usize,
    is_whole: bool,
}

impl Text {
    /// The most characters.
    pub const LONGEST: usize = 80;

    /// What is at an address; `None` if some of it cannot be read.
    #[must_use]
    pub fn read(at: u64, memory: ByteAt<'_>) -> Option<Text> {
        let mut text = Text {
            bytes: [0; Text::LONGEST],
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

    /// The characters.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// In quotes, and with dots behind them if there are more characters.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = if self.is_whole { "" } else { "..." };
        write!(f, "\"{}\"{rest}", self.bytes().escape_ascii())
    }
}
