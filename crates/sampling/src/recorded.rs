//! What perf recorded, perhaps on another day or machine: its files found, its stacks unwound.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use unspool_ir::Arch;
use unspool_module::{BuildId, ElfFile};
use unspool_perf::{DataFile, Item, Reading, Record};
use unspool_profile::{Meta, Unit, Writer};
use unspool_symbols::{Identity, Problem};
use unspool_unwind::NoMemory;
use unspool_unwind::files::FileProblem;
use unspool_unwind::maps::{Mapping, Mappings};
use unspool_unwind::tables::Store;

use crate::files::{Files, Finder, Task};
use crate::processes::Processes;
use crate::record::{Kind, Scribe, Totals};
use crate::space::Space;
use crate::unwind::{Unwinder, Unwound};

/// Finds the files of a recording: by their paths, and by their build IDs in caches; never one of
/// another build.
#[derive(Debug)]
pub struct Recorded {
    finder: unspool_symbols::Finder,
    build_ids: HashMap<Vec<u8>, BuildId>,
}

impl Recorded {
    /// The files of a recording are where `finder` looks.
    #[must_use]
    pub fn new(file: &DataFile, finder: unspool_symbols::Finder) -> Recorded {
        let known = file.build_ids().iter();
        let known = known.filter_map(|known| Some((known.name.clone(), BuildId::new(&known.id)?)));
        Recorded {
            finder,
            build_ids: known.collect(),
        }
    }
}

impl Finder for Recorded {
    fn file(
        &self,
        _pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<ElfFile, FileProblem> {
        let name = mapping.name.as_deref().unwrap_or(OsStr::new(""));
        let known = || self.build_ids.get(name.as_bytes()).copied();
        let identity = Identity {
            path: PathBuf::from(name),
            build_id: build_id.or_else(known),
            root: None,
        };
        let opened = self.finder.open(&identity, &|_| {});
        opened.map_err(|problems| why_not(identity.path, problems))
    }

    fn mappings(&self, _pid: u32) -> Option<Mappings> {
        None
    }

    fn task(&self, _pid: u32, _tid: u32) -> Option<Task> {
        None
    }
}

/// The first thing that was wrong with what was tried.
fn why_not(path: PathBuf, problems: Vec<Problem>) -> FileProblem {
    match problems.into_iter().next() {
        Some(Problem::OtherBuild {
            file,
            expected,
            found,
        }) => FileProblem::Replaced {
            path: file,
            mapped: Some(expected),
            on_disk: found,
        },
        Some(Problem::File(error)) => FileProblem::Elf(Box::new(error)),
        _ => FileProblem::Open {
            path,
            error: io::ErrorKind::NotFound.into(),
        },
    }
}

/// Why a recording of perf cannot be unwound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is from a machine whose stacks are not unwound.
    #[error("it was recorded on {arch}: only recordings of x86_64 are unwound")]
    Arch {
        /// The machine's architecture, as `uname -m` says it.
        arch: String,
    },
    /// The kernel has no memory.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// What was made of it cannot be written.
    #[error("cannot write")]
    Write(#[source] io::Error),
}

/// Unwinds the samples of a recording, one after the other.
pub struct Replay {
    /// What the processes have mapped, as far as was read.
    pub processes: Processes,
    unwinder: Unwinder,
}

impl Replay {
    /// Nothing is read yet. Files are where `finder` looks, compiled tables come from `store`.
    ///
    /// # Errors
    ///
    /// [`ImportError`].
    pub fn new(
        file: &DataFile,
        finder: unspool_symbols::Finder,
        store: Store,
    ) -> Result<Replay, ImportError> {
        let recorded = Recorded::new(file, finder);
        Ok(Replay {
            processes: Processes::new(Files::without_compiler(Box::new(recorded), store)),
            unwinder: Unwinder::new(arch(file)?)?,
        })
    }

    /// Follows what a record tells that is no sample. `true` if addresses of its process may mean
    /// something else now.
    ///
    /// # Errors
    ///
    /// The kernel has no memory.
    pub fn note(&mut self, record: &Record<'_>) -> Result<bool, NoMemory> {
        // Other threads of a process that ended may go on, and nobody can be asked about it.
        let changes = !matches!(record, Record::Exit(_)) && self.processes.note(record);
        if changes && self.processes.is_out_of_places() {
            self.processes.renumber();
            self.unwinder.forget()?;
        }
        Ok(changes)
    }

    /// Unwinds the stack of a sample, in the space of its process.
    pub fn unwind(
        &mut self,
        space: &Space,
        tid: u32,
        sample: &unspool_perf::Sample<'_>,
    ) -> Unwound<'_> {
        self.unwinder.unwind(space, tid, sample)
    }
}

fn arch(file: &DataFile) -> Result<Arch, ImportError> {
    match file.about().arch.as_str() {
        // A recorder that was killed has not said it.
        "x86_64" | "" => Ok(Arch::X86_64),
        arch => Err(ImportError::Arch {
            arch: arch.to_owned(),
        }),
    }
}

/// Makes a profile of a recording of perf, with the stacks unwound. Samples of its first event are
/// taken; those of others are left out.
///
/// # Errors
///
/// [`ImportError`]. What is damaged in the recording is said by the [`Reading`].
pub fn import<W: Write>(
    file: &DataFile,
    out: W,
    finder: unspool_symbols::Finder,
    store: Store,
) -> Result<(W, Totals, Reading), ImportError> {
    let Replay {
        processes,
        unwinder,
    } = Replay::new(file, finder, store)?;
    let writer = Writer::new(out, &meta(file)).map_err(ImportError::Write)?;
    let mut scribe = Scribe::new(writer, processes, unwinder);
    let mut last = 0;
    let reading = file.read(|item: Item<'_>| {
        last = item.origin.time.max(last);
        match item.record {
            Record::Sample(_) if item.event != 0 => Ok(()),
            record => scribe.note(Kind::OnCpu, item.origin, &record),
        }
    });
    let reading = reading.map_err(ImportError::Write)?;
    let (out, totals) = scribe.finish(last).map_err(ImportError::Write)?;
    Ok((out, totals, reading))
}

fn meta(file: &DataFile) -> Meta {
    let about = file.about();
    let event = file.events().first();
    let is_clock = event.is_some_and(|event| event.name.contains("-clock"));
    let event = event.map(|event| unspool_profile::Event {
        name: event.name.clone(),
        rate: match event.rate {
            unspool_perf::Rate::Frequency(rate) => unspool_profile::Rate::Frequency(rate),
            unspool_perf::Rate::Period(period) => unspool_profile::Rate::Period(period),
        },
        unit: match is_clock {
            true => Unit::Nanoseconds,
            false => Unit::Events,
        },
    });
    let default = Meta::default();
    Meta {
        command: about.command.clone(),
        host: about.host.clone(),
        kernel: about.kernel.clone(),
        arch: about.arch.clone(),
        tool: format!("perf {}", about.tool),
        clock: unspool_profile::Time(about.times.as_ref().map_or(0, |times| times.start)),
        event: event.unwrap_or_else(|| default.event.clone()),
        ..default
    }
}
