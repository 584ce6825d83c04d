//! The records of a file, in the order of their times.
//!
//! Each CPU has its own ring, so records are only in order per CPU. perf marks the end of each
//! *round* in which it emptied all rings. Records after such a mark are not older than the newest
//! record of the round before.

use std::ops::Range;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::deferred::DeferredChains;
use super::header::{self, behind};
use super::{DataFile, FileDamage, offset};
use crate::record::{Record, RecordHeader, SampleId};

/// The most decompressed bytes of records that wait for their round to end.
const MAX_PENDING_BYTES: usize = 1 << 30;

/// The number of bytes to decompress at once.
const DECOMPRESS_CHUNK_BYTES: usize = 128 << 10;

/// A record of a file.
#[derive(Debug, Clone, Copy)]
pub struct FileRecord<'r> {
    /// The index of its event.
    pub event: usize,
    /// The time and origin.
    pub sample_id: SampleId,
    /// The record's content.
    pub record: Record<'r>,
    /// Its header.
    pub header: RecordHeader,
    /// All of it, its header included.
    pub bytes: &'r [u8],
}

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadSummary {
    /// The number of kernel records read.
    pub records: u64,
    /// The number of unreadable records, which were left out.
    pub bad: u64,
    /// The damage of the first of those.
    pub first_bad: Option<FileDamage>,
    /// Why reading stopped before the end; `None` if all of the file was read.
    pub cut: Option<FileDamage>,
}

