//! The parts before and after the records: events and metadata.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{FileBuildId, FileDamage, FileEvent, PerfFileError, RecordingInfo, offset};
use crate::counter::SampleRate;
use crate::event::PerfEvent;
use crate::record::{BadRecord, CpuMode, RecordFields, RecordHeader, SampleFormat};

pub(super) const MAGIC: &[u8; 8] = b"PERFILE2";

/// The size of the header: of a stream, and of a file with its feature bits.
const PIPE_HEADER: u64 = 16;
pub(super) const FILE_HEADER: usize = 104;

/// Synthesized records of perf.
pub(super) const HEADER_ATTR: u32 = 64;
pub(super) const HEADER_EVENT_TYPE: u32 = 65;
pub(super) const HEADER_TRACING_DATA: u32 = 66;
pub(super) const HEADER_BUILD_ID: u32 = 67;
pub(super) const FINISHED_ROUND: u32 = 68;
pub(super) const AUXTRACE_INFO: u32 = 70;
pub(super) const AUXTRACE: u32 = 71;
pub(super) const EVENT_UPDATE: u32 = 78;
pub(super) const HEADER_FEATURE: u32 = 80;
pub(super) const COMPRESSED: u32 = 81;
pub(super) const COMPRESSED2: u32 = 83;

/// Features, by their bits.
const TRACING_DATA: u64 = 1;
const BUILD_ID: u64 = 2;
const HOSTNAME: u64 = 3;
const OSRELEASE: u64 = 4;
const VERSION: u64 = 5;
const ARCH: u64 = 6;
const NRCPUS: u64 = 7;
const CMDLINE: u64 = 11;
pub(super) const EVENT_DESC: u64 = 12;
pub(super) const FEATURE_AUXTRACE: u64 = 18;
pub(super) const SAMPLE_TIME: u64 = 21;
const DIR_FORMAT: u64 = 24;
pub(super) const FEATURE_COMPRESSED: u64 = 27;

/// The metadata other than events, by feature bit, and its location in the file. In a stream it may
/// be in several pieces.
pub(super) type Features = BTreeMap<u64, Vec<Range<usize>>>;

/// The size of the smallest `perf_event_attr`, and the offset of its flags.
const MIN_ATTR_BYTES: usize = 64;

