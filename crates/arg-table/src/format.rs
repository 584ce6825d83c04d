//! The format of an argument table.
//!
//! All numbers are little-endian; *numbers* without a size are LEB128 (signed if noted). The header
//! is
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `unspargs` |
//! | 8 | 2 | version, 9 |
//! | 10 | 1 | the number of build ID bytes in use, 0 if there is none |
//! | 11 | 1 | 0 |
//! | 12 | 4 | the number of ranges of code |
//! | 16 | 32 | the module's build ID, or its first 32 bytes |
//! | 48 | 20 | a hash of the table's inputs ([`ArgTableKey`]) |
//! | 68 | 4 | 0 |
//! | 72 | 8 | the base address of ranges |
//! | 80 | 72 | nine sections, each as offset and length of 4 bytes |
//!
//! and the sections are
//!
//! 1. the starts of the ranges, ascending, 4 bytes each, relative to the base;
//! 2. the offset of each range's record in section 3, 4 bytes each;
//! 3. records: the range's length; the distance of the function's entry above the range's start
//!    (signed); flags (1: callers certainly pass the prototype's arguments, 2: jumps may lead back
//!    to the entry, 4: there is a prototype, 8: jumps of other functions lead to the entry); with a
//!    prototype, its offset in section 6; the number of rows, and for each its distance from the
//!    one before and the offset of its locations in section 4; the number of calls, and for each
//!    its return address's distance from the one before, the index of the called range plus 1 or 0,
//!    and the offset of its values in section 5;
//! 4. locations: one for each piece of the prototype (see [`crate::PieceLocations`]);
//! 5. values passed by calls: a number of registers, and for each a [`crate::CallSiteValue`]: a
//!    byte with its [kind](call_site_value) and from bit 3 on the register, which is below 32; then
//!    the data of the kind;
//! 6. prototypes: a number of parameters, and for each the offsets of its name and its type in
//!    section 7, its size, the number of its [display kind](display_kind), and its passing: 0 if
//!    unknown, 1 by value, 2 by reference, 3 for a `float` for which a `double` may be passed;
//!    unless unknown, then the number of its pieces and those;
//! 7. names: the length and the bytes of each;
//! 8. unproven ranges: where the unwind table's rows are not proven, ascending: the range's start
//!    relative to the base, its length, and [`crate::UnprovenRules`], 4 bytes each;
//! 9. display kinds with parts, each once.
//!
//! Nothing in it is trusted: a fault costs an answer, or gives a wrong one, and nothing worse.

use crate::location::ArgSource;

/// The first bytes of a table.
pub const MAGIC: [u8; 8] = *b"unspargs";

/// The version that is written, and the only one that can be read.
pub const VERSION: u16 = 9;

/// The bytes of the header.
pub const HEADER_BYTES: usize = 152;
/// The number of sections.
pub const SECTIONS: usize = 9;
/// The size of an unproven range, in bytes.
pub(crate) const UNPROVEN_RANGE_BYTES: usize = 12;
/// The maximum length of a build ID, in bytes.
pub const MAX_BUILD_ID_BYTES: usize = 32;

/// The inputs of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgTableKey<'k> {
    /// The module's build ID, up to 32 bytes of it; empty if it has none.
    pub build_id: &'k [u8],
    /// A hash of the module file's bytes and of the identity of the debug files used with it.
    pub content: &'k [u8; 20],
}

/// Flag of a range: its callers certainly pass its prototype's arguments.
pub const IS_CERTAIN: u64 = 1;
/// Flag of a range: jumps may lead back to its function's entry.
pub const IS_REENTERED: u64 = 2;
/// Flag of a range: it has a prototype.
pub const HAS_PROTOTYPE: u64 = 4;
/// Flag of a range: other functions jump to its function's entry.
pub const IS_JUMPED_TO: u64 = 8;

/// A parameter is passed by value.
pub const BY_VALUE: u64 = 1;
/// A parameter is passed by reference.
pub const BY_REFERENCE: u64 = 2;
/// A parameter is a `float`, for which a `double` may be passed: the function may have no prototype
/// (K&R).
pub const FLOAT_OR_DOUBLE: u64 = 3;

/// The encoding of no source.
pub(crate) const NO_SOURCE: u64 = 0;

/// The encoding of a source.
#[must_use]
pub fn source_number(source: Option<ArgSource>) -> u64 {
    match source {
        None => NO_SOURCE,
        Some(ArgSource::Register(register)) => 1 + (u64::from(register) << 1),
        Some(ArgSource::Stack(word)) => 2 + (u64::from(word) << 1),
    }
}

