//! From a frame to its caller: registers, memory and modules in, frames with evidence out.
//!
//! The core ([`Cursor`]) is `no_std`, allocates nothing and serves own stacks, copied stacks,
//! other processes and cores alike: all it asks for is a [`Memory`](unspool_ir::Memory) and
//! [`Modules`]. With the feature `std` come the tables of ELF files as walks use them
//! ([`FileTables`]).
#![cfg_attr(not(any(feature = "std", test)), no_std)]

mod arch;
pub mod cursor;
pub mod evidence;
#[cfg(feature = "std")]
mod file_tables;
mod frame;
mod guess;
#[cfg(all(feature = "local", target_arch = "x86_64", target_os = "linux"))]
pub mod local;
pub mod maps_text;
pub mod modules;
#[cfg(feature = "native")]
pub mod native;
mod rule;
pub mod steps;
pub mod walk;

pub use arch::frame_pointer;
pub use cursor::{Cursor, Found, Located, Step};
pub use evidence::{End, Evidence, NoRow};
#[cfg(feature = "std")]
pub use file_tables::{CodeTable, FileTables};
pub use modules::{
    FoundEntries, FoundRow, Module, Modules, Native, NativeStep, NativeTarget, Place, ReadNumber,
};
pub use rule::RowRules;
#[cfg(feature = "local")]
pub use walk::{MappedRules, NoMemory};
pub use walk::{Memo, NoRulesSize, Rules, RulesMemory, RulesSize, Top, Walk, Walker, Work};
