//! Events to count.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use perf_event_open_sys::bindings as abi;
use unspool_host::Remedy;

/// An event, by its name in `perf list`, with perf's modifiers `u`, `k` and `p` after a colon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfEvent {
    name: String,
    kind: u32,
    config: u64,
    modifiers: Modifiers,
}

/// The letters after an event's name, as in `cycles:upp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Modifiers {
    /// It does not count in the kernel: `u` without `k`.
    pub(crate) without_kernel: bool,
    /// It does not count in user mode: `k` without `u`.
    pub(crate) without_user: bool,
    /// How close to the event the sampled address is, from 0 to 3: the number of `p`.
    pub(crate) precision: u8,
}

impl Modifiers {
    /// `None` if they are none, or others.
    fn parse(letters: &str) -> Option<Modifiers> {
        let precision = letters.bytes().filter(|letter| *letter == b'p').count();
        let is_known = |letter| matches!(letter, b'u' | b'k' | b'p');
        if letters.is_empty() || precision > 3 || !letters.bytes().all(is_known) {
            return None;
        }
        let [user, kernel] = ['u', 'k'].map(|mode| letters.contains(mode));
        Some(Modifiers {
            without_kernel: user && !kernel,
            without_user: kernel && !user,
            precision: u8::try_from(precision).ok()?,
        })
    }
}

/// Why a name does not denote an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventNameError {
    /// The name is unknown.
    #[error(
        "no event has the name {0:?}: try cycles, cpu-clock, task-clock, page-faults, context-switches, \
             instructions, cache-misses, branch-misses, a tracepoint as sched:sched_switch, or rNNNN for a processor's own"
    )]
    Name(String),
    /// It is a list of events.
    #[error("{0:?} is a list of events, and a recording has one: record each by itself")]
    List(String),
    /// A tracepoint could not be found.
    #[error(
        "cannot find the tracepoint {name}: {path} cannot be read: {}",
        tracefs_remedy(source)
    )]
    Tracepoint {
        /// Its name.
        name: String,
        /// The file that should have its ID.
        path: String,
        /// The cause.
        source: io::Error,
    },
}

impl EventNameError {
    /// The remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            EventNameError::Tracepoint { source, .. } => Some(tracefs_remedy(source)),
            EventNameError::Name(_) | EventNameError::List(_) => None,
        }
    }
}

/// Without permission the kernel returns an error; without the mount, there is no file.
fn tracefs_remedy(error: &io::Error) -> Remedy {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Remedy::ReadTracefs,
        _ => Remedy::MountTracefs,
    }
}

const EVENT_NAMES: [(&str, u32, u32); 21] = [
    (
        "cycles",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_CPU_CYCLES,
    ),
    (
        "cpu-cycles",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_CPU_CYCLES,
    ),
    (
        "instructions",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_INSTRUCTIONS,
    ),
    (
        "cache-references",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_CACHE_REFERENCES,
    ),
    (
        "cache-misses",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_CACHE_MISSES,
    ),
    (
        "branches",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
    ),
    (
        "branch-instructions",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
    ),
    (
        "branch-misses",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_BRANCH_MISSES,
    ),
    (
        "bus-cycles",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_BUS_CYCLES,
    ),
    (
        "ref-cycles",
        abi::PERF_TYPE_HARDWARE,
        abi::PERF_COUNT_HW_REF_CPU_CYCLES,
    ),
    (
        "cpu-clock",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_CPU_CLOCK,
    ),
    (
        "task-clock",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_TASK_CLOCK,
    ),
    (
        "page-faults",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_PAGE_FAULTS,
    ),
    (
        "faults",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_PAGE_FAULTS,
    ),
    (
        "minor-faults",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_PAGE_FAULTS_MIN,
    ),
    (
        "major-faults",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
    ),
    (
        "context-switches",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_CONTEXT_SWITCHES,
    ),
    (
        "cs",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_CONTEXT_SWITCHES,
    ),
    (
        "cpu-migrations",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_CPU_MIGRATIONS,
    ),
    (
        "alignment-faults",
        abi::PERF_TYPE_SOFTWARE,
        abi::PERF_COUNT_SW_ALIGNMENT_FAULTS,
    ),
    ("dummy", abi::PERF_TYPE_SOFTWARE, abi::PERF_COUNT_SW_DUMMY),
];

