//! Names for many addresses of many modules: functions, inlined functions, source lines.
//!
//! A [`Symbolizer`] takes modules with addresses, finds their files ([`ModuleFinder`]), and returns
//! [`AddressNames`] with the name of each address. A failure is a [`SymbolProblem`] of its module,
//! never an error of the whole lookup.
//!
//! Code in no file has names elsewhere: kernel code in the kernel's own list ([`KernelSymbols`]),
//! generated code in a [`PerfMap`] or a [`JitDump`].

#![forbid(unsafe_code)]

mod cache;
mod debuginfod;
mod fetch;
mod finder;
mod http;
mod jitdump;
mod kernel;
mod live_code;
mod module_lookup;
mod name_table;
mod names;
mod parallel;
mod perf_map;
mod problem;
mod symbolizer;
mod vdso;

pub use cache::NameCache;
pub use debuginfod::{Debuginfod, DebuginfodOptions};
pub use fetch::{Artifact, DownloadError, Fetch};
pub use finder::{ModuleFinder, ModuleIdentity, process_root};
pub use jitdump::{
    JitCode, JitCollector, JitDump, JitError, JitHeader, JitInfo, JitLine, JitLineRow, JitLines,
    JitLoad, JitRecord, JitTimeline, JitUnwinding,
};
pub use kernel::{KernelSymbol, KernelSymbols, KernelSymbolsError};
pub use names::{AddressName, AddressNames, CodeSymbol, InlineFrameRef, ModuleNames};
pub use perf_map::{JitSymbol, PerfMap, PerfMapError, PerfMapLocation};
pub use problem::SymbolProblem;
pub use symbolizer::{LookupEvent, ModuleSource, NameDetail, SymbolRequest, Symbolizer};
pub use vdso::own_vdso;
