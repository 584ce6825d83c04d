//! A recording: events opened, a command launched or processes attached to, a profile written.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_ir::Arch;
use unspool_machine::Remedy;
use unspool_perf::{Event, OpenError, Rate, Record, RingError, Whom};
use unspool_process::files::FileProblem;
use unspool_profile::{Completeness, Meta, Unit, Writer};
use unspool_tables::Store;

use crate::arguments::{Arguments, NothingOf, Wanted};
use crate::files::Files;
use crate::live::Live;
use crate::processes::Processes;
use crate::sys::{self, Held, Prompt, Ready, Signals};
use crate::unwind::Unwinder;

mod copies;
mod events;
mod kin;
mod merge;
mod met;
mod scribe;

pub use kin::Begun;

use copies::Copies;
use events::{Events, Scope};
pub(crate) use kin::Kin;
pub(crate) use merge::Kind;
pub(crate) use scribe::Scribe;

/// What is recorded.
#[derive(Debug)]
pub enum Target {
    /// A command, from its first instruction on.
    Command(Command),
    /// Processes that run.
    Processes(Vec<u32>),
    /// All that runs.
    Everything,
}

/// How it is recorded.
#[derive(Debug, Clone)]
pub struct Options {
    /// The event that samples are taken of; `None` for the processor's cycles, or what comes next to them.
    pub event: Option<Event>,
    /// How often.
    pub rate: Rate,
    /// Whether threads and processes that are begun later are recorded too.
    pub inherits: bool,
    /// Whether the time is recorded, too, that threads are blocked, or wait for a processor.
    pub off_cpu: bool,
    /// For how long; `None` until it ends, or a signal comes.
    pub duration: Option<Duration>,
    /// Whose arguments are recorded; `None` for nobody's.
    pub arguments: Option<Arc<Wanted>>,
}

/// What lets a user see the kernel's work.
const KERNEL_TOO: Remedy = Remedy::Paranoid { needed: 1 };

/// What the user should know, though the recording goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Samples are of another event.
    OtherEvent {
        /// What should have been counted.
        wanted: Event,
        /// What is counted.
        taken: Event,
    },
    /// The kernel's own work is left out.
    WithoutKernel,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::OtherEvent { wanted, taken } => write!(
                f,
                "this machine does not count {wanted}: samples are taken by {taken}"
            ),
            Notice::WithoutKernel => write!(
                f,
                "without the kernel's frames: kernel.perf_event_paranoid is above 1: {KERNEL_TOO}"
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
    /// A ring cannot be had.
    #[error(transparent)]
    Map(#[from] RingError),
    /// The kernel refused something about its rings or events.
    #[error("cannot set up the events")]
    Ring(#[source] io::Error),
    /// Who may not see the kernel's work does not learn when threads stop running.
    #[error(
        "cannot record when threads stop running: kernel.perf_event_paranoid is above 1: {KERNEL_TOO}"
    )]
    OffCpu,
    /// The command cannot be run.
    #[error("cannot run the command")]
    Launch(#[source] io::Error),
    /// A process is not there.
    #[error("process {pid}: no such process")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The profile cannot be begun.
    #[error("cannot write the profile")]
    Write(#[source] io::Error),
    /// The system refused something else.
    #[error("cannot record")]
    System(#[source] io::Error),
}

impl RecordError {
    /// What helps against it, if something does.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            RecordError::Open(error) => error.why.remedy(),
            RecordError::Map(error) => error.remedy(),
            RecordError::OffCpu => Some(KERNEL_TOO),
            RecordError::Launch(error) | RecordError::System(error) => {
                let is_out_of_files = error.raw_os_error() == Some(libc::EMFILE);
                is_out_of_files.then_some(Remedy::OpenFiles)
            }
            _ => None,
        }
    }
}

/// What a recording came to.
#[derive(Debug)]
pub struct Summary {
    /// How many samples there are, and how complete their stacks.
    pub completeness: Completeness,
    /// How the command ended; `None` if none was launched, or it still runs.
    pub status: Option<ExitStatus>,
    /// Where the recording ended with the command or the processes: those that they have begun, and that go on
    /// unrecorded.
    pub going_on: Vec<Begun>,
    /// For how long.
    pub elapsed: Duration,
    /// Why the profile ends too early, if it does: what it has until then can be read.
    pub failure: Option<io::Error>,
    /// Records that could not be read.
    pub damaged: u64,
    /// Why files that samples met could not be used: their functions have no names, and their unwind tables
    /// are not known.
    pub unusable: Vec<Arc<FileProblem>>,
    /// Whose arguments were asked for in vain.
    pub nothing_of: Vec<NothingOf>,
}

/// How far a recording is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// How many samples there are so far, and how complete their stacks.
    pub completeness: Completeness,
    /// For how long.
    pub elapsed: Duration,
}

/// What is told of a recording while it goes on.
#[derive(Debug)]
pub enum News<'n> {
    /// How far it is.
    Progress(Progress),
    /// The profile cannot be written any more, which is told once. Nothing is recorded from now on.
    CannotWrite {
        /// Why not.
        error: &'n io::Error,
        /// Whether there is a command, which is waited for.
        command_goes_on: bool,
    },
}

