//! jitdump: the binary file in which a process describes the code that it generates at run time.
//!
//! The format is version 1 of the kernel's `tools/perf/Documentation/jitdump-specification.txt`.
//! The specification leaves two things open, on which producers agree. Unwinding information comes
//! before its load record, with `.eh_frame` before `.eh_frame_hdr`. A line entry's name that is the
//! byte 0xff means the name of the previous entry.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use unspool_rows::RuntimeAddr;

use crate::live_code::LiveCode;
use crate::perf_map::JitSymbol;

mod reader;

pub use reader::JitDumpReader;

/// `JiTD`, as a number.
const MAGIC: u32 = 0x4a69_5444;
/// The header of version 1, in bytes; a longer one has more fields after it.
const FILE_HEADER_BYTES: usize = 40;
/// The header of a record, in bytes.
const RECORD_HEADER_BYTES: usize = 16;
/// The size of the largest record, in bytes. V8 and the JVM write at most a few megabytes.
const MAX_RECORD_BYTES: u32 = 8 << 20;
/// The number of bytes to read at once: a size claimed by a hostile file is not allocated before
/// its bytes are read.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// V8 (11.3, in Node.js 20) adds the size of an ELF header to the address of each line entry, for
/// perf before 5.8. Correct producers have the first entry at or near the start.
const V8_SHIFT: u64 = 64;
/// The most line tables that wait for their code, and their entries.
const MAX_PENDING_LINE_TABLES: usize = 64;
const MAX_PENDING_LINES: usize = 1 << 19;
/// The largest buffer to keep for the next record, in bytes.
const MAX_KEPT_BUFFER_BYTES: usize = 64 << 10;

/// The header's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitHeader {
    /// The ELF number of the architecture (`e_machine`).
    pub machine: u32,
    /// The process ID in its own namespace.
    pub pid: u32,
    /// The creation time of the file, by the clock of its records.
    pub started: u64,
    /// Whether times are those of the CPU's counter, not of `CLOCK_MONOTONIC`.
    pub has_cpu_time: bool,
}

/// Reads a jitdump, record by record. The file may grow meanwhile.
#[derive(Debug)]
pub struct JitDump<R> {
    input: R,
    header: JitHeader,
    little: bool,
    /// The start of the current record, in bytes.
    position: u64,
    /// The bytes read of it so far.
    buffer: Vec<u8>,
    /// Whether the last returned record must be skipped.
    is_done: bool,
    /// Whether the rest is unreadable.
    is_unreadable: bool,
}

/// Why a jitdump, or a record of it, cannot be read. Offsets are in bytes from its start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JitError {
    /// The system failed.
    #[error("jitdump: {0}")]
    Io(#[from] io::Error),
    /// It does not start with the magic of a jitdump.
    #[error("not a jitdump: it begins with {found:#010x}")]
    NotJitDump {
        /// Its first four bytes, as a number.
        found: u32,
    },
    /// It has another version.
    #[error("jitdump of version {found}; only 1 is known")]
    Version {
        /// The version.
        found: u32,
    },
    /// It ends within its header.
    #[error("jitdump: it ends within its header of {size} bytes")]
    Header {
        /// The size of the header in bytes.
        size: u32,
    },
    /// A record cannot be read. The next one can.
    #[error("jitdump: record {kind} at offset {offset:#x}: {reason}")]
    Record {
        /// Its start.
        offset: u64,
        /// Its kind, as a number.
        kind: u32,
        /// The problem.
        reason: &'static str,
    },
    /// A record has an invalid size, so that the rest is unreadable.
    #[error(
        "jitdump: record at offset {offset:#x} claims {size} bytes; 16 to {MAX_RECORD_BYTES} are possible"
    )]
    Size {
        /// Its start.
        offset: u64,
        /// The claimed size.
        size: u32,
    },
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JitRecord<'a> {
    /// Code was generated.
    Load(JitLoad<'a>),
    /// Code was moved.
    Move {
        /// The time.
        time: u64,
        /// Its old address.
        from: RuntimeAddr,
        /// Its new address.
        to: RuntimeAddr,
        /// Its size in bytes.
        size: u64,
        /// The index of the code in this file.
        index: u64,
    },
    /// The source lines of the next loaded code.
    Lines(JitLines<'a>),
    /// Unwinding information of the next loaded code.
    Unwinding(JitUnwinding<'a>),
    /// The process closed the file.
    Close,
    /// An unknown kind of record.
    Other {
        /// Its number.
        kind: u32,
    },
}

/// Generated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitLoad<'a> {
    /// The time.
    pub time: u64,
    /// The generating thread.
    pub tid: u32,
    /// Its address.
    pub address: RuntimeAddr,
    /// Its index in this file.
    pub index: u64,
    /// Its name; it may not be UTF-8.
    pub name: &'a [u8],
    /// The code itself.
    pub code: &'a [u8],
}

/// The source lines of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitLines<'a> {
    /// The address of the code.
    pub address: RuntimeAddr,
    /// The number of entries.
    count: u64,
    little: bool,
    entries: &'a [u8],
}

