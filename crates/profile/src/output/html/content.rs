//! The data of the page.
//!
//! The element `code` has source lines and instructions ([`super::code`]). The element `profile`
//! has the rest: base64 of a zlib stream (RFC 1950) of:
//!
//! - the size of the header in bytes: 32 bits, little-endian;
//! - the header, JSON ([`PageHeader`]);
//! - the columns that it lists, one after the other. Their numbers are LEB128. In columns marked
//!   as signed, the lowest bit is the sign (zigzag), and each number is the difference to the
//!   previous one.
//!
//! | column | of each | signed | number |
//! |---|---|---|---|
//! | `node.depth` | node | yes | the number of functions in its stack, from 1 |
//! | `node.callee` | node | no | which callee of its caller's function it is: from 1, in the order of first use; 0 for the next new one |
//! | `callee.function` | new callee | no | an index in `functions` |
//! | `node.flags` | node | no | bits 0–1: 0 certain, 1 guessed, 2 spliced; bit 2: inlined |
//! | `node.line` | node | no | the line in the function, from 1 for its `line`; 0 if unknown |
//! | `thread.samples` | thread | no | the number of its samples |
//! | `sample.node` | sample | yes | the innermost node, from 1; 0 without a stack |
//! | `sample.time` | sample | yes | microseconds since the start |
//! | `sample.weight` | sample | no | on a CPU in the event's unit, else nanoseconds |
//! | `sample.cpu` | sample | yes | the CPU |
//! | `sample.state` | sample | no | bits 0–4: an index in `ends`; bit 5: off-CPU; bits 6–9: what it waits for, an index in `waits` from 1 |
//! | `sample.place` | sample | no | the innermost instruction: an index in its function's code, from 1; 0 without |
//!
//! Nodes are functions in stacks, in preorder: a caller comes before its callees. Callees of one
//! caller with the same function and different flags or lines are neighbours. Samples are
//! sorted by thread and time. A column of zeros is left out.

use std::collections::BTreeMap;
use std::io;

use hashbrown::hash_map::Entry;
use serde::Serialize;
use unspool_rows::leb128;

use super::stack_tree::StackTree;
use crate::completeness::Completeness;
use crate::intern::{FastMap, number};
use crate::model::{
    CodeLocation, FrameId, ModuleKind, Profile, ProfileFrame, ProfileRate, ProfileSample, StackEnd,
    ThreadId, WeightUnit,
};
use crate::names::{FrameLine, FunctionId};
use crate::output::{StringInterner, View};
use crate::wait::{WaitReason, WaitReasons};

/// The version of the data.
const VERSION: u32 = 2;

/// The header of the data.
#[derive(Serialize)]
struct PageHeader<'a> {
    version: u32,
    title: String,
    host: &'a str,
    kernel: &'a str,
    arch: &'a str,
    tool: &'a str,
    /// The event of on-CPU samples.
    event: &'a str,
    /// Samples a second of each CPU; 0 if unknown.
    frequency: u64,
    /// Whether weights of on-CPU samples are nanoseconds.
    is_time: bool,
    /// The wall clock at the start, in milliseconds since 1970 (UTC).
    started: u64,
    /// The summary of completeness.
    completeness: String,
    /// The number of lost samples.
    lost: u64,
    threads: Vec<PageThread<'a>>,
    ends: Vec<PageEnd>,
    /// What threads off a CPU wait for.
    waits: Vec<&'static str>,
    functions: Vec<PageFunction<'a>>,
    modules: Vec<String>,
    files: Vec<String>,
    columns: Vec<PageColumn>,
}

#[derive(Serialize)]
struct PageThread<'a> {
    name: &'a str,
    tid: u32,
    process: &'a str,
    pid: u32,
}

/// A [`StackEnd`].
#[derive(Serialize)]
struct PageEnd {
    reason: String,
    is_root: bool,
    has_user_stack: bool,
}

#[derive(Serialize)]
struct PageFunction<'a> {
    name: &'a str,
    /// An index in `modules`.
    module: u32,
    /// An index in `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<u32>,
    /// The first of its lines in that file that are in a stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// `user`, `kernel` or `jit`.
    kind: &'static str,
}

