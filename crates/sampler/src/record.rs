//! A recording: opens events, launches a command or attaches to processes, and writes a profile.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_bpf_walk::{KernelSample, WalkCounts};
use unspool_host::Remedy;
use unspool_perf_events::{
    Counter, EventTarget, OpenError, PerfEvent, Record, RingError, SampleRate,
};
use unspool_process::file_provider::FileProblem;
use unspool_profile::{Completeness, Meta, ProfileWriter, WeightUnit};
use unspool_rows::Abi;
use unspool_table_store::Store;

use crate::arguments::{ArgumentFilter, ArgumentRecorder, UnmatchedRequest};
use crate::kernel_walk::{Directory, KernelWalk, KernelWalkError, WalkComparer, WalkComparison};
use crate::live_files::LiveFiles;
use crate::module_files::ModuleFiles;
use crate::processes::Processes;
use crate::sys::{self, PausedCommand, PriorityBoost, Readiness, Signals};
use crate::unwinder::Unwinder;

mod code_seen;
mod copy_size;
mod events;
mod merge;
mod process_names;
mod writer;

pub use process_names::ChildProcess;

use copy_size::CopySizer;
use events::EventScope;
pub(crate) use events::{Events, online_cpus};
pub(crate) use merge::{RingKind, RingRecord};
pub(crate) use process_names::ProcessNames;
pub(crate) use writer::RecordWriter;

/// The target of a recording.
#[derive(Debug)]
pub enum RecordTarget {
    /// A command, from its first instruction on.
    Command(Command),
    /// Running processes.
    Processes(Vec<u32>),
    /// The whole system.
    Everything,
}

/// How it is recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The event to sample; `None` for CPU cycles, or the closest available event.
    pub event: Option<PerfEvent>,
    /// The sampling rate.
    pub rate: SampleRate,
    /// Whether threads and processes created later are recorded too.
    pub inherits: bool,
    /// Whether off-CPU time is recorded too: threads blocked or waiting for a CPU.
    pub off_cpu: bool,
    /// The duration; `None` until the target exits or a signal arrives.
    pub duration: Option<Duration>,
    /// The functions whose arguments are recorded; `None` for none.
    pub arguments: Option<Arc<ArgumentFilter>>,
    /// Where stacks are walked.
    pub unwind: UnwindEngine,
}

/// Where stacks are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnwindEngine {
    /// In this process: the kernel copies each stack, up to 64 KiB.
    #[default]
    Copy,
    /// In the kernel: stacks of up to 1,024 frames. Walks that do not reach the stack's root there
    /// are repeated in this process.
    Kernel,
    /// In the kernel if it permits that, else in this process.
    Auto,
    /// In this process, and in the kernel as well, to compare both.
    Both,
}

impl Default for RecordOptions {
    /// The best event at 999 Hz, of new threads and processes too, until the target exits.
    fn default() -> Self {
        RecordOptions {
            event: None,
            rate: SampleRate::Frequency(999),
            inherits: true,
            off_cpu: false,
            duration: None,
            arguments: None,
            unwind: UnwindEngine::Copy,
        }
    }
}

/// The setting that allows a user to sample the kernel.
const KERNEL_REMEDY: Remedy = Remedy::Paranoid { needed: 1 };

/// A limitation to report to the user; the recording continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordNotice {
    /// Another event is sampled.
    OtherEvent {
        /// The preferred event.
        wanted: PerfEvent,
        /// The sampled event.
        taken: PerfEvent,
    },
    /// Kernel code is left out.
    WithoutKernel,
    /// Stacks are copied, up to 64 KiB, and walked in this process.
    WithoutKernelWalk {
        /// Why they are not walked in the kernel.
        reason: String,
    },
}

