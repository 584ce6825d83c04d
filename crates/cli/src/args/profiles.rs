//! Commands on profiles: `report`, `view`, `diff`.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use unspool_symbols::PathMapping;

use super::{parse_count, parse_seconds};

/// Show where a recorded program spent its time: a list of functions, and a call tree.
///
/// Takes profiles of `unspool record` and recordings of `perf record`, whose stacks are unwound
/// first; not the text that `perf script` prints of them. Without FILE, it takes unspool.prof in
/// this folder, or else perf.data.
///
/// Weights are nanoseconds, or events where the profile counts events. `own` is the weight of
/// samples with this function innermost. `total` is the weight of samples with this function
/// anywhere in the stack. A name ending in `_[g]` is a guessed frame, and in `_[s]` a frame spliced
/// in from another sample. In the text's tree, only such frames are at that place. In lists, `~`
/// marks a total that they contribute to.
///
/// Names come from the files that were recorded, or their debug files. Debugging information (-g)
/// adds inlined functions, and source lines: for --source, --disasm, and the forms `html`, `firefox`
/// and `pprof`.
///
/// A recording that did not end properly is shown as far as it goes, and a note says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool report                                   the latest recording here
  unspool report --by thread --sort total
  unspool report --function '^malloc$' --tree callers
  unspool report --around malloc                   who calls it, and what it calls
  unspool report --wait lock,disk                  only waits for locks and disks
  unspool report --source main                     its source lines, with their samples
  unspool report --disasm main                     its instructions, with their samples
  unspool report --since 2 --until 3.5             a part of the recording, in seconds
  unspool report -o profile.html                   a page for a browser
  unspool report --format archive -o archive.prof  to report, view and diff on another machine
  unspool report -o flame.svg                      a flame graph
  unspool report --tree callers -o callers.svg
  unspool report --format pprof -o out.pb.gz
  unspool report perf.data                         what perf recorded

Exit status: 0 done; 1 no sample passes the filters, or a part of the recording is damaged;
2 could not run.")]
pub(crate) struct ReportArgs {
    /// The profile, or a recording of perf. [default: unspool.prof, or else perf.data]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// perf's spelling of FILE.
    #[arg(short, long, value_name = "FILE", hide = true, conflicts_with = "file")]
    pub(crate) input: Option<PathBuf>,
    /// perf's options that ask for what is printed anyway.
    #[arg(long, hide = true)]
    pub(crate) stdio: bool,
    #[arg(long, hide = true)]
    pub(crate) no_children: bool,
    #[arg(short = 'g', hide = true)]
    pub(crate) with_tree: bool,
    /// What to list.
    #[arg(long = "by", value_name = "BY", value_enum, default_value = "function")]
    pub(crate) group: ReportGroup,
    /// The order of the list.
    #[arg(long, value_enum, default_value = "own")]
    pub(crate) sort: Sort,
    /// The call tree, of text and flame graphs: from the root to callees, from the innermost
    /// function to callers, or none.
    #[arg(long, value_enum, default_value = "callees")]
    pub(crate) tree: TreeKind,
    /// Show callers and callees of this function, by its whole name, instead of list and tree.
    #[arg(long, value_name = "NAME")]
    pub(crate) around: Option<String>,
    /// Show the samples of each instruction of this function, by its whole name.
    ///
    /// Jumps are arrows, and the source lines are between the instructions. Instructions far from
    /// samples are left out of the text.
    #[arg(long, value_name = "NAME", conflicts_with = "around")]
    pub(crate) disasm: Option<String>,
    /// Show the samples of each source line of this function, by its whole name.
    ///
    /// Source files are read where debug information says that they are, where --source-map says,
    /// or from debuginfod's servers.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["around", "disasm"])]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) source_args: SourceArgs,
    /// Leave out of the text what has less than this share of the weight, in percent.
    #[arg(long, alias = "percent-limit", value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
    pub(crate) min_percent: f64,
    // Must be last: options after it would be listed among its filters.
    #[command(flatten)]
    pub(crate) output_args: OutputArgs<ReportFormat>,
}

/// Look at a profile in a browser.
///
/// The page is what `unspool report --format html` writes. It is served on this machine's loopback
/// interface, at an address that has a secret, until Ctrl-C. It needs no network.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool view                         the latest recording here, in your browser
  unspool view --no-open perf.data     what perf recorded: prints the address only
  unspool view --before unspool.prof.old
                                       what has changed since the recording before
  unspool record --view ./app          records, and then shows

