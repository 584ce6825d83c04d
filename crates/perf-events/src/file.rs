//! What `perf record` wrote: `perf.data` files, and the stream that it writes to a pipe.
//!
//! A file begins with a header: `PERFILE2`, and where the attributes of the events, the records and the
//! *features* (what else is known of the recording) are. The stream has the records only, and the rest
//! as records of perf's own. All of it is in the byte order of the machine that recorded; big-endian
//! files are refused. (`tools/perf/Documentation/perf.data-file-format.txt` in the kernel's sources.)

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use unspool_files::{FileMap, MapTruncated};

use crate::counter::Rate;
use crate::record::{CpuMode, RecordHeader, SampleFormat};

mod header;
mod records;
mod rewrite;

pub use records::{FileRecord, ReadSummary};
pub use rewrite::{RewriteError, Rewriter};

/// Why a file of perf cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused.
    #[error("cannot be read")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("not a recording of perf: it does not start with PERFILE2")]
    NotPerf,
    /// It is from a machine whose numbers have their most significant byte first.
    #[error("was recorded on a big-endian machine, which is not supported")]
    BigEndian,
    /// It is of a recording whose records are in several files.
    #[error(
        "is one file of several (perf record --threads), which are not supported: record without --threads"
    )]
    OneOfSeveral,
    /// What cannot be missing is damaged.
    #[error(transparent)]
    Damaged(#[from] FileDamage),
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at offset {offset:#x}: {why}")]
pub struct FileDamage {
    /// Where, in bytes from the start of the file. Of a record that was compressed, where that
    /// which holds it is.
    pub offset: u64,
    /// What.
    pub why: String,
}

impl FileDamage {
    fn new(offset: u64, why: impl Into<String>) -> FileDamage {
        FileDamage {
            offset,
            why: why.into(),
        }
    }
}

/// An event of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    /// Its name, as perf was given it.
    pub name: String,
    /// `type` of `perf_event_attr`: whose event it is.
    pub kind: u32,
    /// `config` of `perf_event_attr`: which.
    pub config: u64,
    /// How often samples were taken.
    pub rate: Rate,
    /// How its records are read.
    pub layout: SampleFormat,
    /// The numbers that the kernel gave it, one for each processor or thread.
    pub ids: Vec<u64>,
    /// Where its attributes are in the file.
    attr: Range<usize>,
}

/// The build ID of a file that was mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBuildId {
    /// Whose code is in it.
    pub mode: CpuMode,
    /// The path as the process knew it, or a name in brackets.
    pub name: Vec<u8>,
    /// The build ID: at most 20 bytes.
    pub id: Vec<u8>,
}

/// What a file says of its recording.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordingInfo {
    /// The machine's name.
    pub host: String,
    /// The release of its kernel.
    pub kernel: String,
    /// Its architecture, as `uname -m` says it.
    pub arch: String,
    /// The version of perf.
    pub tool: String,
    /// The command line of perf.
    pub command: Vec<String>,
    /// How many processors were there.
    pub cpus: Option<u32>,
    /// The times of the first sample and of the last, in nanoseconds of the event's clock.
    pub times: Option<Range<u64>>,
}

/// What `perf record` wrote.
#[derive(Debug)]
pub struct DataFile {
    image: FileMap,
    events: Vec<FileEvent>,
    /// The events by their numbers.
    by_id: HashMap<u64, usize>,
    build_ids: Vec<FileBuildId>,
    about: RecordingInfo,
    features: header::Features,
    /// Where the records are.
    data: Range<usize>,
    damaged: Vec<FileDamage>,
}

impl DataFile {
    /// Opens a recording in a regular file, which is mapped ([`FileMap`]). `perf record` moves an old recording
    /// away; who truncates one that is read is told of by [`DataFile::check`].
    ///
    /// # Errors
    ///
    /// [`FileError`]. What is damaged, and can be done without, is said by [`DataFile::damaged`].
    pub fn open(path: &Path) -> Result<DataFile, FileError> {
        DataFile::parse(FileMap::new(&unspool_files::open(path)?)?)
    }

    /// Whether all that was read was in the file: to be asked when the records are read.
    ///
    /// # Errors
    ///
    /// The file was truncated meanwhile.
    pub fn check(&self) -> Result<(), MapTruncated> {
        self.image.check_intact()
    }

    /// A recording whose bytes are in memory.
    ///
    /// # Errors
    ///
    /// As for [`DataFile::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<DataFile, FileError> {
        DataFile::parse(bytes.into())
    }

    fn parse(image: FileMap) -> Result<DataFile, FileError> {
        let parsed = header::parse(&image)?;
        let ids = parsed.events.iter().enumerate();
        let ids = ids.flat_map(|(at, event)| event.ids.iter().map(move |id| (*id, at)));
        Ok(DataFile {
            by_id: ids.collect(),
            image,
            events: parsed.events,
            build_ids: parsed.build_ids,
            about: parsed.about,
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

    /// The build IDs of the files that samples were in.
    #[must_use]
    pub fn build_ids(&self) -> &[FileBuildId] {
        &self.build_ids
    }

    /// What it says of the recording.
    #[must_use]
    pub fn info(&self) -> &RecordingInfo {
        &self.about
    }

    /// What is damaged, and was done without.
    #[must_use]
    pub fn damaged(&self) -> &[FileDamage] {
        &self.damaged
    }

    /// The attributes of an event, as the kernel was given them (`struct perf_event_attr`).
    #[must_use]
    pub fn attributes(&self, event: &FileEvent) -> &[u8] {
        let bytes = self.image.get(event.attr.clone());
        bytes.unwrap_or_default()
    }

    /// The event that a record is of, by its place among all; the first if the record does not say.
    fn event_of(&self, header: RecordHeader, bytes: &[u8]) -> usize {
        let [first, _, ..] = self.events.as_slice() else {
            return 0;
        };
        let id = first.layout.id(header, bytes);
        let event = id.and_then(|id| self.by_id.get(&id));
        event.copied().unwrap_or(0)
    }
}

/// An offset in a file that is in memory.
fn offset(at: usize) -> u64 {
    at as u64
}
