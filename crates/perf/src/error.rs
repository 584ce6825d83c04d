//! Why an event could not be opened, and what to do about it.

use std::fmt;
use std::io;

use crate::counter::Whom;
use crate::event::Event;
use crate::limits::Limits;

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
    },
    /// Too many files are open.
    Files,
    /// A container or a security module forbids the system call.
    Forbidden,
    /// Something else.
    Other(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotCounted => write!(
                f,
                "this machine has no counter for it (a virtual machine often has none): use -e cpu-clock"
            ),
            Refusal::Paranoid { level, needed } => write!(
                f,
                "kernel.perf_event_paranoid is {level}: run as root, or `sudo sysctl kernel.perf_event_paranoid={needed}`"
            ),
            Refusal::Foreign => write!(
                f,
                "it belongs to another user, or has more rights: run as root"
            ),
            Refusal::Gone => write!(f, "it has ended"),
            Refusal::TooOften { most } => write!(
                f,
                "kernel.perf_event_max_sample_rate allows {most} samples a second: ask for fewer, or raise it by sysctl"
            ),
            Refusal::Files => write!(f, "too many files are open: raise the limit by `ulimit -n`"),
            Refusal::Forbidden => write!(
                f,
                "perf_event_open is forbidden here: in a container, run it with `--cap-add PERFMON` and a seccomp profile that allows the call"
            ),
            Refusal::Other(error) => error.fmt(f),
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
            Some(libc::EMFILE | libc::ENFILE) => Refusal::Files,
            Some(libc::EINVAL) => match (rate, limits.most_samples) {
                (Some(rate), Some(most)) if rate > most => Refusal::TooOften { most },
                _ => Refusal::Other(error),
            },
            _ => Refusal::Other(error),
        }
    }
}
