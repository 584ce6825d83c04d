//! Unwind tables as code: machine code in a shared object, and C.
//!
//! Both export one function, `unspool_step`, which takes the registers of a frame and an address, and makes of them
//! the registers of the caller. Its declaration is [`HEADER`]; `docs/native.md` says what it promises.
//!
//! An [`Outline`] is the table as code has it: which row holds from which address on, with rows that do the same
//! counted once. [`c::source`] writes it as C, for people, and [`object`] as an ELF file, with no compiler.
#![forbid(unsafe_code)]

pub mod c;
mod elf;
mod index;
mod object;
mod outline;
mod own;
pub mod proof;
mod read;
mod recipe;
mod x86_64;

pub use object::{Key, NativeError, object};
pub use outline::{Outline, OutlineError, RowNumber, Start};
pub use read::{BodyStart, Mapped, Object, ObjectError};
pub use recipe::Status;

/// The header file that declares what the code exports.
pub const HEADER: &str = include_str!("../unspool_native.h");