Over ssh, no browser is opened: a note has the command that forwards the port.

Exit status: 1 no sample passes the filters; 2 could not run.")]
pub(crate) struct ViewArgs {
    /// The profile, or a recording of perf. [default: unspool.prof, or else perf.data]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Compare it with an earlier profile.
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// Print the address, and open no browser.
    #[arg(long)]
    pub(crate) no_open: bool,
    #[command(flatten)]
    pub(crate) source_args: SourceArgs,
    // Must be last: options after it would be listed among its filters.
    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// Where source files are, and whether they are kept.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SourceArgs {
    /// Read source files below FROM in TO; can be repeated.
    #[arg(long, value_name = "FROM=TO", value_parser = parse_mapping)]
    pub(crate) source_map: Vec<PathMapping>,
    /// Ask the servers of DEBUGINFOD_URLS for source files of a page or an archive, too.
    #[arg(long, conflicts_with = "no_code")]
    pub(crate) download_sources: bool,
    /// Keep no source lines and no instructions in a page or an archive.
    #[arg(long)]
    pub(crate) no_code: bool,
}

/// What is shown of a profile, and where.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs<F: FileForm> {
    /// Output format. [default: by the ending of OUT (`.svg`, `.html`, `.json`), or else text]
    #[arg(long = "format", alias = "as", value_enum, value_name = "FORMAT")]
    format: Option<F>,
    /// Write to OUT; `-` is standard output.
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    pub(crate) output: PathBuf,
    /// The greatest height of a flame graph.
    ///
    /// In a graph that would be higher, recursion is collapsed: a path has each function once. If
    /// that does not suffice, the innermost functions are left out and count for their callers.
    #[arg(long, value_name = "PIXELS", default_value = "2000", value_parser = parse_count)]
    pub(crate) max_height: NonZero<usize>,
    #[command(flatten)]
    pub(crate) filters: Filters,
}

impl<F: FileForm> OutputArgs<F> {
    /// The form that is asked for, or that the name of the output has.
    pub(crate) fn format(&self) -> F {
        let name = self.output.to_string_lossy();
        let named = F::ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
        self.format
            .or(named.map(|(_, form)| *form))
            .unwrap_or(F::TEXT)
    }
}

/// A form that a file's name can have.
pub(crate) trait FileForm: ValueEnum + Copy + Send + Sync + 'static {
    /// The form of a terminal.
    const TEXT: Self;
    /// The endings of names.
    const ENDINGS: &[(&str, Self)];
}

impl FileForm for ReportFormat {
    const TEXT: Self = ReportFormat::Text;
    const ENDINGS: &[(&str, Self)] = &[
        (".svg", ReportFormat::Flamegraph),
        (".html", ReportFormat::Html),
        (".json", ReportFormat::Json),
        (".folded", ReportFormat::Folded),
        (".pb.gz", ReportFormat::Pprof),
    ];
}

impl FileForm for DiffFormat {
    const TEXT: Self = DiffFormat::Text;
    const ENDINGS: &[(&str, Self)] = &[
        (".svg", DiffFormat::Flamegraph),
        (".html", DiffFormat::Html),
        (".json", DiffFormat::Json),
    ];
}

