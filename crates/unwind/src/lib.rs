//! From a frame to its caller: registers, memory and modules in, frames with evidence out.
//!
//! The core ([`Cursor`]) is `no_std` and allocates nothing. It serves own stacks, copied stacks,
//! other processes and cores alike: it needs only a [`Memory`](unspool_rows::Memory) and
//! [`Modules`]. The feature `std` adds the tables of ELF files for walks ([`FileTables`]).
//!
//! ```
//! use unspool_unwind::local::{self, RuntimeAddr};
//!
//! let mut addresses = [RuntimeAddr(0); 100];
//! let walk = local::walk(&mut addresses);
//! assert!(walk.end.is_root());
//! let caller = local::modules().loaded(addresses[0]).ok_or("not in a module")?;
//! assert!((caller.start..caller.end).contains(&addresses[0]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod cursor;
pub mod evidence;
#[cfg(feature = "std")]
mod exit_code;
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
mod row_numbers;
mod row_rules;
pub mod shared_word;
#[cfg(feature = "local")]
pub mod signal_codes;
pub mod steps;
pub mod versioned_words;
pub mod walk;

pub use cursor::{Cursor, RowLookup, Step, StepInfo};
pub use evidence::{End, Evidence, NoRow};
#[cfg(feature = "std")]
pub use exit_code::AnonymousCode;
#[cfg(feature = "std")]
pub use file_tables::{CodeTable, FileTables};
pub use modules::{
    EntryCache, Module, ModuleRow, ModuleSlot, Modules, NativeStep, NativeTarget, NativeUnwinder,
    ReadNumber, SynthesizedRows,
};
pub use row_rules::RowRules;
pub use walk::{
    InnermostFrame, Memo, RuleCache, RuleCacheMemory, RuleCacheSize, RuleCacheSizeError,
    WalkResult, WalkStats, Walker,
};
#[cfg(feature = "local")]
pub use walk::{MappedRuleCache, OutOfMemory};
