//! Development tasks, and code that they share with tests: the comparison of unspool's call frame
//! information with that of `readelf`.
//!
//! It is not part of the product: no shipped crate depends on it.

pub mod archives;
pub mod arm64;
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
pub mod exception_suites;
mod expected;
pub mod gdb_variables;
pub mod long_run;
pub mod mutate;
pub mod normal_row;
pub mod outline;
pub mod page_picture;
pub mod programs;
pub mod readelf;
pub mod readelf_all;
pub mod readelf_compare;
pub mod renames;
pub mod row_facts;
pub mod script_compare;
pub mod seeds;
pub mod sframe_suite;
pub mod shared_objects;
pub mod tidy;

pub use unspool_testing::{Error, packages};
