//! The Firefox Profiler's processed profile format, version 55: for each thread, columnar tables of
//! stacks, frames, functions and strings.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;
use serde_json::{Value, json};

use super::{StringInterner, View};
use crate::model::{CodeLocation, CpuState, FrameId, ProfileRate, ProfileSample, ThreadId, Time};
use crate::names::{FrameCertainty, FrameLine};
use crate::stacks::{StackId, Stacks};

/// The format version of these tables. The profiler upgrades older ones.
const VERSION: u32 = 55;

/// Writes the samples.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut by_thread: BTreeMap<ThreadId, Vec<&ProfileSample>> = BTreeMap::new();
    for sample in &view.samples {
        by_thread.entry(sample.thread).or_default().push(sample);
    }
    let mut rows = StackRows::new(view.named.profile.stacks());
    let threads: Vec<FirefoxThread<'_>> = (by_thread.into_iter())
        .filter_map(|(id, samples)| thread(view, id, samples, &mut rows))
        .collect();
    drop(rows);
    let libs: Vec<Value> = (view.named.profile.modules().iter())
        .map(|module| {
            let path = module.path.to_string_lossy();
            let name = path.rsplit('/').next().unwrap_or(&path);
            let code_id = module.build_id().map(|id| id.to_string());
            json!({ "name": name, "debugName": name, "path": path, "debugPath": path,
                    "breakpadId": breakpad_id(code_id.as_deref()), "codeId": code_id,
                    "arch": view.named.profile.meta().arch })
        })
        .collect();
    let file = FirefoxFile {
        meta: meta(view),
        libs,
        threads,
        pages: [],
        profiler_overhead: [],
        counters: [],
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// A module's ID on Mozilla's symbol servers: the first 16 bytes of the build ID as a GUID in
/// capitals, and a zero. The GUID's first three fields are little-endian.
fn breakpad_id(build_id: Option<&str>) -> String {
    let digits = format!("{:0<32}", build_id.unwrap_or(""));
    let bytes: Vec<&str> = (0..16)
        .filter_map(|n| digits.get(2 * n..2 * n + 2))
        .collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let swapped = order.iter().filter_map(|n| bytes.get(*n).copied());
    swapped.collect::<String>().to_uppercase() + "0"
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FirefoxFile<'v> {
    meta: Value,
    libs: Vec<Value>,
    threads: Vec<FirefoxThread<'v>>,
    pages: [(); 0],
    profiler_overhead: [(); 0],
    counters: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FirefoxThread<'v> {
    name: &'v str,
    is_main_thread: bool,
    process_type: &'static str,
    process_name: &'v str,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    pid: String,
    tid: String,
    paused_ranges: [(); 0],
    markers: Value,
    samples: FirefoxSamples,
    frame_table: FrameTable,
    func_table: FuncTable,
    resource_table: ResourceTable,
    stack_table: StackTable,
    native_symbols: Value,
    string_array: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FirefoxSamples {
    length: usize,
    weight_type: &'static str,
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    weight: Weights,
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    cpu_deltas: Option<Vec<u64>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Weights {
    Milliseconds(Vec<f64>),
    Counts(Vec<u32>),
}

/// A column without values.
type Nulls = Vec<()>;

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: u32,
    /// In the library's file; -1 outside of libraries.
    address: Vec<i64>,
    inline_depth: Vec<usize>,
    category: Vec<u32>,
    subcategory: Vec<u32>,
    func: Vec<u32>,
    native_symbol: Nulls,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u32>,
    line: Vec<Option<u32>>,
    column: Nulls,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct FuncTable {
    length: u32,
    name: Vec<u32>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<u32>,
    file_name: Vec<Option<u32>>,
    line_number: Nulls,
    column_number: Nulls,
}

#[derive(Serialize, Default)]
struct ResourceTable {
    length: u32,
    lib: Vec<Option<u32>>,
    name: Vec<u32>,
    host: Nulls,
    /// 1 means a library, 0 anything else.
    #[serde(rename = "type")]
    kind: Vec<u32>,
}

#[derive(Serialize, Default)]
struct StackTable {
    length: u32,
    prefix: Vec<Option<u32>>,
    frame: Vec<u32>,
}

/// The categories, which have colours. The profiler takes the grey one for samples without a stack.
const USER: u32 = 0;
const KERNEL: u32 = 1;
const GUESSED: u32 = 2;

fn meta(view: &View<'_>) -> Value {
    let meta = view.named.profile.meta();
    let interval = match meta.event.rate {
        ProfileRate::Frequency(hertz) => millis_of(1_000_000_000 / hertz.max(1)),
        _ => 1.0,
    };
    let category = |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    json!({
        "version": 24,
        "preprocessedProfileVersion": VERSION,
        "interval": interval,
        "startTime": millis_of(meta.started),
        "processType": 0,
        "product": view.title(),
        "importedFrom": meta.tool,
        "oscpu": format!("Linux {} {}", meta.kernel, meta.arch),
        "platform": meta.host,
        "stackwalk": 1,
        "debug": false,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true,
        "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        "categories": [category("User", "yellow"), category("Kernel", "orange"),
                       category("Guessed or spliced", "purple"), category("Other", "grey")],
        "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" },
        "pausedRanges": [],
        "markerSchema": [],
    })
}

/// Nanoseconds as milliseconds. The rounding error is less than a microsecond.
#[expect(
    clippy::cast_precision_loss,
    reason = "times of years lose less than a microsecond"
)]
fn millis_of(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

fn thread<'v>(
    view: &View<'v>,
    id: ThreadId,
    mut samples: Vec<&ProfileSample>,
    rows: &mut StackRows,
) -> Option<FirefoxThread<'v>> {
    let profile = view.named.profile;
    let thread = profile.thread(id)?;
    let process = profile.process(thread.process)?;
    let start = profile.meta().clock;
    let since_start = |time: Time| millis_of(time.0.saturating_sub(start.0));
    samples.sort_by_key(|sample| start_of(sample));
    let mut tables = ThreadTables::default();
    let stacks: Vec<StackId> = samples.iter().map(|sample| sample.stack).collect();
    let samples = FirefoxSamples {
        length: samples.len(),
        weight_type: if view.is_time() {
            "tracing-ms"
        } else {
            "samples"
        },
        stack: (stacks.iter())
            .map(|stack| tables.stack(view, rows, *stack))
            .collect(),
        time: (samples.iter())
            .map(|sample| since_start(start_of(sample)))
            .collect(),
        weight: if view.is_time() {
            Weights::Milliseconds(samples.iter().map(|s| millis_of(s.weight)).collect())
        } else {
            Weights::Counts(samples.iter().map(|_| 1).collect())
        },
        cpu_deltas: cpu_deltas(view, &samples),
    };
    for stack in stacks {
        rows.forget(view.named.profile.stacks(), stack);
    }
    Some(FirefoxThread {
        name: &thread.name,
        is_main_thread: thread.tid == process.pid,
        process_type: "default",
        process_name: &process.name,
        process_startup_time: since_start(process.start),
        process_shutdown_time: process.end.map(since_start),
        register_time: since_start(thread.start),
        unregister_time: thread.end.map(since_start),
        pid: process.pid.to_string(),
        tid: thread.tid.to_string(),
        paused_ranges: [],
        markers: json!({ "length": 0, "category": [], "data": [], "endTime": [], "name": [],
                         "phase": [], "startTime": [] }),
        samples,
        frame_table: tables.frames,
        func_table: tables.functions,
        resource_table: tables.resources,
        stack_table: tables.stacks,
        native_symbols: json!({ "length": 0, "address": [], "functionSize": [], "libIndex": [],
                                "name": [] }),
        string_array: tables.strings.all,
    })
}

