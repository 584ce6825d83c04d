//! Arguments and variables of the functions of a walked stack, as text in C or Rust.
//!
//! [`ValueQuery::frames`] combines argument tables ([`ArgTables`]) and debug information
//! ([`DebugInfo`]). It works the same for a process, a core file, and the own process. It does not
//! print; faults are [`ValueProblem`]s.
//!
//! ```
//! use unspool_display_values::{DebugInfo, DebugInfoFiles, ValueQuery};
//! use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
//! use unspool_process::{Process, Snapshot, Store};
//! # let folder = unspool_testing::Folder::below(&std::env::temp_dir());
//! # folder.write("nap.c", "#include <unistd.h>\nint nap(int left) { int all = 2 * left; return sleep(all); } int main(void) { return nap(30); }");
//! # folder.tool("gcc", "-w -g nap.c -o nap");
//! # let path = folder.path().join("nap");
//! # let program = unspool_testing::RunningProgram::start(&mut unspool_testing::command(path));
//! # program.await_state('S');
//! # let pid = program.pid();
//! // It runs int nap(int left) { int all = 2 * left; return sleep(all); }, compiled with -g.
//! let process = Process::attach(pid)?;
//! let store = Store::from_environment();
//! let unwinder = SnapshotUnwinder::new(&process, &store);
//! let stack = unwinder.walk(&process.threads()[0], 100, WalkDetail::Registers).ok_or("no stack")?;
//! let files = DebugInfoFiles::open(&unwinder, [&stack].into_iter(), None);
//! let debug_info = DebugInfo::read(&files);
//! let query = ValueQuery {
//!     snapshot: &process,
//!     unwinder: &unwinder,
//!     memory: process.memory(),
//!     tables: None,
//!     debug_info: Some(&debug_info),
//!     with_locals: true,
//!     with_strings: false,
//! };
//! let mut frames = query.frames(&stack, 0..stack.frames.len());
//! let nap = frames.find(|frame| frame.function.as_deref() == Some("nap")).ok_or("no frame")?;
//! let all = nap.locals.first().ok_or("no variables")?;
//! assert!(all.current.as_ref().is_ok_and(|value| value.text == "60"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod arguments;
mod call_target;
mod containers;
mod frame_values;
mod frames;
mod rust;
mod thread_local;
mod value_tree;
mod variables;

pub use arguments::{ArgTables, ArgText, FrameArgument, ValueOrigin};
pub use frame_values::{FrameValues, ValueQuery, WithFiles};
pub use frames::StackArguments;
pub use value_tree::{PointerTarget, Scalar, TypedValue, ValueContent, ValuePlace, ValueReader};
pub use variables::{
    DebugInfo, DebugInfoFiles, EntryText, FunctionValues, ValueProblem, ValueText, VariableText,
};

/// The maximum number of bytes of a value to show.
pub const MAX_VALUE_BYTES: usize = 1024;
