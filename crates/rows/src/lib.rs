//! The unwind table as a value: the content of a row and the meaning of a rule, whatever format
//! they came from.
//!
//! A [`Row`] holds for a half-open range of code addresses. It says how to find the canonical frame
//! address (CFA) and the caller's registers. [`interpret::step`] defines its meaning: the plain
//! interpreter that every compiled form is compared with. With the `alloc` feature a [`Table`]
//! holds all rows of a module; [`text`] prints a table and parses it back; [`diff`] compares two
//! tables over every address.
//!
//! This crate knows no file format, opens nothing, and contains no `unsafe`.
//!
//! ```
//! use unspool_rows::text;
//!
//! let table = text::parse(text::EXAMPLE)?;
//! let entry = table.fdes().first().ok_or("no entry")?;
//! let last = table.rows(entry).last().ok_or("no row")?;
//! let row = table.row(last.row).ok_or("no such row")?;
//! let row = row.display(table.abi()).to_string();
//! assert_eq!(row, "cfa=rsp+32  ra=[cfa-8]  rbp=[cfa-16]");
//! assert_eq!(table.to_string(), text::EXAMPLE);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod addr;
pub mod arch;
mod ascending_addresses;
#[cfg(feature = "alloc")]
pub mod diff;
pub mod encoding;
pub mod expression;
#[cfg(feature = "alloc")]
pub mod formula;
pub mod interpret;
pub mod leb128;
pub mod memory;
pub mod packed_row;
mod register;
pub mod row;
#[cfg(feature = "alloc")]
pub mod table;
#[cfg(feature = "alloc")]
pub mod text;

pub use addr::{CodeAddr, LoadBias, Pointer, RuntimeAddr, Vaddr};
pub use arch::{Abi, Arch, Endian};
pub use ascending_addresses::{AddressStack, AscendingAddresses};
pub use expression::Expression;
pub use memory::{Memory, Unreadable};
pub use packed_row::{FrameRegisters, PackedForm, PackedRow, RegisterScope};
pub use register::{Register, Registers};
pub use row::{CfaRule, RaState, RegisterRule, Row};
#[cfg(feature = "alloc")]
pub use table::{Fde, FdeId, RowId, RunId, Table};
