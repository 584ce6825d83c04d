//! Why an event could not be opened, and what to do about it.

use std::fmt;
use std::io;

use unspool_host::{KernelSettings, Remedy};

use crate::counter::EventTarget;
use crate::event::PerfEvent;

/// Why an event could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the event {event} for {target}: {reason}")]
pub struct OpenError {
    /// The event.
    pub event: PerfEvent,
    /// The target.
    pub target: EventTarget,
    /// The reason.
    pub reason: OpenRefusal,
}

/// Why the kernel refused an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenRefusal {
    /// The machine does not count it: no performance counters, as in most virtual machines.
    NotCounted,
    /// `kernel.perf_event_paranoid` is too high for the event.
    Paranoid {
        /// Its value.
        level: i32,
        /// The highest value that allows the event.
        needed: i32,
    },
    /// The process belongs to another user, or has more privileges.
    OtherUser,
    /// The process does not exist any more.
    NoProcess,
    /// More samples a second than `kernel.perf_event_max_sample_rate`.
    TooOften {
        /// The highest rate.
        limit: u64,
        /// The requested rate.
        wanted: u64,
    },
    /// Too many files are open.
    Files,
    /// A container or a security module forbids the system call.
    Forbidden,
    /// The kernel does not support performance events.
    NoEvents,
    /// Another error.
    Other(io::Error),
}

impl OpenRefusal {
    /// The remedy, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            OpenRefusal::Paranoid { needed, .. } => Some(Remedy::Paranoid { needed: *needed }),
            OpenRefusal::OtherUser => Some(Remedy::PerfOfOthers),
            OpenRefusal::TooOften { wanted, .. } => Some(Remedy::SampleRate { wanted: *wanted }),
            OpenRefusal::Files => Some(Remedy::OpenFiles),
            OpenRefusal::Forbidden => Some(Remedy::PerfInContainer),
            OpenRefusal::NotCounted
            | OpenRefusal::NoProcess
            | OpenRefusal::NoEvents
            | OpenRefusal::Other(_) => None,
        }
    }
}

impl fmt::Display for OpenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenRefusal::NotCounted => f.write_str(
                "this machine has no counter for it (a virtual machine often has none): use -e cpu-clock",
            ),
            OpenRefusal::Paranoid { level, .. } => {
                write!(f, "kernel.perf_event_paranoid is {level}")
            }
            OpenRefusal::OtherUser => f.write_str("it belongs to another user, or has more rights"),
            OpenRefusal::NoProcess => f.write_str("it has ended"),
            OpenRefusal::TooOften { limit: most, .. } => write!(
                f,
                "kernel.perf_event_max_sample_rate allows {most} samples a second"
            ),
            OpenRefusal::Files => f.write_str("too many files are open"),
            OpenRefusal::Forbidden => {
                f.write_str("a container or a security module forbids perf_event_open")
            }
            OpenRefusal::NoEvents => f.write_str("this kernel has no performance events"),
            OpenRefusal::Other(error) => error.fmt(f),
        }?;
        match self.remedy() {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

impl OpenRefusal {
    /// The meaning of a system call's error, for an event of one process or of all.
    pub(crate) fn from_error(
        error: io::Error,
        target: EventTarget,
        with_kernel: bool,
        rate: Option<u64>,
    ) -> OpenRefusal {
        let limits = KernelSettings::read();
        let level = limits.paranoid.unwrap_or(2);
        let needed = match (target, with_kernel) {
            (EventTarget::Everyone, _) => 0,
            (EventTarget::Thread(_), true) => 1,
            (EventTarget::Thread(_), false) => 2,
        };
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => OpenRefusal::NotCounted,
            Some(libc::EACCES | libc::EPERM) if level > needed => {
                OpenRefusal::Paranoid { level, needed }
            }
            Some(libc::EACCES) => OpenRefusal::OtherUser,
            Some(libc::EPERM) => OpenRefusal::Forbidden,
            Some(libc::ESRCH) => OpenRefusal::NoProcess,
            Some(libc::ENOSYS) => OpenRefusal::NoEvents,
            Some(libc::EMFILE | libc::ENFILE) => OpenRefusal::Files,
            Some(libc::EINVAL) => match (rate, limits.max_sample_rate) {
                (Some(wanted), Some(most)) if wanted > most => OpenRefusal::TooOften {
                    limit: most,
                    wanted,
                },
                _ => OpenRefusal::Other(error),
            },
            _ => OpenRefusal::Other(error),
        }
    }
}
