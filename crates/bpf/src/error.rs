//! Errors of loading, with remedies.

use std::fmt::{self, Display, Formatter};
use std::io;

use unspool_host::Remedy;

use crate::map::MapType;

/// Why creating a map failed.
#[derive(Debug, thiserror::Error)]
#[error("BPF map of type {map_type}: {}", KernelError(source))]
pub struct MapError {
    /// The map's type.
    pub map_type: MapType,
    /// The kernel's error.
    #[source]
    pub source: io::Error,
}

/// Why loading a program failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel refuses the types of the program's functions.
    #[error("BPF program {name}: types: {}", KernelError(source))]
    Btf {
        /// The program's name.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel or its verifier refuses the program.
    #[error("BPF program {name}: {}{}", KernelError(source), LogTail(log))]
    Prog {
        /// The program's name.
        name: String,
        /// The kernel's error.
        source: io::Error,
        /// The verifier's log, or the end of a long one. Empty if the verifier did not run.
        log: String,
    },
}

/// The kernel's error, with the remedy.
struct KernelError<'a>(&'a io::Error);

impl Display for KernelError<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        // The verifier refuses with `EACCES`; that is not a lack of privileges.
        match self.0.raw_os_error() {
            Some(libc::EPERM) => write!(f, ": {}", Remedy::Bpf),
            _ => Ok(()),
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
