//! Flame graphs, as one self-contained SVG.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use inferno::flamegraph::{self, Options, TextTruncateDirection, from_lines};
use unspool_files::EscapedText;

use super::View;
use super::folded::{FoldedStacks, without_end};
use crate::aggregate::{self, Direction};
use crate::completeness::Completeness;
use crate::paths::{PathTree, WeightedPath, add};

/// The parameters of a flame graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlameGraph {
    /// The root: the threads below their outermost functions, at the bottom; or the innermost
    /// functions, at the top.
    pub direction: Direction,
    /// The maximum height, in pixels. If stacks do not fit, recursion is collapsed: a path has each
    /// function once, at its first call. If that is not enough, deeper functions count for their
    /// callers.
    pub max_height: usize,
}

impl Default for FlameGraph {
    fn default() -> FlameGraph {
        FlameGraph {
            direction: Direction::Callees,
            max_height: 2000,
        }
    }
}

/// The most space that inferno's font takes above and below the frames, in pixels.
const PADDING: usize = 98;
/// The height of a frame.
const FRAME_HEIGHT: usize = 16;

impl FlameGraph {
    /// The number of labels that fit on top of each other. One row is inferno's "all".
    fn rows(self) -> usize {
        let rows = self.max_height.saturating_sub(PADDING) / FRAME_HEIGHT;
        rows.saturating_sub(1).max(1)
    }

    /// The options, with a note if recursion is collapsed.
    fn options(self, view: &View<'_>, is_collapsed: bool) -> Options<'static> {
        let mut options = options(view);
        options.frame_height = FRAME_HEIGHT;
        if self.direction == Direction::Callers {
            options.direction = flamegraph::Direction::Inverted;
        }
        if is_collapsed && let Some(subtitle) = &mut options.subtitle {
            subtitle.push_str("; recursion is collapsed");
        }
        options
    }
}

/// Draws a flame graph. Without samples, it says so.
///
/// # Errors
///
/// It cannot be written.
pub fn write(out: &mut dyn Write, view: &View<'_>, graph: FlameGraph) -> io::Result<()> {
    let drawn = drawn([view], graph);
    let lines = drawn.lines.iter();
    let lines = lines.map(|(line, [weight])| format!("{line} {weight}"));
    let options = graph.options(view, drawn.is_collapsed);
    draw(out, &lines.collect::<Vec<_>>(), options)
}

/// Draws the difference of each function's weight between two views: red for more than before, blue
/// for less. Widths are those of `after`, and `before` is scaled to the same sum. A function that
/// is too narrow in both counts for its caller.
///
/// # Errors
///
/// It cannot be written.
pub fn write_difference(
    out: &mut dyn Write,
    before: &View<'_>,
    after: &View<'_>,
    graph: FlameGraph,
) -> io::Result<()> {
    let drawn = drawn([before, after], graph);
    let sum = |view: &View<'_>| -> u128 {
        let weights = view.samples.iter().map(|sample| sample.weight);
        weights.map(u128::from).sum()
    };
    let (old_sum, new_sum) = (sum(before), sum(after));
    let scaled = |weight: u64| match old_sum {
        0 => 0,
        old_sum => u128::from(weight) * new_sum / old_sum,
    };
    let lines = drawn.lines.iter();
    let lines = lines.map(|(line, [old, new])| format!("{line} {} {new}", scaled(*old)));
    let mut options = graph.options(after, drawn.is_collapsed);
    let completeness = options.subtitle.take().unwrap_or_default();
    options.subtitle = Some(format!(
        "red has a greater share of its own than before, blue a lesser; {completeness}"
    ));
    draw(out, &lines.collect::<Vec<_>>(), options)
}

/// Frames with a smaller share of the width are left out, and count for their callers: they are
/// narrower than a pixel.
const MAX_FRAMES_PER_ROW: u64 = 1200;

/// With more frames, the lightest are left out, too. A browser takes two seconds for this many, and
/// most of a minute for the hundred thousand of two thousand deep stacks.
const MAX_FRAMES: usize = 10_000;

/// The smallest weight of a frame that is wide enough.
fn least(view: &View<'_>) -> u64 {
    aggregate::total(&view.samples) / MAX_FRAMES_PER_ROW
}

/// The lines to draw, without their weights.
struct FlameLines<const N: usize> {
    lines: BTreeMap<String, [u64; N]>,
    /// The number of frames in a graph of the lines.
    frames: usize,
    /// Whether lines are cut to the rows that fit.
    is_cut: bool,
    is_collapsed: bool,
}

