//! Finds unwind rows in BPF programs: compiled tables and mappings in an arena, and subprograms
//! that look them up.
//!
//! [`write_table`] copies a compiled table (`docs/formats.md`) to an arena, behind a *record* of
//! its sections. [`lookup_row`] and [`lookup_call_site`] assemble subprograms that find rows in it.
//! They yield the same rows as [`unspool_compiled_table::CompiledTable`].
//!
//! [`write_mappings`] writes a process' mappings, and [`lookup_mapping`] finds one.
//!
//! The subprograms trust the table. [`write_table`] has it compared with its source in the arena. A
//! wrong table yields wrong rows, and no worse: the kernel guards all accesses to an arena, and
//! each loop has a bound.

#![forbid(unsafe_code)]

mod lookup;
mod mappings;
mod record;
mod search;

pub use lookup::{lookup_call_site, lookup_row};
pub use mappings::{ModuleMapping, lookup_mapping, write_mappings};
pub use record::{ArenaRecord, ArenaWriteError, write_table};
