//! speedscope's file format: a list of frames, and for each thread its samples by time. The thread
//! with the greatest weight is shown first.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::View;
use crate::model::{ProfileSample, ThreadId};
use crate::names::StackFunction;

#[derive(Serialize)]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'a str,
    shared: SpeedscopeShared<'a>,
    profiles: Vec<SpeedscopeProfile>,
    /// The profile shown first.
    #[serde(rename = "activeProfileIndex", skip_serializing_if = "Option::is_none")]
    active_profile: Option<usize>,
}

#[derive(Serialize)]
struct SpeedscopeShared<'a> {
    frames: Vec<SpeedscopeFrame<'a>>,
}

#[derive(Serialize)]
struct SpeedscopeFrame<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeProfile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Frames by index, outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes the samples.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let mut threads: BTreeMap<ThreadId, Vec<&ProfileSample>> = BTreeMap::new();
    for sample in &view.samples {
        threads.entry(sample.thread).or_default().push(sample);
    }
    let mut frames = SpeedscopeFrames::default();
    let profiles = threads.into_values();
    let profiles = profiles.map(|samples| profile(view, samples, &mut frames));
    let profiles: Vec<SpeedscopeProfile> = profiles.collect();
    let heaviest = (0..profiles.len()).max_by_key(|n| profiles.get(*n).map(|it| it.end_value));
    let files = files(view);
    let file = SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: view.title(),
        exporter: &view.named.profile.meta().tool,
        shared: SpeedscopeShared {
            frames: (frames.functions.iter())
                .map(|step| SpeedscopeFrame {
                    name: view.named.function_name(step.function).to_owned() + step.mark.suffix(),
                    file: files.get(step.function.0 as usize).copied().flatten(),
                })
                .collect(),
        },
        profiles,
        active_profile: heaviest,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// The source file of each function.
fn files<'a>(view: &View<'a>) -> Vec<Option<&'a str>> {
    let mut files = vec![None; view.named.functions().len()];
    for id in 0..crate::intern::number(view.named.profile.frames().len()) {
        for line in view.named.lines_of(crate::FrameId(id)) {
            if let Some(file) = files.get_mut(line.function.0 as usize) {
                *file = line.file.as_deref();
            }
        }
    }
    files
}

/// The frames of samples, each once.
#[derive(Default)]
struct SpeedscopeFrames {
    ids: BTreeMap<StackFunction, usize>,
    functions: Vec<StackFunction>,
}

impl SpeedscopeFrames {
    fn id(&mut self, function: StackFunction) -> usize {
        let next = self.functions.len();
        *self.ids.entry(function).or_insert_with(|| {
            self.functions.push(function);
            next
        })
    }
}

fn profile(
    view: &View<'_>,
    mut samples: Vec<&ProfileSample>,
    frames: &mut SpeedscopeFrames,
) -> SpeedscopeProfile {
    samples.sort_by_key(|sample| sample.time);
    let stack = |sample: &&ProfileSample| {
        let mut stack: Vec<usize> = (view.named.steps(sample.stack))
            .map(|step| frames.id(step))
            .collect();
        stack.reverse();
        stack
    };
    let weights: Vec<u64> = samples.iter().map(|sample| sample.weight).collect();
    SpeedscopeProfile {
        kind: "sampled",
        name: samples
            .first()
            .map_or_else(String::new, |sample| view.named.thread_name(sample)),
        unit: if view.is_time() {
            "nanoseconds"
        } else {
            "none"
        },
        start_value: 0,
        end_value: weights
            .iter()
            .fold(0, |sum, weight| sum.saturating_add(*weight)),
        samples: samples.iter().map(stack).collect(),
        weights,
    }
}
