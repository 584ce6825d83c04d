//! A report as text.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use unspool_profile::aggregate::{self, CallNode, CallTree, Direction, Weight};
use unspool_profile::output::View;
use unspool_profile::{
    Completeness, CpuState, FunctionId, GroupedDigits, ProfileRate, ProfileSample, StackFunction,
};

use super::{percent, total};
use crate::args::profiles::{ReportArgs, ReportGroup, Sort, TreeKind};
use crate::output::{self, EscapedText};
use crate::text::cycle::Cycle;

/// The most lines of the list.
const MAX_LIST_ROWS: usize = 40;
/// The width of the longest bar.
const MAX_BAR_WIDTH: usize = 12;

pub(super) fn print(
    out: &mut dyn Write,
    view: &View<'_>,
    args: &ReportArgs,
    around: Option<&[FunctionId]>,
) -> io::Result<()> {
    let mut page = Page {
        out,
        view,
        total: total(view),
        least: args.min_percent,
        sort: args.sort,
        width: width(&args.output_args.output),
    };
    page.header()?;
    if let Some(functions) = around {
        for function in functions {
            page.around(*function)?;
        }
        return Ok(());
    }
    match args.group {
        ReportGroup::Function => page.functions()?,
        ReportGroup::Module => page.modules()?,
        ReportGroup::Thread => page.threads()?,
        ReportGroup::Process => page.processes()?,
        ReportGroup::Wait => page.waits()?,
    }
    match args.tree {
        TreeKind::None => Ok(()),
        TreeKind::Callees => page.tree("callees", Direction::Callees),
        TreeKind::Callers => page.tree("callers", Direction::Callers),
    }
}

/// The width of the terminal in columns; other outputs have lines of any length.
pub(in crate::commands) fn width(output: &Path) -> usize {
    let is_standard = output.as_os_str() == "-";
    let size = is_standard.then(|| terminal_size::terminal_size_of(io::stdout()));
    size.flatten()
        .map_or(usize::MAX, |(width, _)| usize::from(width.0))
}

struct Page<'a> {
    out: &'a mut dyn Write,
    view: &'a View<'a>,
    total: u64,
    /// Rows with less than this share of the total are left out, in percent.
    least: f64,
    sort: Sort,
    width: usize,
}