#[derive(Serialize)]
struct PageColumn {
    name: &'static str,
    count: usize,
    is_signed: bool,
    /// Its size.
    bytes: usize,
}

/// The data, and the numbers of functions in it.
pub(super) struct PageContent {
    /// The header and the columns.
    pub(super) bytes: Vec<u8>,
    pub(super) functions: FunctionNumbers,
}

/// Encodes the samples of a view; `place_of` is an instruction's place in its function's code.
pub(super) fn encode(
    view: &View<'_>,
    place_of: impl Fn(CodeLocation) -> u64,
) -> io::Result<PageContent> {
    let profile = view.named.profile;
    let mut by_thread: BTreeMap<ThreadId, Vec<&ProfileSample>> = BTreeMap::new();
    for sample in &view.samples {
        by_thread.entry(sample.thread).or_default().push(sample);
    }
    for samples in by_thread.values_mut() {
        samples.sort_by_key(|sample| sample.time);
    }
    let origins = origins(view);
    let tree = StackTree::new(view, |line| line_of(&origins, line));
    let mut functions = FunctionNumbers::new(view.named.functions().len());
    let mut columns = Columns::default();
    let nodes = tree.preorder();
    columns.signed("node.depth", nodes.iter().map(|node| i64::from(node.depth)));
    let mut callees = CalleeNumbers::default();
    for node in nodes {
        callees.add(node.depth, functions.number(node.step.function));
    }
    columns.unsigned("node.callee", callees.numbers.into_iter());
    columns.unsigned("callee.function", callees.new.into_iter());
    columns.unsigned("node.flags", nodes.iter().map(|node| node.step.flags()));
    let lines = nodes.iter().map(|node| u64::from(node.step.line));
    columns.unsigned_unless_zero("node.line", lines);
    let counts = by_thread.values().map(|samples| samples.len() as u64);
    columns.unsigned("thread.samples", counts);
    let samples: Vec<&ProfileSample> = by_thread.values().flatten().copied().collect();
    let node = |sample: &&ProfileSample| i64::from(tree.number(sample.stack));
    columns.signed("sample.node", samples.iter().map(node));
    let start = profile.meta().clock;
    let micros = |sample: &&ProfileSample| difference(sample.time.0, start.0).div_euclid(1000);
    columns.signed("sample.time", samples.iter().map(micros));
    columns.unsigned("sample.weight", samples.iter().map(|sample| sample.weight));
    let cpu = |sample: &&ProfileSample| i64::from(sample.cpu);
    columns.signed("sample.cpu", samples.iter().map(cpu));
    let reasons = WaitReasons::new(view.named);
    let state = |sample: &&ProfileSample| state(&reasons, sample);
    columns.unsigned("sample.state", samples.iter().map(state));
    let places = profile.frames().iter().map(|frame| place_of(frame.lookup));
    let places: Vec<u64> = places.collect();
    let place = |sample: &&ProfileSample| {
        let node = profile.stacks().node(sample.stack);
        let place = node.and_then(|node| places.get(node.frame.0 as usize));
        place.copied().unwrap_or(0)
    };
    columns.unsigned_unless_zero("sample.place", samples.iter().map(place));
    let header = header(view, &by_thread, &origins, &functions.used, columns.columns);
    let header = serde_json::to_vec(&header)?;
    let mut bytes = number(header.len()).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend(columns.bytes);
    Ok(PageContent { bytes, functions })
}