impl fmt::Display for RecordNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordNotice::OtherEvent { wanted, taken } => write!(
                f,
                "this machine does not count {wanted}: samples are taken by {taken}"
            ),
            RecordNotice::WithoutKernelWalk { reason } => {
                write!(f, "stacks are copied, up to 64 KiB: {reason}")
            }
            RecordNotice::WithoutKernel => write!(
                f,
                "without the kernel's frames: kernel.perf_event_paranoid is above 1: {KERNEL_REMEDY}"
            ),
        }
    }
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// An event cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A ring cannot be mapped.
    #[error(transparent)]
    Map(#[from] RingError),
    /// The kernel refused an operation on rings or events.
    #[error("cannot set up the events")]
    Ring(#[source] io::Error),
    /// Stacks cannot be walked in the kernel.
    #[error("cannot walk stacks in the kernel: `--unwind copy` needs no BPF")]
    KernelWalk(#[from] KernelWalkError),
    /// Without permission to sample the kernel, context switches are not reported.
    #[error(
        "cannot record when threads stop running: kernel.perf_event_paranoid is above 1: {KERNEL_REMEDY}"
    )]
    OffCpu,
    /// The command cannot be run.
    #[error("cannot run the command")]
    Launch(#[source] io::Error),
    /// The process does not exist.
    #[error("process {pid}: no such process")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The profile cannot be created.
    #[error("cannot write the profile")]
    Write(#[source] io::Error),
    /// The system refused another operation.
    #[error("cannot record")]
    System(#[source] io::Error),
}

impl RecordError {
    /// The remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            RecordError::Open(error) => error.reason.remedy(),
            RecordError::Map(error) => error.remedy(),
            RecordError::OffCpu => Some(KERNEL_REMEDY),
            RecordError::Launch(error) | RecordError::System(error) => {
                let is_out_of_files = error.raw_os_error() == Some(libc::EMFILE);
                is_out_of_files.then_some(Remedy::OpenFiles)
            }
            _ => None,
        }
    }
}

/// The result of a recording.
#[derive(Debug)]
pub struct RecordSummary {
    /// The number of samples, and how complete their stacks are.
    pub completeness: Completeness,
    /// The command's exit status; `None` if none was launched, or it still runs.
    pub status: Option<ExitStatus>,
    /// Processes that the command or the targets created, and that still run, now unrecorded.
    pub still_running: Vec<ChildProcess>,
    /// The duration.
    pub elapsed: Duration,
    /// Why the profile ends early, if it does. The part before can be read.
    pub failure: Option<io::Error>,
    /// Records that could not be read.
    pub damaged: u64,
    /// Records of mappings, processes and threads that the kernel had no room for. What they change
    /// was read from `/proc` instead.
    pub lost_task_records: u64,
    /// Jitdumps that were not read to their ends, because they exceed a limit: later code has no
    /// names.
    pub cut_jitdumps: u64,
    /// Why files with samples could not be used: their functions have no names, and their unwind
    /// tables are unknown.
    pub unusable: Vec<Arc<FileProblem>>,
    /// Requests for arguments that nothing matched.
    pub unmatched_arguments: Vec<UnmatchedRequest>,
    /// The walks in the kernel, if stacks were walked there.
    pub walks: Option<WalkSummary>,
}

/// Walks in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkSummary {
    /// Their numbers. Those of `outdated` are not complete.
    pub counts: WalkCounts,
    /// Walks that are not used, because the process had replaced code: [`StackEnd::CodeReplaced`].
    ///
    /// [`StackEnd::CodeReplaced`]: unspool_profile::StackEnd::CodeReplaced
    pub outdated: u64,
    /// The fewest samples that the kernel has left out without a report, as the events' counts
    /// show. It takes none on a processor that runs or changes the memory of another BPF program.
    pub missed: u64,
    /// How often a compiled table had no room beside those of other files: walks through the file
    /// were handed over.
    pub tables_without_room: u64,
    /// How they compare with walks of copies: [`UnwindEngine::Both`].
    pub comparison: WalkComparison,
}

/// The progress of a recording.
#[derive(Debug, Clone)]
pub struct RecordProgress {
    /// The number of samples so far, and how complete their stacks are.
    pub completeness: Completeness,
    /// The time so far.
    pub elapsed: Duration,
}

/// An update about a running recording.
#[derive(Debug)]
pub enum RecordUpdate<'n> {
    /// Its progress.
    Progress(RecordProgress),
    /// The profile cannot be written any more; sent once. Nothing is recorded from now on.
    CannotWrite {
        /// The cause.
        error: &'n io::Error,
        /// Whether a command still runs, which is waited for.
        command_goes_on: bool,
    },
}

