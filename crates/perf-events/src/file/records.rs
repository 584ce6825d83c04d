//! The records of a file, in the order of their times.
//!
//! Each processor has a ring of its own, so that records are in order for each of them only. perf
//! marks the end of each *round* in which it emptied all rings: what comes behind such a mark is not
//! older than the newest record of the round before.

use std::ops::Range;

use zstd::stream::raw::{Decoder, InBuffer, Operation as _, OutBuffer};

use super::header::{self, behind};
use super::{DataFile, FileDamage, offset};
use crate::record::{Record, RecordHeader, SampleId};

/// The most that records may have decompressed that wait for their round to end, in bytes.
const MAX_PENDING_BYTES: usize = 1 << 30;

/// How much is decompressed at once, in bytes.
const DECOMPRESS_CHUNK_BYTES: usize = 128 << 10;

/// A record of a file.
#[derive(Debug, Clone, Copy)]
pub struct FileRecord<'r> {
    /// The event that it is of, by its place among those of the file.
    pub event: usize,
    /// When and where it is from.
    pub origin: SampleId,
    /// What it tells.
    pub record: Record<'r>,
    /// What it begins with.
    pub header: RecordHeader,
    /// All of it, its header included.
    pub bytes: &'r [u8],
}

/// How reading a file went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadSummary {
    /// How many records of the kernel were read.
    pub records: u64,
    /// How many were left out, since they could not be read.
    pub bad: u64,
    /// What was wrong with the first of those.
    pub first_bad: Option<FileDamage>,
    /// Why nothing behind some place could be read; `None` if all of the file was.
    pub cut: Option<FileDamage>,
}

impl DataFile {
    /// Reads all records of the kernel in the order of their times; those without a time where they
    /// are in the file.
    ///
    /// What is damaged ends neither the reading nor the program; the result says what could not be
    /// read. Takes memory for the records of two rounds: 32 bytes each, and their bytes if they are
    /// compressed, at most 1 GiB of these.
    ///
    /// # Errors
    ///
    /// What `each` returns.
    pub fn read<E>(
        &self,
        each: impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<ReadSummary, E> {
        self.read_of(RecordOwner::Kernel, each)
    }

    /// The same, and where they are in the file those of perf's own that say more than where the others
    /// are.
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
        whose: RecordOwner,
        each: impl FnMut(FileRecord<'_>) -> Result<(), E>,
    ) -> Result<ReadSummary, E> {
        let mut order = RecordSorter {
            file: self,
            whose,
            each,
            waiting: Vec::new(),
            unpacked: DecompressedRecords::default(),
            until: 0,
            newest: 0,
            reading: ReadSummary::default(),
        };
        if let Err(stop) = order.walk() {
            match stop {
                ReadStop::Cut(damage) => order.reading.cut = Some(damage),
                ReadStop::Each(error) => return Err(error),
            }
        }
        match order.emit(u64::MAX) {
            Ok(()) => Ok(order.reading),
            Err(error) => Err(error),
        }
    }
}

/// Whose records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordOwner {
    Kernel,
    /// The kernel's and perf's.
    All,
}

/// Why reading stops before the end.
enum ReadStop<E> {
    Cut(FileDamage),
    Each(E),
}

/// Where a record is.
#[derive(Debug, Clone, Copy)]
struct RecordPosition {
    /// In the file; for one that was compressed, where that is which holds it.
    at: usize,
    /// Among what was decompressed.
    unpacked: Option<usize>,
}

/// A record that waits for those that are older.
#[derive(Debug, Clone, Copy)]
struct PendingRecord {
    time: u64,
    position: RecordPosition,
}