fn header<'a>(
    view: &View<'a>,
    by_thread: &BTreeMap<ThreadId, Vec<&ProfileSample>>,
    origins: &[FunctionOrigin<'_>],
    functions: &[u32],
    columns: Vec<PageColumn>,
) -> PageHeader<'a> {
    let profile = view.named.profile;
    let meta = profile.meta();
    let completeness = Completeness::new(profile, &view.samples);
    let (mut modules, mut files) = (StringInterner::default(), StringInterner::default());
    let functions = functions.iter().filter_map(|id| {
        let function = view.named.functions().get(*id as usize)?;
        let origin = origins.get(*id as usize)?;
        Some(PageFunction {
            name: &function.name,
            module: modules.id(&function.module),
            file: origin.file.map(|file| files.id(file)),
            line: origin.first_line,
            kind: origin.kind,
        })
    });
    PageHeader {
        version: VERSION,
        title: view.title(),
        host: &meta.host,
        kernel: &meta.kernel,
        arch: &meta.arch,
        tool: &meta.tool,
        event: &meta.event.name,
        frequency: match meta.event.rate {
            ProfileRate::Frequency(hertz) => hertz,
            ProfileRate::Period(_) | ProfileRate::Unknown => 0,
        },
        is_time: meta.event.unit == WeightUnit::Nanoseconds,
        started: meta.started / 1_000_000,
        completeness: completeness.summary().to_string(),
        lost: completeness.lost,
        threads: (by_thread.keys())
            .filter_map(|id| {
                let thread = profile.thread(*id)?;
                let process = profile.process(thread.process)?;
                Some(PageThread {
                    name: &thread.name,
                    tid: thread.tid,
                    process: &process.name,
                    pid: process.pid,
                })
            })
            .collect(),
        ends: (StackEnd::ALL.iter())
            .map(|end| PageEnd {
                reason: end.to_string(),
                is_root: end.is_root(),
                has_user_stack: end.has_user_stack(),
            })
            .collect(),
        waits: WaitReason::ALL.map(WaitReason::name).to_vec(),
        functions: functions.collect(),
        modules: modules.all,
        files: files.all,
        columns,
    }
}

fn state(reasons: &WaitReasons<'_>, sample: &ProfileSample) -> u64 {
    let end = StackEnd::ALL.iter().position(|end| *end == sample.end);
    let end = end.map_or(0, |end| end as u64);
    match reasons.get(sample) {
        None => end,
        Some(reason) => {
            let waits = (1..).zip(WaitReason::ALL);
            let wait = waits
                .filter(|(_, other)| *other == reason)
                .map(|(number, _)| number);
            end | 1 << 5 | wait.sum::<u64>() << 6
        }
    }
}

/// `a - b`, limited to what fits.
fn difference(a: u64, b: u64) -> i64 {
    let size = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -size } else { size }
}

/// Columns, encoded.
#[derive(Default)]
struct Columns {
    columns: Vec<PageColumn>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds a column of numbers.
    fn unsigned(&mut self, name: &'static str, numbers: impl ExactSizeIterator<Item = u64>) {
        let (count, start) = (numbers.len(), self.bytes.len());
        for number in numbers {
            leb128::put_unsigned(&mut self.bytes, number);
        }
        self.end(name, count, false, start);
    }

    /// Adds a column of numbers, unless all of them are 0.
    fn unsigned_unless_zero(
        &mut self,
        name: &'static str,
        numbers: impl ExactSizeIterator<Item = u64> + Clone,
    ) {
        if numbers.clone().any(|number| number != 0) {
            self.unsigned(name, numbers);
        }
    }

    /// Adds a column of differences.
    fn signed(&mut self, name: &'static str, numbers: impl ExactSizeIterator<Item = i64>) {
        let (count, start, mut previous) = (numbers.len(), self.bytes.len(), 0_i64);
        for number in numbers {
            let difference = number.wrapping_sub(previous);
            let zigzag = difference << 1 ^ difference >> 63;
            leb128::put_unsigned(&mut self.bytes, zigzag.cast_unsigned());
            previous = number;
        }
        self.end(name, count, true, start);
    }

    fn end(&mut self, name: &'static str, count: usize, is_signed: bool, start: usize) {
        self.columns.push(PageColumn {
            name,
            count,
            is_signed,
            bytes: self.bytes.len() - start,
        });
    }
}

/// The functions of nodes, numbered anew in the order of their first use.
pub(super) struct FunctionNumbers {
    /// By the index in the profile.
    numbers: Vec<Option<u32>>,
    /// The indices in the profile.
    used: Vec<u32>,
}

