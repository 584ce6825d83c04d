//! A report as JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};
use unspool_profile::aggregate::{self, CallNode, CallTree, Direction, Weight};
use unspool_profile::output::View;
use unspool_profile::{
    Argument, CodeLocation, Completeness, FileEnding, FrameEvidence, FunctionId, IncompleteStacks,
    Profile, ProfileFunction, ProfileModule, ProfileRate, StackFunction,
};

use super::total;
use crate::output::{self, JsonLayout, Streamed, address};

#[derive(Serialize)]
struct ReportDocument<'a, T> {
    recording: Value,
    samples: usize,
    weight: u64,
    unit: &'a str,
    completeness: Value,
    functions: Vec<Value>,
    modules: Vec<Value>,
    threads: Vec<Value>,
    tree: T,
}

pub(super) fn print(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let profile = view.named.profile;
    let completeness = Completeness::new(profile, &view.samples);
    let weights = aggregate::functions(view.named, &view.samples);
    let places = places(view, &weights);
    let tree = CallTree::new(view.named, &view.samples, Direction::Callees);
    let report = ReportDocument {
        recording: recording(profile),
        samples: view.samples.len(),
        weight: total(view),
        unit: view.unit(),
        completeness: complete(&completeness),
        functions: functions(view, weights),
        modules: list(
            aggregate::modules(view.named, &view.samples),
            |name| json!({ "module": name }),
        ),
        threads: threads(view),
        tree: Streamed(|| nodes(&tree, &places)),
    };
    output::write_document(out, JsonLayout::Rows, "report", &report)
}

fn recording(profile: &Profile) -> Value {
    let meta = profile.meta();
    let (frequency, period) = match meta.event.rate {
        ProfileRate::Unknown => (None, None),
        ProfileRate::Frequency(hertz) => (Some(hertz), None),
        ProfileRate::Period(events) => (None, Some(events)),
    };
    json!({
        "command": meta.command,
        "host": meta.host,
        "kernel": meta.kernel,
        "arch": meta.arch,
        "tool": meta.tool,
        "event": meta.event.name,
        "frequency_hz": frequency,
        "period": period,
        "started_ns": meta.started,
        "ended_properly": matches!(profile.ending(), FileEnding::Proper { .. }),
    })
}

pub(in crate::commands) fn complete(all: &Completeness) -> Value {
    let path = |module: Option<&ProfileModule>| {
        module.map(|module| module.path.to_string_lossy().into_owned())
    };
    let outermost_frame = |why: &IncompleteStacks| {
        let at = why.location.map(CodeLocation::address);
        at.map(|at| json!({ "module": path(why.module.as_ref()), "address": address(at) }))
    };
    let frames_by_evidence: serde_json::Map<String, Value> = (FrameEvidence::ALL.iter())
        .map(|how| {
            let count = all.frames.get(how).copied().unwrap_or(0);
            (how.name().to_owned(), json!(count))
        })
        .collect();
    json!({
        "stacks": all.stacks(),
        "complete": all.complete,
        "guessed": all.guessed,
        "spliced": all.spliced,
        "incomplete": all.incomplete(),
        "reasons": all.incomplete.iter().map(|why| json!({
            "code": why.end.name(),
            "samples": why.samples,
            "outermost_frame": outermost_frame(why),
        })).collect::<Vec<_>>(),
        "kernel_thread_samples": all.kernel_threads,
        "samples_without_user_registers": all.no_user_registers,
        "no_callers": all.no_callers,
        "thirty_two_bit": all.thirty_two_bit,
        "lost_samples": all.lost,
        "frames_by_evidence": frames_by_evidence,
        "advice": all.advice().iter().map(|advice| json!({
            "code": advice.reason.end.name(),
            "samples": advice.reason.samples,
            "module": path(advice.reason.module),
            "message": advice.text(),
        })).collect::<Vec<_>>(),
    })
}

