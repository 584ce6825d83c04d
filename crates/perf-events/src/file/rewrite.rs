//! Rewrites a recording by perf with finished call chains in place of copied stacks.
//!
//! The output is a file, sorted by time. The input may be a file or a stream, compressed or not.
//! Its layout is that of [the reader](super).

use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

use perf_event_open_sys::bindings as abi;

use super::header::{self, FILE_HEADER, MAGIC};
use super::{DataFile, FileEvent, FileRecord};
use crate::record::{BadRecord, RecordHeader};

/// Why a recording cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfRewriteError {
    /// It has AUX trace data, whose file offsets are used elsewhere in the file.
    #[error(
        "has trace data of the processor (an AUX area, as of Intel PT), which cannot be copied"
    )]
    Trace,
    /// Its events have attributes of several sizes, which a file cannot represent.
    #[error("has events of several versions of the kernel's interface")]
    Attributes,
    /// A sample cannot be split into its fields.
    #[error(transparent)]
    Bad(#[from] BadRecord),
    /// The output cannot be written.
    #[error("cannot write")]
    Write(#[from] io::Error),
}

/// The most bytes of a record: its size has 16 bits, and is a multiple of 8.
const MAX_RECORD_BYTES: usize = 0xfff8;

/// The number of bytes of records in a round, after which a reader may emit the records before it.
const ROUND_BYTES: u64 = 1 << 20;

/// The record that ends a round: a header only.
const FINISHED_ROUND: [u8; RecordHeader::SIZE] = {
    let [a, b, c, d] = header::FINISHED_ROUND.to_le_bytes();
    [a, b, c, d, 0, 0, 8, 0]
};

/// Rewrites a recording.
///
/// Pass all records from [`DataFile::read_all`] to [`Rewriter::copy`], or samples with copied
/// stacks to [`Rewriter::sample`].
pub struct Rewriter<'f, W: Write + Seek> {
    file: &'f DataFile,
    out: W,
    /// The number of bytes written.
    at: u64,
    /// The locations of the attributes and the records.
    attrs: Range<u64>,
    data: u64,
    /// The end of the last round.
    round: u64,
    record: Vec<u8>,
}

impl<'f, W: Write + Seek> Rewriter<'f, W> {
    /// Starts at the beginning of `out`.
    ///
    /// # Errors
    ///
    /// [`PerfRewriteError`].
    pub fn new(file: &'f DataFile, out: W) -> Result<Self, PerfRewriteError> {
        if file.features.contains_key(&header::FEATURE_AUXTRACE) {
            return Err(PerfRewriteError::Trace);
        }
        let mut rewriter = Rewriter {
            file,
            out,
            at: 0,
            attrs: 0..0,
            data: 0,
            round: 0,
            record: Vec::new(),
        };
        rewriter.write(&[0; FILE_HEADER])?;
        rewriter.events()?;
        rewriter.data = rewriter.at;
        Ok(rewriter)
    }

    /// Writes the events' IDs, and their attributes with the locations of the IDs.
    fn events(&mut self) -> Result<(), PerfRewriteError> {
        let mut entries = Vec::new();
        for event in self.file.events() {
            let attributes = self.attributes(event);
            if attributes.len() + 16 != self.entry_size() {
                return Err(PerfRewriteError::Attributes);
            }
            entries.extend(attributes);
            entries.extend(self.at.to_le_bytes());
            entries.extend((event.ids.len() as u64 * 8).to_le_bytes());
            for id in &event.ids {
                self.write(&id.to_le_bytes())?;
            }
        }
        let start = self.at;
        self.write(&entries)?;
        self.attrs = start..self.at;
        Ok(())
    }

    /// The size of an event's attributes and the location of its IDs, in bytes.
    fn entry_size(&self) -> usize {
        let first = self.file.events().first();
        first.map_or(0, |event| self.file.attributes(event).len()) + 16
    }

    /// The attributes of an event with call chains in its samples instead of copied stacks.
    fn attributes(&self, event: &FileEvent) -> Vec<u8> {
        const SAMPLE_TYPE: usize = 24;
        const FLAGS: usize = 40;
        const USER_REGISTERS: usize = 80;
        const USER_STACK: usize = 88;
        const EXCLUDE_USER_CHAIN: u64 = 1 << 22;
        let mut bytes = self.file.attributes(event).to_vec();
        if !event.format.has_stack_copy() {
            return bytes;
        }
        let mut change = |at: usize, how: &dyn Fn(u64) -> u64| {
            let word = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
            if let Some(word) = word {
                *word = how(u64::from_le_bytes(*word)).to_le_bytes();
            }
        };
        let stack = u64::from(abi::PERF_SAMPLE_REGS_USER | abi::PERF_SAMPLE_STACK_USER);
        let chain = u64::from(abi::PERF_SAMPLE_CALLCHAIN);
        change(SAMPLE_TYPE, &|word| word & !stack | chain);
        change(FLAGS, &|word| word & !EXCLUDE_USER_CHAIN);
        change(USER_REGISTERS, &|_| 0);
        // The other half of the word is a separate field.
        change(USER_STACK, &|word| word & !u64::from(u32::MAX));
        bytes
    }

