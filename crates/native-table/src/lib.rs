//! Unwind tables as code: machine code in a shared object, and C.
//!
//! Both export one function, `unspool_step`, which takes the registers of a frame and an address,
//! and changes them to the caller's. Its declaration is in [`HEADER`], its guarantees in
//! `docs/native.md`.
//!
//! An [`Outline`] is the table in the form that code needs: which row holds from which address on,
//! with equivalent rows counted once. [`c::source`] writes it as C, for people, and [`object`] as
//! an ELF file, without a compiler.
//!
//! Without the feature `std` there is only the reader, [`ObjectView`], which allocates nothing.
//!
//! ```
//! use unspool_native_table::{ModuleKey, ObjectView, Outline, c, object};
//! use unspool_rows::text;
//!
//! let table = text::parse(text::EXAMPLE)?;
//! let outline = Outline::from_table(&table)?;
//! let mut source = String::new();
//! c::source(&outline, "an example", &mut source)?;
//! assert!(source.contains("unspool_step"));
//!
//! let key = ModuleKey { build_id: b"example", content: &[0; 20] };
//! let file = object(&outline, key)?;
//! assert_eq!(ObjectView::parse(&file)?.key(), Some(key));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod c;
mod elf;
#[cfg(feature = "std")]
mod index;
#[cfg(feature = "std")]
mod object;
mod object_layout;
#[cfg(feature = "std")]
mod outline;
#[cfg(feature = "std")]
mod own_cfi;
#[cfg(feature = "std")]
pub mod proof;
mod read;
#[cfg(feature = "std")]
mod recipe;
mod status;
#[cfg(feature = "std")]
mod x86_64;

#[cfg(feature = "std")]
pub use object::{NativeError, object};
pub use object_layout::ModuleKey;
#[cfg(feature = "std")]
pub use outline::{Outline, OutlineError, OutlineStart, RowNumber};
#[cfg(feature = "std")]
pub use read::BodyStart;
pub use read::{ObjectError, ObjectSegment, ObjectView};
pub use status::StepStatus;

/// The header file that declares what the code exports.
pub const HEADER: &str = include_str!("../unspool_native.h");
