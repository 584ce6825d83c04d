//! What the display of a value asks of its type.

/// A type of displayed values: in an argument table ([`TableType`](crate::TableType)), or anywhere
/// else.
pub trait DisplayType: Copy {
    /// The name of a member or an enumerator.
    type Name: AsRef<str>;
    /// The members of a structure or union.
    type Members: Iterator<Item = DisplayMember<Self>> + Clone;
    /// The constants of an enumeration: their values and names.
    type Enumerators: Iterator<Item = (i64, Self::Name)> + Clone;

    /// The form of its values' display.
    fn kind(self) -> DisplayKind<Self>;
}

/// The form of a value's display.
#[derive(Debug, Clone, Copy)]
pub enum DisplayKind<T: DisplayType> {
    /// A number that can be negative.
    Signed,
    /// A number.
    Unsigned,
    /// True or false.
    Bool,
    /// A character.
    Char,
    /// A character without a sign.
    UnsignedChar,
    /// An address.
    Pointer,
    /// The address of zero-terminated characters.
    CharPointer,
    /// A floating-point number.
    Float,
    /// Bytes.
    Bytes,
    /// One of some constants, or several of them combined.
    Enum(T::Enumerators),
    /// Members.
    Record(T::Members),
    /// Elements.
    Array(Array<T>),
    /// A bit-field.
    Bits(BitField<T>),
}

/// A member of a structure.
pub struct DisplayMember<T: DisplayType> {
    /// Its name; empty for an unnamed one, whose members are the structure's own.
    pub name: T::Name,
    /// Its offset, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its display kind.
    pub display_kind: DisplayKind<T>,
}

/// The elements of an array, in sequence.
#[derive(Debug, Clone, Copy)]
pub struct Array<T> {
    /// Their number.
    pub count: u64,
    /// The size of an element in bytes.
    pub bytes: u32,
    /// Their type.
    pub element: T,
}

/// The position of a bit-field in some bytes. The lowest bit of the first byte is bit 0.
#[derive(Debug, Clone, Copy)]
pub struct BitField<T> {
    /// Its first bit.
    pub first: u8,
    /// Its number of bits.
    pub count: u8,
    /// The type of the number.
    pub number: T,
}
