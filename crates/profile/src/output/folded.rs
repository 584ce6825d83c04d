//! Folded stacks, as `stackcollapse-perf.pl` makes them: one line for each stack, thread name and
//! functions from the outermost on, separated by semicolons, and the weight.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::View;

/// The lines, in the order of the stacks, without the weights that are the values. A guessed frame
/// ends in `_[g]`, a spliced one in `_[s]`.
#[must_use]
pub fn lines(view: &View<'_>) -> BTreeMap<String, u64> {
    let named = view.named;
    let mut lines = BTreeMap::new();
    for ((thread, stack), weight) in by_thread(view) {
        let mut line = plain(&thread);
        let mut steps: Vec<_> = named.steps(stack).collect();
        steps.reverse();
        for step in steps {
            line.push(';');
            line.push_str(&plain(named.function_name(step.function)));
            line.push_str(step.mark.suffix());
        }
        let sum: &mut u64 = lines.entry(line).or_default();
        *sum = sum.saturating_add(weight);
    }
    lines
}

fn by_thread(view: &View<'_>) -> BTreeMap<(String, crate::StackId), u64> {
    let mut sums = BTreeMap::new();
    for sample in &view.samples {
        let thread = view.named.profile.thread(sample.thread);
        let name = thread.map_or_else(String::new, |thread| thread.name.clone());
        let sum: &mut u64 = sums.entry((name, sample.stack)).or_default();
        *sum = sum.saturating_add(sample.weight);
    }
    sums
}

/// A name without what separates names and lines.
fn plain(name: &str) -> String {
    name.replace(';', ":").replace(char::is_control, " ")
}

/// Writes folded stacks.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    for (line, weight) in lines(view) {
        writeln!(out, "{line} {weight}")?;
    }
    Ok(())
}
