//! Recordings by perf, perhaps of another day or machine: finds their files and unwinds their
//! stacks.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use unspool_elf::{BuildId, ContentKey};
use unspool_perf_events::{
    DataFile, FileRecord, PerfRewriteError, ReadSummary, Record, Rewriter, SampleId,
};
use unspool_process::file_provider::FileProblem;
use unspool_process::maps::{Mapping, Mappings};
use unspool_profile::{Completeness, Meta, ProfileWriter, WeightUnit};
use unspool_rows::Abi;
use unspool_symbols::{ModuleIdentity, SymbolProblem};
use unspool_table_store::Store;
use unspool_unwind::OutOfMemory;

use crate::address_space::ProcessSpace;
use crate::jit::JitProcess;
use crate::live_files::LiveMemory;
use crate::module_files::{Distinction, LocatedFile, MappedFileFinder, ModuleFiles};
use crate::processes::Processes;
use crate::record::{ProcessNames, RecordWriter, RingKind};
use crate::unwinder::{Unwinder, UnwoundStack};

/// Finds the files of a recording: by their paths, and by their build IDs in caches. A file of
/// another build is never used.
#[derive(Debug)]
pub(crate) struct PerfFiles {
    finder: unspool_symbols::ModuleFinder,
    build_ids: HashMap<Vec<u8>, BuildId>,
}

impl PerfFiles {
    /// Files are looked up in `finder`.
    #[must_use]
    pub(crate) fn new(file: &DataFile, finder: unspool_symbols::ModuleFinder) -> PerfFiles {
        let known = file.build_ids().iter();
        let known = known.filter_map(|known| Some((known.name.clone(), BuildId::new(&known.id)?)));
        PerfFiles {
            finder,
            build_ids: known.collect(),
        }
    }
}

impl MappedFileFinder for PerfFiles {
    fn file(
        &mut self,
        _pid: u32,
        mapping: &Mapping,
        build_id: Option<BuildId>,
    ) -> Result<LocatedFile, FileProblem> {
        let name = mapping.name.as_deref().unwrap_or(OsStr::new(""));
        let known = || self.build_ids.get(name.as_bytes()).copied();
        let identity = ModuleIdentity {
            path: PathBuf::from(name),
            content: build_id.or_else(known).map(ContentKey::BuildId),
            root: None,
        };
        let opened = self.finder.open(&identity, &|_| {});
        match opened {
            Ok(file) => Ok(LocatedFile { file, root: None }),
            Err(problems) => Err(why_not(identity.path, problems)),
        }
    }

    fn distinction(&self, _pid: u32, _mapping: &Mapping) -> Option<Distinction> {
        Some(Distinction::Name)
    }

    fn other_file(&mut self, _pid: u32, _mapping: &Mapping) -> Option<fs::File> {
        None
    }

    fn jit_process(&mut self, _pid: u32) -> Option<JitProcess> {
        None
    }

    fn mappings(&self, _pid: u32) -> Option<Mappings> {
        None
    }

    fn memory(&self, _pid: u32) -> Option<LiveMemory> {
        None
    }

    fn has_ended(&self, _pid: u32) -> bool {
        false
    }
}

/// The first problem among the attempts.
fn why_not(path: PathBuf, problems: Vec<SymbolProblem>) -> FileProblem {
    match problems.into_iter().next() {
        Some(SymbolProblem::OtherBuild {
            file,
            expected,
            found,
        }) => FileProblem::Replaced {
            path: file,
            mapped: Some(expected),
            on_disk: found,
        },
        Some(SymbolProblem::File(error)) => FileProblem::Elf(Box::new(error)),
        _ => FileProblem::Open {
            path,
            error: io::ErrorKind::NotFound.into(),
        },
    }
}

/// Why a recording by perf cannot be unwound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It comes from an architecture that is not supported.
    #[error("it was recorded on {arch}, which is not supported; x86_64 and aarch64 are")]
    Arch {
        /// The machine's architecture, as `uname -m` prints it.
        arch: String,
    },
    /// Out of memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The result cannot be written.
    #[error("cannot write")]
    Write(#[source] io::Error),
    /// It cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] PerfRewriteError),
}

/// Unwinds the samples of a recording, one after the other.
pub struct Replay {
    /// The mappings of processes, up to the last record read.
    processes: Processes,
    unwinder: Unwinder,
}

impl Replay {
    /// An empty replay. Files are looked up in `finder`, compiled tables in `store`.
    ///
    /// # Errors
    ///
    /// [`ImportError`].
    pub fn new(
        file: &DataFile,
        finder: unspool_symbols::ModuleFinder,
        store: Store,
    ) -> Result<Replay, ImportError> {
        let recorded = PerfFiles::new(file, finder);
        let abi = abi(file)?;
        let unwinder = Unwinder::new(abi, store.form())?;
        let files = ModuleFiles::without_compiler(Box::new(recorded), store);
        Ok(Replay {
            unwinder,
            processes: Processes::new(abi, files),
        })
    }

    /// Applies a record other than a sample. `true` if addresses of its process may have a new
    /// meaning.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn note(&mut self, record: &Record<'_>) -> Result<bool, OutOfMemory> {
        let changes = self.processes.note(record);
        if changes && self.processes.is_out_of_slots() {
            self.processes.renumber();
            self.unwinder.forget()?;
        }
        Ok(changes)
    }

    /// The code that a process has mapped, up to the last record read.
    pub fn space(&mut self, pid: u32) -> Arc<ProcessSpace> {
        self.processes.space(pid)
    }

    /// Unwinds the stack of a sample, in the address space of its process.
    pub fn unwind(
        &mut self,
        space: &ProcessSpace,
        tid: u32,
        sample: &unspool_perf_events::SampleRecord<'_>,
    ) -> UnwoundStack<'_> {
        self.unwinder.unwind(space, tid, sample)
    }
}

