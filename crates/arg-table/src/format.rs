//! The bytes of a table of arguments.
//!
//! All numbers are little-endian; *numbers* without a size are LEB128 (signed where it is said). The header has
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `unspargs` |
//! | 8 | 2 | version, 8 |
//! | 10 | 1 | how many bytes of the build ID count, 0 if there is none |
//! | 11 | 1 | 0 |
//! | 12 | 4 | the number of ranges of code |
//! | 16 | 32 | the module's build ID, or the first 32 bytes of it |
//! | 48 | 20 | a hash of what the table was made of ([`ArgTableKey`]) |
//! | 68 | 4 | 0 |
//! | 72 | 8 | the base: an address that ranges are relative to |
//! | 80 | 64 | eight sections, each as offset and length of 4 bytes |
//!
//! and the sections are
//!
//! 1. the starts of the ranges, ascending, 4 bytes each, relative to the base;
//! 2. where the record of each range is in section 3, 4 bytes each;
//! 3. records: the range's length; how far the function's entry is above the range's start (signed); flags (1: callers give for certain what the prototype says, 2: jumps may
//!    lead back to the entry, 4: there is a prototype, 8: jumps of other functions lead to the entry); if so, where it is in section 6; the number of rows, and for each how far it is
//!    behind the one before and where its places are in section 4; the number of calls, and for each how far its return address is behind the one
//!    before, the place of the called range plus 1 or 0, and where in section 5 it is said what the call gives;
//! 4. places: for each piece of the prototype one (see [`crate::Pieces`]);
//! 5. what calls give: a number of registers, and for each a [`crate::Passed`]: a byte with its [kind](passed), and above that from bit 3 on the
//!    register, which is below 32; then what the kind says;
//! 6. prototypes: a number of parameters, and for each where its name and its type are in section 7, its size, its shape, and 0 if nobody
//!    knows where it is passed, else 1, or 2 if its address is passed, or 3 if it is a `float` for which
//!    a `double` may be passed, then the number of its pieces and those;
//! 7. names: each its length and its bytes;
//! 8. doubts: where the unwind table's rows cannot be relied on, ascending: the range's start relative to the base, its length, and
//!    [`crate::Doubts`], 4 bytes each.
//!
//! Nothing in it is trusted: what is wrong costs an answer, or a wrong one, never more.

use crate::location::ArgSource;

/// The first bytes of a table.
pub const MAGIC: [u8; 8] = *b"unspargs";

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 8;

/// The bytes of the header.
pub const HEADER_BYTES: usize = 144;
/// The number of sections.
pub const SECTIONS: usize = 8;
/// The bytes of a doubt.
pub const UNPROVEN_RANGE_BYTES: usize = 12;
/// The most bytes of a build ID.
pub const MAX_BUILD_ID_BYTES: usize = 32;

/// What a table was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgTableKey<'k> {
    /// The module's build ID, of which 32 bytes count; empty if it has none.
    pub build_id: &'k [u8],
    /// A hash of the bytes of the module's file, and of what says which debug files were read beside it.
    pub content: &'k [u8; 20],
}

/// Flag of a range: its function is given for certain what its prototype says.
pub const IS_CERTAIN: u64 = 1;
/// Flag of a range: jumps may lead back to its function's entry.
pub const IS_REENTERED: u64 = 2;
/// Flag of a range: it has a prototype.
pub const HAS_PROTOTYPE: u64 = 4;
/// Flag of a range: other functions jump to its function's entry.
pub const IS_JUMPED_TO: u64 = 8;

/// A parameter is passed as it is.
pub const BY_VALUE: u64 = 1;
/// A parameter's address is passed.
pub const BY_REFERENCE: u64 = 2;
/// A parameter is a `float`, for which a `double` may be passed: the function may have no prototype (K&R).
pub const FLOAT_OR_DOUBLE: u64 = 3;

/// What stands for no source.
pub const NO_SOURCE: u64 = 0;