impl Page<'_> {
    fn header(&mut self) -> io::Result<()> {
        let profile = self.view.named.profile;
        let meta = profile.meta();
        let rate = match meta.event.rate {
            ProfileRate::Unknown => String::new(),
            ProfileRate::Frequency(hertz) => format!(" at {hertz} Hz"),
            ProfileRate::Period(events) => format!(" every {}", GroupedDigits(events)),
        };
        let title = self.view.title();
        writeln!(
            self.out,
            "{}: {}{rate}, on {} (Linux {} {})",
            EscapedText(&title),
            EscapedText(&meta.event.name),
            EscapedText(&meta.host),
            EscapedText(&meta.kernel),
            EscapedText(&meta.arch)
        )?;
        let samples = GroupedDigits(self.view.samples.len() as u64);
        writeln!(
            self.out,
            "{samples} samples, {}",
            weight_text(self.view, self.total)
        )?;
        self.others()?;
        let completeness = Completeness::new(profile, &self.view.samples);
        let summary = completeness.summary().to_string();
        writeln!(self.out, "{}", EscapedText(&summary))?;
        for advice in completeness.advice() {
            writeln!(self.out, "  {}", EscapedText(&advice.to_string()))?;
        }
        if let Some(advice) = completeness.interpreter_advice() {
            writeln!(self.out, "  {advice}")?;
        }
        let unnamed = aggregate::unnamed(self.view.named, &self.view.samples);
        if let Some(advice) = completeness.unnamed_code_advice(unnamed) {
            writeln!(self.out, "  {advice}")?;
        }
        Ok(())
    }

    /// The samples of threads that waited, if the others are shown.
    fn others(&mut self) -> io::Result<()> {
        let is_off = |sample: &ProfileSample| sample.state == CpuState::OffCpu;
        let all = self.view.named.profile.samples().iter();
        let waiting = all.filter(|sample| is_off(sample)).count() as u64;
        if waiting == 0 || self.view.samples.iter().any(|sample| is_off(sample)) {
            return Ok(());
        }
        let waiting = GroupedDigits(waiting);
        writeln!(
            self.out,
            "  {waiting} more samples are of threads that waited: see `--by wait`, `--state off`"
        )
    }

    fn functions(&mut self) -> io::Result<()> {
        let named = self.view.named;
        let weights = aggregate::functions(named, &self.view.samples);
        self.list("function", weights, |id| {
            let function = named.function(id);
            ListItem {
                name: function.map_or_else(String::new, ToString::to_string),
                module: function.map_or("", |function| &function.module),
            }
        })
    }

    fn modules(&mut self) -> io::Result<()> {
        let weights = aggregate::modules(self.view.named, &self.view.samples);
        self.list("module", weights, |module| ListItem {
            name: module.to_owned(),
            module,
        })
    }

    fn threads(&mut self) -> io::Result<()> {
        let profile = self.view.named.profile;
        let weights = aggregate::threads(&self.view.samples);
        self.list("thread", weights, |id| {
            let thread = profile.thread(id);
            ListItem::task(thread.map(|thread| (&*thread.name, thread.tid)))
        })
    }

    fn processes(&mut self) -> io::Result<()> {
        let profile = self.view.named.profile;
        let weights = aggregate::processes(profile, &self.view.samples);
        self.list("process", weights, |id| {
            let process = profile.process(id);
            ListItem::task(process.map(|process| (&*process.name, process.pid)))
        })
    }

    fn waits(&mut self) -> io::Result<()> {
        let weights = aggregate::waits(self.view.named, &self.view.samples);
        self.list("waits for", weights, |reason| ListItem {
            name: reason.name().to_owned(),
            module: "",
        })
    }

    /// The heaviest, in the requested order.
    fn list<'n, K: Copy>(
        &mut self,
        what: &str,
        mut weights: Vec<Weight<K>>,
        listed: impl Fn(K) -> ListItem<'n>,
    ) -> io::Result<()> {
        writeln!(
            self.out,
            "\n     own    total  {:MAX_BAR_WIDTH$}  {what}",
            ""
        )?;
        if self.sort == Sort::Total {
            weights.sort_by_key(|weight| Reverse((weight.total, weight.own)));
        }
        let all = weights.len();
        weights.retain(|weight| self.percent(weight.own.max(weight.total)) >= self.least);
        weights.truncate(MAX_LIST_ROWS);
        let hidden = all - weights.len();
        let mut rows: Vec<_> = weights.into_iter().map(|w| (listed(w.key), w)).collect();
        match self.sort {
            Sort::Own | Sort::Total => {}
            Sort::Name => rows.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name)),
            Sort::Module => rows.sort_by_key(|(listed, _)| listed.module),
        }
        for (listed, weight) in rows {
            let (own, all) = (self.percent(weight.own), self.percent(weight.total));
            let mark = if weight.guessed > 0 { '~' } else { ' ' };
            let line = format!("{own:6.2} % {all:6.2} %{mark} {}  ", bar(own));
            output::line(self.out, self.width, &line, &listed.name)?;
        }
        match hidden {
            0 => Ok(()),
            _ => writeln!(
                self.out,
                "  and {hidden} more: `--sort total`, `--min-percent` and `--function` choose others"
            ),
        }
    }

    fn percent(&self, weight: u64) -> f64 {
        percent(weight, self.total)
    }

    fn tree(&mut self, title: &str, direction: Direction) -> io::Result<()> {
        let tree = CallTree::new(self.view.named, &self.view.samples, direction);
        self.branches(title, &tree.merged(), direction)
    }

    fn around(&mut self, function: FunctionId) -> io::Result<()> {
        let name = self.view.named.function_name(function).to_owned();
        for (title, direction) in [
            ("callers", Direction::Callers),
            ("callees", Direction::Callees),
        ] {
            let tree = CallTree::around(self.view.named, &self.view.samples, function, direction);
            let title = format!("{title} of {}", EscapedText(&name));
            self.branches(&title, &tree.merged(), direction)?;
        }
        Ok(())
    }

    /// The nodes below the root. Only a node with siblings is indented: stacks are deep. In a tree
    /// of callers a node's own weight would be that of stacks that begin there, not of the function.
    fn branches<'t>(
        &mut self,
        title: &str,
        tree: &'t CallTree,
        direction: Direction,
    ) -> io::Result<()> {
        let has_own = direction == Direction::Callees;
        let own = if has_own { "own" } else { "" };
        writeln!(self.out, "\n   total  {own:>7}  {title}")?;
        let (total, least) = (self.total, self.least);
        let shown = |node: &CallNode<'t>| {
            let mut children = node.children();
            children.retain(|child| percent(child.total, total) >= least);
            children.reverse();
            children
        };
        // The nodes to print, the next one last, each with its indentation. No recursion: a stack
        // may have a million frames.
        let mut next: Vec<(CallNode<'t>, usize)> = Vec::new();
        next.extend(shown(&tree.root()).into_iter().map(|node| (node, 0)));
        while let Some((node, depth)) = next.pop() {
            self.branch(&node, depth, has_own)?;
            let children = shown(&node);
            let depth = depth + usize::from(children.len() > 1);
            next.extend(children.into_iter().map(|node| (node, depth)));
        }
        Ok(())
    }

    fn branch(&mut self, node: &CallNode<'_>, depth: usize, has_own: bool) -> io::Result<()> {
        let [through @ .., last] = node.functions else {
            return Ok(());
        };
        let mut next = 0;
        while let Some(function) = through.get(next) {
            self.stack_function(function, 0, node.total, depth)?;
            next += 1;
            let (shown, rest) = through.split_at(next);
            if let Some(cycle) = Cycle::at(shown, rest, PartialEq::eq) {
                self.cycle(cycle, depth)?;
                next += cycle.items();
            }
        }
        let own = if has_own { node.own } else { 0 };
        self.stack_function(last, own, node.total, depth)
    }

    /// A recursion, in place of its lines.
    fn cycle(&mut self, Cycle { length, repeats }: Cycle, depth: usize) -> io::Result<()> {
        let repeated = match length {
            1 => "the last function".to_owned(),
            _ => format!("the last {length} functions"),
        };
        let indent = "  ".repeat(depth.min(MAX_INDENT));
        let repeats = GroupedDigits(repeats as u64);
        writeln!(
            self.out,
            "{:19}{indent}({repeated}, {repeats} times more)",
            ""
        )
    }

    fn stack_function(
        &mut self,
        stack_function: &StackFunction,
        own: u64,
        total: u64,
        depth: usize,
    ) -> io::Result<()> {
        let function = self.view.named.function(stack_function.function);
        let name = function.map_or_else(String::new, |function| {
            function.marked(stack_function.mark.suffix())
        });
        let own = match own {
            0 => format!("{:8}", ""),
            own => format!("{:6.2} %", self.percent(own)),
        };
        let indent = "  ".repeat(depth.min(MAX_INDENT));
        let line = format!("{:6.2} % {own}  {indent}", self.percent(total));
        output::line(self.out, self.width, &line, &name)
    }
}

/// A weight with its unit.
pub(in crate::commands) fn weight_text(view: &View<'_>, weight: u64) -> String {
    if view.is_time() {
        let millis = weight / 1_000_000;
        format!("{}.{:03} s", GroupedDigits(millis / 1000), millis % 1000)
    } else {
        format!("{} {}", GroupedDigits(weight), view.unit())
    }
}

/// The subject of a line of a list.
struct ListItem<'n> {
    name: String,
    /// Its module, for sorting; empty without one.
    module: &'n str,
}

impl ListItem<'_> {
    /// A thread or a process.
    fn task(task: Option<(&str, u32)>) -> ListItem<'static> {
        ListItem {
            name: task.map_or_else(String::new, |(name, id)| format!("{name} ({id})")),
            module: "",
        }
    }
}

/// The deepest indentation, in steps.
const MAX_INDENT: usize = 40;

/// A bar for a percentage.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a percentage is small"
)]
fn bar(percent: f64) -> String {
    let length = (percent / 100.0 * MAX_BAR_WIDTH as f64).round() as usize;
    format!("{:MAX_BAR_WIDTH$}", "█".repeat(length.min(MAX_BAR_WIDTH)))
}
