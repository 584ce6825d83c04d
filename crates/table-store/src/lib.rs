//! The unwind tables of ELF files: reading, compiling, comparing with the source, keeping, finding.
//!
//! ```
//! use unspool_elf::ElfFile;
//! use unspool_table_store::{TableSource, compile, read, verify};
//!
//! let file = ElfFile::open("/bin/true")?;
//! let source = read(&file, TableSource::Auto)?;
//! let compiled = compile(&file, TableSource::Auto)?;
//! assert!(verify(&file, &source.table, &compiled.encoded.bytes)?.is_equal());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod compile;
pub mod eh_frame;
mod hash_cache;
mod native;
mod sframe;
mod source;
mod stats;
mod store;
mod synthesis;

pub use compile::{
    CompileError, CompiledFile, StableFile, code, compile, compile_verified, is_table_of, own_key,
    verify,
};
pub use native::{NativeObject, NativeTableError, native_key};
pub use sframe::{SframeFileError, SframeTable};
pub use source::{
    NamedSection, SourceError, SourceSection, SourceTable, TableProblem, TableSource,
    hdr_is_complete, is_in_two_sections, read, read_if_any, read_if_any_from, section_lookup,
    sections,
};
pub use stats::{Distribution, FileStats, KindCounts};
pub use store::{
    ArgumentTable, EMBEDDED_SECTION, Store, StoreError, TableBytes, TableForm, TableOrigin,
    embedded, embedded_bytes,
};
pub use synthesis::{compile_synthesized, find_or_synthesize, synthesize};
pub use unspool_cfi::lookup::HdrTrust;