/// For each stack of the profile, the row of its innermost function in the table of a thread.
struct StackRows(Vec<Option<u32>>);

impl StackRows {
    fn new(stacks: &Stacks) -> StackRows {
        StackRows(vec![None; stacks.count() as usize])
    }

    fn get(&self, stack: StackId) -> Option<u32> {
        self.0.get(stack.0 as usize).copied().flatten()
    }

    fn set(&mut self, stack: StackId, row: Option<u32>) {
        if let Some(place) = self.0.get_mut(stack.0 as usize) {
            *place = row;
        }
    }

    /// Prepares for another thread, whose table has other rows.
    fn forget(&mut self, stacks: &Stacks, mut stack: StackId) {
        while self.get(stack).is_some()
            && let Some(node) = stacks.node(stack)
        {
            self.set(stack, None);
            stack = node.parent;
        }
    }
}

/// The start time of a sample's stack in the profiler, which lasts until the next sample. A waiting
/// thread has had its stack since it started to wait.
fn start_of(sample: &ProfileSample) -> Time {
    match sample.state {
        CpuState::OnCpu => sample.time,
        CpuState::OffCpu => Time(sample.time.0.saturating_sub(sample.weight)),
    }
}

/// The thread's running time since the previous sample, in nanoseconds, which shows where it did
/// not run. `None` if weights are not times.
fn cpu_deltas(view: &View<'_>, samples: &[&ProfileSample]) -> Option<Vec<u64>> {
    let mut states = samples.iter().map(|sample| sample.state);
    let is_reported = view.is_time() && states.all(|state| state == CpuState::OnCpu);
    is_reported.then(|| samples.iter().map(|sample| sample.weight).collect())
}

