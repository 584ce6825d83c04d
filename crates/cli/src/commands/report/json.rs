//! A report as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use unspool_profile::aggregate::{self, CallTree, Direction, Weight};
use unspool_profile::output::View;
use unspool_profile::{Completeness, Ending, Evidence, Incomplete, Place, Profile, Rate};

use super::total;
use crate::output::{self, Layout, address};

pub(super) fn print(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let profile = view.named.profile;
    let completeness = Completeness::new(profile, &view.samples);
    let body = json!({
        "recording": recording(profile),
        "samples": view.samples.len(),
        "weight": total(view),
        "unit": view.unit(),
        "completeness": complete(&completeness),
        "functions": functions(view),
        "modules": list(aggregate::modules(view.named, &view.samples), |name| json!({ "module": name })),
        "threads": threads(view),
        "tree": tree(view),
    });
    output::write_document(out, Layout::Pretty, "report", &body)
}

fn recording(profile: &Profile) -> Value {
    let meta = profile.meta();
    let (frequency, period) = match meta.event.rate {
        Rate::Unknown => (None, None),
        Rate::Frequency(hertz) => (Some(hertz), None),
        Rate::Period(events) => (None, Some(events)),
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
        "ended": matches!(profile.ending(), Ending::Proper { .. }),
    })
}

pub(in crate::commands) fn complete(all: &Completeness) -> Value {
    let path = |why: &Incomplete| {
        let module = why.module.as_ref();
        module.map(|module| module.path.to_string_lossy().into_owned())
    };
    let place = |why: &Incomplete| {
        let at = why.place.map(Place::address);
        at.map(|at| json!({ "module": path(why), "address": address(at) }))
    };
    let frames: serde_json::Map<String, Value> = (Evidence::ALL.iter())
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
            "code": why.end.name(), "samples": why.samples, "place": place(why),
        })).collect::<Vec<_>>(),
        "kernel_threads": all.kernel_threads,
        "no_user_registers": all.no_user_registers,
        "lost": all.lost,
        "frames": frames,
        "advice": all.advice().iter().map(|advice| json!({
            "code": advice.why.end.name(),
            "samples": advice.why.samples,
            "module": path(advice.why),
            "text": advice.text(),
        })).collect::<Vec<_>>(),
    })
}

/// A list of weights, each with what it is of.
fn list<K>(weights: Vec<Weight<K>>, key: impl Fn(K) -> Value) -> Vec<Value> {
    let entry = |weight: Weight<K>| {
        let mut value = key(weight.key);
        if let Value::Object(value) = &mut value {
            value.insert("own".into(), json!(weight.own));
            value.insert("total".into(), json!(weight.total));
            value.insert("guessed".into(), json!(weight.guessed));
        }
        value
    };
    weights.into_iter().map(entry).collect()
}

fn functions(view: &View<'_>) -> Vec<Value> {
    list(aggregate::functions(view.named, &view.samples), |id| {
        let function = view.named.functions().get(id.0 as usize);
        json!({ "function": function.map(|f| &f.name), "module": function.map(|f| &f.module) })
    })
}

fn threads(view: &View<'_>) -> Vec<Value> {
    list(aggregate::threads(&view.samples), |id| {
        let thread = view.named.profile.thread(id);
        let process = thread.and_then(|thread| view.named.profile.process(thread.process));
        json!({ "thread": thread.map(|t| &t.name), "tid": thread.map(|t| t.tid),
                "process": process.map(|p| &p.name), "pid": process.map(|p| p.pid) })
    })
}

/// The call tree as a list: a tree of objects would nest as deeply as the stacks do.
fn tree(view: &View<'_>) -> Vec<Value> {
    let tree = CallTree::new(view.named, &view.samples, Direction::Callees);
    let mut parents = vec![None; tree.nodes().len()];
    for (number, node) in tree.nodes().iter().enumerate() {
        for child in &node.children {
            if let Some(parent) = parents.get_mut(*child) {
                *parent = Some(number);
            }
        }
    }
    let node = |(node, parent): (&aggregate::CallNode, Option<usize>)| {
        let function = node.step.and_then(|step| {
            let function = view.named.functions().get(step.function.0 as usize)?;
            Some((function, step.mark))
        });
        json!({
            "parent": parent,
            "function": function.map(|(function, _)| &function.name),
            "module": function.map(|(function, _)| &function.module),
            "mark": function.map(|(_, mark)| mark.name()),
            "own": node.own,
            "total": node.total,
        })
    };
    tree.nodes().iter().zip(parents).map(node).collect()
}