struct RecordSorter<'f, F> {
    file: &'f DataFile,
    whose: RecordOwner,
    each: F,
    waiting: Vec<PendingRecord>,
    unpacked: DecompressedRecords,
    /// Nothing that is older than this comes any more.
    until: u64,
    newest: u64,
    reading: ReadSummary,
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
                    let unpacked = unpacked.and_then(|packed| self.unpacked.add(packed));
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
        if !self.unpacked.rest().is_empty() {
            let why = "the last compressed record ends within a record";
            return Err(ReadStop::Cut(FileDamage::new(offset(at), why)));
        }
        Ok(())
    }

    /// Takes what was decompressed, as far as records are whole.
    fn unpacked_records(&mut self, at: usize) -> Result<(), ReadStop<E>> {
        while let Some(header) = RecordHeader::parse(self.unpacked.rest()) {
            let size = usize::from(header.size);
            if size < RecordHeader::SIZE {
                return Err(ReadStop::Cut(FileDamage::new(offset(at), NO_SIZE)));
            }
            if self.unpacked.rest().len() < size {
                break;
            }
            let unpacked = Some(self.unpacked.taken);
            self.unpacked.taken += size;
            self.take(header, RecordPosition { at, unpacked })?;
        }
        Ok(())
    }

    /// Takes a record.
    fn take(&mut self, header: RecordHeader, place: RecordPosition) -> Result<(), ReadStop<E>> {
        const FIRST_OF_PERF: u32 = 64;
        if header.kind == header::FINISHED_ROUND {
            self.emit(self.until).map_err(ReadStop::Each)?;
            self.until = self.newest;
            return Ok(());
        }
        let bytes = bytes_of(self.file, &self.unpacked, place);
        if header.kind >= FIRST_OF_PERF {
            return match self.whose {
                RecordOwner::Kernel => Ok(()),
                RecordOwner::All => (self.each)(FileRecord {
                    event: 0,
                    origin: SampleId::default(),
                    record: Record::Other,
                    header,
                    bytes,
                })
                .map_err(ReadStop::Each),
            };
        }
        let event = self.file.event_of(header, bytes);
        let layout = self.file.events.get(event).map(|event| event.layout);
        let time = layout.and_then(|layout| layout.time(header, bytes));
        // perf itself makes records of what was there before, without a time.
        let Some(time) = time.filter(|time| ![0, u64::MAX].contains(time)) else {
            return self.emit_one(place).map_err(ReadStop::Each);
        };
        self.newest = self.newest.max(time);
        self.waiting.push(PendingRecord {
            time,
            position: place,
        });
        Ok(())
    }

    /// Hands out all records that wait, up to a time.
    fn emit(&mut self, until: u64) -> Result<(), E> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|waiting| waiting.time);
        let ready = waiting.partition_point(|waiting| waiting.time <= until);
        for PendingRecord {
            position: place, ..
        } in waiting.drain(..ready)
        {
            self.emit_one(place)?;
        }
        self.unpacked.keep(&mut waiting);
        self.waiting = waiting;
        Ok(())
    }

    fn emit_one(&mut self, place: RecordPosition) -> Result<(), E> {
        let bytes = bytes_of(self.file, &self.unpacked, place);
        let Some(header) = RecordHeader::parse(bytes) else {
            return Ok(());
        };
        let event = self.file.event_of(header, bytes);
        let Some(of) = self.file.events.get(event) else {
            return Ok(());
        };
        match of.layout.read(header, bytes) {
            Ok((origin, record)) => {
                self.reading.records += 1;
                (self.each)(FileRecord {
                    event,
                    origin,
                    record,
                    header,
                    bytes,
                })
            }
            Err(bad) => {
                self.reading.bad += 1;
                let damage = || FileDamage::new(offset(place.at), bad.to_string());
                self.reading.first_bad.get_or_insert_with(damage);
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

/// What is compressed in a record.
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
    unpacked: &'r DecompressedRecords,
    place: RecordPosition,
) -> &'r [u8] {
    let (all, at) = match place.unpacked {
        Some(at) => (unpacked.bytes.as_slice(), at),
        None => (&*file.image, place.at),
    };
    let rest = all.get(at..).unwrap_or_default();
    let size = RecordHeader::parse(rest).map_or(0, |header| usize::from(header.size));
    rest.get(..size).unwrap_or_default()
}

/// What was decompressed (`perf record -z`): one stream in pieces, which need not end where records do.
#[derive(Default)]
struct DecompressedRecords {
    decoder: Option<Decoder<'static>>,
    bytes: Vec<u8>,
    /// How many bytes were taken as records.
    taken: usize,
}

impl DecompressedRecords {
    /// What is not taken yet.
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
        // The decoder is in C and relies on bytes that stay as they are; those of a mapped file need not.
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

    /// Forgets all but the records that wait, and what is no whole record yet.
    fn keep(&mut self, waiting: &mut [PendingRecord]) {
        let old = std::mem::take(&mut self.bytes);
        for PendingRecord {
            position: place, ..
        } in waiting
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
