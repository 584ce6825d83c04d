//! Flame graphs, as one SVG that needs nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

use super::{View, folded};
use crate::aggregate;
use crate::completeness::Completeness;

/// Draws a flame graph. Without samples it says so.
///
/// # Errors
///
/// It cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let (lines, _) = drawn(view);
    let lines = lines
        .iter()
        .map(|(line, weight)| format!("{line} {weight}"));
    draw(out, &lines.collect::<Vec<_>>(), options(view))
}

/// Draws how the weight of each function differs from that in another view: red where it is more
/// than before, blue where it is less. Widths are those of `after`, and what comes before is scaled
/// to the same sum.
///
/// # Errors
///
/// It cannot be written.
pub fn write_difference(
    out: &mut dyn Write,
    before: &View<'_>,
    after: &View<'_>,
) -> io::Result<()> {
    let (old, new) = (folded::lines(before), folded::lines(after));
    let sum = |lines: &BTreeMap<String, u64>| lines.values().map(|w| u128::from(*w)).sum::<u128>();
    let (old_sum, new_sum) = (sum(&old), sum(&new));
    let scaled = |weight: u64| match old_sum {
        0 => 0,
        old_sum => u128::from(weight) * new_sum / old_sum,
    };
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let weight =
        |lines: &BTreeMap<String, u64>, line: &String| lines.get(line).copied().unwrap_or(0);
    let line = |line: &&String| {
        let before = scaled(weight(&old, line));
        format!("{line} {before} {}", weight(&new, line))
    };
    let mut options = options(after);
    // What has little weight in one of them may have more in the other: it is only not drawn.
    let (_, least) = drawn(after);
    options.min_width = percent(least, aggregate::total(&after.samples));
    let completeness = options.subtitle.take().unwrap_or_default();
    options.subtitle = Some(format!(
        "red has a greater share of its own than before, blue a lesser; {completeness}"
    ));
    draw(out, &all.iter().map(line).collect::<Vec<_>>(), options)
}

/// Frames with a lesser share of the width are left out: they are narrower than a pixel.
const MOST_FRAMES_OF_A_ROW: u64 = 1200;

/// So are the lightest if there are more than these: a browser takes two seconds for as many, and most of a minute
/// for the hundred thousand that two thousand deep stacks come to.
const MOST_FRAMES: usize = 10_000;

/// Folded stacks without what is left out, and the least weight that is not.
fn drawn(view: &View<'_>) -> (BTreeMap<String, u64>, u64) {
    let total = aggregate::total(&view.samples);
    let mut least = total / MOST_FRAMES_OF_A_ROW;
    loop {
        let (lines, frames) = folded::lines_of_at_least(view, least);
        if frames <= MOST_FRAMES || least > total {
            return (lines, least);
        }
        least = least.max(1).saturating_mul(2);
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is a share of a width")]
fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
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
    options.notes = "_[g]: the frame is guessed. _[s]: the frame is spliced.".into();
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