/// A recording that is set up, and not begun.
pub struct Recording {
    events: Events,
    signals: Signals,
    options: Options,
    held: Option<Held>,
    watched: Vec<OwnedFd>,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

/// How long the recorder waits at most before it looks at all rings, in milliseconds.
const PAUSE: i32 = 50;

/// How often what was recorded is written, and progress is told.
const BEAT: Duration = Duration::from_millis(500);

/// How long to wait for a command to end that was told to, in milliseconds.
const PATIENCE: i32 = 2000;

impl Recording {
    /// Opens the events of a target. A command is begun, and does not run yet.
    pub fn prepare(target: Target, options: Options) -> Result<Recording, RecordError> {
        let signals = Signals::catch().map_err(RecordError::System)?;
        let mut notices = Vec::new();
        let mut held = None;
        let mut watched = Vec::new();
        let mut whom = Vec::new();
        match target {
            Target::Command(command) => {
                let begun = Held::begin(command, &signals).map_err(RecordError::Launch)?;
                watched.push(sys::watch(begun.pid).map_err(RecordError::System)?);
                whom.push(Whom::Thread(begun.pid));
                held = Some(begun);
            }
            Target::Processes(pids) => {
                // Whoever is named twice is recorded once.
                let mut all = BTreeSet::new();
                for pid in pids.into_iter().collect::<BTreeSet<_>>() {
                    let watch = sys::watch(pid).map_err(|_| RecordError::NoProcess { pid })?;
                    watched.push(watch);
                    all.extend(threads(pid)?);
                }
                whom.extend(all.into_iter().map(Whom::Thread));
            }
            Target::Everything => whom.push(Whom::Everyone),
        }
        let scope = Scope {
            whom: &whom,
            from_exec: held.is_some(),
        };
        let events = Events::open(&options, scope, &mut notices)?;
        Ok(Recording {
            events,
            signals,
            options,
            held,
            watched,
            notices,
        })
    }

    /// What samples are of.
    #[must_use]
    pub fn event(&self) -> &Event {
        &self.events.event
    }

    /// The sizes of the ring buffers for samples, in bytes: of each processor one, and another one with
    /// [`Options::off_cpu`].
    pub fn ring_sizes(&self) -> impl Iterator<Item = usize> {
        self.events.ring_sizes()
    }

