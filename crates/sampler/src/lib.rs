//! Samples of running programs: the address spaces of processes followed, stacks unwound, and all of
//! it recorded.
//!
//! The kernel says what processes map, begin and end ([`unspool_perf_events::Record`]); [`Processes`] keeps what
//! is mapped where, with the tables of each file, which are opened once ([`ModuleFiles`]). An [`Unwinder`]
//! unwinds the copied stack of a sample with that. A [`Recording`] puts it together: it opens the
//! events, launches a command or attaches to what runs, and writes a profile.
//!
//! What perf recorded ([`unspool_perf_events::DataFile`]) is unwound by a [`Replay`], becomes a profile by
//! [`import`], or a recording with finished call chains by [`inject`]; the files of such a recording are found
//! by [`PerfFiles`].

mod address_space;
mod arguments;
mod compile_queue;
mod exit_path;
mod jit;
mod live_files;
mod module_files;
mod perf_import;
mod processes;
mod record;
mod stack_copy;
mod stack_extension;
mod sys;
mod unwinder;

pub use address_space::ProcessSpace;
pub use arguments::{ArgumentFilter, FindTable, UnmatchedRequest};
pub use jit::JitProcess;
pub use live_files::{LiveFiles, ProcessRoot};
pub use module_files::{Distinction, LocatedFile, MappedFileFinder, ModuleFile, ModuleFiles};
pub use perf_import::{
    ImportError, ImportSummary, InjectSummary, PerfFiles, Replay, import, inject,
};
pub use processes::Processes;
pub use record::{
    ChildProcess, RecordError, RecordNotice, RecordOptions, RecordProgress, RecordSummary,
    RecordTarget, RecordUpdate, Recording,
};
pub use unwinder::{Unwinder, UnwoundStack};
