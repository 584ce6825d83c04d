//! pprof's format: the message `perftools.profiles.Profile` of `profile.proto`, compressed by gzip.
//!
//! Its few kinds of fields are encoded by hand: a generator would be larger than this crate.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

use libdeflater::{CompressionLvl, Compressor};
use unspool_rows::leb128;

use super::{StringInterner, View};
use crate::aggregate;
use crate::model::{
    CodeLocation, CodeSegment, FrameId, ProfileFrame, ProfileModule, ProfileRate, ThreadId,
};
use crate::names::{FrameCertainty, FrameLine, ProfileFunction};
use crate::stacks::StackId;

/// Writes the samples. Samples of one thread with the same stack are combined.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let message = encode(view);
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut compressed = vec![0; compressor.gzip_compress_bound(message.len())];
    let length = compressor.gzip_compress(&message, &mut compressed);
    let length = length.map_err(|error| io::Error::other(format!("{error:?}")))?;
    compressed.truncate(length);
    out.write_all(&compressed)
}

/// A message of Protocol Buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: impl Into<u64>) {
        leb128::put_unsigned(&mut self.0, field << 3);
        leb128::put_unsigned(&mut self.0, value.into());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        leb128::put_unsigned(&mut self.0, field << 3 | 2);
        leb128::put_unsigned(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut message = Message::default();
        fill(&mut message);
        self.bytes(field, &message.0);
    }

    fn numbers(&mut self, field: u64, numbers: impl IntoIterator<Item = u64>) {
        let mut packed = Vec::new();
        for number in numbers {
            leb128::put_unsigned(&mut packed, number);
        }
        self.bytes(field, &packed);
    }
}

// Fields of the messages, by `profile.proto`.
mod field {
    pub(super) mod profile {
        pub(crate) const SAMPLE_TYPE: u64 = 1;
        pub(crate) const SAMPLE: u64 = 2;
        pub(crate) const MAPPING: u64 = 3;
        pub(crate) const LOCATION: u64 = 4;
        pub(crate) const FUNCTION: u64 = 5;
        pub(crate) const STRING_TABLE: u64 = 6;
        pub(crate) const TIME_NANOS: u64 = 9;
        pub(crate) const DURATION_NANOS: u64 = 10;
        pub(crate) const PERIOD_TYPE: u64 = 11;
        pub(crate) const PERIOD: u64 = 12;
        pub(crate) const COMMENT: u64 = 13;
        pub(crate) const DEFAULT_SAMPLE_TYPE: u64 = 14;
    }
}

fn encode(view: &View<'_>) -> Vec<u8> {
    use field::profile;

    let mut strings = StringInterner::default();
    // The format requires it as the first.
    strings.id("");
    let mut message = Message::default();
    let unit = if view.is_time() {
        "nanoseconds"
    } else {
        "count"
    };
    let weight = if view.is_time() { "time" } else { view.unit() };
    for (name, unit) in [("samples", "count"), (weight, unit)] {
        let (name, unit) = (strings.id(name), strings.id(unit));
        message.message(profile::SAMPLE_TYPE, |it| {
            it.number(1, name);
            it.number(2, unit);
        });
    }
    message.number(profile::DEFAULT_SAMPLE_TYPE, strings.id(weight));
    samples(&mut message, view, &mut strings);
    mappings(&mut message, view, &mut strings);
    locations(&mut message, view);
    functions(&mut message, view, &mut strings);
    times(&mut message, view);
    period(&mut message, view, &mut strings);
    for line in [view.title(), view.named.profile.meta().tool.clone()] {
        message.number(profile::COMMENT, strings.id(&line));
    }
    for text in &strings.all {
        message.bytes(profile::STRING_TABLE, text.as_bytes());
    }
    message.0
}

fn times(message: &mut Message, view: &View<'_>) {
    let meta = view.named.profile.meta();
    let times = || view.samples.iter().map(|sample| sample.time.0);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let since_start = first.saturating_sub(meta.clock.0);
    message.number(
        field::profile::TIME_NANOS,
        meta.started.saturating_add(since_start),
    );
    message.number(field::profile::DURATION_NANOS, last.saturating_sub(first));
}

fn period(message: &mut Message, view: &View<'_>, strings: &mut StringInterner) {
    let event = &view.named.profile.meta().event;
    let (name, unit) = (
        strings.id(&event.name),
        strings.id(if view.is_time() {
            "nanoseconds"
        } else {
            "count"
        }),
    );
    let period = match event.rate {
        ProfileRate::Period(period) => period,
        // For times, the rate gives the interval between two samples.
        ProfileRate::Frequency(hertz) if view.is_time() => 1_000_000_000 / hertz.max(1),
        _ => return,
    };
    message.message(field::profile::PERIOD_TYPE, |it| {
        it.number(1, name);
        it.number(2, unit);
    });
    message.number(field::profile::PERIOD, period);
}

fn samples(message: &mut Message, view: &View<'_>, strings: &mut StringInterner) {
    let mut sums: HashMap<(ThreadId, StackId), (u64, u64)> = HashMap::new();
    for sample in &view.samples {
        let (count, weight) = sums.entry((sample.thread, sample.stack)).or_default();
        *count += 1;
        *weight = weight.saturating_add(sample.weight);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| *key);
    let (thread_key, pid_key, tid_key) =
        (strings.id("thread"), strings.id("pid"), strings.id("tid"));
    for ((thread, stack), (count, weight)) in sums {
        let thread = view.named.profile.thread(thread);
        let process = thread.and_then(|thread| view.named.profile.process(thread.process));
        let name = strings.id(thread.map_or("", |thread| &thread.name));
        message.message(field::profile::SAMPLE, |it| {
            let frames = view.named.profile.stacks().frames(stack);
            it.numbers(1, frames.map(location_id));
            it.numbers(2, [count, weight]);
            it.message(3, |label| {
                label.number(1, thread_key);
                label.number(2, name);
            });
            for (key, number) in [
                (pid_key, process.map_or(0, |process| process.pid)),
                (tid_key, thread.map_or(0, |thread| thread.tid)),
            ] {
                it.message(3, |label| {
                    label.number(1, key);
                    label.number(3, number);
                });
            }
        });
    }
}