    /// Copies a record unchanged, unless the new file replaces it.
    ///
    /// # Errors
    ///
    /// [`PerfRewriteError`].
    pub fn copy(&mut self, record: &FileRecord<'_>) -> Result<(), PerfRewriteError> {
        match record.header.kind {
            // The header replaces it.
            header::HEADER_ATTR
            | header::HEADER_EVENT_TYPE
            | header::HEADER_TRACING_DATA
            | header::HEADER_BUILD_ID
            | header::HEADER_FEATURE => Ok(()),
            header::AUXTRACE_INFO | header::AUXTRACE => Err(PerfRewriteError::Trace),
            _ => {
                self.write(record.bytes)?;
                self.end_round()?;
                Ok(())
            }
        }
    }

    /// Writes a sample with the frames of its user stack, innermost first. Returns the number of
    /// addresses that did not fit. A sample of an event without copied stacks is unchanged.
    ///
    /// Addresses must be within the executed instruction: for a caller not the return address, but
    /// an address within the call before it. perf looks up names at exactly these addresses.
    ///
    /// # Errors
    ///
    /// [`PerfRewriteError`].
    pub fn sample(
        &mut self,
        file_record: &FileRecord<'_>,
        user: impl ExactSizeIterator<Item = u64>,
    ) -> Result<usize, PerfRewriteError> {
        let event = self.file.events().get(file_record.event);
        let layout = event.map(|event| event.format);
        let Some(layout) = layout.filter(super::SampleFormat::has_stack_copy) else {
            return self.copy(file_record).map(|()| 0);
        };
        let around = layout.split_at_stack(file_record.bytes)?;
        let kernel = around.chain.before_user();
        let mark = (user.len() > 0).then_some(abi::PERF_CONTEXT_USER);
        let rest = [around.before, around.between, around.after];
        let rest = rest.iter().map(|part| part.len()).sum::<usize>();
        let room = MAX_RECORD_BYTES.saturating_sub(RecordHeader::SIZE + rest + 8) / 8;
        let words: Vec<u64> = kernel.chain(mark).chain(user).collect();
        let left_out = words.len().saturating_sub(room);
        let words = words.get(..words.len() - left_out).unwrap_or_default();
        let size = RecordHeader::SIZE + rest + 8 + words.len() * 8;
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.extend(file_record.header.kind.to_le_bytes());
        record.extend(file_record.header.misc.to_le_bytes());
        record.extend(u16::try_from(size).unwrap_or(u16::MAX).to_le_bytes());
        record.extend(around.before);
        record.extend((words.len() as u64).to_le_bytes());
        record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        record.extend(around.between);
        record.extend(around.after);
        self.write(&record)?;
        self.record = record;
        self.end_round()?;
        Ok(left_out)
    }

    /// Marks the end of a round if readers had to buffer much since the last one.
    fn end_round(&mut self) -> io::Result<()> {
        if self.at - self.round >= ROUND_BYTES {
            self.write(&FINISHED_ROUND)?;
            self.round = self.at;
        }
        Ok(())
    }

    /// Writes the metadata, and then the header.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        // Without any records it would look like a killed recorder.
        self.write(&FINISHED_ROUND)?;
        let data_end = self.at;
        let features = self.features();
        let mut at = data_end + features.len() as u64 * 16;
        let mut flags = 0_u64;
        for (bit, content) in &features {
            self.write(&at.to_le_bytes())?;
            self.write(&(content.len() as u64).to_le_bytes())?;
            at += content.len() as u64;
            flags |= 1 << bit;
        }
        for (_, content) in &features {
            self.write(content)?;
        }
        self.out.seek(SeekFrom::Start(0))?;
        self.write(MAGIC)?;
        let sizes = [FILE_HEADER as u64, self.entry_size() as u64];
        let attrs = [self.attrs.start, self.attrs.end - self.attrs.start];
        let data = [self.data, data_end - self.data];
        let event_types = [0; 2];
        let flags = [[flags, 0], [0, 0]].into_iter();
        for pair in [sizes, attrs, data, event_types].into_iter().chain(flags) {
            self.write(&pair.map(u64::to_le_bytes).concat())?;
        }
        self.out.seek(SeekFrom::End(0))?;
        Ok(self.out)
    }

    /// The features that are still valid, by bit, in ascending order.
    fn features(&self) -> Vec<(u64, Vec<u8>)> {
        let old = self.file.features.iter();
        // A stream's times precede its records, so they are unknown.
        let has_times = self
            .file
            .info
            .times
            .as_ref()
            .is_some_and(|times| times.end > 0);
        let old = old.filter(|(bit, _)| match **bit {
            header::FEATURE_COMPRESSED => false,
            header::SAMPLE_TIME => has_times,
            bit => bit < 64,
        });
        let new = old.map(|(bit, places)| {
            let content = match *bit {
                header::EVENT_DESC => self.descriptions(),
                _ => {
                    let bytes: &[u8] = &self.file.image;
                    let pieces = places.iter().filter_map(|place| bytes.get(place.clone()));
                    pieces.collect::<Vec<_>>().concat()
                }
            };
            (*bit, content)
        });
        new.collect()
    }

    /// The events' names, with their new attributes.
    fn descriptions(&self) -> Vec<u8> {
        /// perf pads names to a multiple of this.
        const NAME: usize = 64;
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        let events = self.file.events();
        let mut bytes = Vec::new();
        bytes.extend(word(events.len()));
        bytes.extend(word(self.entry_size() - 16));
        for event in events {
            bytes.extend(self.attributes(event));
            bytes.extend(word(event.ids.len()));
            let size = (event.name.len() + 1).next_multiple_of(NAME);
            bytes.extend(word(size));
            bytes.extend(event.name.as_bytes());
            bytes.resize(bytes.len() + size - event.name.len(), 0);
            bytes.extend(event.ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        bytes
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