impl FunctionNumbers {
    fn new(count: usize) -> FunctionNumbers {
        FunctionNumbers {
            numbers: vec![None; count],
            used: Vec::new(),
        }
    }

    /// The number of a function; `None` if no node has it.
    pub(super) fn get(&self, function: FunctionId) -> Option<u32> {
        self.numbers.get(function.0 as usize).copied().flatten()
    }

    fn number(&mut self, function: u32) -> u32 {
        let next = number(self.used.len());
        let Some(place) = self.numbers.get_mut(function as usize) else {
            return 0;
        };
        *place.get_or_insert_with(|| {
            self.used.push(function);
            next
        })
    }
}

/// Nodes as callees of their callers' functions, which have few: these numbers are small.
#[derive(Default)]
struct CalleeNumbers {
    /// The functions of the last node's stack.
    path: Vec<u32>,
    /// The number of each callee, from 1.
    known: FastMap<(Option<u32>, u32), u64>,
    /// The number of callees of each function, and of none: the outermost ones.
    counts: FastMap<Option<u32>, u64>,
    numbers: Vec<u64>,
    new: Vec<u64>,
}

impl CalleeNumbers {
    /// Adds the next node in preorder.
    fn add(&mut self, depth: u32, function: u32) {
        self.path.truncate((depth as usize).saturating_sub(1));
        let caller = self.path.last().copied();
        self.path.push(function);
        match self.known.entry((caller, function)) {
            Entry::Occupied(number) => self.numbers.push(*number.get()),
            Entry::Vacant(number) => {
                let count = self.counts.entry(caller).or_default();
                *count += 1;
                number.insert(*count);
                self.numbers.push(0);
                self.new.push(u64::from(function));
            }
        }
    }
}

/// Where a function comes from: as its last frame says.
#[derive(Debug, Clone, Copy)]
struct FunctionOrigin<'a> {
    file: Option<&'a str>,
    /// The first of its lines in that file.
    first_line: Option<u32>,
    kind: &'static str,
}

/// The origins of all functions of the profile.
fn origins<'a>(view: &View<'a>) -> Vec<FunctionOrigin<'a>> {
    let unknown = FunctionOrigin {
        file: None,
        first_line: None,
        kind: "user",
    };
    let mut origins = vec![unknown; view.named.functions().len()];
    for (id, frame) in (0..).map(FrameId).zip(view.named.profile.frames()) {
        for line in view.named.lines_of(id) {
            if let Some(origin) = origins.get_mut(line.function.0 as usize) {
                origin.file = line.file.as_deref();
                origin.kind = kind(view.named.profile, frame);
            }
        }
    }
    let frames = (0..).map(FrameId).take(view.named.profile.frames().len());
    for line in frames.flat_map(|id| view.named.lines_of(id)) {
        if let Some(origin) = origins.get_mut(line.function.0 as usize)
            && line.file.as_deref() == origin.file
        {
            origin.first_line = [origin.first_line, line.line].into_iter().flatten().min();
        }
    }
    origins
}

/// The line of a function from its first one on; 0 if it is unknown, or in another file.
fn line_of(origins: &[FunctionOrigin<'_>], line: &FrameLine) -> u32 {
    let origin = origins.get(line.function.0 as usize);
    let origin =
        origin.filter(|origin| origin.file.is_some() && origin.file == line.file.as_deref());
    let first = origin.and_then(|origin| origin.first_line);
    let distance = first
        .zip(line.line)
        .map(|(first, line)| line.saturating_sub(first));
    distance.map_or(0, |distance| distance.saturating_add(1))
}

fn kind(profile: &Profile, frame: &ProfileFrame) -> &'static str {
    match frame.lookup {
        CodeLocation::Kernel(_) => "kernel",
        CodeLocation::Process(..) => "jit",
        CodeLocation::Module(id, _) => match profile.module(id).map(|module| module.kind) {
            Some(ModuleKind::Kernel | ModuleKind::KernelModule) => "kernel",
            Some(ModuleKind::Jit) => "jit",
            Some(ModuleKind::File | ModuleKind::Vdso) | None => "user",
        },
    }
}
