//! The arguments of the functions on a stack: typed values without debugging information at run time.
//!
//! Beforehand (`unspool-arg-table-builder`) the machine code is followed: where, at each instruction, is what the function was called with, and
//! what is each call given? The answers are a table ([`ArgTable`]), beside what functions take. When a stack is there, [`argument`] finds
//! a value in a frame or in the frames of its callers, with how certain it is. That needs no disassembler, no debugging
//! information and no memory: the core of the crate is `no_std` and allocates nothing.
#![no_std]
#![forbid(unsafe_code)]

mod argument;
mod enum_text;
pub mod format;
mod location;
mod table;
mod value;
mod value_display;

pub use argument::{ArgOrigin, ArgUnavailable, read_argument};
pub use enum_text::{EnumTextPart, enum_text, write_enum};
pub use format::{ArgTableKey, MAGIC, VERSION};
pub use location::{
    ArgLocation, ArgSource, CallSiteValue, EntryValue, PieceLocation, UnprovenRules,
};
pub use table::{
    ArgTable, ArgTableError, Array, BitField, CallRecord, CodeRange, DisplayKind, Enumerators,
    Members, Parameter, ParameterPiece, Parameters, PieceLocations, RecordMember,
};
pub use value::{ArgFrame, ArgStack, ArgValue, Certainty, argument, callee_value, caller_value};
pub use value_display::{ByteAt, TextPreview, ValueDisplay, bits_of, unsigned};
