//! The stacks of all threads of a process.

use std::collections::HashMap;
use std::time::Duration;

use unspool_rows::RuntimeAddr;
use unspool_table_store::Store;

use crate::futex::{self, FutexOwner};
use crate::snapshot_unwinder::{CallStack, SnapshotUnwinder, WalkDetail};
use crate::{AttachOptions, Process, ProcessError, Snapshot, Thread};

/// The size of the first copy of each stack, in bytes: larger than nearly all stacks.
const FIRST_COPY_BYTES: u64 = 1 << 20;
/// The growth factor of the next copy.
const COPY_GROWTH_FACTOR: u64 = 64;
/// The size of the last copy: whole stacks.
const MAX_COPY_BYTES: u64 = FIRST_COPY_BYTES * COPY_GROWTH_FACTOR * COPY_GROWTH_FACTOR;

/// How stacks are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackOptions {
    /// The maximum number of frames of a stack.
    pub max_frames: usize,
    /// What is kept of each frame.
    pub detail: WalkDetail,
    /// Whether a running process stays stopped until [`ProcessStacks::resume`], so that memory
    /// other than its stacks can be read.
    pub stays_stopped: bool,
    /// The longest time for which a running process is stopped ([`AttachOptions::max_stop`]), for
    /// all copies together; `None` for no limit.
    pub max_stop: Option<Duration>,
}

impl Default for StackOptions {
    /// At most 1,000,000 frames, without registers; the process runs again when its stacks are
    /// copied.
    fn default() -> Self {
        StackOptions {
            max_frames: 1_000_000,
            detail: WalkDetail::Frames,
            stays_stopped: false,
            max_stop: None,
        }
    }
}

/// A thread and its stack.
#[derive(Debug)]
pub struct ThreadStack<'a> {
    /// The thread.
    pub thread: &'a Thread,
    /// Its stack; `None` if its registers are unknown.
    pub stack: Option<CallStack>,
    /// For a thread that waits in `futex`: who holds it, if it waits for a mutex of glibc.
    pub futex_owner: Option<FutexOwner>,
}

/// The stacks of all threads of a process.
pub struct ProcessStacks<'a> {
    /// The process.
    pub snapshot: &'a dyn Snapshot,
    /// Its modules.
    pub unwinder: &'a SnapshotUnwinder<'a>,
    /// The threads, in the order of [`Snapshot::threads`].
    pub threads: Vec<ThreadStack<'a>>,
    /// The running process, and how long earlier copies stopped it.
    stopped: Option<(&'a Process, Duration)>,
    stays_stopped: bool,
}

impl<'a> ProcessStacks<'a> {
    /// Walks the stacks of a process that does not run meanwhile: a core file, or a command at its
    /// fatal signal.
    #[must_use]
    pub fn walk(unwinder: &'a SnapshotUnwinder<'a>, options: &StackOptions) -> ProcessStacks<'a> {
        let owners = futex::owners(unwinder.snapshot());
        ProcessStacks::walk_with(unwinder, options, &owners)
    }

    fn walk_with(
        unwinder: &'a SnapshotUnwinder<'a>,
        options: &StackOptions,
        owners: &HashMap<u32, FutexOwner>,
    ) -> ProcessStacks<'a> {
        let snapshot = unwinder.snapshot();
        let threads = snapshot.threads().iter().map(|thread| ThreadStack {
            thread,
            stack: unwinder.walk(thread, options.max_frames, options.detail),
            futex_owner: owners.get(&thread.tid).copied(),
        });
        ProcessStacks {
            snapshot,
            unwinder,
            threads: threads.collect(),
            stopped: None,
            stays_stopped: false,
        }
    }

    /// The known stacks.
    pub fn stacks(&self) -> impl Iterator<Item = &CallStack> {
        let threads = self.threads.iter();
        threads.filter_map(|thread| thread.stack.as_ref())
    }

    /// Whether there are threads, and all stacks reach their root without a guess.
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        let reliable =
            |thread: &ThreadStack<'_>| thread.stack.as_ref().is_some_and(CallStack::is_reliable);
        !self.threads.is_empty() && self.threads.iter().all(reliable)
    }

    /// Resumes a process that [stays stopped](StackOptions::stays_stopped). Returns how long it
    /// was stopped, for all copies together; `None` unless the stacks are from [`walk_stacks`].
    pub fn resume(&self) -> Option<Duration> {
        let (process, before) = self.stopped?;
        Some(before + process.resume())
    }

    /// Whether the process stands still until [`ProcessStacks::resume`].
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stays_stopped
    }

    /// The process, if it was let go at [`StackOptions::max_stop`]: what was not read by then is
    /// missing.
    #[must_use]
    pub fn released(&self) -> Option<&'a Process> {
        let (process, _) = self.stopped?;
        process.was_released().then_some(process)
    }
}