/// The mount points of tracefs: current, and on older systems.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl PerfEvent {
    /// CPU cycles.
    #[must_use]
    pub fn cycles() -> PerfEvent {
        PerfEvent::named(
            "cycles",
            abi::PERF_TYPE_HARDWARE,
            abi::PERF_COUNT_HW_CPU_CYCLES.into(),
        )
    }

    /// CPU clock: a timer on each CPU.
    #[must_use]
    pub fn cpu_clock() -> PerfEvent {
        PerfEvent::named(
            "cpu-clock",
            abi::PERF_TYPE_SOFTWARE,
            abi::PERF_COUNT_SW_CPU_CLOCK.into(),
        )
    }

    /// Task clock: the time that a thread runs.
    #[must_use]
    pub fn task_clock() -> PerfEvent {
        PerfEvent::named(
            "task-clock",
            abi::PERF_TYPE_SOFTWARE,
            abi::PERF_COUNT_SW_TASK_CLOCK.into(),
        )
    }

    /// Context switches: a thread leaves its CPU.
    #[must_use]
    pub fn context_switches() -> PerfEvent {
        let config = abi::PERF_COUNT_SW_CONTEXT_SWITCHES.into();
        PerfEvent::named("context-switches", abi::PERF_TYPE_SOFTWARE, config)
    }

    /// Dummy: counts nothing, and records mappings, names, forks and exits.
    #[must_use]
    pub fn dummy() -> PerfEvent {
        PerfEvent::named(
            "dummy",
            abi::PERF_TYPE_SOFTWARE,
            abi::PERF_COUNT_SW_DUMMY.into(),
        )
    }

    /// The name of an event in `perf list`, from the kernel's numbers; `None` for tracepoints and
    /// events specific to a CPU.
    #[must_use]
    pub(crate) fn name_of(kind: u32, config: u64) -> Option<&'static str> {
        let is_meant = |event: &&(&str, u32, u32)| event.1 == kind && u64::from(event.2) == config;
        EVENT_NAMES.iter().find(is_meant).map(|(name, ..)| *name)
    }

    fn named(name: &str, kind: u32, config: u64) -> PerfEvent {
        PerfEvent {
            name: name.to_owned(),
            kind,
            config,
            modifiers: Modifiers::default(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    pub(crate) fn config(&self) -> u64 {
        self.config
    }

    pub(crate) fn modifiers(&self) -> Modifiers {
        self.modifiers
    }

    /// Whether it counts nanoseconds.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        self.kind == abi::PERF_TYPE_SOFTWARE
            && [abi::PERF_COUNT_SW_CPU_CLOCK, abi::PERF_COUNT_SW_TASK_CLOCK]
                .iter()
                .any(|clock| u64::from(*clock) == self.config)
    }

    fn tracepoint(name: &str, system: &str, point: &str) -> Result<PerfEvent, EventNameError> {
        let is_plain = |part: &str| {
            part.bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c))
        };
        if !is_plain(system) || !is_plain(point) {
            return Err(EventNameError::Name(name.to_owned()));
        }
        let [path, other] = TRACEFS.map(|root| format!("{root}/events/{system}/{point}/id"));
        let text = match fs::read_to_string(&path) {
            Err(first) if first.kind() == io::ErrorKind::NotFound => {
                fs::read_to_string(other).map_err(|_| first)
            }
            text => text,
        };
        let id = text.and_then(|text| {
            let id = text.trim().parse();
            id.map_err(|_| io::ErrorKind::InvalidData.into())
        });
        let id = id.map_err(|source| {
            let is_mounted = |root| Path::new(root).join("events").exists();
            let name = name.to_owned();
            match source.kind() {
                io::ErrorKind::NotFound if TRACEFS.into_iter().any(is_mounted) => {
                    EventNameError::Name(name)
                }
                _ => EventNameError::Tracepoint { name, path, source },
            }
        })?;
        Ok(PerfEvent::named(name, abi::PERF_TYPE_TRACEPOINT, id))
    }
}

impl fmt::Display for PerfEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl FromStr for PerfEvent {
    type Err = EventNameError;

    fn from_str(name: &str) -> Result<PerfEvent, EventNameError> {
        // Commas within slashes separate the terms of one event.
        let is_list = name.split('/').step_by(2).any(|part| part.contains(','));
        if is_list {
            return Err(EventNameError::List(name.to_owned()));
        }
        if let Some((_, kind, config)) = EVENT_NAMES.iter().find(|(known, ..)| *known == name) {
            return Ok(PerfEvent::named(name, *kind, (*config).into()));
        }
        if let Some((event, letters)) = name.rsplit_once(':')
            && let Some(modifiers) = Modifiers::parse(letters)
        {
            let event: PerfEvent = event.parse()?;
            return Ok(PerfEvent {
                name: name.to_owned(),
                modifiers,
                ..event
            });
        }
        if let Some((system, point)) = name.split_once(':') {
            return PerfEvent::tracepoint(name, system, point);
        }
        let raw = name
            .strip_prefix('r')
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let config = raw.ok_or_else(|| EventNameError::Name(name.to_owned()))?;
        Ok(PerfEvent::named(name, abi::PERF_TYPE_RAW, config))
    }
}
