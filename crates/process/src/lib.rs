//! Processes and core files: their mappings, registers, memory and stacks.
//!
//! [`Process::attach`] stops a running process for as long as the value lives.
//! [`TracedCommand::spawn`] runs a command and stops it when a signal is about to kill it.
//! An [`UnstoppedProcess`] runs on, or is stopped by another program. [`OwnProcess`] is the process
//! itself, for a thread that inspects its own stack. A [core file](core_file::Core) is a process
//! that has ended. All implement [`Snapshot`], and a
//! [`SnapshotUnwinder`](snapshot_unwinder::SnapshotUnwinder) walks the stacks of one.
//! [`walk_stacks`] does all of that for a running process, which it stops only briefly.
//!
//! ```
//! use std::process::Command;
//! use unspool_process::snapshot_unwinder::{SnapshotUnwinder, WalkDetail};
//! use unspool_process::{Process, Snapshot, Store};
//!
//! let mut child = Command::new("sleep").arg("60").spawn()?;
//! let process = Process::attach(child.id())?;
//! let store = Store::from_environment();
//! let unwinder = SnapshotUnwinder::new(&process, &store);
//! let stack = unwinder.walk(&process.threads()[0], 100, WalkDetail::Frames);
//! assert!(stack.ok_or("its registers are unknown")?.is_reliable());
//! drop(process); // It runs again.
//! child.kill()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(
    not(feature = "ptrace"),
    allow(dead_code, reason = "a tracer asks more of `/proc` and of signals")
)]

mod build_id;
pub mod core_file;
mod error;
pub mod file_provider;
#[cfg(feature = "ptrace")]
mod futex;
pub mod generated_code;
mod jit_interface;
mod little_endian;
#[cfg(feature = "ptrace")]
mod live;
mod loaded_objects;
mod mapped_file;
pub mod maps;
mod module_folders;
mod note;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod own;
mod procfs;
mod program_header;
mod read;
mod registers;
mod signal;
mod snapshot;
pub mod snapshot_unwinder;
#[cfg(feature = "ptrace")]
mod stacks;
mod surroundings;
mod sys;
mod syscall;
mod unstopped;

pub use build_id::NoBuildId;
pub use error::{AttachRefusal, ProcessError};
#[cfg(feature = "ptrace")]
pub use futex::FutexOwner;
#[cfg(feature = "ptrace")]
pub use live::{
    AttachOptions, CommandEvent, MemoryWriteError, Process, ProcessMemory, STACK_WINDOW_BYTES,
    TracedCommand,
};
pub use mapped_file::{
    FileIdentity, FileRoute, MappedFile, mapped_files, mapped_state, open_mapped, same_file,
};
pub use module_folders::ModuleFolders;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use own::OwnProcess;
pub use read::read_memory;
pub use signal::{Sender, Signal, signal_name};
pub use snapshot::{AuxVector, NoRegisters, Snapshot, Thread, ThreadState};
#[cfg(feature = "ptrace")]
pub use stacks::{ProcessStacks, StackOptions, ThreadStack, walk_stacks};
pub use syscall::syscall_name;
pub use unspool_table_store::Store;
pub use unstopped::{RunningMemory, UnstoppedProcess};