impl DataFile {
    /// Reads all kernel records in the order of their times; records without a time in the order of
    /// the file.
    ///
    /// Damaged parts do not end the reading; the result reports them. Takes memory for the records
    /// of two rounds: 32 bytes each, and their bytes if they are compressed, at most 1 GiB of
    /// these.
    ///
    /// Samples whose user call chain was recorded later have it, and come when it does.
    ///
    /// # Errors
    ///
    /// What `each` returns.
    pub fn read<E>(
        &self,
        mut each: impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<ReadSummary, E> {
        let mut deferred = DeferredChains::default();
        let take = |record: FileRecord<'_>| deferred.take(record, &mut each);
        let summary = self.read_of(RecordOwner::Kernel, take)?;
        deferred.finish(&mut each)?;
        Ok(summary)
    }

    /// All records as they are, with perf's own in the file's order, except those that only locate
    /// other records.
    ///
    /// # Errors
    ///
    /// What `each` returns.
    pub fn read_all<E>(
        &self,
        each: impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<ReadSummary, E> {
        self.read_of(RecordOwner::All, each)
    }

    fn read_of<E>(
        &self,
        owner: RecordOwner,
        each: impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<ReadSummary, E> {
        let mut order = RecordSorter {
            file: self,
            owner,
            each,
            pending: Vec::new(),
            decompressed: DecompressedRecords::default(),
            until: 0,
            newest: 0,
            summary: ReadSummary::default(),
        };
        if let Err(stop) = order.walk() {
            match stop {
                ReadStop::Cut(damage) => order.summary.cut = Some(damage),
                ReadStop::Each(error) => return Err(error),
            }
        }
        match order.emit(u64::MAX) {
            Ok(()) => Ok(order.summary),
            Err(error) => Err(error),
        }
    }
}

/// The origin of the records to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordOwner {
    Kernel,
    /// Records of the kernel and of perf.
    All,
}

/// Why reading stops before the end.
enum ReadStop<E> {
    Cut(FileDamage),
    Each(E),
}

/// The location of a record.
#[derive(Debug, Clone, Copy)]
struct RecordPosition {
    /// In the file; for a compressed one, the location of the record that contains it.
    at: usize,
    /// In the decompressed bytes.
    unpacked: Option<usize>,
}

/// A record that waits for older ones.
#[derive(Debug, Clone, Copy)]
struct PendingRecord {
    time: u64,
    position: RecordPosition,
}

struct RecordSorter<'f, F> {
    file: &'f DataFile,
    owner: RecordOwner,
    each: F,
    pending: Vec<PendingRecord>,
    decompressed: DecompressedRecords,
    /// No older record than this will follow.
    until: u64,
    newest: u64,
    summary: ReadSummary,
}

impl<E, F: FnMut(FileRecord<'_>) -> Result<(), E>> RecordSorter<'_, F> {
    fn walk(&mut self) -> Result<(), ReadStop<E>> {
        let bytes: &[u8] = &self.file.image;
        let Range { start: mut at, end } = self.file.data.clone();
        let is_short = end > bytes.len();
        let data = bytes.get(..end.min(bytes.len())).unwrap_or_default();
        while at < data.len() {
            let (header, record) = whole(data, at).map_err(ReadStop::Cut)?;
            match header.kind {
                header::COMPRESSED | header::COMPRESSED2 => {
                    let packed = packed(header, record);
                    let unpacked = packed.ok_or("a compressed record is too short".to_owned());
                    let unpacked = unpacked.and_then(|packed| self.decompressed.add(packed));
                    unpacked.map_err(|why| ReadStop::Cut(FileDamage::new(offset(at), why)))?;
                    self.unpacked_records(at)?;
                }
                _ => {
                    let unpacked = None;
                    self.take(header, RecordPosition { at, unpacked })?;
                }
            }
            at = at.saturating_add(usize::from(header.size));
            at = at.saturating_add(behind(header, record));
        }
        if is_short || at > data.len() {
            let why = format!("the file ends before its records, which reach to {end:#x}");
            return Err(ReadStop::Cut(FileDamage::new(offset(bytes.len()), why)));
        }
        if !self.decompressed.rest().is_empty() {
            let why = "the last compressed record ends within a record";
            return Err(ReadStop::Cut(FileDamage::new(offset(at), why)));
        }
        Ok(())
    }

    /// Reads the complete records among the decompressed bytes.
    fn unpacked_records(&mut self, at: usize) -> Result<(), ReadStop<E>> {
        while let Some(header) = RecordHeader::parse(self.decompressed.rest()) {
            let size = usize::from(header.size);
            if size < RecordHeader::SIZE {
                return Err(ReadStop::Cut(FileDamage::new(offset(at), NO_SIZE)));
            }
            if self.decompressed.rest().len() < size {
                break;
            }
            let unpacked = Some(self.decompressed.taken);
            self.decompressed.taken += size;
            self.take(header, RecordPosition { at, unpacked })?;
        }
        Ok(())
    }

    /// Processes a record.
    fn take(&mut self, header: RecordHeader, position: RecordPosition) -> Result<(), ReadStop<E>> {
        const FIRST_OF_PERF: u32 = 64;
        if header.kind == header::FINISHED_ROUND {
            self.emit(self.until).map_err(ReadStop::Each)?;
            self.until = self.newest;
            return Ok(());
        }
        let bytes = bytes_of(self.file, &self.decompressed, position);
        if header.kind >= FIRST_OF_PERF {
            return match self.owner {
                RecordOwner::Kernel => Ok(()),
                RecordOwner::All => (self.each)(FileRecord {
                    event: 0,
                    sample_id: SampleId::default(),
                    record: Record::Other,
                    header,
                    bytes,
                })
                .map_err(ReadStop::Each),
            };
        }
        let event = self.file.event_of(header, bytes);
        let layout = self.file.events.get(event).map(|event| event.format);
        let time = layout.and_then(|layout| layout.time(header, bytes));
        // perf synthesizes records of earlier mappings, without a time.
        let Some(time) = time.filter(|time| ![0, u64::MAX].contains(time)) else {
            return self.emit_one(position).map_err(ReadStop::Each);
        };
        self.newest = self.newest.max(time);
        self.pending.push(PendingRecord { time, position });
        Ok(())
    }

    /// Emits all pending records up to a time.
    fn emit(&mut self, until: u64) -> Result<(), E> {
        let mut waiting = std::mem::take(&mut self.pending);
        waiting.sort_by_key(|waiting| waiting.time);
        let ready = waiting.partition_point(|waiting| waiting.time <= until);
        for PendingRecord {
            position: place, ..
        } in waiting.drain(..ready)
        {
            self.emit_one(place)?;
        }
        self.decompressed.keep(&mut waiting);
        self.pending = waiting;
        Ok(())
    }

    fn emit_one(&mut self, position: RecordPosition) -> Result<(), E> {
        let bytes = bytes_of(self.file, &self.decompressed, position);
        let Some(header) = RecordHeader::parse(bytes) else {
            return Ok(());
        };
        let event = self.file.event_of(header, bytes);
        let Some(of) = self.file.events.get(event) else {
            return Ok(());
        };
        match of.format.read(header, bytes) {
            Ok((origin, record)) => {
                self.summary.records += 1;
                (self.each)(FileRecord {
                    event,
                    sample_id: origin,
                    record,
                    header,
                    bytes,
                })
            }
            Err(bad) => {
                self.summary.bad += 1;
                let damage = || FileDamage::new(offset(position.at), bad.to_string());
                self.summary.first_bad.get_or_insert_with(damage);
                Ok(())
            }
        }
    }
}

const NO_SIZE: &str = "a record says that it is shorter than its header";

/// The record at an offset.
fn whole(data: &[u8], at: usize) -> Result<(RecordHeader, &[u8]), FileDamage> {
    let rest = data.get(at..).unwrap_or_default();
    let truncated = || FileDamage::new(offset(at), "the records end within a record");
    let header = RecordHeader::parse(rest).ok_or_else(truncated)?;
    let size = usize::from(header.size);
    if size < RecordHeader::SIZE {
        return Err(FileDamage::new(offset(at), NO_SIZE));
    }
    Ok((header, rest.get(..size).ok_or_else(truncated)?))
}

/// The compressed bytes of a record.
fn packed(header: RecordHeader, record: &[u8]) -> Option<&[u8]> {
    let body = record.get(RecordHeader::SIZE..)?;
    if header.kind == header::COMPRESSED {
        return Some(body);
    }
    let (size, body) = body.split_first_chunk::<8>()?;
    body.get(..usize::try_from(u64::from_le_bytes(*size)).ok()?)
}

fn bytes_of<'r>(
    file: &'r DataFile,
    decompressed: &'r DecompressedRecords,
    position: RecordPosition,
) -> &'r [u8] {
    let (all, at) = match position.unpacked {
        Some(at) => (decompressed.bytes.as_slice(), at),
        None => (&*file.image, position.at),
    };
    let rest = all.get(at..).unwrap_or_default();
    let size = RecordHeader::parse(rest).map_or(0, |header| usize::from(header.size));
    rest.get(..size).unwrap_or_default()
}