/// The result of [`parse`].
#[derive(Default)]
pub(super) struct ParsedHeader {
    pub(super) events: Vec<FileEvent>,
    pub(super) build_ids: Vec<FileBuildId>,
    pub(super) info: RecordingInfo,
    pub(super) features: Features,
    pub(super) data: Range<usize>,
    pub(super) damaged: Vec<FileDamage>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<ParsedHeader, PerfFileError> {
    match bytes.first_chunk::<8>() {
        Some(MAGIC) => {}
        Some(magic) if magic.iter().rev().eq(MAGIC) => return Err(PerfFileError::BigEndian),
        _ => return Err(PerfFileError::NotPerf),
    }
    let mut file = ParsedHeader::default();
    match word(bytes, 8) {
        Some(PIPE_HEADER) => file.stream(bytes),
        _ => file.sections(bytes)?,
    }
    if file.features.contains_key(&DIR_FORMAT) {
        return Err(PerfFileError::OneOfSeveral);
    }
    if file.events.is_empty() {
        return Err(FileDamage::new(0, "no event is described").into());
    }
    file.share_build_ids();
    Ok(file)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// A file section, which consists of an offset and a size.
fn section(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = usize::try_from(word(bytes, at)?).ok()?;
    let size = usize::try_from(word(bytes, at.checked_add(8)?)?).ok()?;
    Some(start..start.checked_add(size)?)
}

impl ParsedHeader {
    /// Notes a damaged part, and continues.
    fn note(&mut self, at: usize, what: &str, result: Result<(), BadRecord>) {
        if let Err(bad) = result {
            let why = format!("{what}: {bad}");
            self.damaged.push(FileDamage::new(offset(at), why));
        }
    }

    /// Reads a file with its table of sections.
    fn sections(&mut self, bytes: &[u8]) -> Result<(), FileDamage> {
        let truncated = || FileDamage::new(offset(bytes.len()), "the file ends within its header");
        let attr_size = word(bytes, 16).ok_or_else(truncated)?;
        let attrs = section(bytes, 24).ok_or_else(truncated)?;
        let data = section(bytes, 40).ok_or_else(truncated)?;
        let flags = bytes.get(72..FILE_HEADER).ok_or_else(truncated)?;
        self.attributes(bytes, attrs, attr_size)?;
        // A recorder that was killed has not written the size.
        let is_finished = !data.is_empty();
        self.data = if is_finished {
            data
        } else {
            data.start..bytes.len()
        };
        if is_finished {
            self.features(bytes, flags);
        }
        self.name_events();
        Ok(())
    }

    /// Reads the attributes of all events, each followed by the location of its IDs.
    fn attributes(
        &mut self,
        bytes: &[u8],
        attrs: Range<usize>,
        size: u64,
    ) -> Result<(), FileDamage> {
        let at = offset(attrs.start);
        let damage = |why: &str| FileDamage::new(at, why);
        let size = usize::try_from(size).ok().filter(|size| *size > 16);
        let size = size.ok_or_else(|| damage("the events' attributes have no size"))?;
        let all = bytes.get(attrs.clone());
        let all = all.ok_or_else(|| damage("the file ends within the events' attributes"))?;
        for (number, entry) in all.chunks_exact(size).enumerate() {
            let start = attrs.start.saturating_add(number.saturating_mul(size));
            let ids = section(entry, size - 16).and_then(|ids| bytes.get(ids));
            let ids = ids.ok_or_else(|| damage("the numbers of an event are not in the file"))?;
            let (ids, _) = ids.as_chunks::<8>();
            let ids = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
            let event = event(bytes, start..start + size - 16, ids);
            self.events
                .push(event.ok_or_else(|| damage("an event's attributes are too short"))?);
        }
        Ok(())
    }

    /// Reads the metadata after the records: a section for each set bit.
    fn features(&mut self, bytes: &[u8], flags: &[u8]) {
        let is_set = |bit: &u64| {
            let byte = usize::try_from(bit / 8).ok().and_then(|at| flags.get(at));
            byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
        };
        for (number, bit) in (0..256).filter(is_set).enumerate() {
            let at = self.data.end.saturating_add(number.saturating_mul(16));
            let place = section(bytes, at);
            let content = place.clone().and_then(|place| bytes.get(place));
            let (Some(place), Some(content)) = (place, content) else {
                let why = format!("feature {bit} and what follows are not in the file");
                self.damaged.push(FileDamage::new(offset(at), why));
                return;
            };
            let result = self.feature(bit, content);
            self.add_feature(bit, place.clone());
            self.note(place.start, &format!("feature {bit}"), result);
        }
    }

    fn add_feature(&mut self, bit: u64, place: Range<usize>) {
        self.features.entry(bit).or_default().push(place);
    }

    fn feature(&mut self, bit: u64, content: &[u8]) -> Result<(), BadRecord> {
        let mut fields = RecordFields(content);
        match bit {
            BUILD_ID => self.build_id_records(content)?,
            HOSTNAME => self.info.host = string(&mut fields)?,
            OSRELEASE => self.info.kernel = string(&mut fields)?,
            VERSION => self.info.tool = string(&mut fields)?,
            ARCH => self.info.arch = string(&mut fields)?,
            NRCPUS => {
                fields.u32("processors")?;
                self.info.cpus = Some(fields.u32("processors")?);
            }
            CMDLINE => {
                let count = fields.u32("words")?;
                let words = (0..count).map(|_| string(&mut fields));
                self.info.command = words.collect::<Result<_, _>>()?;
            }
            EVENT_DESC => self.descriptions(&mut fields)?,
            SAMPLE_TIME => {
                let first = fields.u64("time")?;
                self.info.times = Some(first..fields.u64("time")?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the event names.
    fn descriptions(&mut self, fields: &mut RecordFields<'_>) -> Result<(), BadRecord> {
        let count = fields.u32("events")?;
        let size = fields.u32("attributes")?;
        for number in 0..count {
            fields.take(size.into(), "attributes")?;
            let ids = fields.u32("numbers")?;
            let name = string(fields)?;
            fields.words(ids.into(), "numbers")?;
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            if let Some(event) = self.events.get_mut(number) {
                event.name = name;
            }
        }
        Ok(())
    }

    fn build_id_records(&mut self, mut content: &[u8]) -> Result<(), BadRecord> {
        while !content.is_empty() {
            let truncated = BadRecord::Truncated { field: "build ID" };
            let header = RecordHeader::parse(content).ok_or(truncated)?;
            let size = usize::from(header.size);
            let (record, rest) = content.split_at_checked(size).ok_or(truncated)?;
            self.build_id(header, record)?;
            content = rest;
        }
        Ok(())
    }

    fn build_id(&mut self, header: RecordHeader, record: &[u8]) -> Result<(), BadRecord> {
        const HAS_SIZE: u32 = 1 << 15;
        const FIELD: &str = "build ID";
        let truncated = BadRecord::Truncated { field: FIELD };
        let mut fields = RecordFields(record.get(RecordHeader::SIZE..).ok_or(truncated)?);
        fields.u32("process")?;
        let id = fields.take(24, FIELD)?;
        let size = match u32::from(header.misc) & HAS_SIZE {
            0 => 20,
            _ => id.get(20).copied().unwrap_or_default().min(20),
        };
        let id = id.get(..usize::from(size)).unwrap_or_default();
        self.build_ids.push(FileBuildId {
            mode: CpuMode::from_misc(header.misc),
            name: fields.name()?.to_vec(),
            id: id.to_vec(),
        });
        Ok(())
    }

    /// Reads the synthesized records of a stream.
    fn stream(&mut self, bytes: &[u8]) {
        let start = usize::try_from(PIPE_HEADER).unwrap_or_default();
        self.data = start..bytes.len();
        let mut at = start;
        while let Some(header) = bytes.get(at..).and_then(RecordHeader::parse) {
            let size = usize::from(header.size);
            let Some(record) = bytes
                .get(at..at + size)
                .filter(|_| size >= RecordHeader::SIZE)
            else {
                break;
            };
            let result = match header.kind {
                HEADER_ATTR => self.streamed_event(bytes, at..at + size),
                EVENT_UPDATE => self.streamed_name(record),
                HEADER_FEATURE => self.streamed_feature(record, at),
                HEADER_BUILD_ID => {
                    self.add_feature(BUILD_ID, at..at + size);
                    self.build_id(header, record)
                }
                HEADER_TRACING_DATA => {
                    let start = at + size;
                    self.add_feature(TRACING_DATA, start..start + behind(header, record));
                    Ok(())
                }
                _ => Ok(()),
            };
            self.note(at, "a record of perf's own", result);
            at = at
                .saturating_add(size)
                .saturating_add(behind(header, record));
        }
        self.name_events();
    }

    /// Reads attributes, which include their own size, and the event's IDs.
    fn streamed_event(&mut self, bytes: &[u8], record: Range<usize>) -> Result<(), BadRecord> {
        let truncated = BadRecord::Truncated {
            field: "attributes",
        };
        let start = record.start + RecordHeader::SIZE;
        let body = bytes.get(start..record.end).ok_or(truncated)?;
        let size = body.get(4..).and_then(|rest| rest.first_chunk());
        let size = u32::from_le_bytes(*size.ok_or(truncated)?);
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (_, ids) = body.split_at_checked(size).ok_or(truncated)?;
        let (ids, _) = ids.as_chunks::<8>();
        let ids = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
        let event = event(bytes, start..start + size, ids);
        self.events.push(event.ok_or(truncated)?);
        Ok(())
    }

    fn streamed_feature(&mut self, record: &[u8], at: usize) -> Result<(), BadRecord> {
        const START: usize = RecordHeader::SIZE + 8;
        let truncated = BadRecord::Truncated { field: "feature" };
        let bit = word(record, RecordHeader::SIZE).ok_or(truncated)?;
        self.add_feature(bit, at + START..at + record.len());
        self.feature(bit, record.get(START..).unwrap_or_default())
    }

    fn streamed_name(&mut self, record: &[u8]) -> Result<(), BadRecord> {
        const NAME: u64 = 2;
        let truncated = BadRecord::Truncated { field: "name" };
        let mut fields = RecordFields(record.get(RecordHeader::SIZE..).ok_or(truncated)?);
        let what = fields.u64("kind")?;
        let id = fields.u64("number")?;
        if what == NAME {
            let name = String::from_utf8_lossy(fields.name()?).into_owned();
            let event = self.events.iter_mut().find(|event| event.ids.contains(&id));
            if let Some(event) = event {
                event.name = name;
            }
        }
        Ok(())
    }

    /// One event requests the build IDs of all: perf's synthesized records of earlier mappings
    /// belong to no event.
    fn share_build_ids(&mut self) {
        let mut events = self.events.iter();
        let has_build_ids = events.any(|event| event.format.has_build_ids);
        for event in &mut self.events {
            event.format.has_build_ids = has_build_ids;
        }
    }

    /// Names the unnamed events.
    fn name_events(&mut self) {
        for event in self.events.iter_mut().filter(|event| event.name.is_empty()) {
            event.name = match PerfEvent::name_of(event.kind, event.config) {
                Some(name) => name.to_owned(),
                None => format!("{}:{:#x}", event.kind, event.config),
            };
        }
    }
}

/// The number of bytes after a record that belong to it and are not included in its size.
pub(super) fn behind(header: RecordHeader, record: &[u8]) -> usize {
    let size = match header.kind {
        AUXTRACE => word(record, RecordHeader::SIZE),
        HEADER_TRACING_DATA => {
            let size = word(record, RecordHeader::SIZE).map(|size| size & u64::from(u32::MAX));
            size.map(|size| size.next_multiple_of(8))
        }
        _ => None,
    };
    usize::try_from(size.unwrap_or(0)).unwrap_or(usize::MAX)
}

/// A string of a feature: its size, padded with zeros.
fn string(fields: &mut RecordFields<'_>) -> Result<String, BadRecord> {
    let size = fields.u32("text")?;
    let bytes = fields.take(size.into(), "text")?;
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = bytes.get(..end.unwrap_or(bytes.len()));
    Ok(String::from_utf8_lossy(text.unwrap_or_default()).into_owned())
}

/// An event with these attributes; `None` if they are shorter than in any version.
fn event(bytes: &[u8], attr: Range<usize>, ids: Vec<u64>) -> Option<FileEvent> {
    const USES_FREQUENCY: u64 = 1 << 10;
    const HAS_ORIGINS: u64 = 1 << 18;
    const HAS_BUILD_IDS: u64 = 1 << 34;
    let attributes = bytes.get(attr.clone())?;
    if attributes.len() < MIN_ATTR_BYTES {
        return None;
    }
    // Fields that an older perf does not have are zero.
    let word = |at| word(attributes, at).unwrap_or(0);
    let flags = word(40);
    Some(FileEvent {
        name: String::new(),
        kind: u32::try_from(word(0) & u64::from(u32::MAX)).unwrap_or_default(),
        config: word(8),
        rate: match flags & USES_FREQUENCY {
            0 => SampleRate::Period(word(16)),
            _ => SampleRate::Frequency(word(16)),
        },
        format: SampleFormat {
            sample_type: word(24),
            read_format: word(32),
            branch_sample_type: word(72),
            user_registers: word(80),
            interrupted_registers: word(96),
            has_sample_id: flags & HAS_ORIGINS != 0,
            has_build_ids: flags & HAS_BUILD_IDS != 0,
        },
        ids,
        attr,
    })
}
