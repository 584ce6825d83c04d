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
use std::panic::resume_unwind;
use std::thread;

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
    let samples: Vec<&ProfileSample> = by_thread.values().flatten().copied().collect();
    let origins = origins(view);
    let mut functions = FunctionNumbers::new(view.named.functions().len());
    let (tree, (completeness, of_samples)) = thread::scope(|scope| {
        let others = scope.spawn(|| {
            let completeness = Completeness::new(profile, &view.samples);
            (completeness, sample_columns(view, &samples))
        });
        let tree = StackTree::new(view, |line| line_of(&origins, line));
        let others = others.join().unwrap_or_else(|panic| resume_unwind(panic));
        (tree, others)
    });
    let mut callees = CalleeNumbers::new();
    for (depth, step) in tree.preorder() {
        callees.add(depth, functions.number(step.function));
    }
    let depths = tree.preorder().map(|(depth, _)| i64::from(depth));
    let flags = tree.preorder().map(|(_, step)| step.flags());
    let lines = tree.preorder().map(|(_, step)| u64::from(step.line));
    let counts = by_thread.values().map(|samples| samples.len() as u64);
    let nodes = samples
        .iter()
        .map(|sample| i64::from(tree.number(sample.stack)));
    let places = profile.frames().iter().map(|frame| place_of(frame.lookup));
    let places: Vec<u64> = places.collect();
    let place = |sample: &&ProfileSample| {
        let node = profile.stacks().node(sample.stack);
        let place = node.and_then(|node| places.get(node.frame.0 as usize));
        place.copied().unwrap_or(0)
    };
    let mut columns = vec![
        Column::signed("node.depth").with_signed(depths),
        callees.numbers,
        callees.new,
        Column::new("node.flags").with(flags),
        Column::new("node.line").with(lines),
    ];
    columns.push(Column::new("thread.samples").with(counts));
    columns.push(Column::signed("sample.node").with_signed(nodes));
    columns.extend(of_samples);
    columns.push(Column::new("sample.place").with(samples.iter().map(place)));
    columns.retain(|column| column.has_values || !column.is_optional());
    let header = header(
        view,
        &by_thread,
        &origins,
        &functions.used,
        &completeness,
        &columns,
    );
    let header = serde_json::to_vec(&header)?;
    let size = columns.iter().map(|column| column.bytes.len());
    let mut bytes = Vec::with_capacity(4 + header.len() + size.sum::<usize>());
    bytes.extend(number(header.len()).to_le_bytes());
    bytes.extend(header);
    for column in &columns {
        bytes.extend_from_slice(&column.bytes);
    }
    Ok(PageContent { bytes, functions })
}

/// What is encoded of samples without their stacks.
fn sample_columns(view: &View<'_>, samples: &[&ProfileSample]) -> [Column; 4] {
    let start = view.named.profile.meta().clock;
    let micros = |sample: &&ProfileSample| difference(sample.time.0, start.0).div_euclid(1000);
    let cpu = |sample: &&ProfileSample| i64::from(sample.cpu);
    let reasons = WaitReasons::new(view.named);
    let state = |sample: &&ProfileSample| state(&reasons, sample);
    [
        Column::signed("sample.time").with_signed(samples.iter().map(micros)),
        Column::new("sample.weight").with(samples.iter().map(|sample| sample.weight)),
        Column::signed("sample.cpu").with_signed(samples.iter().map(cpu)),
        Column::new("sample.state").with(samples.iter().map(state)),
    ]
}

fn header<'a>(
    view: &View<'a>,
    by_thread: &BTreeMap<ThreadId, Vec<&ProfileSample>>,
    origins: &[FunctionOrigin<'_>],
    functions: &[u32],
    completeness: &Completeness,
    columns: &[Column],
) -> PageHeader<'a> {
    let profile = view.named.profile;
    let meta = profile.meta();
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
        columns: columns.iter().map(Column::header).collect(),
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

/// A column, encoded.
struct Column {
    name: &'static str,
    is_signed: bool,
    count: usize,
    bytes: Vec<u8>,
    /// The last number of a signed one.
    previous: i64,
    /// Whether a number is not 0.
    has_values: bool,
}

impl Column {
    fn new(name: &'static str) -> Column {
        Column {
            name,
            is_signed: false,
            count: 0,
            bytes: Vec::new(),
            previous: 0,
            has_values: false,
        }
    }

    fn signed(name: &'static str) -> Column {
        Column {
            is_signed: true,
            ..Column::new(name)
        }
    }

    fn push(&mut self, number: u64) {
        leb128::put_unsigned(&mut self.bytes, number);
        self.count += 1;
        self.has_values |= number != 0;
    }

    fn push_signed(&mut self, number: i64) {
        let difference = number.wrapping_sub(self.previous);
        self.previous = number;
        let zigzag = difference << 1 ^ difference >> 63;
        self.push(zigzag.cast_unsigned());
    }

    fn with(mut self, numbers: impl Iterator<Item = u64>) -> Column {
        numbers.for_each(|number| self.push(number));
        self
    }

    fn with_signed(mut self, numbers: impl Iterator<Item = i64>) -> Column {
        numbers.for_each(|number| self.push_signed(number));
        self
    }

    /// Whether it is left out if all its numbers are 0.
    fn is_optional(&self) -> bool {
        matches!(self.name, "node.line" | "sample.place")
    }

    fn header(&self) -> PageColumn {
        PageColumn {
            name: self.name,
            count: self.count,
            is_signed: self.is_signed,
            bytes: self.bytes.len(),
        }
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
struct CalleeNumbers {
    /// The functions of the last node's stack.
    path: Vec<u32>,
    /// The number of each callee, from 1.
    known: FastMap<(Option<u32>, u32), u64>,
    /// The number of callees of each function, and of none: the outermost ones.
    counts: FastMap<Option<u32>, u64>,
    numbers: Column,
    new: Column,
}

impl CalleeNumbers {
    fn new() -> CalleeNumbers {
        CalleeNumbers {
            path: Vec::new(),
            known: FastMap::default(),
            counts: FastMap::default(),
            numbers: Column::new("node.callee"),
            new: Column::new("callee.function"),
        }
    }

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