/// The number of a source.
#[must_use]
pub fn source_number(source: Option<ArgSource>) -> u64 {
    match source {
        None => NO_SOURCE,
        Some(ArgSource::Register(register)) => 1 + (u64::from(register) << 1),
        Some(ArgSource::Stack(word)) => 2 + (u64::from(word) << 1),
    }
}

/// The source of a number.
#[must_use]
pub fn source(number: u64) -> Option<ArgSource> {
    let number = number.checked_sub(NO_SOURCE + 1)?;
    let index = u8::try_from(number >> 1).ok()?;
    Some(match number & 1 {
        0 => ArgSource::Register(index),
        _ => ArgSource::Stack(index),
    })
}

/// The numbers of shapes.
pub mod display_kind {
    /// [`crate::Shape::Signed`]
    pub const SIGNED: u8 = 0;
    /// [`crate::Shape::Unsigned`]
    pub const UNSIGNED: u8 = 1;
    /// [`crate::Shape::Bool`]
    pub const BOOL: u8 = 2;
    /// [`crate::Shape::Char`]
    pub const CHAR: u8 = 3;
    /// [`crate::Shape::Pointer`]
    pub const POINTER: u8 = 4;
    /// [`crate::Shape::Text`]
    pub const TEXT: u8 = 5;
    /// [`crate::Shape::Float`]
    pub const FLOAT: u8 = 6;
    /// [`crate::Shape::Bytes`]
    pub const BYTES: u8 = 7;
    /// [`crate::Shape::Enum`]: a number of constants, and of each its value, signed, and its name's place.
    pub const ENUM: u8 = 8;
    /// [`crate::Shape::Record`]: a number of members, and of each its name's place, its offset, its size and its shape.
    pub const RECORD: u8 = 9;
    /// [`crate::Shape::Array`]: a number of elements, the size of one, and its shape.
    pub const ARRAY: u8 = 10;
    /// [`crate::Shape::Bits`]: which bit is the first, and how many they are, a byte each; and the shape of the number that they are.
    pub const BITS: u8 = 11;
    /// [`crate::Shape::UnsignedChar`]
    pub const UNSIGNED_CHAR: u8 = 12;
}

/// The kinds of what calls give.
///
/// What is said to be *in parts* is a number: in its two lowest bits how many bits count and what is added, above them the part that the
/// kind says. 0 there is 64 bits and nothing added, 1 is 32 and nothing; 2 is 64, and what is added follows, signed; 3: how many bits follows, a byte,
/// and what is added, signed.
pub mod call_site_value {
    /// [`crate::Passed::Number`]: it, signed.
    pub const NUMBER: u8 = 0;
    /// [`crate::Passed::Address`]: it.
    pub const ADDRESS: u8 = 1;
    /// [`crate::Passed::Cfa`]: the distance, signed.
    pub const CFA: u8 = 2;
    /// [`crate::Passed::Register`]: in parts, it.
    pub const REGISTER: u8 = 3;
    /// [`crate::Passed::Slot`]: a number whose two lowest bits say of the distance, which is above them with its sign in the lowest bit: 0 that it is
    /// to be multiplied by 8, and is of 8 bytes; 1 the same with 4; 3 that it is as it is, and how many bytes follows, a byte.
    pub const SLOT: u8 = 4;
    /// The same, certain.
    pub const CERTAIN_SLOT: u8 = 5;
    /// [`crate::Passed::Own`]: in parts, the source.
    pub const ENTRY_VALUE: u8 = 6;
    /// The same, certain.
    pub const CERTAIN_ENTRY_VALUE: u8 = 7;

    /// How many bits of the byte have the kind.
    pub const KIND_BITS: u32 = 3;
    /// 64 bits, nothing added; of a slot, 8 bytes.
    pub const WHOLE: u64 = 0;
    /// 32 bits, nothing added; of a slot, 4 bytes.
    pub const HALF: u64 = 1;
    /// 64 bits, and something is added.
    pub const WITH_ADDEND: u64 = 2;
    /// It is said.
    pub const EXPLICIT: u64 = 3;
}