/// Walks the stacks of all threads of a running process, and passes them to `inspect`.
///
/// The process is stopped only while its stacks are copied. If a walk needs more than the copied
/// 1 MiB of each stack, the process is stopped again for larger copies, with the memory elsewhere
/// that the walk needs. The last copy has whole stacks, within the limits of
/// [`Process::prefetch_stacks`].
///
/// ```
/// use std::process::Command;
/// use unspool_process::{StackOptions, Store, walk_stacks};
///
/// let mut child = Command::new("sleep").arg("60").spawn()?;
/// let store = Store::from_environment();
/// let (count, is_reliable) = walk_stacks(
///     child.id(),
///     &store,
///     &StackOptions::default(),
///     |stacks| (stacks.threads.len(), stacks.is_reliable()),
/// )?;
/// assert_eq!((count, is_reliable), (1, true));
/// child.kill()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of [`Process::attach`].
pub fn walk_stacks<R>(
    pid: u32,
    store: &Store,
    options: &StackOptions,
    inspect: impl FnOnce(&ProcessStacks<'_>) -> R,
) -> Result<R, ProcessError> {
    let attach = |max_stop| {
        let options = AttachOptions {
            max_stop,
            ..AttachOptions::default()
        };
        Process::attach_with(pid, &options)
    };
    let mut process = attach(options.max_stop)?;
    let mut bytes = FIRST_COPY_BYTES;
    // Where earlier walks lacked memory. It need not be on a thread's main stack: a signal handler
    // can have an alternate stack.
    let mut others: Vec<RuntimeAddr> = Vec::new();
    let mut copied_before = None;
    let mut stopped_before = Duration::ZERO;
    loop {
        let copied = process.prefetch_stacks(bytes, &others);
        let owners = futex::owners(&process);
        if !options.stays_stopped {
            process.resume();
        }
        let again = {
            let unwinder = SnapshotUnwinder::new(&process, store);
            let stacks = ProcessStacks {
                stopped: Some((&process, stopped_before)),
                stays_stopped: options.stays_stopped,
                ..ProcessStacks::walk_with(&unwinder, options, &owners)
            };
            let known = others.len();
            others.extend(stacks.stacks().filter_map(|stack| stack.missing));
            // A copy that did not grow is as large as possible.
            let can_grow = bytes < MAX_COPY_BYTES && copied_before != Some(copied);
            let stopped = stopped_before + process.stopped();
            let left = options.max_stop.map(|all| all.saturating_sub(stopped));
            let is_short = others.len() > known && can_grow && left != Some(Duration::ZERO);
            // A process that has exited meanwhile is inspected all the same.
            match is_short.then(|| attach(left)) {
                Some(Ok(again)) => again,
                _ => return Ok(inspect(&stacks)),
            }
        };
        stopped_before += process.stopped();
        copied_before = Some(copied);
        bytes *= COPY_GROWTH_FACTOR;
        process = again;
    }
}
