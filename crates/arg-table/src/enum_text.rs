//! The text of enumeration values, by the rule of gdb 13.

use core::fmt;

/// A part of a value's text; parts follow each other without a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnumTextPart<'n> {
    /// The name of an enumerator.
    Name(&'n str),
    /// A separator between parts.
    Separator(&'static str),
    /// A number, in decimal.
    Number(i64),
    /// Bits without an enumerator, as a number in hexadecimal.
    Bits(u64),
}

/// Passes the parts of a value's text to `put`. The value is the low `bits` of a number, in an
/// enumeration of these constants.
///
/// The first constant with the value names it. If no constant is negative or has more than one bit,
/// they are flags. Then the text has the flags in the value, in order, and the remaining bits:
/// `(READ | WRITE | unknown: 0x8)`. Other values are numbers.
///
/// # Errors
///
/// `put`'s errors.
pub fn enum_text<N: AsRef<str>>(
    constants: impl Iterator<Item = (i64, N)> + Clone,
    number: u64,
    bits: u32,
    put: &mut dyn FnMut(EnumTextPart<'_>) -> fmt::Result,
) -> fmt::Result {
    let unused = 64 - bits.clamp(1, 64);
    let can_be_negative = constants.clone().any(|(constant, _)| constant < 0);
    let number = number << unused;
    let value = if can_be_negative {
        number.cast_signed() >> unused
    } else {
        (number >> unused).cast_signed()
    };
    let named = constants.clone().find(|(constant, _)| *constant == value);
    if let Some((_, name)) = named {
        return put(EnumTextPart::Name(name.as_ref()));
    }
    let mut all = constants.clone();
    if value == 0 || can_be_negative || all.any(|(constant, _)| constant.count_ones() > 1) {
        return put(EnumTextPart::Number(value));
    }
    let mut left = value.cast_unsigned();
    let mut before = "(";
    for (constant, name) in constants {
        let flag = constant.cast_unsigned();
        if left & flag != 0 {
            put(EnumTextPart::Separator(before))?;
            put(EnumTextPart::Name(name.as_ref()))?;
            left &= !flag;
            before = " | ";
        }
    }
    if left != 0 {
        put(EnumTextPart::Separator(before))?;
        put(EnumTextPart::Separator("unknown: "))?;
        put(EnumTextPart::Bits(left))?;
    }
    put(EnumTextPart::Separator(")"))
}

/// Writes the text of [`enum_text`].
///
/// # Errors
///
/// The writer's errors.
pub fn write_enum<N: AsRef<str>>(
    f: &mut dyn fmt::Write,
    constants: impl Iterator<Item = (i64, N)> + Clone,
    number: u64,
    bits: u32,
) -> fmt::Result {
    enum_text(constants, number, bits, &mut |word| match word {
        EnumTextPart::Name(name) => f.write_str(name),
        EnumTextPart::Separator(text) => f.write_str(text),
        EnumTextPart::Number(number) => write!(f, "{number}"),
        EnumTextPart::Bits(bits) => write!(f, "{bits:#x}"),
    })
}