/// The line of the code from one address on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitLine<'a> {
    /// The first address.
    pub address: RuntimeAddr,
    /// The line.
    pub line: u32,
    /// The discriminator; some producers write the column there.
    pub discriminator: u32,
    /// The source file.
    pub file: &'a [u8],
}

/// Unwinding information of code. Its addresses are relative to their own location: `.eh_frame`
/// must be after the code, at the next multiple of 8, and `.eh_frame_hdr` after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitUnwinding<'a> {
    /// The bytes of `.eh_frame`.
    pub eh_frame: &'a [u8],
    /// The bytes of `.eh_frame_hdr`; empty if there is none.
    pub eh_frame_hdr: &'a [u8],
    /// The number of bytes of both that are mapped in the process, after the code; 0 if they are
    /// not.
    pub mapped_size: u64,
}

impl<R: Read> JitDump<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`JitError`]: it is not a jitdump of version 1.
    pub fn new(input: R) -> Result<Self, JitError> {
        let mut dump = JitDump {
            input,
            header: JitHeader {
                machine: 0,
                pid: 0,
                started: 0,
                has_cpu_time: false,
            },
            little: true,
            position: 0,
            buffer: Vec::new(),
            is_done: false,
            is_unreadable: false,
        };
        dump.fill(FILE_HEADER_BYTES)?;
        let magic = dump.fields(0).u32().unwrap_or(0);
        dump.little = match magic {
            MAGIC => true,
            _ if magic.swap_bytes() == MAGIC => false,
            found => return Err(JitError::NotJitDump { found }),
        };
        let mut fields = dump.fields(4);
        let version = fields.u32().unwrap_or(0);
        let size = fields.u32().unwrap_or(0);
        if version != 1 {
            return Err(JitError::Version { found: version });
        }
        let short = JitError::Header { size };
        let whole = usize::try_from(size).unwrap_or(usize::MAX);
        if whole < FILE_HEADER_BYTES || size > MAX_RECORD_BYTES || !dump.fill(whole)? {
            return Err(short);
        }
        let header = dump.fields(12).header();
        dump.header = header.ok_or(short)?;
        dump.skip_record();
        Ok(dump)
    }

    /// The header's data.
    #[must_use]
    pub fn header(&self) -> JitHeader {
        self.header
    }

    /// The next record; `None` if the file has no more of them so far. It can be called again when
    /// the file has grown.
    ///
    /// # Errors
    ///
    /// [`JitError::Record`] for an unreadable record, after which others follow. Any other error
    /// ends the file.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the reader")]
    pub fn next(&mut self) -> Result<Option<JitRecord<'_>>, JitError> {
        if self.is_done {
            self.skip_record();
        }
        if self.is_unreadable || !self.fill(RECORD_HEADER_BYTES)? {
            return Ok(None);
        }
        let mut fields = self.fields(0);
        let (kind, size) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
        let time = fields.u64().unwrap_or(0);
        let offset = self.position;
        let whole = usize::try_from(size).unwrap_or(usize::MAX);
        if whole < RECORD_HEADER_BYTES || size > MAX_RECORD_BYTES {
            self.is_unreadable = true;
            return Err(JitError::Size { offset, size });
        }
        if !self.fill(whole)? {
            return Ok(None);
        }
        self.is_done = true;
        let record = self.fields(RECORD_HEADER_BYTES).record(kind, time);
        let record = record.map_err(|reason| JitError::Record {
            offset,
            kind,
            reason,
        })?;
        Ok(Some(record))
    }

    /// The number of bytes read so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.position + self.buffer.len() as u64
    }

    /// The memory of the record that is not complete yet, in bytes.
    #[must_use]
    pub(crate) fn pending_size(&self) -> usize {
        if self.is_done { 0 } else { self.buffer.len() }
    }

    /// Reads until the buffer has a number of bytes; returns whether it has.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        while self.buffer.len() < wanted {
            let before = self.buffer.len();
            let more = (wanted - before).min(READ_CHUNK_BYTES);
            let mut input = self.input.by_ref().take(more as u64);
            if input.read_to_end(&mut self.buffer)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues after the buffered record.
    fn skip_record(&mut self) {
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(MAX_KEPT_BUFFER_BYTES);
        self.is_done = false;
    }

    fn fields(&self, at: usize) -> JitFields<'_> {
        JitFields {
            rest: self.buffer.get(at..).unwrap_or_default(),
            little: self.little,
        }
    }
}

