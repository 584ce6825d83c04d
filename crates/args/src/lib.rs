//! The arguments of the functions on a stack: typed values without debugging information at run time.
//!
//! Beforehand (`unspool-args-make`) the machine code is followed: where, at each instruction, is what the function was called with, and
//! what is each call given? The answers are a table ([`Table`]), beside what functions take. When a stack is there, [`argument`] finds
//! a value in a frame or in the frames of its callers, with how certain it is. That needs no disassembler, no debugging
//! information and no memory: the core of the crate is `no_std` and allocates nothing.
#![no_std]
#![forbid(unsafe_code)]

mod constants;
pub mod format;
mod place;
mod shown;
mod table;
mod value;
mod whole;

pub use constants::{Word, spell, write_spelled};
pub use format::{Key, MAGIC, VERSION};
pub use place::{Doubts, Found, Held, Passed, Place, Source};
pub use shown::{ByteAt, Shown, Text, bits_of, unsigned};
pub use table::{
    Array, Bits, Call, Constants, Corrupt, Function, Member, Members, Parameter, Parameters, Piece,
    Pieces, Shape, Table,
};
pub use value::{Certainty, Frame, Stack, Value, argument, caller_side, own_side};
pub use whole::{Lost, Whole, whole};