/// The source of an encoding.
#[must_use]
pub(crate) fn source(number: u64) -> Option<ArgSource> {
    let number = number.checked_sub(NO_SOURCE + 1)?;
    let index = u8::try_from(number >> 1).ok()?;
    Some(match number & 1 {
        0 => ArgSource::Register(index),
        _ => ArgSource::Stack(index),
    })
}

/// The numbers of display kinds.
///
/// One with parts has the number [`FIRST_OFFSET`](display_kind::FIRST_OFFSET) plus its offset in
/// section 9. There are its constant below, and its parts.
pub mod display_kind {
    /// [`crate::DisplayKind::Signed`]
    pub const SIGNED: u8 = 0;
    /// [`crate::DisplayKind::Unsigned`]
    pub const UNSIGNED: u8 = 1;
    /// [`crate::DisplayKind::Bool`]
    pub const BOOL: u8 = 2;
    /// [`crate::DisplayKind::Char`]
    pub const CHAR: u8 = 3;
    /// [`crate::DisplayKind::Pointer`]
    pub const POINTER: u8 = 4;
    /// [`crate::DisplayKind::CharPointer`]
    pub const TEXT: u8 = 5;
    /// [`crate::DisplayKind::Float`]
    pub const FLOAT: u8 = 6;
    /// [`crate::DisplayKind::Bytes`]
    pub const BYTES: u8 = 7;
    /// [`crate::DisplayKind::Enum`]: a number of constants, and the value, signed, and the name's offset of each.
    pub const ENUM: u8 = 8;
    /// [`crate::DisplayKind::Record`]: a number of members, and the name's offset, the offset, the size and the display kind's number of each.
    pub const RECORD: u8 = 9;
    /// [`crate::DisplayKind::Array`]: a number of elements, and an element's size and the number of its display kind.
    pub const ARRAY: u8 = 10;
    /// [`crate::DisplayKind::Bits`]: the first bit and the number of bits, a byte each; and the number of its value's display kind.
    pub const BITS: u8 = 11;
    /// [`crate::DisplayKind::UnsignedChar`]
    pub const UNSIGNED_CHAR: u8 = 12;
    /// The number of the first display kind with parts.
    pub const FIRST_OFFSET: u64 = 16;
}

/// The kinds of values passed by calls.
///
/// Data *with addend* is a number. Its two lowest bits encode the number of valid bits and the
/// addend; the kind's data is above them. 0 is 64 bits and no addend, and 1 is 32 bits and no
/// addend. 2 is 64 bits, followed by a signed addend. 3 is followed by the number of bits, a byte,
/// and a signed addend.
pub mod call_site_value {
    /// [`crate::CallSiteValue::Number`]: the number, signed.
    pub const NUMBER: u8 = 0;
    /// [`crate::CallSiteValue::Address`]: the address.
    pub const ADDRESS: u8 = 1;
    /// [`crate::CallSiteValue::Cfa`]: the distance, signed.
    pub const CFA: u8 = 2;
    /// [`crate::CallSiteValue::Register`]: the register, with addend.
    pub const REGISTER: u8 = 3;
    /// [`crate::CallSiteValue::Slot`]: a number with the distance above its two lowest bits, with the sign in the lowest bit of that. The two
    /// bits are 0 for a distance in units of 8 and 8 bytes, and 1 for the same with 4 bytes. 3 is
    /// an unscaled distance, followed by the number of bytes, a byte.
    pub const SLOT: u8 = 4;
    /// The same, certain.
    pub(crate) const CERTAIN_SLOT: u8 = 5;
    /// [`crate::CallSiteValue::EntryValue`]: the source, with addend.
    pub const ENTRY_VALUE: u8 = 6;
    /// The same, certain.
    pub(crate) const CERTAIN_ENTRY_VALUE: u8 = 7;

    /// The number of bits of the kind in its byte.
    pub const KIND_BITS: u32 = 3;
    /// 64 bits, no addend; for a slot, 8 bytes.
    pub const WHOLE: u64 = 0;
    /// 32 bits, no addend; for a slot, 4 bytes.
    pub const HALF: u64 = 1;
    /// 64 bits, and an addend follows.
    pub const WITH_ADDEND: u64 = 2;
    /// The size follows.
    pub const EXPLICIT: u64 = 3;
}
