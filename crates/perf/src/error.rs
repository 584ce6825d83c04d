//! Why an event could not be opened, and what to do about it.

use std::fmt;
use std::io;

use unspool_machine::{Limits, Remedy};

use crate::counter::Whom;
use crate::event::Event;

/// Why an event could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the event {event} for {whom}: {why}")]
pub struct OpenError {
    /// The event.
    pub event: Event,
    /// Whose.
    pub whom: Whom,
    /// The reason.
    pub why: Refusal,
}

/// Why the kernel refused an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The machine does not count it: no performance counters, as in most virtual machines.
    NotCounted,
    /// `kernel.perf_event_paranoid` is above what the event needs.
    Paranoid {
        /// What it is.
        level: i32,
        /// The highest at which it would be allowed.
        needed: i32,
    },
    /// The process belongs to another user, or has more rights than this one.
    Foreign,
    /// There is no such process any more.
    Gone,
    /// More samples a second than `kernel.perf_event_max_sample_rate`.
    TooOften {
        /// The highest rate.
        most: u64,
        /// The rate that was asked for.
        wanted: u64,
    },
    /// Too many files are open.
    Files,
    /// A container or a security module forbids the system call.
    Forbidden,
    /// The kernel has no performance events at all.
    NoEvents,
    /// Something else.
    Other(io::Error),
}

impl Refusal {
    /// What helps against it, if something does.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Refusal::Paranoid { needed, .. } => Some(Remedy::Paranoid { needed: *needed }),
            Refusal::Foreign => Some(Remedy::PerfOfOthers),
            Refusal::TooOften { wanted, .. } => Some(Remedy::SampleRate { wanted: *wanted }),
            Refusal::Files => Some(Remedy::OpenFiles),
            Refusal::Forbidden => Some(Remedy::PerfInContainer),
            Refusal::NotCounted | Refusal::Gone | Refusal::NoEvents | Refusal::Other(_) => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotCounted => f.write_str(
                "this machine has no counter for it (a virtual machine often has none): use -e cpu-clock",
            ),
            Refusal::Paranoid { level, .. } => {
                write!(f, "kernel.perf_event_paranoid is {level}")
            }
            Refusal::Foreign => f.write_str("it belongs to another user, or has more rights"),
            Refusal::Gone => f.write_str("it has ended"),
            Refusal::TooOften { most, .. } => write!(
                f,
                "kernel.perf_event_max_sample_rate allows {most} samples a second"
            ),
            Refusal::Files => f.write_str("too many files are open"),
            Refusal::Forbidden => {
                f.write_str("a container or a security module forbids perf_event_open")
            }
            Refusal::NoEvents => f.write_str("this kernel has no performance events"),
            Refusal::Other(error) => error.fmt(f),
        }?;
        match self.remedy() {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

impl Refusal {
    /// What an error of the system call means, for an event of some process or of all.
    pub(crate) fn of(
        error: io::Error,
        whom: Whom,
        with_kernel: bool,
        rate: Option<u64>,
    ) -> Refusal {
        let limits = Limits::read();
        let level = limits.paranoid.unwrap_or(2);
        let needed = match (whom, with_kernel) {
            (Whom::Everyone, _) => 0,
            (Whom::Thread(_), true) => 1,
            (Whom::Thread(_), false) => 2,
        };
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Refusal::NotCounted,
            Some(libc::EACCES | libc::EPERM) if level > needed => {
                Refusal::Paranoid { level, needed }
            }
            Some(libc::EACCES) => Refusal::Foreign,
            Some(libc::EPERM) => Refusal::Forbidden,
            Some(libc::ESRCH) => Refusal::Gone,
            Some(libc::ENOSYS) => Refusal::NoEvents,
            Some(libc::EMFILE | libc::ENFILE) => Refusal::Files,
            Some(libc::EINVAL) => match (rate, limits.most_samples) {
                (Some(wanted), Some(most)) if wanted > most => Refusal::TooOften { most, wanted },
                _ => Refusal::Other(error),
            },
            _ => Refusal::Other(error),
        }
    }
}