/// The tables of a thread, in columns.
#[derive(Default)]
struct ThreadTables {
    strings: StringInterner,
    resources: ResourceTable,
    resource_ids: HashMap<(Option<u32>, u32), u32>,
    functions: FuncTable,
    function_ids: HashMap<Func, u32>,
    frames: FrameTable,
    frame_rows: hashbrown::HashMap<FrameId, Range<u32>>,
    stacks: StackTable,
    /// The stacks without rows yet, innermost first.
    new: Vec<(StackId, FrameId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Func {
    name: u32,
    resource: u32,
    file: Option<u32>,
}

impl ThreadTables {
    /// A stack; `None` for one without frames.
    fn stack(&mut self, view: &View<'_>, rows: &mut StackRows, mut stack: StackId) -> Option<u32> {
        let mut prefix = None;
        while let Some(node) = view.named.profile.stacks().node(stack) {
            prefix = rows.get(stack);
            if prefix.is_some() {
                break;
            }
            self.new.push((stack, node.frame));
            stack = node.parent;
        }
        while let Some((stack, frame)) = self.new.pop() {
            for row in self.rows(view, frame) {
                prefix = Some(self.stacks.push(prefix, row));
            }
            rows.set(stack, prefix);
        }
        prefix
    }

    /// The rows of a frame: the function that contains the code, then the functions inlined there.
    fn rows(&mut self, view: &View<'_>, id: FrameId) -> Range<u32> {
        if let Some(rows) = self.frame_rows.get(&id) {
            return rows.clone();
        }
        let start = self.frames.length;
        for (depth, line) in view.named.lines_of(id).iter().rev().enumerate() {
            self.row(view, id, line, depth);
        }
        let rows = start..self.frames.length;
        self.frame_rows.insert(id, rows.clone());
        rows
    }

    fn row(&mut self, view: &View<'_>, id: FrameId, line: &FrameLine, depth: usize) {
        let Some(frame) = view.named.profile.frame(id) else {
            return;
        };
        let mark = FrameCertainty::from_evidence(frame.evidence);
        let name = view.named.function_name(line.function).to_owned() + mark.suffix();
        let function = Func {
            name: self.strings.id(&name),
            resource: self.resource(view.named.module_of(id), frame.lookup),
            file: line.file.as_deref().map(|file| self.strings.id(file)),
        };
        let functions = &mut self.functions;
        let function = *(self.function_ids.entry(function))
            .or_insert_with_key(|function| functions.push(*function));
        let category = match (mark, frame.evidence) {
            (FrameCertainty::Certain, crate::FrameEvidence::Kernel) => KERNEL,
            (FrameCertainty::Certain, _) => USER,
            _ => GUESSED,
        };
        let frames = &mut self.frames;
        frames.address.push(match frame.lookup {
            CodeLocation::Module(_, address) => i64::try_from(address.0).unwrap_or(-1),
            _ => -1,
        });
        frames.inline_depth.push(depth);
        frames.category.push(category);
        frames.subcategory.push(0);
        frames.func.push(function);
        frames.native_symbol.push(());
        frames.inner_window_id.push(0);
        frames.line.push(line.line);
        frames.column.push(());
        frames.length += 1;
    }

    fn resource(&mut self, name: &str, location: CodeLocation) -> u32 {
        let lib = match location {
            CodeLocation::Module(module, _) => Some(module.0),
            _ => None,
        };
        let new = (lib, self.strings.id(name));
        let resources = &mut self.resources;
        let ids = &mut self.resource_ids;
        *ids.entry(new)
            .or_insert_with(|| resources.push(new.0, new.1))
    }
}

/// The index of a table's new row.
fn next(length: &mut u32) -> u32 {
    let row = *length;
    *length += 1;
    row
}

impl FuncTable {
    fn push(&mut self, function: Func) -> u32 {
        self.name.push(function.name);
        self.is_js.push(false);
        self.relevant_for_js.push(false);
        self.resource.push(function.resource);
        self.file_name.push(function.file);
        self.line_number.push(());
        self.column_number.push(());
        next(&mut self.length)
    }
}

impl ResourceTable {
    fn push(&mut self, lib: Option<u32>, name: u32) -> u32 {
        self.lib.push(lib);
        self.name.push(name);
        self.host.push(());
        self.kind.push(u32::from(lib.is_some()));
        next(&mut self.length)
    }
}

impl StackTable {
    fn push(&mut self, prefix: Option<u32>, frame: u32) -> u32 {
        self.prefix.push(prefix);
        self.frame.push(frame);
        next(&mut self.length)
    }
}