fn abi(file: &DataFile) -> Result<Abi, ImportError> {
    match file.info().arch.as_str() {
        "x86_64" => Ok(Abi::X86_64),
        "aarch64" => Ok(Abi::AARCH64),
        // A recorder that was killed has not written it.
        "" => Ok(Abi::HOST),
        arch => Err(ImportError::Arch {
            arch: arch.to_owned(),
        }),
    }
}

/// The result of [`inject`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InjectSummary {
    /// The number of samples with a copied stack.
    pub stacks: u64,
    /// The number of complete stacks among these: they reach the root.
    pub complete: u64,
    /// Samples without a user stack: of kernel threads, or without registers.
    pub without_stack: u64,
    /// Samples with more frames than a perf record can hold: they lack the outermost ones.
    pub cut: u64,
}

/// Rewrites a recording by perf with unwound stacks: perf reads call chains in place of the copied
/// stacks. Everything else stays the same, except that records are sorted by time and uncompressed.
///
/// # Errors
///
/// [`ImportError`]. Damaged parts of the recording are left out; the [`ReadSummary`] reports them.
pub fn inject<W: Write + Seek>(
    file: &DataFile,
    out: W,
    finder: unspool_symbols::ModuleFinder,
    store: Store,
) -> Result<(W, InjectSummary, ReadSummary), ImportError> {
    let mut replay = Replay::new(file, finder, store)?;
    let mut rewriter = Rewriter::new(file, out)?;
    let mut injected = InjectSummary::default();
    let reading = file.read_all(|file_record: FileRecord<'_>| -> Result<(), ImportError> {
        let event = file.events().get(file_record.event);
        match &file_record.record {
            Record::Sample(sample) if event.is_some_and(|event| event.format.has_stack_copy()) => {
                let SampleId { pid, tid, .. } = file_record.sample_id;
                let space = replay.processes.space(pid);
                let unwound = replay.unwind(&space, tid, sample);
                let user = unwound.user_frames();
                let user = user.iter().map(|frame| frame.code.lookup().0);
                let left_out = rewriter.sample(&file_record, user)?;
                injected.stacks += 1;
                injected.complete += u64::from(unwound.end.is_root());
                injected.without_stack += u64::from(!unwound.end.has_user_stack());
                injected.cut += u64::from(left_out > 0);
            }
            record => {
                replay.note(record)?;
                rewriter.copy(&file_record)?;
            }
        }
        Ok(())
    })?;
    let out = rewriter.finish().map_err(ImportError::Write)?;
    Ok((out, injected, reading))
}

/// The result of [`import`].
#[derive(Debug)]
pub struct ImportSummary {
    /// The number of its samples, and how complete their stacks are.
    pub completeness: Completeness,
    /// Samples of other events, which were left out.
    pub other_events: u64,
    /// The damaged parts of the recording.
    pub summary: ReadSummary,
}

/// Converts a recording by perf to a profile with unwound stacks: the samples of one event, given
/// by its index in the file.
///
/// # Errors
///
/// [`ImportError`]. The [`ReadSummary`] reports damaged parts of the recording.
pub fn import(
    file: &DataFile,
    event: usize,
    mut out: impl Write,
    finder: unspool_symbols::ModuleFinder,
    store: Store,
) -> Result<ImportSummary, ImportError> {
    import_to(file, event, &mut out, finder, store)
}

/// The same, compiled in this crate.
fn import_to(
    file: &DataFile,
    event: usize,
    out: &mut dyn Write,
    finder: unspool_symbols::ModuleFinder,
    store: Store,
) -> Result<ImportSummary, ImportError> {
    let Replay {
        processes,
        unwinder,
    } = Replay::new(file, finder, store)?;
    let writer = ProfileWriter::new(out, &meta(file, event)).map_err(ImportError::Write)?;
    let mut writer = RecordWriter::new(writer, processes, unwinder, ProcessNames::recorded());
    let mut last = 0;
    let mut others = 0;
    let summary = file.read(|file_record: FileRecord<'_>| {
        last = file_record.sample_id.time.max(last);
        match file_record.record {
            Record::Sample(_) if file_record.event != event => {
                others += 1;
                Ok(())
            }
            record => writer.note(RingKind::OnCpu, file_record.sample_id, &record),
        }
    });
    let summary = summary.map_err(ImportError::Write)?;
    let written = writer.finish(last);
    written.out.map_err(ImportError::Write)?;
    Ok(ImportSummary {
        completeness: written.completeness,
        other_events: others,
        summary,
    })
}

fn meta(file: &DataFile, event: usize) -> Meta {
    let about = file.info();
    let event = file.events().get(event);
    let is_clock = event.is_some_and(|event| event.name.contains("-clock"));
    let event = event.map(|event| unspool_profile::SampledEvent {
        name: event.name.clone(),
        rate: match event.rate {
            unspool_perf_events::SampleRate::Frequency(rate) => {
                unspool_profile::ProfileRate::Frequency(rate)
            }
            unspool_perf_events::SampleRate::Period(period) => {
                unspool_profile::ProfileRate::Period(period)
            }
        },
        unit: if is_clock {
            WeightUnit::Nanoseconds
        } else {
            WeightUnit::Events
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
