//! Folded stacks, as `stackcollapse-perf.pl` makes them: one line for each stack, thread name and
//! functions from the outermost on, separated by semicolons, and the weight. A guessed frame ends
//! in `_[g]`, a spliced one in `_[s]`.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{StringInterner, View};
use unspool_files::EscapedText;

use crate::names::{NamedProfile, StackFunction};
use crate::paths::{PathTree, WeightedPath};
use crate::stacks::StackId;

/// Writes folded stacks, in the order of the lines' bytes.
///
/// # Errors
///
/// They cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>) -> io::Result<()> {
    let FoldedStacks { labels, mut paths } = FoldedStacks::new([view]);
    // At a line's end a label has no semicolon, and so sorts differently among the labels.
    let mut parts: Vec<&str> = labels
        .iter()
        .flat_map(|l| [l.as_str(), without_end(l)])
        .collect();
    parts.sort_unstable();
    parts.dedup();
    let place = |part: &str| crate::intern::number(parts.partition_point(|other| *other < part));
    let places: Vec<[u32; 2]> = (labels.iter())
        .map(|label| [label, without_end(label)].map(place))
        .collect();
    for path in &mut paths {
        let last = path.steps.len().saturating_sub(1);
        for (at, label) in path.steps.iter_mut().enumerate() {
            let places = places.get(*label as usize);
            *label = places.map_or(0, |[within, end]| if at == last { *end } else { *within });
        }
    }
    let mut line = String::new();
    for (path, [weight]) in PathTree::new(paths).each() {
        line.clear();
        line.extend(
            path.iter()
                .filter_map(|part| parts.get(*part as usize))
                .copied(),
        );
        writeln!(out, "{line} {weight}")?;
    }
    Ok(())
}

/// The stacks of `N` views, as paths of labels: a thread's name and its functions, by their
/// numbers.
pub(super) struct FoldedStacks<const N: usize> {
    /// Each with the following semicolon.
    pub(super) labels: Vec<String>,
    pub(super) paths: Vec<WeightedPath<u32, N>>,
}

impl<const N: usize> FoldedStacks<N> {
    pub(super) fn new(views: [&View<'_>; N]) -> FoldedStacks<N> {
        let mut labels = StringInterner::default();
        let (mut path, mut paths) = (Vec::new(), Vec::new());
        for (number, view) in views.into_iter().enumerate() {
            let weights = |weight| std::array::from_fn(|n| if n == number { weight } else { 0 });
            let mut functions = FunctionLabels {
                named: view.named,
                labels: hashbrown::HashMap::new(),
            };
            for ((thread, stack), weight) in by_thread(view, &mut labels) {
                path.clear();
                let steps = view.named.steps(stack);
                path.extend(steps.map(|step| functions.label(step, &mut labels)));
                path.push(thread);
                path.reverse();
                paths.push(WeightedPath {
                    steps: path.as_slice().into(),
                    weights: weights(weight),
                });
            }
        }
        FoldedStacks {
            labels: labels.all,
            paths,
        }
    }
}

/// The weight of each stack of threads with one name, given by its label.
fn by_thread(view: &View<'_>, labels: &mut StringInterner) -> HashMap<(u32, StackId), u64> {
    let mut sums = HashMap::new();
    for sample in &view.samples {
        let thread = view.named.profile.thread(sample.thread);
        let thread = labels.id(&(plain(thread.map_or("", |thread| &thread.name)) + ";"));
        let sum: &mut u64 = sums.entry((thread, sample.stack)).or_default();
        *sum = sum.saturating_add(sample.weight);
    }
    sums
}

/// The labels of a view's functions.
struct FunctionLabels<'v> {
    named: &'v NamedProfile<'v>,
    labels: hashbrown::HashMap<StackFunction, u32>,
}

impl FunctionLabels<'_> {
    fn label(&mut self, function: StackFunction, labels: &mut StringInterner) -> u32 {
        let name = || plain(self.named.function_name(function.function));
        let new = || labels.id(&(name() + function.mark.suffix() + ";"));
        *self.labels.entry(function).or_insert_with(new)
    }
}

/// A name without the separators of names and lines.
fn plain(name: &str) -> String {
    EscapedText(name).to_string().replace(';', ":")
}

/// A label, or a line of them, without the last semicolon.
pub(super) fn without_end(label: &str) -> &str {
    label.strip_suffix(';').unwrap_or(label)
}