/// A recording that is set up and not started.
pub struct Recording {
    events: Events,
    signals: Signals,
    options: RecordOptions,
    command: Option<PausedCommand>,
    /// Whether the command is the target: its start begins the recording.
    is_of_command: bool,
    watched: Vec<OwnedFd>,
    walk: Option<KernelWalk>,
    /// The limitations to report to the user.
    pub notices: Vec<RecordNotice>,
}

/// The longest time between two checks of all rings, in milliseconds.
const POLL_TIMEOUT_MS: i32 = 50;

/// The same while new mappings will soon be known, or threads' memory is needed.
const HURRIED_POLL_TIMEOUT_MS: i32 = 5;

/// How long threads' memory counts as needed after the last sample that needed it.
const SHORT_COPY_INTERVAL: Duration = Duration::from_millis(500);

/// The interval at which records are written and progress is reported.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);

/// How long to wait for a command to exit after a signal, in milliseconds.
const EXIT_TIMEOUT_MS: i32 = 2000;

impl Recording {
    /// Opens the events of a target. A command is created, and does not run yet.
    pub fn prepare(target: RecordTarget, options: RecordOptions) -> Result<Recording, RecordError> {
        let signals = Signals::block().map_err(RecordError::System)?;
        let mut notices = Vec::new();
        let mut held = None;
        let mut watched = Vec::new();
        let mut whom = Vec::new();
        match target {
            RecordTarget::Command(command) => {
                let begun = PausedCommand::spawn(command, &signals).map_err(RecordError::Launch)?;
                watched.push(sys::open_pidfd(begun.pid).map_err(RecordError::System)?);
                whom.push(EventTarget::Thread(begun.pid));
                held = Some(begun);
            }
            RecordTarget::Processes(pids) => {
                // A process named twice is recorded once.
                let mut all = BTreeSet::new();
                for pid in pids.into_iter().collect::<BTreeSet<_>>() {
                    let watch = sys::open_pidfd(pid).map_err(|_| RecordError::NoProcess { pid })?;
                    watched.push(watch);
                    all.extend(threads(pid)?);
                }
                whom.extend(all.into_iter().map(EventTarget::Thread));
            }
            RecordTarget::Everything => whom.push(EventTarget::Everyone),
        }
        let is_of_command = held.is_some();
        let scope = EventScope {
            target: &whom,
            from_exec: is_of_command,
        };
        let events = Events::open(&options, scope, &mut notices)?;
        let walk = |sample| KernelWalk::start(&events, sample);
        let walk = match options.unwind {
            UnwindEngine::Copy => None,
            UnwindEngine::Both => Some(walk(KernelSample::Written)?),
            UnwindEngine::Kernel => Some(walk(KernelSample::Omitted)?),
            UnwindEngine::Auto => match walk(KernelSample::Omitted) {
                Ok(walk) => Some(walk),
                Err(error) => {
                    // The verifier's log has more lines.
                    let reason = error.to_string();
                    let reason = reason.lines().next().unwrap_or_default().to_owned();
                    notices.push(RecordNotice::WithoutKernelWalk { reason });
                    None
                }
            },
        };
        Ok(Recording {
            events,
            walk,
            signals,
            options,
            command: held,
            is_of_command,
            watched,
            notices,
        })
    }

    /// Records a target other than a command for as long as this command runs. It is created, and
    /// does not run yet.
    ///
    /// # Errors
    ///
    /// [`RecordError::Launch`] if it cannot be run.
    pub fn during(self, command: Command) -> Result<Recording, RecordError> {
        let begun = PausedCommand::spawn(command, &self.signals).map_err(RecordError::Launch)?;
        Ok(Recording {
            watched: vec![sys::open_pidfd(begun.pid).map_err(RecordError::System)?],
            command: Some(begun),
            ..self
        })
    }

    /// The sampled event.
    #[must_use]
    pub fn event(&self) -> &PerfEvent {
        &self.events.event
    }

    /// The sizes of the ring buffers for samples, in bytes: one per CPU, and a second one with
    /// [`RecordOptions::off_cpu`].
    pub fn ring_sizes(&self) -> impl Iterator<Item = usize> {
        self.events.ring_sizes()
    }

