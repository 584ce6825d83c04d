//! Errors of loading, with remedies.

use std::fmt::{self, Display, Formatter};
use std::io;

use unspool_host::Remedy;

use crate::map::MapType;

/// Why creating a map failed.
#[derive(Debug, thiserror::Error)]
#[error("BPF map of type {map_type}: {}{}", KernelError(error), self.version_hint())]
pub struct MapError {
    /// The map's type.
    pub map_type: MapType,
    /// The kernel's error.
    pub error: io::Error,
}

/// Why loading a program failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel refuses the types of the program's functions.
    #[error("BPF program {name}: types: {}", KernelError(error))]
    Btf {
        /// The program's name.
        name: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel or its verifier refuses the program.
    #[error("BPF program {name}: {}{}", KernelError(error), LogTail(log))]
    Prog {
        /// The program's name.
        name: String,
        /// The kernel's error.
        error: io::Error,
        /// The verifier's log, or the end of a long one. Empty if the verifier did not run.
        log: String,
    },
}

impl MapError {
    /// Kernels refuse types that they do not know.
    fn version_hint(&self) -> &'static str {
        match (self.map_type, self.error.raw_os_error()) {
            (MapType::Arena, Some(libc::EINVAL)) => " (it needs Linux 6.9)",
            _ => "",
        }
    }

    /// What to do, if the kernel does not permit it.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        remedy(&self.error)
    }
}

impl LoadError {
    /// What to do, if the kernel does not permit it.
    #[must_use]
    pub fn remedy(&self) -> Option<Remedy> {
        let (LoadError::Btf { error, .. } | LoadError::Prog { error, .. }) = self;
        remedy(error)
    }
}

fn remedy(error: &io::Error) -> Option<Remedy> {
    // The verifier refuses with `EACCES`; that is not a lack of privileges.
    (error.raw_os_error() == Some(libc::EPERM)).then_some(Remedy::Bpf)
}

/// The kernel's error, with the remedy.
struct KernelError<'a>(&'a io::Error);

impl Display for KernelError<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        match remedy(self.0) {
            Some(remedy) => write!(f, ": {remedy}"),
            None => Ok(()),
        }
    }
}

/// The end of a verifier's log, which has the reason.
struct LogTail<'a>(&'a str);

impl Display for LogTail<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const MAX_LINES: usize = 24;
        let lines: Vec<&str> = self.0.lines().collect();
        let first = lines.len().saturating_sub(MAX_LINES);
        for line in lines.iter().skip(first) {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}
