//! Names for many addresses of many modules: functions, inlined functions, source lines.
//!
//! A [`Symbolizer`] takes modules with addresses, finds their files ([`ModuleFinder`]), and returns
//! [`AddressNames`] with the name of each address. A failure is a [`SymbolProblem`] of its module,
//! never an error of the whole lookup.
//!
//! [`SourceFinder`] finds the text of source files.
//!
//! Code in no file has names elsewhere: kernel code in the kernel's own list ([`KernelSymbols`]),
//! generated code in a [`PerfMap`] or a [`JitDump`].
//!
//! ```
//! use std::sync::Arc;
//! use unspool_elf::ElfFile;
//! use unspool_symbols::{NameDetail, Symbolizer};
//!
//! let file = Arc::new(ElfFile::open("/proc/self/exe")?);
//! let symbolizer = Symbolizer::from_environment(NameDetail::Functions);
//! let names = symbolizer.look_up_in_files([(&file, file.entry())], None);
//! let name = names.get((&file, file.entry())).ok_or("no name")?;
//! assert_eq!(name.symbol.ok_or("no symbol")?.name, "_start");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod cache;
mod debuginfod;
mod fetch;
mod file_names;
mod finder;
mod http;
mod jitdump;
mod kernel;
mod live_code;
mod module_lookup;
mod name_table;
mod names;
mod perf_map;
mod problem;
mod sources;
mod symbolizer;
mod vdso;

pub use cache::NameCache;
pub use debuginfod::{Debuginfod, DebuginfodOptions};
pub use fetch::{Artifact, DownloadError, Fetch};
pub use file_names::FileNames;
pub use finder::{ModuleFinder, ModuleIdentity, process_root};
pub use jitdump::{
    JitCode, JitCollector, JitDump, JitDumpReader, JitError, JitHeader, JitInfo, JitLine,
    JitLineRow, JitLines, JitLoad, JitRecord, JitTimeline, JitUnwinding,
};
pub use kernel::{KernelSymbol, KernelSymbols, KernelSymbolsError, kernel_variable};
pub use names::{AddressName, AddressNames, CodeSymbol, InlineFrameRef, ModuleNames};
pub use perf_map::{JitSymbol, PerfMap, PerfMapError, PerfMapLocation};
pub use problem::SymbolProblem;
pub use sources::{NoSource, PathMapping, SourceFinder, SourceText};
pub use symbolizer::{LookupEvent, ModuleSource, NameDetail, SymbolRequest, Symbolizer};
pub use vdso::own_vdso;
