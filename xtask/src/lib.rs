//! Development tasks, and what they share with the tests: our reading of call frame information
//! compared with that of `readelf`.
//!
//! Not a part of the product: nothing that ships depends on it.

pub mod attack;
pub mod bad_frames;
pub mod bench_peers;
mod binutils;
pub mod clients;
pub mod corpus;
pub mod ctf_compare;
pub mod ctf_suite;
pub mod debian;
pub mod demangle;
pub mod dist;
pub mod elf;
mod expected;
pub mod gdb_variables;
pub mod normal_row;
pub mod outline;
pub mod programs;
pub mod readelf;
pub mod readelf_all;
pub mod readelf_compare;
pub mod row_facts;
pub mod script_compare;
pub mod sframe_suite;
pub mod shared_objects;
pub mod tidy;

pub use unspool_testing::{Error, packages};
