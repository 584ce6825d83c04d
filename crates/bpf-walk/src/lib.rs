//! Walks stacks in BPF programs: compiled tables and mappings in an arena, subprograms that look
//! them up, and the program that walks.
//!
//! A [`TableImage`] has the sections of a compiled table (`docs/formats.md`) for an arena, where a
//! *record* of them comes before them. [`lookup_row`] assembles a subprogram that finds rows in it:
//! the same as [`unspool_compiled_table::CompiledTable`].
//!
//! [`write_mappings`] writes a process' mappings, and [`lookup_mapping`] finds one.
//!
//! [`WalkMaps`] has the memory of the walking program, and loads it. A complete walk yields a
//! [`WalkRecord`]. All other walks are handed over ([`HandOver`]): the kernel copies the stack, and
//! another walker has it.
//!
//! The programs trust the table, which the caller has proven. A wrong table yields wrong rows, and
//! no worse: the kernel guards all accesses to an arena, and each loop has a bound.
//!
//! ```
//! use unspool_bpf::Assembler;
//! use unspool_bpf::insn::Reg::{R1, R2};
//! use unspool_bpf_walk::lookup_row;
//!
//! // A program that looks up the row at an address: `ctx` has a table's record, and the address.
//! let mut asm = Assembler::new("row");
//! let lookup = lookup_row(&mut asm);
//! asm.ldx(unspool_bpf::insn::Size::DW, R2, R1, 8);
//! asm.ldx(unspool_bpf::insn::Size::DW, R1, R1, 0);
//! asm.call_subprog(lookup);
//! asm.exit();
//! assert!(!asm.finish()?.bytes().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod lookup;
mod mappings;
mod packed_row;
mod search;
mod table;
mod walk;
mod walk_record;

pub use lookup::{IS_FIRST_OF_PIECE, IS_LAST_OF_PIECE, lookup_row};
pub use mappings::{ModuleMapping, lookup_mapping, write_mappings};
pub use packed_row::ARCH;
pub use table::{ArenaRecord, ArenaWriteError, TableImage};
pub use walk::{
    HandOver, KernelOffsets, KernelSample, WalkCounts, WalkHead, WalkLoadError, WalkMaps,
};
pub use walk_record::{MAX_FRAMES, WalkRecord, WalkTrigger};
