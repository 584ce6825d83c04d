//! A process's files in `/proc` other than those of its threads.

use std::io;
use std::path::PathBuf;

use crate::maps::Mappings;
use crate::{AuxVector, ProcessError, procfs};

/// A process's data from `/proc`.
#[derive(Debug)]
pub(crate) struct ProcFiles {
    maps: Vec<u8>,
    pub(crate) mappings: Mappings,
    pub(crate) auxv: AuxVector,
    pub(crate) executable: Option<PathBuf>,
}

impl ProcFiles {
    pub(crate) fn read(pid: i32) -> Result<ProcFiles, ProcessError> {
        ProcFiles::with_maps(pid, read_proc(pid, "maps")?)
    }

    fn with_maps(pid: i32, maps: Vec<u8>) -> Result<ProcFiles, ProcessError> {
        let auxv = read_proc(pid, "auxv")?;
        if AuxVector::is_32_bit(&auxv) {
            return Err(ProcessError::ThirtyTwoBit {
                pid: pid.unsigned_abs(),
            });
        }
        Ok(ProcFiles {
            mappings: Mappings::parse(&maps),
            maps,
            auxv: AuxVector::parse(&auxv),
            executable: procfs::executable(pid),
        })
    }

    /// The same after the stop. Usually nothing has changed, and while the process is stopped only
    /// the text of the maps must be compared.
    pub(crate) fn refreshed(self, pid: i32) -> Result<ProcFiles, ProcessError> {
        let now = read_proc(pid, "maps")?;
        if now == self.maps {
            Ok(self)
        } else {
            ProcFiles::with_maps(pid, now)
        }
    }
}

fn read_proc(pid: i32, file: &str) -> Result<Vec<u8>, ProcessError> {
    procfs::read(pid, file).map_err(|source| {
        if procfs::is_gone(&source) {
            return ProcessError::NoSuchProcess {
                pid: pid.unsigned_abs(),
            };
        }
        match source.kind() {
            io::ErrorKind::PermissionDenied => ProcessError::from_refusal(pid, pid),
            _ => ProcessError::Proc {
                path: procfs::path(pid, file),
                source,
            },
        }
    })
}