/// Which samples count: those that pass all of these filters.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only samples of this event, of a recording of perf. [default: its first event]
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Only samples of this thread, by name or ID; can be repeated.
    #[arg(long, aliases = ["comm", "comms", "tid"], value_name = "THREAD")]
    pub(crate) thread: Vec<String>,
    /// Only samples of this process, by name or ID; can be repeated.
    #[arg(long, alias = "pid", value_name = "PROCESS")]
    pub(crate) process: Vec<String>,
    /// Only samples taken this many seconds after the start, or later.
    #[arg(long, alias = "from", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) since: Option<Duration>,
    /// Only samples taken less than this many seconds after the start.
    #[arg(long, alias = "to", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) until: Option<Duration>,
    /// Only samples with a frame in this module, by its file name.
    #[arg(long, aliases = ["dso", "dsos"], value_name = "MODULE")]
    pub(crate) module: Option<String>,
    /// Only samples with a function that matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub(crate) function: Option<String>,
    /// Only samples taken on a CPU, or off it.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) state: OnOff,
    /// Only samples of threads that wait for this, as `--by wait` lists it.
    #[arg(long, value_enum, value_name = "WAIT,...", value_delimiter = ',')]
    pub(crate) wait: Vec<WaitArg>,
    /// Show functions only: no source lines, no inlined functions.
    #[arg(long, alias = "no-inline")]
    pub(crate) no_lines: bool,
    /// Count a function once, whatever its arguments.
    #[arg(long)]
    pub(crate) no_args: bool,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Text,
    /// For programs (docs/json.md).
    Json,
    /// Folded stacks, one a line, for flame graph tools.
    Folded,
    /// A page for a browser, in one file.
    Html,
    /// A profile with names, lines, sources and code, to be opened where the programs are not.
    Archive,
    /// A flame graph, as SVG.
    Flamegraph,
    /// For pprof: gzipped protocol buffers.
    Pprof,
    /// For the Firefox Profiler (profiler.firefox.com).
    Firefox,
    /// For speedscope (speedscope.app).
    Speedscope,
    /// The text of `perf script`, as `unspool script` prints it, for FlameGraph's tools and others.
    PerfScript,
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportGroup {
    #[value(aliases = ["symbol", "sym"])]
    Function,
    #[value(alias = "dso")]
    Module,
    #[value(aliases = ["comm", "tid"])]
    Thread,
    #[value(alias = "pid")]
    Process,
    /// What threads off a CPU wait for (`unspool record --off-cpu`).
    Wait,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The greatest own weight first.
    #[value(alias = "overhead")]
    Own,
    /// The greatest total weight first.
    Total,
    /// By name.
    Name,
    /// By module, and within one by own weight.
    Module,
}

/// Which call tree is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TreeKind {
    Callees,
    Callers,
    None,
}

/// Which samples by the state of their threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum OnOff {
    /// On a CPU if there are such samples, else off it.
    #[default]
    Auto,
    /// On a CPU.
    On,
    /// Off it: blocked, or waiting for a CPU.
    Off,
}

/// What a thread off its CPU waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitArg {
    #[value(alias = "futex")]
    Lock,
    #[value(alias = "time")]
    Sleep,
    #[value(alias = "poll")]
    Events,
    Pipe,
    Socket,
    Terminal,
    #[value(alias = "io")]
    Disk,
    Memory,
    Process,
    Signal,
    Cpu,
    Unknown,
}

/// Show how the weights of functions differ between two profiles.
///
/// Shares are of each profile's own weight, so that runs of different length can be compared. If one
/// function takes less, the shares of all others grow: the weights of each, before and after, show
/// which have changed. Both can also be recordings of perf.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool diff                                     the latest recording, and the one before
  unspool diff before.prof                         that one, and the latest recording
  unspool diff before.prof after.prof
  unspool diff -o diff.svg before.prof after.prof  a flame graph, in two colours
  unspool diff -o diff.html before.prof after.prof a page for a browser

Exit status: 0 done; 1 no sample passes the filters, or a part of a recording is damaged;
2 could not run.")]
pub(crate) struct DiffArgs {
    /// The profile before. [default: unspool.prof.old]
    pub(crate) before: Option<PathBuf>,
    /// The profile after. [default: unspool.prof]
    pub(crate) after: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source_args: SourceArgs,
    /// Leave out of the text what changes by less, in percent of the whole.
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = parse_percent)]
    pub(crate) min_percent: f64,
    // Must be last: options after it would be listed among its filters.
    #[command(flatten)]
    pub(crate) output_args: OutputArgs<DiffFormat>,
}

/// The form of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// For people.
    Text,
    /// For programs (docs/json.md).
    Json,
    /// The page of the second profile for a browser, with the changes, in one file.
    Html,
    /// The flame graph of the second profile, red where a function has more, blue where less.
    Flamegraph,
}

fn parse_mapping(text: &str) -> Result<PathMapping, String> {
    let parts = text.split_once('=').filter(|(from, _)| !from.is_empty());
    let (from, to) = parts.ok_or_else(|| format!("`{text}` is not FROM=TO"))?;
    Ok(PathMapping {
        from: from.into(),
        to: to.into(),
    })
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("`{text}` is not a number from 0 to 100"))
}
