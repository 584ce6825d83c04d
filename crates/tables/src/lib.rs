//! The unwind tables of ELF files: read, compiled, compared with their source, kept, and found again.
#![forbid(unsafe_code)]

mod compile;
mod keys;
mod native;
mod source;
mod store;
mod synthesis;

pub use compile::{CompileError, Made, Stable, code, compile, is_table_of, own_key, verify};
pub use native::{MakeError, NativeObject, native_key};
pub use source::{
    From, Named, Origin, Reading, SourceError, TableProblem, hdr_is_complete, read, read_if_any,
    read_if_any_from, section_lookup, sections,
};
pub use store::{
    ArgumentTable, EMBEDDED_SECTION, Form, Notice, Place, Store, StoreError, Stored, TableBytes,
    embedded, embedded_bytes,
};
pub use synthesis::{compile_synthesized, find_or_synthesize, synthesize};