/// A list of weights with their keys.
fn list<K>(weights: Vec<Weight<K>>, key: impl Fn(K) -> Value) -> Vec<Value> {
    let entry = |weight: Weight<K>| {
        let mut value = key(weight.key);
        if let Value::Object(value) = &mut value {
            value.insert("self_weight".into(), json!(weight.own));
            value.insert("total_weight".into(), json!(weight.total));
            value.insert("guessed_weight".into(), json!(weight.guessed));
        }
        value
    };
    weights.into_iter().map(entry).collect()
}

fn functions(view: &View<'_>, weights: Vec<Weight<FunctionId>>) -> Vec<Value> {
    list(weights, |id| {
        let function = view.named.function(id);
        let arguments = function.and_then(|function| function.arguments);
        let mut value = json!({ "function": function.map(ProfileFunction::plain_name), "module": function.map(|f| &f.module) });
        let start = function.and_then(|function| function.start);
        if let (Some(start), Value::Object(value)) = (start, &mut value) {
            value.insert("start".into(), json!(output::address(start)));
        }
        if let (Some(arguments), Value::Object(value)) = (arguments, &mut value) {
            let arguments = view.named.profile.arguments(arguments).iter().map(argument);
            value.insert("arguments".into(), arguments.collect());
        }
        value
    })
}

fn argument(argument: &Argument) -> Value {
    json!({ "name": argument.name, "type": argument.type_name,
            "value": Some(&argument.value).filter(|value| !value.is_empty()),
            "certainty": argument.certainty.name() })
}

/// The index of each function in the list.
fn places(view: &View<'_>, weights: &[Weight<FunctionId>]) -> Vec<usize> {
    let mut places = vec![0; view.named.functions().len()];
    for (place, weight) in weights.iter().enumerate() {
        if let Some(of_function) = places.get_mut(weight.key.0 as usize) {
            *of_function = place;
        }
    }
    places
}

fn threads(view: &View<'_>) -> Vec<Value> {
    list(aggregate::threads(&view.samples), |id| {
        let thread = view.named.profile.thread(id);
        let process = thread.and_then(|thread| view.named.profile.process(thread.process));
        json!({ "thread": thread.map(|t| &t.name), "tid": thread.map(|t| t.tid),
                "process": process.map(|p| &p.name), "pid": process.map(|p| p.pid) })
    })
}

/// Functions of the call tree in a row without a branch.
#[derive(Serialize)]
struct TreeNode {
    parent: Option<usize>,
    functions: Vec<usize>,
    certainty: Option<&'static str>,
    self_weight: u64,
    total_weight: u64,
}

/// The call tree as a list: nested objects would be as deep as the stacks.
fn nodes<'t>(tree: &'t CallTree, places: &'t [usize]) -> impl Iterator<Item = TreeNode> + use<'t> {
    let mut count = 0;
    let mut waiting = vec![(tree.root(), None)];
    let of_next = move || {
        let (node, parent) = waiting.pop()?;
        let nodes = with_one_mark(&node, parent, count, places);
        count += nodes.len();
        let children = node.children().into_iter().rev();
        waiting.extend(children.map(|child| (child, count.checked_sub(1))));
        Some(nodes)
    };
    std::iter::from_fn(of_next).flatten()
}

/// A node, or several if its functions have different marks. `next` is the index of the first.
fn with_one_mark(
    node: &CallNode<'_>,
    parent: Option<usize>,
    next: usize,
    places: &[usize],
) -> Vec<TreeNode> {
    let mut parts: Vec<&[StackFunction]> =
        node.functions.chunk_by(|a, b| a.mark == b.mark).collect();
    if parts.is_empty() {
        parts.push(&[]);
    }
    let last = parts.len() - 1;
    let place = |function: &StackFunction| places.get(function.function.0 as usize).copied();
    let part = |(n, steps): (usize, &[StackFunction])| TreeNode {
        parent: if n == 0 { parent } else { Some(next + n - 1) },
        functions: steps.iter().filter_map(place).collect(),
        certainty: steps.first().map(|step| step.mark.name()),
        self_weight: if n == last { node.own } else { 0 },
        total_weight: node.total,
    };
    parts.into_iter().enumerate().map(part).collect()
}