/// The remaining bytes of a header or record.
#[derive(Debug, Clone, Copy)]
struct JitFields<'a> {
    rest: &'a [u8],
    little: bool,
}

/// The record ends before its required fields.
const CUT: &str = "it ends before its fields do";

impl<'a> JitFields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        Some(if self.little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        })
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.array()?;
        Some(if self.little {
            u64::from_le_bytes(bytes)
        } else {
            u64::from_be_bytes(bytes)
        })
    }

    fn address(&mut self) -> Option<RuntimeAddr> {
        self.u64().map(RuntimeAddr)
    }

    fn bytes(&mut self, length: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(bytes)
    }

    /// The text up to a NUL, which is skipped.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let (text, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.get(1..)?;
        Some(text)
    }

    fn header(mut self) -> Option<JitHeader> {
        let machine = self.u32()?;
        self.u32()?;
        Some(JitHeader {
            machine,
            pid: self.u32()?,
            started: self.u64()?,
            has_cpu_time: self.u64()? & 1 != 0,
        })
    }

    fn record(mut self, kind: u32, time: u64) -> Result<JitRecord<'a>, &'static str> {
        match kind {
            0 => self.load(time),
            1 => self.moved(time).ok_or(CUT),
            2 => self.lines().ok_or(CUT),
            3 => Ok(JitRecord::Close),
            4 => self.unwinding(),
            kind => Ok(JitRecord::Other { kind }),
        }
    }

    fn load(&mut self, time: u64) -> Result<JitRecord<'a>, &'static str> {
        let mut numbers = || {
            let (_pid, tid, _vma) = (self.u32()?, self.u32()?, self.u64()?);
            Some((tid, self.address()?, self.u64()?, self.u64()?))
        };
        let (tid, address, size, index) = numbers().ok_or(CUT)?;
        Ok(JitRecord::Load(JitLoad {
            time,
            tid,
            address,
            index,
            name: self.text().ok_or("its name does not end")?,
            code: self.bytes(size).ok_or("its code does not fit into it")?,
        }))
    }

    fn moved(&mut self, time: u64) -> Option<JitRecord<'a>> {
        let (_pid, _tid, _vma) = (self.u32()?, self.u32()?, self.u64()?);
        Some(JitRecord::Move {
            time,
            from: self.address()?,
            to: self.address()?,
            size: self.u64()?,
            index: self.u64()?,
        })
    }

    fn lines(&mut self) -> Option<JitRecord<'a>> {
        Some(JitRecord::Lines(JitLines {
            address: self.address()?,
            count: self.u64()?,
            little: self.little,
            entries: self.rest,
        }))
    }

    fn unwinding(&mut self) -> Result<JitRecord<'a>, &'static str> {
        let mut sizes = || Some((self.u64()?, self.u64()?, self.u64()?));
        let (size, hdr, mapped_size) = sizes().ok_or(CUT)?;
        let eh_frame = size
            .checked_sub(hdr)
            .ok_or("its header is larger than all")?;
        let mut parts = || Some((self.bytes(eh_frame)?, self.bytes(hdr)?));
        let (eh_frame, eh_frame_hdr) = parts().ok_or("its data do not fit into it")?;
        Ok(JitRecord::Unwinding(JitUnwinding {
            eh_frame,
            eh_frame_hdr,
            mapped_size,
        }))
    }
}

