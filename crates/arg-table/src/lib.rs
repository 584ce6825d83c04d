//! The arguments of the functions on a stack: typed values without debugging information at run
//! time.
//!
//! `unspool-arg-table-builder` analyzes the machine code in advance. It finds the locations of a
//! function's arguments at each instruction, and the values that each call passes. The results are
//! a table ([`ArgTable`]), together with the functions' prototypes. For a stack, [`argument`] finds
//! a value in a frame or in the frames of its callers, with its certainty. That needs no
//! disassembler, no debugging information and no memory: the core of the crate is `no_std` and
//! allocates nothing.
//!
//! ```
//! use unspool_arg_table::{ArgTable, write_enum};
//!
//! let mut text = String::new();
//! write_enum(&mut text, [(1, "READ"), (2, "WRITE")].into_iter(), 0b1011, 32)?;
//! assert_eq!(text, "(READ | WRITE | unknown: 0x8)");
//! assert!(ArgTable::open(b"not a table").is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod argument;
mod display_type;
mod enum_text;
pub mod format;
mod location;
mod table;
mod value;
mod value_display;

pub use argument::{ArgOrigin, ArgUnavailable, read_argument};
pub use display_type::{Array, BitField, DisplayKind, DisplayMember, DisplayType};
pub use enum_text::{EnumTextPart, enum_text, write_enum};
pub use format::{ArgTableKey, MAGIC, VERSION};
pub use location::{
    ArgLocation, ArgSource, CallSiteValue, EntryValue, PieceLocation, UnprovenRules,
};
pub use table::{
    ArgTable, ArgTableError, CallRecord, CodeRange, Enumerators, Members, ParameterPiece,
    Parameters, PieceLocations, TableParameter, TableType,
};
pub use value::{ArgFrame, ArgStack, ArgValue, ValueCertainty, argument};
pub use value_display::{
    ByteAt, FloatText, QuotedText, TextPreview, ValueDisplay, bits_of, unsigned, without_padding,
};