    /// Records until the command or the processes end, the time is over, or a signal says so. From time
    /// to time, `tell` is told how far it is.
    ///
    /// # Errors
    ///
    /// [`RecordError`]. That the profile cannot be written to its end is none: the [`Summary`] says so.
    pub fn run<W: Write>(
        self,
        out: W,
        store: Store,
        meta: Meta,
        mut tell: impl FnMut(News<'_>),
    ) -> Result<Summary, RecordError> {
        let mut running = self.begin(out, store, meta)?;
        let _prompt = Prompt::new();
        while !running.wait()? {
            if running.failure.is_some() {
                continue;
            }
            match running.go_on() {
                Ok(Some(progress)) => tell(News::Progress(progress)),
                Ok(None) => {}
                Err(error) => {
                    tell(News::CannotWrite {
                        error: &error,
                        command_goes_on: running.child.is_some(),
                    });
                    running.fail(error);
                }
            }
        }
        let is_told = running.failure.is_some();
        let summary = running.finish()?;
        if let Some(error) = &summary.failure
            && !is_told
        {
            tell(News::CannotWrite {
                error,
                command_goes_on: false,
            });
        }
        Ok(summary)
    }

    fn begin<W: Write>(self, out: W, store: Store, meta: Meta) -> Result<Running<W>, RecordError> {
        let meta = Meta {
            clock: unspool_profile::Time(sys::now()),
            event: self.described(),
            ..meta
        };
        let writer = Writer::new(out, &meta).map_err(RecordError::Write)?;
        let unwinder = Unwinder::new(Arch::X86_64, store.form());
        let unwinder = unwinder.map_err(|error| RecordError::System(io::Error::other(error)))?;
        let wanted = self.options.arguments;
        let files = Files::with_arguments(Box::new(Live::default()), store, wanted.clone());
        let processes = Processes::new(files);
        let started = Instant::now();
        let child = match self.held {
            Some(held) => Some(held.go().map_err(RecordError::Launch)?),
            None => {
                self.events.enable()?;
                None
            }
        };
        Ok(Running {
            polled: self.events.files().map(|_| true).collect(),
            signals: self.signals,
            is_watching: !self.watched.is_empty(),
            watched: self.watched,
            child,
            until: self.options.duration.map(|duration| started + duration),
            inherits: self.options.inherits,
            started,
            beat: started,
            failure: None,
            scribe: Scribe::new(
                writer,
                processes,
                unwinder.of_running_threads(),
                Kin::running(),
            )
            .with_arguments(wanted.is_some().then(Arguments::default)),
            wanted,
            copies: self
                .events
                .has_sizes()
                .then(|| Copies::new(self.events.ring_sizes().sum())),
            events: self.events,
            damaged: 0,
        })
    }

    /// What samples are of, as the profile says it.
    fn described(&self) -> unspool_profile::Event {
        unspool_profile::Event {
            name: self.events.event.name().to_owned(),
            rate: match self.options.rate {
                Rate::Frequency(frequency) => unspool_profile::Rate::Frequency(frequency),
                Rate::Period(period) => unspool_profile::Rate::Period(period),
            },
            unit: match self.events.event.is_clock() {
                true => Unit::Nanoseconds,
                false => Unit::Events,
            },
        }
    }
}

/// A recording that goes on.
struct Running<W: Write> {
    events: Events,
    /// How much is copied of stacks, if that can be changed.
    copies: Option<Copies>,
    /// Which rings' events are waited for.
    polled: Vec<bool>,
    signals: Signals,
    /// The processes that have not ended yet, if it is over with them.
    watched: Vec<OwnedFd>,
    is_watching: bool,
    child: Option<Child>,
    inherits: bool,
    started: Instant,
    until: Option<Instant>,
    /// When what was recorded was written last.
    beat: Instant,
    scribe: Scribe<W>,
    wanted: Option<Arc<Wanted>>,
    damaged: u64,
    /// Why nothing more is recorded, and when that was.
    failure: Option<(io::Error, Instant)>,
}

impl<W: Write> Running<W> {
    /// Takes what there is; says from time to time how far it is.
    fn go_on(&mut self) -> io::Result<Option<Progress>> {
        self.take(sys::now())?;
        if self.beat.elapsed() < BEAT {
            return Ok(None);
        }
        self.beat = Instant::now();
        self.shrink_copies();
        self.scribe.flush()?;
        Ok(Some(Progress {
            completeness: self.scribe.completeness(),
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

    /// Waits until there is something to do; whether it is over.
    fn wait(&mut self) -> Result<bool, RecordError> {
        let rings = self.events.files().zip(&self.polled);
        let rings = rings.filter(|(_, polled)| **polled).map(|(file, _)| file);
        let files: Vec<_> = std::iter::once(self.signals.as_fd())
            .chain(self.watched.iter().map(|process| process.as_fd()))
            .chain(rings)
            .collect();
        let ready = match sys::wait(&files, PAUSE) {
            Ok(ready) => ready,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(RecordError::System(error)),
        };
        let mut ready = ready.into_iter().skip(1);
        self.watched.retain(|_| ready.next() == Some(Ready::Not));
        // The event of a thread that has ended is ready for ever.
        for polled in self.polled.iter_mut().filter(|polled| **polled) {
            *polled = ready.next() != Some(Ready::Over);
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

    /// Whether the command or the processes have ended.
    fn has_ended(&self) -> bool {
        self.is_watching && self.watched.is_empty()
    }

    /// Has the command end, as the recorder was told to.
    fn stop(&mut self, signal: i32) {
        let Some(child) = &self.child else { return };
        // What comes from the terminal comes to the command, too.
        if signal != libc::SIGINT {
            sys::send(child.id(), signal);
        }
        let watched: Vec<_> = self.watched.iter().map(|process| process.as_fd()).collect();
        // A command that goes on is left alone, whatever ended the wait.
        let _ = sys::wait(&watched, PATIENCE);
    }

    /// Notes all records from before a time.
    fn take(&mut self, until: u64) -> io::Result<()> {
        let mut failure = None;
        let (scribe, copies) = (&mut self.scribe, &mut self.copies);
        self.damaged += merge::take(&mut self.events.sources, until, |kind, origin, record| {
            if let (Kind::OnCpu, Record::Sample(sample), Some(copies)) =
                (kind, record, &mut *copies)
            {
                copies.note(&sample.stack);
            }
            if failure.is_none() {
                failure = scribe.note(kind, origin, record).err();
            }
        });
        if let Some(size) = self.copies.as_mut().and_then(Copies::grow) {
            self.events.copy_up_to(size);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Has less copied of stacks if all of them were small lately.
    fn shrink_copies(&mut self) {
        if let Some(size) = self.copies.as_mut().and_then(Copies::shrink) {
            self.events.copy_up_to(size);
        }
    }

    fn finish(mut self) -> Result<Summary, RecordError> {
        self.events.disable();
        if self.failure.is_none()
            && let Err(error) = self.take(u64::MAX)
        {
            self.fail(error);
        }
        let status = match &mut self.child {
            Some(child) => child.try_wait().map_err(RecordError::System)?,
            None => None,
        };
        let going_on = match self.inherits && self.has_ended() {
            true => self.scribe.going_on(),
            false => Vec::new(),
        };
        let written = self.scribe.finish(sys::now());
        let (failure, ended) = match self.failure {
            Some((error, at)) => (Some(error), at),
            None => (written.out.err(), Instant::now()),
        };
        Ok(Summary {
            completeness: written.completeness,
            unusable: written.unusable,
            nothing_of: self.wanted.map_or_else(Vec::new, |wanted| wanted.missing()),
            status,
            going_on,
            elapsed: ended.duration_since(self.started),
            damaged: self.damaged,
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
