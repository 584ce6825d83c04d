//! Checks that try an operation.

use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io, process};

use unspool_host::Remedy;
use unspool_perf_events::{
    Counter, EventAttr, EventNameError, EventTarget, OpenError, OpenRefusal, PerfEvent, SampleRate,
    user_mask,
};
use unspool_process::{ProcessError, TracedCommand};
use unspool_profile::Meta;
use unspool_rows::Arch;
use unspool_sampler::{
    KernelWalkError, RecordError, RecordNotice, RecordOptions, RecordTarget, Recording,
    UnwindEngine, try_kernel_walk,
};
use unspool_table_store::Store;

/// The events to try, and their use.
const EVENTS: [(&str, Use); 7] = [
    ("cycles", Use::Samples),
    ("cpu-clock", Use::Samples),
    ("task-clock", Use::Samples),
    ("context-switches", Use::OffCpu),
    ("instructions", Use::OnRequest),
    ("page-faults", Use::OnRequest),
    ("sched:sched_switch", Use::OnRequest),
];

/// The use of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Samples by default: the first available one of these.
    Samples,
    /// Off-CPU time, which needs kernel events.
    OffCpu,
    /// Only on request.
    OnRequest,
}

/// The trial of an event.
pub(super) struct EventTrial {
    pub(super) name: &'static str,
    pub(super) used_for: Use,
    pub(super) outcome: Result<OpenedEvent, EventRefusal>,
}

/// The results of all trials.
pub(super) struct Trials {
    /// A short command, recorded as `unspool record` would.
    pub(super) recording: Result<RecordTrial, RecordError>,
    /// Events of this process.
    pub(super) events: Vec<EventTrial>,
    /// An event of the whole system.
    pub(super) everything: Result<(), OpenError>,
    /// Whether stacks can be walked in the kernel.
    pub(super) kernel_walk: Result<(), KernelWalkError>,
    /// Whether a child can be traced.
    pub(super) tracing: Result<(), ProcessError>,
}

/// The result of a trial recording.
pub(super) struct RecordTrial {
    pub(super) event: PerfEvent,
    pub(super) has_kernel: bool,
    /// The sizes of its rings, in bytes.
    pub(super) rings: Vec<usize>,
}

/// An event that could be opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenedEvent {
    pub(super) has_kernel: bool,
}

/// An event that could not be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum EventRefusal {
    #[error(transparent)]
    Unknown(#[from] EventNameError),
    #[error("{}", .0.reason)]
    Open(#[from] OpenError),
}

impl EventRefusal {
    pub(super) fn why(&self) -> String {
        match self {
            EventRefusal::Open(OpenError {
                reason: OpenRefusal::NotCounted,
                ..
            }) => "this machine does not count it, as most virtual ones".to_owned(),
            refused => refused.to_string(),
        }
    }

    pub(super) fn remedy(&self) -> Option<Remedy> {
        match self {
            EventRefusal::Unknown(error) => error.remedy(),
            EventRefusal::Open(error) => error.reason.remedy(),
        }
    }
}

impl Trials {
    pub(super) fn run() -> Trials {
        let event = |(name, used_for)| EventTrial {
            name,
            used_for,
            outcome: open(name),
        };
        Trials {
            recording: record(),
            events: EVENTS.into_iter().map(event).collect(),
            everything: Counter::open(
                &setup(PerfEvent::cpu_clock(), true),
                EventTarget::Everyone,
                0,
            )
            .map(drop),
            kernel_walk: try_kernel_walk(),
            tracing: trace(),
        }
    }

    /// Whether kernel code can be sampled.
    pub(super) fn has_kernel(&self) -> bool {
        let mut opened = (self.events.iter()).filter_map(|event| event.outcome.as_ref().ok());
        opened.any(|event| event.has_kernel)
    }
}

/// A command that exits at once: this program itself, which certainly exists.
fn command() -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("--version");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    Ok(command)
}

fn record() -> Result<RecordTrial, RecordError> {
    let options = RecordOptions {
        event: None,
        rate: SampleRate::Frequency(FREQUENCY),
        inherits: true,
        off_cpu: false,
        duration: Some(TRIAL_TIMEOUT),
        arguments: None,
        unwind: UnwindEngine::Copy,
    };
    let command = command().map_err(RecordError::Launch)?;
    let recording = Recording::prepare(RecordTarget::Command(command), options)?;
    let recorded = RecordTrial {
        event: recording.event().clone(),
        has_kernel: !recording.notices.contains(&RecordNotice::WithoutKernel),
        rings: recording.ring_sizes().collect(),
    };
    let store = Store::from_environment().without_cache();
    recording.run(io::sink(), store, Meta::default(), |_| {})?;
    Ok(recorded)
}

/// The default rate of `record`, in Hz.
const FREQUENCY: u64 = 999;

/// The longest time for the trial's command.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The attributes with which `record` opens an event.
fn setup(event: PerfEvent, with_kernel: bool) -> EventAttr {
    EventAttr {
        event,
        rate: SampleRate::Period(1_000_000),
        user_registers: user_mask(Arch::HOST).unwrap_or_default(),
        stack_bytes: 8192,
        with_kernel,
        with_frame_pointers: false,
        inherits: true,
        from_exec: false,
        with_tasks: false,
        with_switches: false,
        wake_after: 0,
    }
}

/// Opens an event of this process without counting, with kernel code if permitted.
fn open(name: &str) -> Result<OpenedEvent, EventRefusal> {
    let event: PerfEvent = name.parse()?;
    let own = EventTarget::Thread(process::id());
    let open = |has_kernel| {
        let counter = Counter::open(&setup(event.clone(), has_kernel), own, 0);
        counter.map(|_| OpenedEvent { has_kernel })
    };
    let opened = match open(true) {
        Err(OpenError {
            reason: OpenRefusal::Paranoid { needed: 1, .. },
            ..
        }) => open(false),
        opened => opened,
    };
    Ok(opened?)
}

/// Traces a child until it exits, as `unspool stack -- CMD` does.
fn trace() -> Result<(), ProcessError> {
    let command = command().map_err(|source| ProcessError::Spawn {
        program: "unspool".to_owned(),
        source,
    })?;
    TracedCommand::spawn(command)?
        .run_until_fatal_signal()
        .map(drop)
}