    /// Records until the command or the processes exit, the time is over, or a signal arrives.
    /// Calls `tell` with the progress from time to time.
    ///
    /// # Errors
    ///
    /// [`RecordError`]. A failure to write the whole profile is not an error: the [`RecordSummary`]
    /// reports it.
    pub fn run(
        self,
        mut out: impl Write,
        store: Store,
        meta: Meta,
        mut tell: impl FnMut(RecordUpdate<'_>),
    ) -> Result<RecordSummary, RecordError> {
        self.run_to(&mut out, store, meta, &mut tell)
    }

    /// The same, compiled in this crate.
    fn run_to(
        self,
        out: &mut dyn Write,
        store: Store,
        meta: Meta,
        tell: &mut dyn FnMut(RecordUpdate<'_>),
    ) -> Result<RecordSummary, RecordError> {
        let mut running = self.begin(out, store, meta)?;
        let _prompt = PriorityBoost::new();
        while !running.wait()? {
            if running.failure.is_some() {
                continue;
            }
            match running.advance() {
                Ok(Some(progress)) => tell(RecordUpdate::Progress(progress)),
                Ok(None) => {}
                Err(error) => {
                    tell(RecordUpdate::CannotWrite {
                        error: &error,
                        command_goes_on: running.child.is_some(),
                    });
                    running.fail(error);
                }
            }
        }
        let is_reported = running.failure.is_some();
        let summary = running.finish()?;
        if let Some(error) = &summary.failure
            && !is_reported
        {
            tell(RecordUpdate::CannotWrite {
                error,
                command_goes_on: false,
            });
        }
        Ok(summary)
    }

    fn begin<W: Write>(
        self,
        out: W,
        store: Store,
        meta: Meta,
    ) -> Result<RecordLoop<W>, RecordError> {
        let meta = Meta {
            clock: unspool_profile::Time(sys::now()),
            event: self.described(),
            ..meta
        };
        let writer = ProfileWriter::new(out, &meta).map_err(RecordError::Write)?;
        let unwinder = Unwinder::new(Abi::HOST, store.form());
        let unwinder = unwinder.map_err(|error| RecordError::System(io::Error::other(error)))?;
        let filter = self.options.arguments;
        let is_compared = self.options.unwind == UnwindEngine::Both;
        let files = ModuleFiles::for_recording(
            Box::new(LiveFiles::default()),
            store,
            filter.clone(),
            self.walk.as_ref().map(|walk| Arc::clone(&walk.tables)),
        );
        let processes = Processes::new(Abi::HOST, files);
        let started = Instant::now();
        if !self.is_of_command {
            self.events.enable()?;
        }
        let is_beside = self.command.is_some() && !self.is_of_command;
        let child = self.command.map(PausedCommand::resume);
        let child = child.transpose().map_err(RecordError::Launch)?;
        Ok(RecordLoop {
            polled: self.events.files().map(|_| true).collect(),
            signals: self.signals,
            is_watching: !self.watched.is_empty(),
            watched: self.watched,
            child,
            until: self.options.duration.map(|duration| started + duration),
            reports_children: self.options.inherits && !is_beside,
            started,
            last_flush: started,
            failure: None,
            writer: RecordWriter::new(
                writer,
                processes,
                unwinder.with_live_threads(),
                ProcessNames::running(),
            )
            .with_arguments(filter.is_some().then(ArgumentRecorder::default))
            .with_directory(self.walk.is_some().then(Directory::default))
            .with_comparer(is_compared.then(WalkComparer::default)),
            walk: self.walk,
            is_hurried: true,
            last_short_copy: started,
            filter,
            copy_sizer: self
                .events
                .has_sizes()
                .then(|| CopySizer::new(self.events.ring_sizes().sum())),
            events: self.events,
            damaged: 0,
            created_threads: 0,
        })
    }

    /// The sampled event in the profile's form.
    fn described(&self) -> unspool_profile::SampledEvent {
        unspool_profile::SampledEvent {
            name: self.events.event.name().to_owned(),
            rate: match self.options.rate {
                SampleRate::Frequency(frequency) => {
                    unspool_profile::ProfileRate::Frequency(frequency)
                }
                SampleRate::Period(period) => unspool_profile::ProfileRate::Period(period),
            },
            unit: if self.events.event.is_clock() {
                WeightUnit::Nanoseconds
            } else {
                WeightUnit::Events
            },
        }
    }
}

/// A running recording.
struct RecordLoop<W: Write> {
    events: Events,
    /// Chooses the size of stack copies, if both sizes are available.
    copy_sizer: Option<CopySizer>,
    /// The rings whose events are polled.
    polled: Vec<bool>,
    signals: Signals,
    /// The targets that have not exited, if the recording ends with them.
    watched: Vec<OwnedFd>,
    is_watching: bool,
    child: Option<Child>,
    /// Whether processes that the target created, and that still run at its end, are reported.
    reports_children: bool,
    started: Instant,
    until: Option<Instant>,
    /// The time of the last flush.
    last_flush: Instant,
    writer: RecordWriter<W>,
    walk: Option<KernelWalk>,
    /// Whether new mappings will soon be known, which walks in the kernel need; or the rest of
    /// stacks must be read before the threads change it.
    is_hurried: bool,
    /// When a sample was last seen that lacks a part of its stack. At the start nothing is known.
    last_short_copy: Instant,
    filter: Option<Arc<ArgumentFilter>>,
    damaged: u64,
    /// The number of threads and processes that were created.
    created_threads: u64,
    /// Why and since when nothing is recorded.
    failure: Option<(io::Error, Instant)>,
}

impl<W: Write> RecordLoop<W> {
    /// Processes new records; returns an update from time to time.
    fn advance(&mut self) -> io::Result<Option<RecordProgress>> {
        self.process_rings(sys::now())?;
        if self.last_flush.elapsed() < FLUSH_INTERVAL {
            return Ok(None);
        }
        self.last_flush = Instant::now();
        self.shrink_copies();
        self.writer.refresh_generated_code();
        if let Some(walk) = &self.walk {
            self.writer.forget_ended(walk);
        }
        self.writer.flush()?;
        Ok(Some(RecordProgress {
            completeness: self.writer.completeness(),
            elapsed: self.started.elapsed(),
        }))
    }

    /// Ends the recording, but waits for the command.
    fn fail(&mut self, error: io::Error) {
        self.failure = Some((error, Instant::now()));
        self.events.disable();
        self.polled.fill(false);
        if self.child.is_none() {
            self.until = Some(Instant::now());
        }
    }

    /// Waits for events; `true` if the recording is over.
    fn wait(&mut self) -> Result<bool, RecordError> {
        let rings = self.events.files().zip(&self.polled);
        let rings = rings.filter(|(_, polled)| **polled).map(|(file, _)| file);
        let files: Vec<_> = std::iter::once(self.signals.as_fd())
            .chain(self.watched.iter().map(|process| process.as_fd()))
            .chain(rings)
            .collect();
        let timeout = if self.is_hurried {
            HURRIED_POLL_TIMEOUT_MS
        } else {
            POLL_TIMEOUT_MS
        };
        let ready = match sys::wait(&files, timeout) {
            Ok(ready) => ready,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(RecordError::System(error)),
        };
        let mut ready = ready.into_iter().skip(1);
        self.watched
            .retain(|_| ready.next() == Some(Readiness::Pending));
        // The event of an exited thread stays ready forever.
        for polled in self.polled.iter_mut().filter(|polled| **polled) {
            *polled = ready.next() != Some(Readiness::Closed);
        }
        if let Some(signal) = self.signals.next() {
            if Signals::is_ending(signal) {
                self.stop(signal);
                return Ok(true);
            }
            if let Some(child) = &self.child {
                sys::send(child.id(), signal);
            }
        }
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        Ok(is_late || self.has_ended())
    }

    /// Whether the command or the processes have exited.
    fn has_ended(&self) -> bool {
        self.is_watching && self.watched.is_empty()
    }

    /// Forwards to the command a signal that ends the recording.
    fn stop(&mut self, signal: i32) {
        let Some(child) = &self.child else { return };
        // A signal from the terminal reaches the command as well.
        if signal != libc::SIGINT {
            sys::send(child.id(), signal);
        }
        let watched: Vec<_> = self.watched.iter().map(|process| process.as_fd()).collect();
        // A command that keeps running is left alone, whatever ended the wait.
        let _ = sys::wait(&watched, EXIT_TIMEOUT_MS);
    }

    /// Processes all records from before a time.
    fn process_rings(&mut self, until: u64) -> io::Result<()> {
        let mut failure = None;
        let (writer, copies) = (&mut self.writer, &mut self.copy_sizer);
        let (sources, walk) = (&mut self.events.sources, self.walk.as_mut());
        let created = &mut self.created_threads;
        let taken = merge::take(sources, walk, until, |taken| {
            *created += u64::from(matches!(taken, RingRecord::Event(_, _, Record::Fork(_))));
            if let (RingRecord::Event(RingKind::OnCpu, _, Record::Sample(sample)), Some(copies)) =
                (taken, &mut *copies)
            {
                copies.note(&sample.stack);
            }
            if failure.is_none() {
                failure = match taken {
                    RingRecord::Event(kind, origin, record) => {
                        writer.note(kind, origin, record).err()
                    }
                    RingRecord::Walk(walk) => writer.walked_sample(walk).err(),
                    RingRecord::Gap => {
                        writer.forget_tasks();
                        None
                    }
                };
            }
        });
        self.damaged += taken.damaged;
        if self.writer.take_short_copy() {
            self.last_short_copy = Instant::now();
        }
        self.is_hurried = self.last_short_copy.elapsed() < SHORT_COPY_INTERVAL;
        if let Some(walk) = &self.walk {
            self.writer.publish(walk);
            self.is_hurried |= taken.has_young_tasks || walk.tables.is_loading();
        }
        if let Some(size) = self.copy_sizer.as_mut().and_then(CopySizer::grow) {
            self.events.copy_up_to(size);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Makes stack copies smaller if all of them were small lately.
    fn shrink_copies(&mut self) {
        if let Some(size) = self.copy_sizer.as_mut().and_then(CopySizer::shrink) {
            self.events.copy_up_to(size);
        }
    }

    /// The fewest samples that the kernel has left out: [`WalkSummary::missed`].
    fn missed(&self, counts: &WalkCounts) -> u64 {
        let counted = self.events.on_cpu().map(Counter::count);
        let counted: u64 = counted.filter_map(Result::ok).sum();
        let unsampled = u128::from(counted.saturating_sub(counts.periods));
        let samples = unsampled * u128::from(counts.samples) / u128::from(counts.periods.max(1));
        let samples = u64::try_from(samples).unwrap_or(u64::MAX);
        samples.saturating_sub(self.events.unfinished_periods(self.created_threads))
    }

    fn finish(mut self) -> Result<RecordSummary, RecordError> {
        self.events.disable();
        if self.failure.is_none()
            && let Err(error) = self.process_rings(u64::MAX)
        {
            self.fail(error);
        }
        let status = match &mut self.child {
            Some(child) => child.try_wait().map_err(RecordError::System)?,
            None => None,
        };
        let going_on = if self.reports_children && self.has_ended() {
            self.writer.still_running()
        } else {
            Vec::new()
        };
        let walks = self.walk.as_ref().map(KernelWalk::counts);
        let tables = self.walk.as_ref().map(|walk| &walk.tables);
        let tables_without_room = tables.map_or(0, |tables| tables.without_room());
        let malformed = self.walk.as_ref().map_or(0, KernelWalk::malformed);
        let missed = walks.as_ref().map_or(0, |counts| self.missed(counts));
        let written = self.writer.finish(sys::now());
        let (failure, ended) = match self.failure {
            Some((error, at)) => (Some(error), at),
            None => (written.out.err(), Instant::now()),
        };
        Ok(RecordSummary {
            completeness: written.completeness,
            unusable: written.unusable,
            walks: walks.map(|counts| WalkSummary {
                counts: WalkCounts {
                    complete: counts.complete.saturating_sub(written.outdated_walks),
                    ..counts
                },
                outdated: written.outdated_walks,
                missed,
                tables_without_room,
                comparison: written.comparison,
            }),
            unmatched_arguments: self.filter.map_or_else(Vec::new, |wanted| wanted.missing()),
            status,
            still_running: going_on,
            elapsed: ended.duration_since(self.started),
            damaged: self.damaged + malformed,
            lost_task_records: written.lost_task_records,
            cut_jitdumps: written.cut_jitdumps,
            failure,
        })
    }
}

/// The threads of a process.
fn threads(pid: u32) -> Result<Vec<u32>, RecordError> {
    let listed = std::fs::read_dir(format!("/proc/{pid}/task"));
    let listed = listed.map_err(|_| RecordError::NoProcess { pid })?;
    let names = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(names.collect())
}
