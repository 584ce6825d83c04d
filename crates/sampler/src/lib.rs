//! Samples of running programs: this crate follows address spaces of processes, unwinds stacks, and
//! records both.
//!
//! The kernel reports mappings, forks and exits of processes ([`unspool_perf_events::Record`]).
//! `Processes` keeps the mappings, with the tables of each file, which is opened once
//! (`ModuleFiles`). An `Unwinder` uses them to unwind the copied stack of a sample. A
//! [`Recording`] combines these: it opens the events, launches a command or attaches to running
//! processes, and writes a profile.
//!
//! A recording by perf ([`unspool_perf_events::DataFile`]) is unwound by a [`Replay`]. [`import`]
//! makes a profile of it, [`inject`] a recording with finished call chains. `PerfFiles` finds its
//! files. A [`Script`] is the text that `perf script` prints of a recording.
//!
//! ```
//! use std::process::Command;
//! use unspool_profile::{Meta, Profile};
//! use unspool_sampler::{RecordOptions, RecordTarget, Recording};
//! use unspool_table_store::Store;
//!
//! let mut out = Vec::new();
//! let target = RecordTarget::Command(Command::new("true"));
//! let recording = Recording::prepare(target, RecordOptions::default())?;
//! recording.run(&mut out, Store::from_environment(), Meta::default(), |_| {})?;
//!
//! let profile = Profile::read(out.as_slice())?;
//! assert!(profile.processes().iter().any(|process| process.name == "true"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address_space;
mod arguments;
mod compile_queue;
mod go_stack;
mod jit;
mod kernel_walk;
mod live_files;
mod module_files;
mod perf_import;
mod processes;
mod record;
mod script;
mod stack_copy;
mod stack_extension;
mod sys;
mod unwinder;

pub use address_space::ProcessSpace;
pub use arguments::{ArgumentFilter, FindTable, UnmatchedRequest};
pub use kernel_walk::{KernelWalkError, WalkComparison, try_kernel_walk};
pub use perf_import::{ImportError, ImportSummary, InjectSummary, Replay, import, inject};
pub use record::{
    ChildProcess, RecordError, RecordNotice, RecordOptions, RecordProgress, RecordSummary,
    RecordTarget, RecordUpdate, Recording, UnwindEngine, WalkSummary,
};
pub use script::{NamedScript, RecordingHeader, Script, ScriptFields};
pub use unspool_bpf_walk::{HandOver, WalkCounts};
pub use unwinder::UnwoundStack;
