//! Output of `perf record`: `perf.data` files, and the stream that it writes to a pipe.
//!
//! A file starts with a header: `PERFILE2`, and the locations of the events' attributes, of the
//! records, and of the *features* (metadata of the recording). The stream has only records: the
//! other parts are synthesized records of perf. Both have the byte order of the recording machine;
//! big-endian files are refused. (`tools/perf/Documentation/perf.data-file-format.txt` in the
//! kernel's sources.)

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use unspool_files::{FileMap, MapTruncated};

use crate::counter::SampleRate;
use crate::record::{CpuMode, RecordHeader, SampleFormat};

mod deferred;
mod header;
mod records;
mod rewrite;

pub use records::{FileRecord, ReadSummary};
pub use rewrite::{PerfRewriteError, Rewriter};

/// Why a file by perf cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfFileError {
    /// The system refused.
    #[error("cannot be read")]
    Io(#[from] io::Error),
    /// It is not a recording.
    #[error("not a recording of perf: it does not start with PERFILE2")]
    NotPerf,
    /// It comes from a big-endian machine.
    #[error("was recorded on a big-endian machine, which is not supported")]
    BigEndian,
    /// Its records are in several files.
    #[error(
        "is one file of several (perf record --threads), which are not supported: record without --threads"
    )]
    OneOfSeveral,
    /// A required part is damaged.
    #[error(transparent)]
    Damaged(#[from] FileDamage),
}

/// A damaged part of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset:#x}: {reason}")]
pub struct FileDamage {
    /// Its location, in bytes from the start of the file. For a compressed record, the location of
    /// the record that contains it.
    pub offset: u64,
    /// The damage.
    pub reason: String,
}

impl FileDamage {
    fn new(offset: u64, reason: impl Into<String>) -> FileDamage {
        FileDamage {
            offset,
            reason: reason.into(),
        }
    }
}

/// An event of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    /// Its name, as given to perf.
    pub name: String,
    /// `type` of `perf_event_attr`: the kind of event.
    pub kind: u32,
    /// `config` of `perf_event_attr`: the event of that kind.
    pub config: u64,
    /// The sampling rate.
    pub rate: SampleRate,
    /// The format of its records.
    pub format: SampleFormat,
    /// The IDs that the kernel assigned to it, one for each CPU or thread.
    pub ids: Vec<u64>,
    /// The location of its attributes in the file.
    attr: Range<usize>,
}

/// The build ID of a mapped file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBuildId {
    /// The mode of its code.
    pub mode: CpuMode,
    /// The path in the process, or a name in brackets.
    pub name: Vec<u8>,
    /// The build ID: at most 20 bytes.
    pub id: Vec<u8>,
}

/// A file's metadata on its recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordingInfo {
    /// The machine's host name.
    pub host: String,
    /// The kernel release.
    pub kernel: String,
    /// Its architecture, as `uname -m` prints it.
    pub arch: String,
    /// The version of perf.
    pub tool: String,
    /// The command line of perf.
    pub command: Vec<String>,
    /// The number of CPUs.
    pub cpus: Option<u32>,
    /// The times of the first and the last sample, in nanoseconds of the event's clock.
    pub times: Option<Range<u64>>,
}

/// The output of `perf record`.
#[derive(Debug)]
pub struct DataFile {
    image: FileMap,
    events: Vec<FileEvent>,
    /// The events by their IDs.
    by_id: HashMap<u64, usize>,
    build_ids: Vec<FileBuildId>,
    info: RecordingInfo,
    features: header::Features,
    /// The location of the records.
    data: Range<usize>,
    damaged: Vec<FileDamage>,
}

impl DataFile {
    /// Opens a recording in a regular file, which is mapped ([`FileMap`]). `perf record` moves an
    /// old recording away. [`DataFile::check`] reports a truncation while reading.
    ///
    /// # Errors
    ///
    /// [`PerfFileError`]. [`DataFile::damaged`] reports damaged parts that are not required.
    pub fn open(path: &Path) -> Result<DataFile, PerfFileError> {
        DataFile::from_file(&unspool_files::open(path)?)
    }

    /// The same for an open file.
    ///
    /// # Errors
    ///
    /// As for [`DataFile::open`].
    pub fn from_file(file: &File) -> Result<DataFile, PerfFileError> {
        DataFile::parse(FileMap::new(file)?)
    }

    /// Whether the file contained all that was read; to be called after reading the records.
    ///
    /// # Errors
    ///
    /// The file was truncated meanwhile.
    pub fn check(&self) -> Result<(), MapTruncated> {
        self.image.check_intact()
    }

    /// A recording in memory.
    ///
    /// # Errors
    ///
    /// As for [`DataFile::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<DataFile, PerfFileError> {
        DataFile::parse(bytes.into())
    }

    fn parse(image: FileMap) -> Result<DataFile, PerfFileError> {
        let parsed = header::parse(&image)?;
        let ids = parsed.events.iter().enumerate();
        let ids = ids.flat_map(|(at, event)| event.ids.iter().map(move |id| (*id, at)));
        Ok(DataFile {
            by_id: ids.collect(),
            image,
            events: parsed.events,
            build_ids: parsed.build_ids,
            info: parsed.info,
            features: parsed.features,
            data: parsed.data,
            damaged: parsed.damaged,
        })
    }

    /// Its events.
    #[must_use]
    pub fn events(&self) -> &[FileEvent] {
        &self.events
    }

    /// The build IDs of files with samples.
    #[must_use]
    pub fn build_ids(&self) -> &[FileBuildId] {
        &self.build_ids
    }

    /// Its metadata.
    #[must_use]
    pub fn info(&self) -> &RecordingInfo {
        &self.info
    }

    /// Damaged parts that were not required.
    #[must_use]
    pub fn damaged(&self) -> &[FileDamage] {
        &self.damaged
    }

    /// The attributes of an event, as passed to the kernel (`struct perf_event_attr`).
    #[must_use]
    pub fn attributes(&self, event: &FileEvent) -> &[u8] {
        let bytes = self.image.get(event.attr.clone());
        bytes.unwrap_or_default()
    }

    /// The index of a record's event; the first event if the record has no ID.
    fn event_of(&self, header: RecordHeader, bytes: &[u8]) -> usize {
        let [first, _, ..] = self.events.as_slice() else {
            return 0;
        };
        let id = first.format.id(header, bytes);
        let event = id.and_then(|id| self.by_id.get(&id));
        event.copied().unwrap_or(0)
    }
}

/// An offset in a file that is in memory.
fn offset(at: usize) -> u64 {
    at as u64
}