/// The lines that fit, including recursion if possible.
fn drawn<const N: usize>(views: [&View<'_>; N], graph: FlameGraph) -> FlameLines<N> {
    let FoldedStacks { labels, mut paths } = FoldedStacks::new(views);
    let least = views.map(least);
    let fitted = |paths: Vec<WeightedPath<u32, N>>| {
        let paths = paths
            .into_iter()
            .map(|path| directed(path, graph.direction));
        let tree = PathTree::new(paths.collect());
        lines_of_at_least(&labels, &tree, least, graph.rows())
    };
    let whole = fitted(paths.clone());
    if !whole.is_cut {
        return whole;
    }
    paths.iter_mut().for_each(collapse);
    FlameLines {
        is_collapsed: true,
        ..fitted(paths)
    }
}

/// A path from the root of the graph.
fn directed<const N: usize>(
    mut path: WeightedPath<u32, N>,
    direction: Direction,
) -> WeightedPath<u32, N> {
    if direction == Direction::Callers {
        path.steps.reverse();
    }
    path
}

/// Keeps each function once on a path, at its first call.
fn collapse<const N: usize>(path: &mut WeightedPath<u32, N>) {
    let mut seen = HashSet::new();
    let mut steps = path.steps.iter().copied();
    // A function may have the same name as its thread.
    let thread = steps.next();
    let functions = steps.filter(|function| seen.insert(*function));
    path.steps = thread.into_iter().chain(functions).collect();
}

/// The lines in which functions below some weight in each view are merged into their callers. The
/// weight starts at `least` and doubles until a graph of the lines has at most [`MAX_FRAMES`].
fn lines_of_at_least<const N: usize>(
    labels: &[String],
    tree: &PathTree<u32, N>,
    mut least: [u64; N],
    rows: usize,
) -> FlameLines<N> {
    loop {
        let drawn = lines(labels, tree, least, rows);
        // The first label of a line is always kept.
        let are_all = least.iter().all(|least| *least == u64::MAX);
        if drawn.frames <= MAX_FRAMES || are_all {
            return drawn;
        }
        least = least.map(|least| least.max(1).saturating_mul(2));
    }
}

/// The lines of functions with at least some weight in one of the views.
fn lines<const N: usize>(
    labels: &[String],
    tree: &PathTree<u32, N>,
    least: [u64; N],
    rows: usize,
) -> FlameLines<N> {
    let label = |number: &u32| labels.get(*number as usize).map(String::as_str);
    let mut drawn = FlameLines {
        lines: BTreeMap::new(),
        frames: 0,
        is_cut: false,
        is_collapsed: false,
    };
    let mut line = String::new();
    // Each with the length of its caller's line, and that line's number of labels.
    let branches = tree.root().branches();
    let mut waiting: Vec<_> = branches.map(|branch| (0, 0, branch)).collect();
    while let Some((by, depth, branch)) = waiting.pop() {
        line.truncate(by);
        let total = branch.total();
        let mut pairs = total.iter().zip(least);
        let is_reported = pairs.any(|(weight, least)| *weight >= least);
        // The first label of a line, for example a thread's name, is always kept.
        let steps = if is_reported {
            branch.steps.len()
        } else {
            usize::from(by == 0)
        };
        let fitting = steps.min(rows - depth);
        drawn.is_cut |= fitting < steps;
        drawn.frames += fitting;
        line.extend(branch.steps.iter().take(fitting).filter_map(label));
        let goes_on = is_reported && fitting == steps;
        let own = if goes_on { branch.own() } else { Some(total) };
        if let Some(own) = own {
            let line = without_end(&line).to_owned();
            let sums = drawn.lines.entry(line).or_insert([0; N]);
            *sums = add(*sums, own);
        }
        if goes_on {
            let depth = depth + fitting;
            waiting.extend(branch.branches().map(|branch| (line.len(), depth, branch)));
        }
    }
    drawn
}

/// The width above a graph of 1200 pixels.
const MAX_TITLE_CHARS: usize = 90;

fn title(view: &View<'_>) -> String {
    let title = EscapedText(&view.title()).to_string();
    match title.char_indices().nth(MAX_TITLE_CHARS) {
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

/// Makes a browser show the root, which is at the bottom.
const SCROLL: &str =
    "<script>window.scrollTo(0, document.documentElement.scrollHeight)</script></svg>";

fn draw(out: &mut dyn Write, lines: &[String], mut options: Options<'_>) -> io::Result<()> {
    let mut svg = Vec::new();
    if lines.is_empty() {
        // inferno reports that as an error.
        let nothing = ["(no samples) 1"];
        from_lines(&mut options, nothing, &mut svg)?;
    } else {
        from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    }
    match svg.trim_ascii_end().strip_suffix(b"</svg>") {
        Some(open) if options.direction == flamegraph::Direction::Straight => {
            out.write_all(open)?;
            writeln!(out, "{SCROLL}")
        }
        _ => out.write_all(&svg),
    }
}
