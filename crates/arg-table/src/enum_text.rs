//! What values of enumerations are called. The rule is gdb 13's.

use core::fmt;

/// A part of what a value is called; they follow each other without a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnumTextPart<'n> {
    /// The name of a constant.
    Name(&'n str),
    /// What stands between others.
    Separator(&'static str),
    /// A number, in decimal.
    Number(i64),
    /// Bits that no constant has, as a number in hexadecimal.
    Bits(u64),
}

/// Says what the value that the low `bits` of a number are is called in an enumeration of these constants, part for part.
///
/// The first constant of the value names it. If no constant is negative or has more than one bit, they are flags: a value is those that are in it, in
/// their order, with what is left: `(READ | WRITE | unknown: 0x8)`. Others are numbers.
///
/// # Errors
///
/// `put`'s.
pub fn enum_text<'n>(
    constants: impl Iterator<Item = (i64, &'n str)> + Clone,
    number: u64,
    bits: u32,
    put: &mut dyn FnMut(EnumTextPart<'n>) -> fmt::Result,
) -> fmt::Result {
    let unused = 64 - bits.clamp(1, 64);
    let can_be_negative = constants.clone().any(|(constant, _)| constant < 0);
    let number = number << unused;
    let value = match can_be_negative {
        true => number.cast_signed() >> unused,
        false => (number >> unused).cast_signed(),
    };
    let named = constants.clone().find(|(constant, _)| *constant == value);
    if let Some((_, name)) = named {
        return put(EnumTextPart::Name(name));
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
            put(EnumTextPart::Name(name))?;
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

/// Writes what [`enum_text`] says.
///
/// # Errors
///
/// The writer's.
pub fn write_enum<'n>(
    f: &mut dyn fmt::Write,
    constants: impl Iterator<Item = (i64, &'n str)> + Clone,
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
