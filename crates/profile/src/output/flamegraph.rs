//! Flame graphs, as one SVG that needs nothing else.

use std::io::{self, Write};

use inferno::flamegraph::{Options, from_lines};

use super::{View, folded};
use crate::aggregate;
use crate::completeness::Completeness;

/// Draws a flame graph. Without samples it says so.
///
/// # Errors
///
/// It cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let least = aggregate::total(&view.samples) / u64::from(MOST_FRAMES_OF_A_ROW);
    let lines = folded::lines_of_at_least(view, least);
    let lines = lines
        .iter()
        .map(|(line, weight)| format!("{line} {weight}"));
    draw(out, &lines.collect::<Vec<_>>(), view)
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
    let sum = |lines: &std::collections::BTreeMap<String, u64>| {
        lines.values().map(|w| u128::from(*w)).sum::<u128>()
    };
    let (old_sum, new_sum) = (sum(&old), sum(&new));
    let scaled = |weight: u64| match old_sum {
        0 => 0,
        old_sum => u128::from(weight) * new_sum / old_sum,
    };
    let all: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let weight = |lines: &std::collections::BTreeMap<String, u64>, line: &String| {
        lines.get(line).copied().unwrap_or(0)
    };
    let line = |line: &&String| {
        let before = scaled(weight(&old, line));
        format!("{line} {before} {}", weight(&new, line))
    };
    draw(out, &all.iter().map(line).collect::<Vec<_>>(), after)
}

/// Frames with a lesser share of the width are left out: they could not be seen, and a page of thousands of them
/// takes megabytes and seconds.
const MOST_FRAMES_OF_A_ROW: u32 = 2000;

fn draw(out: &mut dyn Write, lines: &[String], view: &View<'_>) -> io::Result<()> {
    let mut options = Options::default();
    options.title = view.title();
    let profile = view.named.profile;
    let completeness = Completeness::new(profile, &view.samples);
    options.subtitle = Some(completeness.headline().to_string());
    options.count_name = view.unit().to_owned();
    options.notes = "_[g]: the frame is guessed. _[s]: the frame is spliced.".into();
    options.deterministic = true;
    options.min_width = 100.0 / f64::from(MOST_FRAMES_OF_A_ROW);
    if lines.is_empty() {
        // inferno takes that for an error.
        let nothing = ["(no samples) 1"];
        return from_lines(&mut options, nothing, out);
    }
    from_lines(&mut options, lines.iter().map(String::as_str), out)
}
