//! Names for many addresses of many modules: functions, inlined functions, source lines.
//!
//! A [`Symbolizer`] takes modules with the addresses that are asked for, finds their files
//! ([`Finder`]), and yields [`Names`], which answer for each address without more work. What is in
//! the way is a [`Problem`] of its module, never an error of the whole.
//!
//! Code that is in no file has names elsewhere: that of the kernel in its own list ([`KernelSymbols`]),
//! that which a process makes at run time in a [`PerfMap`] or a [`JitDump`].

#![forbid(unsafe_code)]

mod cache;
mod debuginfod;
mod fetch;
mod finder;
mod http;
mod jitdump;
mod kernel;
mod live_code;
mod names;
mod parallel;
mod perf_map;
mod problem;
mod symbolizer;
mod table;
mod vdso;
mod work;

pub use cache::NameCache;
pub use debuginfod::{Debuginfod, DebuginfodOptions};
pub use fetch::{Artifact, DownloadError, Fetch};
pub use finder::{Finder, Identity, root_of};
pub use jitdump::{
    JitCode, JitCollector, JitDump, JitError, JitHeader, JitInfo, JitLine, JitLines, JitLoad,
    JitPlace, JitRecord, JitTimeline, JitUnwinding,
};
pub use kernel::{KernelHidden, KernelSymbol, KernelSymbols};
pub use names::{Frame, Function, ModuleNames, Name, Names};
pub use perf_map::{JitSymbol, PerfMap, PerfMapError, PerfMapPlace};
pub use problem::Problem;
pub use symbolizer::{Detail, Event, Module, Request, Symbolizer};
pub use vdso::own_vdso;
