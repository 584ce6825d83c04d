//! Flame graphs, as one SVG that needs nothing else.

use std::io::{self, Write};

use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use super::View;
use super::folded::Folded;
use crate::aggregate;
use crate::completeness::Completeness;

/// Draws a flame graph. Without samples it says so.
///
/// # Errors
///
/// It cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let lines = Folded::new([view]).lines_of_at_least([least(view)], MOST_FRAMES);
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
    let lines = Folded::new(views).lines_of_at_least(views.map(least), MOST_FRAMES);
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

/// What fits above a graph of 1200 pixels.
const LONGEST_TITLE: usize = 90;

fn title(view: &View<'_>) -> String {
    let title = view.title().replace(char::is_control, " ");
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
