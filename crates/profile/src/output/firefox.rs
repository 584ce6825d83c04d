//! The Firefox Profiler's processed profile format, version 55: for each thread tables of stacks,
//! frames, functions and strings, by columns.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde_json::{Value, json};

use super::View;
use crate::model::{FrameId, ModuleId, Place, Rate, Sample, State, ThreadId, Time};
use crate::names::{Line, Mark};
use crate::stacks::StackId;

/// The version whose tables these are. The profiler upgrades older ones.
const VERSION: u32 = 55;

/// Writes the samples.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut by_thread: BTreeMap<ThreadId, Vec<&Sample>> = BTreeMap::new();
    for sample in &view.samples {
        by_thread.entry(sample.thread).or_default().push(sample);
    }
    let threads: Vec<Value> = (by_thread.into_iter())
        .filter_map(|(id, samples)| thread(view, id, samples))
        .collect();
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
    let file = json!({
        "meta": meta(view), "libs": libs, "threads": threads, "pages": [], "profilerOverhead": [],
        "counters": [],
    });
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// What Mozilla's symbol servers name a module by: the first 16 bytes of the build ID as a GUID,
/// whose first three fields are little-endian, in capitals, and a zero.
fn breakpad_id(build_id: Option<&str>) -> String {
    let digits = format!("{:0<32}", build_id.unwrap_or(""));
    let bytes: Vec<&str> = (0..16)
        .filter_map(|n| digits.get(2 * n..2 * n + 2))
        .collect();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let swapped = order.iter().filter_map(|n| bytes.get(*n).copied());
    swapped.collect::<String>().to_uppercase() + "0"
}

/// The categories, which have colours. The profiler takes the grey one for samples without a stack.
const USER: u32 = 0;
const KERNEL: u32 = 1;
const GUESSED: u32 = 2;