impl<'a> JitLines<'a> {
    /// The entries that the record has completely.
    pub fn entries(&self) -> impl Iterator<Item = JitLine<'a>> + use<'a> {
        let mut fields = JitFields {
            rest: self.entries,
            little: self.little,
        };
        let mut left = self.count;
        let mut file: &[u8] = &[];
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (address, line) = (fields.address()?, fields.u32()?);
            let discriminator = fields.u32()?;
            let name = fields.text()?;
            if name != [0xff] {
                file = name;
            }
            Some(JitLine {
                address,
                line,
                discriminator,
                file,
            })
        })
    }
}

/// Generated code that is at one address from some time on.
#[derive(Debug, Clone)]
pub struct JitCode {
    /// The first time.
    pub time: u64,
    /// Its address.
    pub address: RuntimeAddr,
    /// Its size in bytes.
    pub size: u64,
    /// The data that a move does not change.
    pub info: Arc<JitInfo>,
}

/// The data of code, wherever it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JitInfo {
    /// Its name.
    pub name: String,
    /// The source files of `lines`.
    pub files: Vec<String>,
    /// Its source lines, by offset from its start.
    pub lines: Vec<JitLineRow>,
    /// The bytes of its `.eh_frame`, as in [`JitUnwinding`]; empty if there is none.
    pub eh_frame: Vec<u8>,
    /// The bytes of its `.eh_frame_hdr`; empty if there is none.
    pub eh_frame_hdr: Vec<u8>,
}

/// A source line and the first byte of its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitLineRow {
    /// The offset from the start of the code, in bytes.
    pub offset: u64,
    /// The index of the file in [`JitInfo::files`].
    pub file: usize,
    /// The line.
    pub line: u32,
}

impl JitInfo {
    /// The memory that it takes, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let files: usize = self
            .files
            .iter()
            .map(|file| size_of::<String>() + file.len())
            .sum();
        let lines = self.lines.len() * size_of::<JitLineRow>();
        let tables = self.eh_frame.len() + self.eh_frame_hdr.len();
        size_of::<JitInfo>() + self.name.len() + files + lines + tables
    }
}

impl JitCode {
    /// Its name and range.
    #[must_use]
    pub fn symbol(&self) -> JitSymbol<'_> {
        JitSymbol {
            name: &self.info.name,
            address: self.address,
            size: self.size,
        }
    }

    /// The source file and line at an address of this code.
    #[must_use]
    pub fn line(&self, address: RuntimeAddr) -> Option<(&str, u32)> {
        let offset = address.0.checked_sub(self.address.0)?;
        let after = self
            .info
            .lines
            .partition_point(|line| line.offset <= offset);
        let place = self.info.lines.get(after.checked_sub(1)?)?;
        Some((self.info.files.get(place.file)?, place.line))
    }
}

/// Combines records: code with its lines and its unwinding information.
#[derive(Debug, Default)]
pub struct JitCollector {
    /// By the address of their code.
    lines: HashMap<u64, (Vec<String>, Vec<JitLineRow>)>,
    unwinding: Option<(Vec<u8>, Vec<u8>)>,
    /// Loaded code, by its index in the file.
    loaded: HashMap<u64, Arc<JitInfo>>,
    ignores_lines: bool,
}

impl JitCollector {
    /// Without any records.
    #[must_use]
    pub fn new() -> Self {
        JitCollector::default()
    }

    /// The same for code without its source lines, which are most of a jitdump.
    #[must_use]
    pub(crate) fn without_lines() -> Self {
        JitCollector {
            ignores_lines: true,
            ..JitCollector::default()
        }
    }

    /// The memory of unwinding information whose code has not followed yet, in bytes.
    #[must_use]
    pub(crate) fn pending_size(&self) -> usize {
        let tables = self.unwinding.as_ref();
        tables.map_or(0, |(eh_frame, hdr)| eh_frame.len() + hdr.len())
    }

