//! BTF, the types of the Linux kernel and of programs and modules loaded into it
//! (`Documentation/bpf/btf.rst` of the kernel's source).
//!
//! A header of 24 bytes, then the types, then the strings. Type 0 is `void`; every other type's id
//! is its index. Functions and variables are among the types. So are locations of variables in
//! sections and tags of declarations, both dropped here.
//!
//! A kernel module has *split* BTF: its ids and string offsets continue those of a base, the
//! kernel's.

mod base;
mod error;
mod read;
mod write;

pub use base::BtfBase;
pub use error::BtfError;
pub use read::BtfReading;
pub use write::{BtfOmission, BtfWriter};

/// The first two bytes, as a number.
pub const BTF_MAGIC: u16 = 0xeb9f;
/// The size of the header in bytes.
const HEADER_BYTES: usize = 24;

/// Kinds of types, as their numbers.
mod kind {
    pub(super) const INT: u8 = 1;
    pub(super) const PTR: u8 = 2;
    pub(super) const ARRAY: u8 = 3;
    pub(super) const STRUCT: u8 = 4;
    pub(super) const UNION: u8 = 5;
    pub(super) const ENUM: u8 = 6;
    pub(super) const FWD: u8 = 7;
    pub(super) const TYPEDEF: u8 = 8;
    pub(super) const VOLATILE: u8 = 9;
    pub(super) const CONST: u8 = 10;
    pub(super) const RESTRICT: u8 = 11;
    pub(super) const FUNC: u8 = 12;
    pub(super) const FUNC_PROTO: u8 = 13;
    pub(super) const VAR: u8 = 14;
    pub(super) const DATASEC: u8 = 15;
    pub(super) const FLOAT: u8 = 16;
    pub(super) const DECL_TAG: u8 = 17;
    pub(super) const TYPE_TAG: u8 = 18;
    pub(super) const ENUM64: u8 = 19;
}
