//! Flame graphs, as one SVG that needs nothing else.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use super::View;
use super::folded::{Folded, without_end};
use unspool_files::Plain;

use crate::aggregate;
use crate::completeness::Completeness;
use crate::paths::{Paths, add};

/// Draws a flame graph. Without samples it says so.
///
/// # Errors
///
/// It cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let lines = lines_of_at_least(Folded::new([view]), [least(view)], MOST_FRAMES);
    let lines = lines.iter();
    let lines = lines.map(|(line, [weight])| format!("{line} {weight}"));
    draw(out, &lines.collect::<Vec<_>>(), options(view))
}

/// Draws how the weight of each function differs from that in another view: red where it is more
/// than before, blue where it is less. Widths are those of `after`, and what comes before is scaled
/// to the same sum. What is too narrow in both counts for its caller.
///
/// # Errors
///
/// It cannot be written.
pub fn write_difference(
    out: &mut dyn Write,
    before: &View<'_>,
    after: &View<'_>,
) -> io::Result<()> {
    let views = [before, after];
    let lines = lines_of_at_least(Folded::new(views), views.map(least), MOST_FRAMES);
    let sum = |view: &View<'_>| -> u128 {
        let weights = view.samples.iter().map(|sample| sample.weight);
        weights.map(u128::from).sum()
    };
    let (old_sum, new_sum) = (sum(before), sum(after));
    let scaled = |weight: u64| match old_sum {
        0 => 0,
        old_sum => u128::from(weight) * new_sum / old_sum,
    };
    let lines = lines.iter();
    let lines = lines.map(|(line, [old, new])| format!("{line} {} {new}", scaled(*old)));
    let mut options = options(after);
    let completeness = options.subtitle.take().unwrap_or_default();
    options.subtitle = Some(format!(
        "red has a greater share of its own than before, blue a lesser; {completeness}"
    ));
    draw(out, &lines.collect::<Vec<_>>(), options)
}

/// Frames with a lesser share of the width are left out, and count for their callers: they are narrower than a
/// pixel.
const MOST_FRAMES_OF_A_ROW: u64 = 1200;

/// So are the lightest if there are more than these: a browser takes two seconds for as many, and most of a minute
/// for the hundred thousand that two thousand deep stacks come to.
const MOST_FRAMES: usize = 10_000;

/// The least weight of a frame that is wide enough.
fn least(view: &View<'_>) -> u64 {
    aggregate::total(&view.samples) / MOST_FRAMES_OF_A_ROW
}

/// The lines, without the weights, where functions with less than some weight in each view are not told
/// from their callers: with less than `least`, or than twice as much, and so on, until a graph of the lines has
/// no more than `most` frames.
fn lines_of_at_least<const N: usize>(
    folded: Folded<N>,
    mut least: [u64; N],
    most: usize,
) -> BTreeMap<String, [u64; N]> {
    let tree = Paths::new(folded.paths);
    loop {
        let (lines, frames) = lines(&folded.labels, &tree, least);
        // Names of threads are told in any case.
        let are_all = least.iter().all(|least| *least == u64::MAX);
        if frames <= most || are_all {
            return lines;
        }
        least = least.map(|least| least.max(1).saturating_mul(2));
    }
}

/// The lines of functions with some weight at least in one of the views, and how many frames a graph of them has.
fn lines<const N: usize>(
    labels: &[String],
    tree: &Paths<u32, N>,
    least: [u64; N],
) -> (BTreeMap<String, [u64; N]>, usize) {
    let label = |number: &u32| labels.get(*number as usize).map(String::as_str);
    let mut lines = BTreeMap::new();
    let mut frames = 0;
    let mut line = String::new();
    // Each with the length of the line of its caller.
    let mut waiting: Vec<_> = tree.root().branches().map(|thread| (0, thread)).collect();
    while let Some((by, branch)) = waiting.pop() {
        line.truncate(by);
        let total = branch.total();
        let mut pairs = total.iter().zip(least);
        let is_told = pairs.any(|(weight, least)| *weight >= least);
        // A thread's name is told in any case.
        let steps = match is_told {
            true => branch.steps.len(),
            false => usize::from(by == 0),
        };
        frames += steps;
        line.extend(branch.steps.iter().take(steps).filter_map(label));
        let own = if is_told { branch.own() } else { Some(total) };
        if let Some(own) = own {
            let sums = lines.entry(without_end(&line).to_owned()).or_insert([0; N]);
            *sums = add(*sums, own);
        }
        if is_told {
            waiting.extend(branch.branches().map(|branch| (line.len(), branch)));
        }
    }
    (lines, frames)
}

/// What fits above a graph of 1200 pixels.
const LONGEST_TITLE: usize = 90;

fn title(view: &View<'_>) -> String {
    let title = Plain(&view.title()).to_string();
    match title.char_indices().nth(LONGEST_TITLE) {
        Some((end, _)) => format!("{}…", title.get(..end).unwrap_or_default()),
        None => title,
    }
}

fn options(view: &View<'_>) -> Options<'static> {
    let mut options = Options::default();
    options.title = title(view);
    let profile = view.named.profile;
    let completeness = Completeness::new(profile, &view.samples);
    options.subtitle = Some(completeness.headline().to_string());
    options.count_name = view.unit().to_owned();
    options.notes = "_[g]: the frame is guessed. _[s]: the frame is spliced. What is too light to be seen counts for \
                     its caller."
        .into();
    options.deterministic = true;
    // A function's name comes before its arguments.
    options.text_truncate_direction = TextTruncateDirection::Right;
    options
}

fn draw(out: &mut dyn Write, lines: &[String], mut options: Options<'_>) -> io::Result<()> {
    if lines.is_empty() {
        // inferno takes that for an error.
        let nothing = ["(no samples) 1"];
        return from_lines(&mut options, nothing, out);
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}