    /// Adds the next record; returns code if it was generated or moved.
    pub fn add(&mut self, record: &JitRecord<'_>) -> Option<JitCode> {
        match record {
            JitRecord::Load(load) => Some(self.load(load)),
            JitRecord::Move {
                time,
                to,
                size,
                index,
                ..
            } => Some(JitCode {
                time: *time,
                address: *to,
                size: *size,
                info: Arc::clone(self.loaded.get(index)?),
            }),
            JitRecord::Lines(_) if self.ignores_lines => None,
            JitRecord::Lines(lines) => {
                let waiting: usize = self.lines.values().map(|(_, lines)| lines.len()).sum();
                // Line tables of code that never followed.
                if self.lines.len() >= MAX_PENDING_LINE_TABLES || waiting > MAX_PENDING_LINES {
                    self.lines.clear();
                }
                self.lines.insert(lines.address.0, line_rows(lines));
                None
            }
            JitRecord::Unwinding(JitUnwinding {
                eh_frame,
                eh_frame_hdr,
                ..
            }) => {
                self.unwinding = Some((eh_frame.to_vec(), eh_frame_hdr.to_vec()));
                None
            }
            JitRecord::Close | JitRecord::Other { .. } => None,
        }
    }

    fn load(&mut self, load: &JitLoad<'_>) -> JitCode {
        let (files, mut lines) = self.lines.remove(&load.address.0).unwrap_or_default();
        // No line is shorter than a byte of code.
        lines.truncate(load.code.len());
        let (eh_frame, eh_frame_hdr) = self.unwinding.take().unwrap_or_default();
        let info = Arc::new(JitInfo {
            name: String::from_utf8_lossy(load.name).into_owned(),
            files,
            lines,
            eh_frame,
            eh_frame_hdr,
        });
        self.loaded.insert(load.index, Arc::clone(&info));
        JitCode {
            time: load.time,
            address: load.address,
            size: load.code.len() as u64,
            info,
        }
    }
}

/// The entries by offset from the code, and each file once.
fn line_rows(lines: &JitLines<'_>) -> (Vec<String>, Vec<JitLineRow>) {
    let mut files: HashMap<&[u8], usize> = HashMap::new();
    let mut names = Vec::new();
    let mut places: Vec<JitLineRow> = lines
        .entries()
        .map(|entry| JitLineRow {
            offset: entry.address.0.wrapping_sub(lines.address.0),
            file: *files.entry(entry.file).or_insert_with(|| {
                names.push(String::from_utf8_lossy(entry.file).into_owned());
                names.len() - 1
            }),
            line: entry.line,
        })
        .collect();
    places.sort_by_key(|place| place.offset);
    if places.first().is_some_and(|place| place.offset == V8_SHIFT) {
        places.iter_mut().for_each(|place| place.offset -= V8_SHIFT);
    }
    (names, places)
}

/// Code by address and time.
#[derive(Debug, Default)]
pub struct JitTimeline {
    /// By time.
    codes: Vec<JitCode>,
    /// The code after the first `next` of them.
    live: LiveCode,
    next: usize,
}

impl JitTimeline {
    /// Generated code, in any order.
    #[must_use]
    pub fn new(mut codes: Vec<JitCode>) -> Self {
        codes.sort_by_key(|code| code.time);
        JitTimeline {
            codes,
            ..JitTimeline::default()
        }
    }

    /// The code at an address and a time. Fast if the times of calls are ascending.
    pub fn get(&mut self, address: RuntimeAddr, time: u64) -> Option<&JitCode> {
        self.move_to(time);
        self.current(address)
    }

    /// The code at an address and the time of the last move.
    #[must_use]
    pub fn current(&self, address: RuntimeAddr) -> Option<&JitCode> {
        self.codes.get(self.live.get(address.0)?)
    }

    /// Moves to a time: all that was generated until then.
    pub fn move_to(&mut self, time: u64) {
        let until = self.codes.partition_point(|code| code.time <= time);
        if until < self.next {
            self.live = LiveCode::default();
            self.next = 0;
        }
        for number in self.next..until {
            if let Some(code) = self.codes.get(number) {
                self.live.add(code.address.0, code.size, number);
            }
        }
        self.next = until;
    }
}

#[cfg(test)]
mod tests;