/// The decompressed bytes (`perf record -z`): one stream in pieces, which may end within records.
#[derive(Default)]
struct DecompressedRecords {
    decoder: Option<Decoder<'static>>,
    bytes: Vec<u8>,
    /// The number of bytes consumed as records.
    taken: usize,
}

impl DecompressedRecords {
    /// The bytes not consumed yet.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    /// Decompresses the next piece of the stream.
    fn add(&mut self, packed: &[u8]) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("a compressed record is damaged: {error}");
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new().map_err(wrong)?),
        };
        // The decoder is C code and needs bytes that do not change; a mapped file may change.
        let packed = packed.to_vec();
        let mut from = InBuffer::around(packed.as_slice());
        loop {
            let start = self.bytes.len();
            if start > MAX_PENDING_BYTES {
                let most = MAX_PENDING_BYTES >> 20;
                return Err(format!(
                    "more than {most} MiB of records belong to one round"
                ));
            }
            self.bytes.resize(start + DECOMPRESS_CHUNK_BYTES, 0);
            let mut to = OutBuffer::around_pos(self.bytes.as_mut_slice(), start);
            let result = decoder.run(&mut from, &mut to);
            let end = to.pos();
            self.bytes.truncate(end);
            result.map_err(wrong)?;
            if from.pos() >= packed.len() && end - start < DECOMPRESS_CHUNK_BYTES {
                return Ok(());
            }
        }
    }

    /// Discards everything except the pending records and the last incomplete record.
    fn keep(&mut self, pending: &mut [PendingRecord]) {
        let old = std::mem::take(&mut self.bytes);
        for PendingRecord {
            position: place, ..
        } in pending
        {
            if let Some(at) = &mut place.unpacked {
                let rest = old.get(*at..).unwrap_or_default();
                let size = RecordHeader::parse(rest).map_or(0, |header| usize::from(header.size));
                *at = self.bytes.len();
                self.bytes.extend(rest.get(..size).unwrap_or_default());
            }
        }
        let rest = old.get(self.taken..).unwrap_or_default();
        self.taken = self.bytes.len();
        self.bytes.extend(rest);
    }
}
