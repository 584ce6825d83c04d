//! The mappable table: one file per module, looked up in place for the row at an address.
//!
//! [`CompiledTable`] opens the bytes of a table in constant time and looks up without allocating.
//! Any bytes are memory-safe to look up in, and every look-up is bounded. With the `alloc` feature
//! [`encode`] writes a table from rows, and [`compare`] proves a table equal to its source rows,
//! address by address. [`check_digest`] finds any bit changed since.
//!
//! [`layout`] documents the format.
//!
//! ```
//! use unspool_compiled_table::{CompiledTable, ExecutableCode, ModuleKey, compare, encode};
//! use unspool_rows::{Vaddr, text};
//!
//! let table = text::parse(text::EXAMPLE)?;
//! // With the module's code, the call-site part serves return addresses faster.
//! let code = ExecutableCode::default();
//! let key = ModuleKey { build_id: b"example", content: &[0; 20] };
//! let encoded = encode(&table, key, &code, &[])?;
//!
//! let compiled = CompiledTable::open(&encoded.bytes)?;
//! assert!(compare(&table, &compiled, &code).is_equal());
//! let row = compiled.row_at(Vaddr(0x1010))?.ok_or("a hole")?;
//! assert_eq!(row.display(table.abi()).to_string(), "cfa=rsp+32  ra=[cfa-8]  rbp=[cfa-16]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod buckets;
mod call_sites;
pub mod call_test;
#[cfg(feature = "alloc")]
mod compare;
#[cfg(feature = "alloc")]
mod encode;
pub mod layout;
mod little_endian;
mod reader;

pub use call_sites::{CallSiteRow, CallSites};
#[cfg(feature = "alloc")]
pub use compare::{Mismatch, MismatchKind, SourceComparison, compare, compare_calls, compare_rows};
#[cfg(feature = "alloc")]
pub use encode::{
    EncodeError, EncodedTable, ExecutableCode, TablePart, encode, encode_synthesized,
};
#[cfg(feature = "alloc")]
pub use layout::check_digest;
pub use layout::{ModuleKey, TableOpenError};
pub use reader::{CompiledTable, EntryInfo, LookupResult, RowRef, TableCorruption};