fn meta(view: &View<'_>) -> Value {
    let meta = view.named.profile.meta();
    let interval = match meta.event.rate {
        Rate::Frequency(hertz) => millis_of(1_000_000_000 / hertz.max(1)),
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

/// Nanoseconds as milliseconds. What a fraction cannot hold is less than a microsecond.
#[expect(
    clippy::cast_precision_loss,
    reason = "times of years lose less than a microsecond"
)]
fn millis_of(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

fn thread(view: &View<'_>, id: ThreadId, mut samples: Vec<&Sample>) -> Option<Value> {
    let profile = view.named.profile;
    let thread = profile.thread(id)?;
    let process = profile.process(thread.process)?;
    let start = profile.meta().clock;
    let since_start = |time: Time| millis_of(time.0.saturating_sub(start.0));
    samples.sort_by_key(|sample| start_of(sample));
    let mut tables = Tables::default();
    let stacks: Vec<Option<usize>> = (samples.iter())
        .map(|sample| tables.stack(view, sample.stack))
        .collect();
    let times: Vec<f64> = samples
        .iter()
        .map(|sample| since_start(start_of(sample)))
        .collect();
    let weights: Vec<Value> = match view.is_time() {
        true => samples
            .iter()
            .map(|sample| json!(millis_of(sample.weight)))
            .collect(),
        false => samples.iter().map(|_| json!(1)).collect(),
    };
    let kind = if view.is_time() {
        "tracing-ms"
    } else {
        "samples"
    };
    let mut columns = json!({ "length": samples.len(), "weightType": kind, "stack": stacks,
                              "time": times, "weight": weights });
    if let (Some(columns), Some(deltas)) = (columns.as_object_mut(), cpu_deltas(view, &samples)) {
        columns.insert("threadCPUDelta".into(), deltas.into());
    }
    let mut value = tables.finish();
    let more = json!({
        "name": thread.name,
        "isMainThread": thread.tid == process.pid,
        "processType": "default",
        "processName": process.name,
        "processStartupTime": since_start(process.start),
        "processShutdownTime": process.end.map(since_start),
        "registerTime": since_start(thread.start),
        "unregisterTime": thread.end.map(since_start),
        "pid": process.pid.to_string(),
        "tid": thread.tid.to_string(),
        "pausedRanges": [],
        "markers": { "length": 0, "category": [], "data": [], "endTime": [], "name": [],
                     "phase": [], "startTime": [] },
        "samples": columns,
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    Some(value)
}

/// When a sample's stack begins to hold, as far as the profiler shows: until the next one does. A thread that
/// waits has had its stack for as long as it waits.
fn start_of(sample: &Sample) -> Time {
    match sample.state {
        State::OnCpu => sample.time,
        State::OffCpu => Time(sample.time.0.saturating_sub(sample.weight)),
    }
}

/// How long the thread ran since the sample before, in nanoseconds: what shows where it did not. `None` if the
/// weights do not tell.
fn cpu_deltas(view: &View<'_>, samples: &[&Sample]) -> Option<Vec<Value>> {
    let is_running = |sample: &&Sample| sample.state == State::OnCpu;
    let is_told = view.is_time() && samples.iter().all(is_running);
    is_told.then(|| column(samples, |sample| json!(sample.weight)))
}

/// The tables of a thread, by columns.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, usize>,
    resources: Vec<(Option<ModuleId>, usize)>,
    resource_ids: HashMap<(Option<ModuleId>, usize), usize>,
    functions: Vec<Func>,
    function_ids: HashMap<Func, usize>,
    frames: Vec<Row>,
    frame_ids: HashMap<FrameId, Vec<usize>>,
    /// Prefix and frame.
    stacks: Vec<(Option<usize>, usize)>,
    stack_ids: HashMap<(Option<usize>, usize), usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Func {
    name: usize,
    resource: usize,
    file: Option<usize>,
}

struct Row {
    /// In the library's file; `None` for what is in no library.
    address: Option<u64>,
    inline_depth: usize,
    category: u32,
    function: usize,
    line: Option<u32>,
}

/// The number of something in a list that has each thing once.
fn id_in<T: Clone + Eq + std::hash::Hash>(
    all: &mut Vec<T>,
    ids: &mut HashMap<T, usize>,
    new: &T,
) -> usize {
    if let Some(id) = ids.get(new) {
        return *id;
    }
    let id = all.len();
    all.push(new.clone());
    ids.insert(new.clone(), id);
    id
}

impl Tables {
    fn string(&mut self, text: &str) -> usize {
        id_in(&mut self.strings, &mut self.string_ids, &text.to_owned())
    }

    /// A stack; `None` for one without frames.
    fn stack(&mut self, view: &View<'_>, stack: StackId) -> Option<usize> {
        let mut frames: Vec<FrameId> = view.named.profile.stacks().frames(stack).collect();
        frames.reverse();
        let mut prefix = None;
        for frame in frames {
            for row in self.rows(view, frame) {
                let new = (prefix, row);
                prefix = Some(id_in(&mut self.stacks, &mut self.stack_ids, &new));
            }
        }
        prefix
    }

    /// The rows of a frame: the function that has the code, then what was inlined there.
    fn rows(&mut self, view: &View<'_>, id: FrameId) -> Vec<usize> {
        if let Some(rows) = self.frame_ids.get(&id) {
            return rows.clone();
        }
        let lines: &[Line] = view.named.lines_of(id);
        let rows: Vec<usize> = (lines.iter().rev().enumerate())
            .filter_map(|(depth, line)| self.row(view, id, line, depth))
            .collect();
        self.frame_ids.insert(id, rows.clone());
        rows
    }

    fn row(&mut self, view: &View<'_>, id: FrameId, line: &Line, depth: usize) -> Option<usize> {
        let frame = view.named.profile.frame(id)?;
        let mark = Mark::of(frame.evidence);
        let name = view.named.function_name(line.function).to_owned() + mark.suffix();
        let function = Func {
            name: self.string(&name),
            resource: self.resource(view.named.module_of(id), frame.lookup),
            file: line.file.as_deref().map(|file| self.string(file)),
        };
        let function = id_in(&mut self.functions, &mut self.function_ids, &function);
        let category = match (mark, frame.evidence) {
            (Mark::Sure, crate::Evidence::Kernel) => KERNEL,
            (Mark::Sure, _) => USER,
            _ => GUESSED,
        };
        self.frames.push(Row {
            address: match frame.lookup {
                Place::Module(_, address) => Some(address.0),
                _ => None,
            },
            inline_depth: depth,
            category,
            function,
            line: line.line,
        });
        Some(self.frames.len() - 1)
    }

    fn resource(&mut self, name: &str, place: Place) -> usize {
        let lib = match place {
            Place::Module(module, _) => Some(module),
            _ => None,
        };
        let new = (lib, self.string(name));
        id_in(&mut self.resources, &mut self.resource_ids, &new)
    }

    /// The tables as JSON.
    fn finish(self) -> Value {
        let (frames, functions) = (&self.frames, &self.functions);
        let (resources, stacks) = (&self.resources, &self.stacks);
        let nulls = |length| vec![Value::Null; length];
        json!({
            "frameTable": {
                "length": frames.len(),
                "address": column(frames, |row| row.address.map_or(json!(-1), Value::from)),
                "inlineDepth": column(frames, |row| json!(row.inline_depth)),
                "category": column(frames, |row| json!(row.category)),
                "subcategory": column(frames, |_| json!(0)),
                "func": column(frames, |row| json!(row.function)),
                "nativeSymbol": nulls(frames.len()),
                "innerWindowID": column(frames, |_| json!(0)),
                "line": column(frames, |row| json!(row.line)),
                "column": nulls(frames.len()),
            },
            "funcTable": {
                "length": functions.len(),
                "name": column(functions, |function| json!(function.name)),
                "isJS": column(functions, |_| json!(false)),
                "relevantForJS": column(functions, |_| json!(false)),
                "resource": column(functions, |function| json!(function.resource)),
                "fileName": column(functions, |function| json!(function.file)),
                "lineNumber": nulls(functions.len()),
                "columnNumber": nulls(functions.len()),
            },
            "resourceTable": {
                "length": resources.len(),
                "lib": column(resources, |(lib, _)| json!(lib.map(|lib| lib.0))),
                "name": column(resources, |(_, name)| json!(name)),
                "host": nulls(resources.len()),
                // 1 says that it is a library, 0 that it is something else.
                "type": column(resources, |(lib, _)| json!(u32::from(lib.is_some()))),
            },
            "stackTable": {
                "length": stacks.len(),
                "prefix": column(stacks, |(prefix, _)| json!(prefix)),
                "frame": column(stacks, |(_, frame)| json!(frame)),
            },
            "nativeSymbols": { "length": 0, "address": [], "functionSize": [], "libIndex": [],
                               "name": [] },
            "stringArray": self.strings,
        })
    }
}

fn column<T>(rows: &[T], cell: impl Fn(&T) -> Value) -> Vec<Value> {
    rows.iter().map(cell).collect()
}