/// Ids are not 0.
fn location_id(frame: FrameId) -> u64 {
    u64::from(frame.0) + 1
}

/// The base of a module in the profile's address space: each has 2^40 bytes, so that no two
/// overlap.
fn base(module: u32) -> u64 {
    (u64::from(module) + 1) << 40
}

/// The first mapping is taken for the program's. That is the module named by the command or, for a
/// link, a script or no command, the module with the greatest weight.
fn mappings(message: &mut Message, view: &View<'_>, strings: &mut StringInterner) {
    let profile = view.named.profile;
    let command = profile.meta().command.first().map(Path::new);
    let command = command.and_then(Path::file_name);
    let heaviest = aggregate::modules(view.named, &view.samples)
        .into_iter()
        .filter(|module| !module.key.starts_with('[') && !module.key.contains(".so"))
        .max_by_key(|module| module.total)
        .map(|module| OsStr::new(module.key));
    let mut modules: Vec<(u32, &ProfileModule)> = (0..).zip(profile.modules()).collect();
    modules.sort_by_key(|(_, module)| {
        let name = module.path.file_name();
        [command, heaviest].map(|program| program.is_none() || name != program)
    });
    for (number, module) in modules {
        mapping(message, number, module, strings);
    }
}

fn mapping(
    message: &mut Message,
    number: u32,
    module: &ProfileModule,
    strings: &mut StringInterner,
) {
    let path = strings.id(&module.path.to_string_lossy());
    let build_id = module.build_id().map(|id| id.to_string());
    let build_id = strings.id(&build_id.unwrap_or_default());
    let (start, limit, offset) = match module.code {
        Some(code) => pages(code),
        None => (0, 1 << 40, 0),
    };
    message.message(field::profile::MAPPING, |it| {
        it.number(1, u64::from(number) + 1);
        it.number(2, base(number).wrapping_add(start));
        it.number(3, base(number).wrapping_add(limit));
        it.number(4, offset);
        it.number(5, path);
        it.number(6, build_id);
        // Functions, files, lines and inlined functions have been looked up.
        (7..=10).for_each(|has| it.number(has, true));
    });
}

/// The pages that a loader maps of a segment: the first address, the end, and the file offset.
/// pprof looks for the segment by whole pages.
fn pages(code: CodeSegment) -> (u64, u64, u64) {
    const PAGE_BYTES: u64 = 4096;
    let before = code.address.0 % PAGE_BYTES;
    let end = code.address.0.saturating_add(code.size);
    (
        code.address.0 - before,
        end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(end),
        code.offset.saturating_sub(before),
    )
}

fn locations(message: &mut Message, view: &View<'_>) {
    for (number, frame) in (0..).zip(view.named.profile.frames()) {
        let id = FrameId(number);
        message.message(field::profile::LOCATION, |it| {
            it.number(1, location_id(id));
            if let CodeLocation::Module(module, _) = frame.lookup {
                it.number(2, u64::from(module.0) + 1);
            }
            it.number(3, address(frame));
            let mark = FrameCertainty::from_evidence(frame.evidence);
            for line in view.named.lines_of(id) {
                it.message(4, |it| {
                    it.number(1, function_id(line, mark));
                    it.number(2, line.line.map_or(0, u64::from));
                });
            }
        });
    }
}

/// The address of the call, or the instruction; within a module, in the profile's address space.
fn address(frame: &ProfileFrame) -> u64 {
    match frame.lookup {
        CodeLocation::Module(module, address) => base(module.0).wrapping_add(address.0),
        place => place.address(),
    }
}

const MARKS: [FrameCertainty; 3] = [
    FrameCertainty::Certain,
    FrameCertainty::Guessed,
    FrameCertainty::Spliced,
];

/// There is one function for each mark of its frames.
fn function_id(line: &FrameLine, mark: FrameCertainty) -> u64 {
    let mark = MARKS.iter().take_while(|other| **other != mark).count() as u64;
    u64::from(line.function.0) * MARKS.len() as u64 + mark + 1
}

fn functions(message: &mut Message, view: &View<'_>, strings: &mut StringInterner) {
    let mut used: HashMap<u64, (&FrameLine, FrameCertainty)> = HashMap::new();
    for (number, frame) in (0..).zip(view.named.profile.frames()) {
        let mark = FrameCertainty::from_evidence(frame.evidence);
        for line in view.named.lines_of(FrameId(number)) {
            used.entry(function_id(line, mark)).or_insert((line, mark));
        }
    }
    let mut used: Vec<_> = used.into_iter().collect();
    used.sort_unstable_by_key(|(id, _)| *id);
    for (id, (line, mark)) in used {
        let function: Option<&ProfileFunction> = view.named.function(line.function);
        let name = function.map_or("", |function| &function.name).to_owned() + mark.suffix();
        let name = strings.id(&name);
        let file = strings.id(line.file.as_deref().unwrap_or(""));
        message.message(field::profile::FUNCTION, |it| {
            it.number(1, id);
            it.number(2, name);
            // The system name is empty. pprof takes a system name equal to the name for mangled,
            // and removes everything in parentheses and angle brackets: `<T as Trait>::f` becomes
            // `::f`.
            it.number(4, file);
        });
    }
}
