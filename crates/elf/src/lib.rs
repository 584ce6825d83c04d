//! One ELF module: segments, sections, build ID, debug files, symbols, lines.
//!
//! [`ElfFile`] is the file. Opening it reads its headers. Everything else is read on demand, so
//! that one broken part does not affect the others.
//!
//! ```
//! use unspool_elf::ElfFile;
//!
//! let file = ElfFile::open("/proc/self/exe")?;
//! let start = file.symbols().lookup(file.entry()).ok_or("stripped")?;
//! assert_eq!(start.name, "_start");
//! assert!(!file.eh_frames()?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arch;
mod archive;
mod build_id;
mod container;
mod contents;
mod debug_file;
mod dynamic;
mod elf;
mod embed;
mod error;
mod go_functions;
mod header;
mod image;
mod layout;
mod lines;
mod note;
mod plt;
mod relocate;
mod section;
mod segment;
mod symbol_sources;
mod symbols;
mod symtab;
mod unwind_entries;
mod unwind_sections;

pub use archive::{Archive, ElfMember};
pub use build_id::{BuildId, ContentKey, TableKey};
pub use container::Container;
pub use debug_file::{DebugFiles, SearchRoots};
pub use elf::ElfFile;
pub use embed::{
    EmbedError, NewEhFrame, eh_frame_of_object, embed, embed_eh_frame, embed_sframe,
    embed_unmapped, replace_eh_frame,
};
pub use error::ModuleError;
pub use go_functions::{GoFunction, GoFunctions};
pub use header::ElfKind;
pub use lines::{InlineFrame, Lines, assembly_ranges, has_compiled_units};
pub use relocate::RelocationError;
pub use section::{Section, SectionInfo, SectionSource};
pub use segment::{Segment, SegmentMapping};
pub use symbols::{Binding, Preference, Symbol, Symbols};
pub use symtab::UnresolvedSymbol;
pub use unspool_demangle::{SignatureDetail, demangle};
pub use unwind_entries::{UnwindEntries, fallback_name};

/// The kernel's suffix for the path of a file that was removed while it was mapped (proc(5)).
pub const DELETED_SUFFIX: &str = " (deleted)";
