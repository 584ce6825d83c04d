//! Folded stacks, as `stackcollapse-perf.pl` makes them: one line for each stack, thread name and
//! functions from the outermost on, separated by semicolons, and the weight.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::View;
use crate::names::Step;

/// The lines, in the order of the stacks, without the weights that are the values. A guessed frame
/// ends in `_[g]`, a spliced one in `_[s]`.
#[must_use]
pub fn lines(view: &View<'_>) -> BTreeMap<String, u64> {
    lines_of_at_least(view, 0).0
}

/// The same where functions with less than some weight are not told from their callers, and how many frames a
/// graph of the lines has.
pub(super) fn lines_of_at_least(view: &View<'_>, least: u64) -> (BTreeMap<String, u64>, usize) {
    let named = view.named;
    let mut threads: BTreeMap<String, Vec<(Vec<Step>, u64)>> = BTreeMap::new();
    for ((thread, stack), weight) in by_thread(view) {
        let mut steps: Vec<_> = named.steps(stack).collect();
        steps.reverse();
        threads.entry(thread).or_default().push((steps, weight));
    }
    let mut lines = BTreeMap::new();
    let mut frames = 0;
    for (thread, mut stacks) in threads {
        // Those that begin alike are neighbours then.
        stacks.sort_unstable();
        let mut line = String::new();
        let mut waiting = vec![Called {
            by: 0,
            function: plain(&thread),
            depth: 0,
            stacks: &stacks,
        }];
        while let Some(called) = waiting.pop() {
            frames += 1;
            line.truncate(called.by);
            line.push_str(&called.function);
            let mut own: Option<u64> = None;
            let step = |stack: &(Vec<Step>, u64)| stack.0.get(called.depth).copied();
            for stacks in called.stacks.chunk_by(|a, b| step(a) == step(b)) {
                let weights = stacks.iter().map(|(_, weight)| *weight);
                let weight = weights.fold(0, u64::saturating_add);
                match stacks.first().and_then(step) {
                    Some(step) if weight >= least => waiting.push(Called {
                        by: line.len(),
                        function: format!(
                            ";{}{}",
                            plain(named.function_name(step.function)),
                            step.mark.suffix()
                        ),
                        depth: called.depth + 1,
                        stacks,
                    }),
                    _ => own = Some(own.unwrap_or(0).saturating_add(weight)),
                }
            }
            if let Some(own) = own {
                let sum: &mut u64 = lines.entry(line.clone()).or_default();
                *sum = sum.saturating_add(own);
            }
        }
    }
    (lines, frames)
}

/// A function that is called, and the stacks in which it is.
struct Called<'s> {
    /// How long the line of its caller is.
    by: usize,
    /// What the line says of it.
    function: String,
    /// How many frames are further out, and it.
    depth: usize,
    stacks: &'s [(Vec<Step>, u64)],
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
