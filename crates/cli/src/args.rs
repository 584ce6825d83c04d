//! The command line's syntax. This module checks and opens no files.

pub(crate) mod ctf;

use std::ffi::OsString;
use std::num::{NonZero, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use unspool_check::{CallingConvention, FindingCode};
use unspool_rows::Arch;

/// Profile programs with complete stacks; print stacks; check, compile and write unwind tables.
///
/// Results go to standard output, everything else to standard error. So do the stacks of `unspool
/// stack -- CMD`, because CMD may have output of its own.
#[derive(Debug, Parser)]
#[command(
    name = "unspool",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(after_help = "\
Examples:
  unspool record ./app                 then `unspool report` shows where its time went
  unspool stack 1234                   what a process is doing now
  unspool check memcpy.S               whether the unwind table of assembly is right
  unspool help record                  all about a command

Exit status: 0 clean; 1 findings, bad entries in a readable file, or failed work; 2 could not run.
`record CMD` and `stack -- CMD` pass on the command's own status.

Environment:
  UNSPOOL_TABLES      compact or native: the form of tables to unwind by, without --tables
  UNSPOOL_TABLE_PATH  folders of compiled tables, separated by colons, searched before the cache
  XDG_CACHE_HOME      the cache is `unspool` in this folder (an absolute path)
  HOME                else the cache is `.cache/unspool` in this folder
  DEBUGINFOD_URLS     servers of debug files for `report` and `diff`, as for elfutils
                      (with DEBUGINFOD_CACHE_PATH, DEBUGINFOD_TIMEOUT and the others)
  NO_COLOR            if set, no colours in help and in usage errors")]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands in the main help, grouped by purpose. `unspool help --all` lists the others.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "Look at programs",
        &["record", "report", "view", "diff", "stack", "doctor"],
    ),
    (
        "Unwind tables",
        &[
            "check", "annotate", "synth", "show", "compile", "verify", "convert", "stats", "expr",
        ],
    ),
    ("Types", &["ctf"]),
];

impl CommandLine {
    /// The command line, with its commands in groups.
    pub(crate) fn grouped(with_all: bool) -> clap::Command {
        let command = CommandLine::command();
        let mut groups = String::new();
        for (title, names) in GROUPS {
            group(&mut groups, &command, title, |name| names.contains(&name));
        }
        let is_rest = |name: &str| !GROUPS.iter().any(|(_, names)| names.contains(&name));
        if with_all {
            group(&mut groups, &command, "Other commands", is_rest);
        } else {
            groups.push_str("`unspool help --all` lists all commands.\n\n");
        }
        command.help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
        ))
    }
}

/// A title, and below it each of the commands.
fn group(text: &mut String, command: &clap::Command, title: &str, is_in: impl Fn(&str) -> bool) {
    text.push_str(&format!("{title}:\n"));
    for command in command.get_subcommands() {
        let about = command.get_about().map(ToString::to_string);
        if is_in(command.get_name()) {
            let about = about.unwrap_or_default();
            let about = about.trim_end_matches('.');
            text.push_str(&format!("  {:12} {about}\n", command.get_name()));
        }
    }
    text.push('\n');
}

/// In the order in which they are listed.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Record(RecordArgs),
    Report(ReportArgs),
    View(ViewArgs),
    Diff(DiffArgs),
    Stack(StackArgs),
    Doctor(DoctorArgs),
    Check(CheckArgs),
    Annotate(AnnotateArgs),
    Synth(SynthArgs),
    Show(ShowArgs),
    Compile(CompileArgs),
    Verify(VerifyArgs),
    Convert(ConvertArgs),
    Stats(StatsArgs),
    Expr(ExprArgs),
    Ctf(ctf::CtfArgs),
    Script(ScriptArgs),
    Cache(CacheArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Help(HelpArgs),
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
}

/// The form of tables to unwind by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormArg {
    /// Compiled tables.
    Compact,
    /// Machine code (x86-64), made where there is none yet. The frames are the same.
    Native,
}

/// Which section a table is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SectionArg {
    /// .eh_frame if it has entries, else .debug_frame, else .sframe.
    Auto,
    /// .eh_frame.
    #[value(name = "eh_frame")]
    EhFrame,
    /// .debug_frame.
    #[value(name = "debug_frame")]
    DebugFrame,
    /// .sframe, which has the CFA, the return address and the frame pointer only.
    Sframe,
}

/// What `synth` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Emit {
    /// A compiled table.
    Table,
    /// The ELF file with these rows in its .eh_frame.
    #[value(name = "eh_frame")]
    EhFrame,
}

/// Where rows are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowSourceArg {
    /// .eh_frame if it has entries, else .debug_frame, else .sframe.
    Auto,
    /// .eh_frame.
    #[value(name = "eh_frame")]
    EhFrame,
    /// .debug_frame.
    #[value(name = "debug_frame")]
    DebugFrame,
    /// .sframe, which has the CFA, the return address and the frame pointer only.
    Sframe,
    /// No section: rows made from the code alone, as by `unspool synth`.
    Synth,
}

/// Record where a program spends its time.
///
/// Each sample has a stack, unwound while the program runs by the program's own unwind tables.
/// Frame pointers are not needed, and nothing has to be rebuilt. At the end a line says how many
/// stacks are complete, and what the others lack. The kernel copies at most 64 KiB of a stack;
/// frames beyond that are spliced in where possible, and marked.
///
/// The command's threads and children are recorded, too, and its exit status is passed on.
/// Everything after CMD belongs to the command. Ctrl-C ends the recording; the profile has all
/// samples until then. If the disk is full, the recording ends and the command goes on. The exit
/// status is then the command's own, or 1 if that is 0.
///
/// Code made at run time is named by the perf map or the jitdump that its maker writes (`node
/// --perf-basic-prof`). The profile keeps these names, and those of files that are gone, or out of
/// reach, when the recording ends.
#[derive(Debug, Args)]
#[command(override_usage = "\
unspool record [OPTIONS] CMD...
       unspool record [OPTIONS] --pid PID,...
       unspool record [OPTIONS] --all")]
#[command(after_help = "\
Examples:
  unspool record ./app --flag          run a command
  unspool record -p 1234 -d 10         a running process, for ten seconds
  unspool record -a -d 5               all processes (as root)
  unspool record -F 4999 ./app         more samples a second; -F max for the most
  unspool record --off-cpu ./app       where it waits, too
  unspool record --args serve:path ./app
                                       split by an argument of a function
  unspool record -e page-faults ./app  where it touches new memory
  unspool record node --perf-basic-prof app.js
  unspool record --live -p 1234        show a list of functions meanwhile
  unspool report                       show what was recorded")]
pub(crate) struct RecordArgs {
    /// The command to run, with its arguments.
    #[arg(trailing_var_arg = true, value_name = "CMD", required_unless_present_any = ["pid", "all"])]
    pub(crate) cmd: Vec<OsString>,
    /// Record these running processes.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "all", value_parser = parse_pid)]
    pub(crate) pid: Vec<u32>,
    /// Record all processes.
    #[arg(short, long, alias = "all-cpus")]
    pub(crate) all: bool,
    /// The event that is sampled, by its name in `perf list`.
    ///
    /// The default is the processor's cycles, or its clock on a machine that does not count cycles.
    #[arg(short, long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Samples a second on each processor; `max` for as many as the kernel allows.
    #[arg(
        short = 'F',
        long,
        value_name = "HZ",
        default_value = "999",
        conflicts_with = "period",
        value_parser = Frequency::parse
    )]
    pub(crate) freq: Frequency,
    /// Take a sample each time that COUNT events have happened.
    #[arg(short = 'c', long, alias = "count", value_name = "COUNT")]
    pub(crate) period: Option<NonZero<u64>>,
    /// Record where threads wait, too: blocked, or ready without a processor.
    ///
    /// Each sample has the stack where the thread stopped, and for how long. Needs root, or
    /// kernel.perf_event_paranoid of 1 or less.
    #[arg(long)]
    pub(crate) off_cpu: bool,
    /// End the recording after so many seconds. The command goes on.
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) duration: Option<Duration>,
    /// Write the profile to FILE. An existing one is moved to FILE.old.
    #[arg(short, long, value_name = "FILE", default_value = "unspool.prof", value_parser = PathBufValueParser::new().try_map(file))]
    pub(crate) output: PathBuf,
    /// Show the heaviest functions and threads on the terminal while recording.
    ///
    /// The list fills the terminal until the recording ends, over the command's own output.
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) live: bool,
    /// Show the profile in a browser at the end, as `unspool view` does.
    #[arg(long, conflicts_with = "format")]
    pub(crate) view: bool,
    /// Leave out threads and processes that start later.
    #[arg(long)]
    pub(crate) no_inherit: bool,
    /// Record the arguments of these functions, or of all with `*`.
    ///
    /// FUNCTION records all its arguments; FUNCTION:ARG one, by name or number. Reports and flame
    /// graphs show a function once for each list of arguments, up to 1,000 lists a function. Needs
    /// what `unspool stack --args` needs (docs/arguments.md).
    #[arg(long, value_name = "FUNCTION[:ARG],...", value_delimiter = ',', value_parser = parse_wanted)]
    pub(crate) args: Vec<(String, Option<String>)>,
    /// Where stacks are walked.
    ///
    /// `copy` walks copies of stacks, which the kernel makes up to 64 KiB. `kernel` walks stacks of
    /// up to 1,024 frames where they are, by a BPF program: it needs root, or CAP_BPF, CAP_PERFMON
    /// and CAP_SYS_PTRACE, and Linux 6.9. It walks copies of those that the program cannot finish.
    /// `auto` is `kernel` where that is possible, else `copy`.
    #[arg(long, value_enum, value_name = "ENGINE", default_value = "copy")]
    pub(crate) unwind: UnwindEngineArg,
    /// The form of tables to unwind by. [default: UNSPOOL_TABLES, or else compact]
    #[arg(long, value_enum)]
    pub(crate) tables: Option<TableFormArg>,
    /// Neither read nor write the user's cache of compiled tables.
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Format of the final summary. JSON goes to standard output or, when a command is run, to
    /// standard error as its last line.
    #[arg(long, value_enum, default_value = "text", conflicts_with = "quiet")]
    pub(crate) format: Format,
    /// perf's option, which asks for stacks.
    #[arg(short = 'g', hide = true)]
    pub(crate) with_stacks: bool,
    /// perf's option, which asks for stacks of a kind.
    #[arg(long, hide = true, value_name = "MODE")]
    pub(crate) call_graph: Option<OsString>,
}

/// Where stacks are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnwindEngineArg {
    Auto,
    /// Walks all stacks in both ways, and compares them: for tests.
    #[value(hide = true)]
    Both,
    Copy,
    Kernel,
}

/// How often samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frequency {
    /// As often as the kernel allows.
    Max,
    /// In samples a second.
    Hertz(NonZero<u64>),
}

impl Frequency {
    fn parse(text: &str) -> Result<Frequency, String> {
        match text {
            "max" => Ok(Frequency::Max),
            _ => (text.parse().map(Frequency::Hertz))
                .map_err(|_| format!("`{text}` is not a number of samples a second, or `max`")),
        }
    }
}

/// Say what this machine allows, what that means for each command, and how to change it.
///
/// It opens events, records a short command, traces another one, and reads the kernel's settings.
/// It changes nothing, except that it makes the cache's folder if there is none.
///
/// `limited` makes a command do less. `failed` keeps `unspool record CMD` from working. The report
/// is of the user who runs it: run it as the user who will record.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool doctor
  sudo unspool doctor                  what root may
  unspool doctor --format json

Exit status: 0 if `unspool record CMD` works; 1 if it does not.")]
pub(crate) struct DoctorArgs {
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Print a recording as `perf script` does, with complete stacks.
///
/// Fields and layout are those of `perf script`, so that its readers work. Takes recordings of
/// `perf record`, with any call graph or none, compressed (`-z`), or piped (`-o -`); and profiles
/// of `unspool record`. Without FILE, it takes unspool.prof in this folder, or else perf.data.
///
/// perf's copied stacks are unwound by tables, also after fork and exec. They are as deep as what
/// perf copied. Files that changed since the recording are not used; a note names them.
///
/// --inject writes a recording instead, with finished call chains in place of copied stacks, for
/// `perf report`, `perf script` and `perf annotate`. perf shows 127 frames of them, or more with
/// --max-stack. A chain has at most some 8,000 frames, perf's limit. Recordings with AUX areas
/// (processor traces) are refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool script                                   the latest recording here
  unspool script --no-inline perf.data
  unspool script -F comm,tid,time,ip,sym -i perf.data
  unspool script -F +pid,-period perf.data         the usual fields, one more, one less
  unspool script -F +args unspool.prof             what `unspool record --args` recorded
  unspool script perf.data | stackcollapse-perf.pl | flamegraph.pl > flame.svg
  unspool script --inject perf.data -o unwound.data && perf report -i unwound.data")]
pub(crate) struct ScriptArgs {
    /// The recording; `-` is standard input. [default: unspool.prof, or else perf.data]
    pub(crate) file: Option<PathBuf>,
    /// perf's spelling of FILE.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) input: Option<PathBuf>,
    /// Print these fields: comm, pid, tid, cpu, time, period, event, ip, sym, symoff, dso, args.
    ///
    /// With signs, they change the usual fields: `+pid,-period`. The usual ones are all except pid
    /// and args.
    #[arg(
        short = 'F',
        long,
        value_name = "FIELD",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = parse_field
    )]
    pub(crate) fields: Vec<(FieldSign, ScriptField)>,
    /// First print what is known of the recording, each line after a `#`.
    #[arg(long, conflicts_with = "inject")]
    pub(crate) header: bool,
    /// Show functions only: no inlined functions.
    #[arg(long, alias = "no-lines")]
    pub(crate) no_inline: bool,
    /// Print times in nanoseconds.
    #[arg(long)]
    pub(crate) ns: bool,
    /// Print at most N frames of each stack.
    #[arg(long, visible_alias = "max-stack", value_name = "N", value_parser = parse_count)]
    pub(crate) max_frames: Option<NonZero<usize>>,
    /// Write a recording with finished call chains in place of copied stacks.
    #[arg(long, requires = "output", conflicts_with_all = ["fields", "no_inline", "ns", "max_frames"])]
    pub(crate) inject: bool,
    /// Write that recording to FILE.
    #[arg(short, long, value_name = "FILE", requires = "inject", value_parser = PathBufValueParser::new().try_map(file))]
    pub(crate) output: Option<PathBuf>,
    /// The form of tables to unwind by. [default: UNSPOOL_TABLES, or else compact]
    #[arg(long, value_enum)]
    pub(crate) tables: Option<TableFormArg>,
    /// Do not read the user's cache of compiled tables.
    #[arg(long)]
    pub(crate) no_cache: bool,
}

/// The effect of a named field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldSign {
    /// It is printed, and unnamed fields are not.
    Only,
    /// It is printed in addition to the usual fields.
    Added,
    /// It is left out of the usual fields.
    Removed,
}

/// A field of a printed sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScriptField {
    Comm,
    Pid,
    Tid,
    Cpu,
    Time,
    Period,
    Event,
    Ip,
    Sym,
    Symoff,
    Dso,
    /// The arguments of functions below their frames, if recorded.
    Args,
}

/// Print the stacks of all threads of a process or core file.
///
/// The process stands still while its stacks are copied, and the report says for how long.
/// Typically that is under 1 ms with a few threads, tens of milliseconds with 1,000 threads or a
/// stack over 1 MiB. Then it goes on. As under any debugger, a few system calls return EINTR:
/// epoll_wait, semop and others (see signal(7)).
///
/// `-- CMD` runs a command. If a signal is about to kill it, the signal, the address it touched and
/// all stacks are printed first. SIGKILL, seccomp and limits of CPU time cannot be intercepted;
/// then one line names the signal.
///
/// The command receives the signals sent to unspool (HUP, INT, QUIT, TERM), and those of the
/// terminal. A signal sent to the whole process group arrives twice. If unspool itself is killed,
/// the command goes on. While a report is written, each of those signals kills unspool.
#[derive(Debug, Args)]
#[command(override_usage = "\
unspool stack [OPTIONS] PID...
       unspool stack [OPTIONS] --core CORE [--exe FILE] [--sysroot DIR] [--modules DIR,...]
       unspool stack [OPTIONS] -- CMD...")]
#[command(after_help = "\
Examples:
  unspool stack 1234                      all threads of process 1234
  unspool stack --args --locals 1234      with arguments and variables
  unspool stack --core core               of a core file
  coredumpctl dump | unspool stack --core -
  unspool stack --core core --modules DIR its files are in DIR, found by build ID
  unspool stack -- ./app --flag           run, and show the stacks if it crashes
  unspool stack -o crash.txt -- ./app     write them to a file then
  unspool stack --registers --format json 1234

Exit status: 0 done; 1 a process could not be looked at, or --reliable found a stack that is not;
2 could not run. With `-- CMD` it is the command's own.")]
#[command(group = clap::ArgGroup::new("values").multiple(true))]
pub(crate) struct StackArgs {
    /// Processes to look at, by their IDs.
    #[arg(value_name = "PID", required_unless_present_any = ["core", "cmd", "pid"], value_parser = parse_stack_pid)]
    pub(crate) pids: Vec<u32>,
    /// gdb's and strace's spelling of PID.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', hide = true, conflicts_with_all = ["core", "cmd"], value_parser = parse_pid)]
    pub(crate) pid: Vec<u32>,
    /// The command to run.
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pids", "core", "reliable"])]
    pub(crate) cmd: Vec<OsString>,
    /// A core file to look at, also compressed (.zst, .gz, .xz, .lz4); `-` is standard input.
    #[arg(long, value_name = "CORE", conflicts_with = "pids")]
    pub(crate) core: Option<PathBuf>,
    /// The program that dumped the core, if it is not where the core says.
    #[arg(long, value_name = "FILE", requires = "core", conflicts_with_all = ["pids", "cmd"])]
    pub(crate) exe: Option<PathBuf>,
    /// A copy of the file system that the core's process saw: files are below it.
    #[arg(long, value_name = "DIR", requires = "core", conflicts_with_all = ["pids", "cmd"])]
    pub(crate) sysroot: Option<PathBuf>,
    /// Folders with the core's files, of any name: they are found by build ID.
    #[arg(long, value_name = "DIR", value_delimiter = ',', requires = "core", conflicts_with_all = ["pids", "cmd"])]
    pub(crate) modules: Vec<PathBuf>,
    /// Show each frame's CFA and registers.
    #[arg(long)]
    pub(crate) registers: bool,
    /// Show each function's arguments, as far as they can still be found.
    ///
    /// Types come from `.ctf` (gcc -gctf, `unspool ctf link --into`), without debugging
    /// information, or from DWARF. Each value is exact, described by debugging information, likely,
    /// or lost. If debugging information knows that a parameter has changed since, its value now is
    /// shown, too.
    #[arg(long, group = "values")]
    pub(crate) args: bool,
    /// Show the variables of functions, and of functions inlined there.
    ///
    /// Needs debugging information. A process stands still meanwhile, for two seconds at most.
    #[arg(long, group = "values")]
    pub(crate) locals: bool,
    /// Show the text that `char *` values point to. A process stands still meanwhile, for two
    /// seconds at most.
    #[arg(long, requires = "values")]
    pub(crate) strings: bool,
    /// Show equal stacks once, with all their threads. JSON has each thread all the same.
    #[arg(long, conflicts_with_all = ["values", "registers"])]
    pub(crate) group: bool,
    /// Exit with status 1 unless every stack reaches its root without a guess.
    #[arg(long)]
    pub(crate) reliable: bool,
    /// Show functions only: no source lines, no inlined functions.
    #[arg(long, alias = "no-inline")]
    pub(crate) no_lines: bool,
    /// The form of tables to unwind by. [default: UNSPOOL_TABLES, or else compact]
    #[arg(long, value_enum)]
    pub(crate) tables: Option<TableFormArg>,
    /// Neither read nor write the user's cache of compiled tables.
    ///
    /// Other tables are used: those in the files themselves, in UNSPOOL_TABLE_PATH, and packaged
    /// ones.
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Stop after N frames of each stack.
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = parse_count)]
    pub(crate) max_frames: NonZero<usize>,
    /// Write the reports to FILE; `-` is standard output.
    ///
    /// The file is made, or replaced, when there is something to write. If that will not be
    /// possible, a command is not run. [default: standard error with `-- CMD`, else standard
    /// output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Output format. With several processes, each JSON document is one line.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

impl StackArgs {
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.pids.iter().chain(&self.pid).copied()
    }
}

/// Show where a recorded program spent its time: a list of functions, and a call tree.
///
/// Takes profiles of `unspool record` and recordings of `perf record`, whose stacks are unwound
/// first. Without FILE, it takes unspool.prof in this folder, or else perf.data.
///
/// Weights are nanoseconds, or events where the profile counts events. `own` is the weight of
/// samples with this function innermost. `total` is the weight of samples with this function
/// anywhere in the stack. A name ending in `_[g]` is a guessed frame, and in `_[s]` a frame spliced
/// in from another sample. In lists, `~` marks a total that such frames contribute to.
///
/// Names come from the files that were recorded, or their debug files. Debugging information (-g)
/// adds inlined functions, and source lines in the forms `firefox` and `pprof`.
///
/// A recording that did not end properly is shown as far as it goes, and a note says so.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool report                                   the latest recording here
  unspool report --by thread --sort total
  unspool report --function '^malloc$' --tree callers
  unspool report --around malloc                   who calls it, and what it calls
  unspool report --since 2 --until 3.5             a part of the recording, in seconds
  unspool report --format html -o profile.html
  unspool report --format flamegraph -o flame.svg
  unspool report --format flamegraph --tree callers -o callers.svg
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
    /// Leave out of the text what has less than this share of the weight, in percent.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = parse_percent)]
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
  unspool record --view ./app          records, and then shows

Over ssh, no browser is opened: a note has the command that forwards the port.

Exit status: 1 no sample passes the filters; 2 could not run.")]
pub(crate) struct ViewArgs {
    /// The profile, or a recording of perf. [default: unspool.prof, or else perf.data]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print the address, and open no browser.
    #[arg(long)]
    pub(crate) no_open: bool,
    // Must be last: options after it would be listed among its filters.
    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// What is shown of a profile, and where.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs<F: ValueEnum + Send + Sync + 'static> {
    /// Output format.
    #[arg(
        long = "format",
        alias = "as",
        value_enum,
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub(crate) format: F,
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

/// Which samples count: those that pass all of these filters.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only samples of this event, of a recording of perf. [default: its first event]
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Option<String>,
    /// Only samples of this thread, by name or ID; can be repeated.
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Vec<String>,
    /// Only samples of this process, by name or ID; can be repeated.
    #[arg(long, value_name = "PROCESS")]
    pub(crate) process: Vec<String>,
    /// Only samples taken this many seconds after the start, or later.
    #[arg(long, alias = "from", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) since: Option<Duration>,
    /// Only samples taken less than this many seconds after the start.
    #[arg(long, alias = "to", value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) until: Option<Duration>,
    /// Only samples with a frame in this module, by its file name.
    #[arg(long, value_name = "MODULE")]
    pub(crate) module: Option<String>,
    /// Only samples with a function that matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    pub(crate) function: Option<String>,
    /// Only samples taken on a CPU, or off it.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) state: OnOff,
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
    /// A flame graph, as SVG.
    Flamegraph,
    /// For pprof: gzipped protocol buffers.
    Pprof,
    /// For the Firefox Profiler (profiler.firefox.com).
    Firefox,
    /// For speedscope (speedscope.app).
    Speedscope,
    /// The text that `perf script` prints.
    PerfScript,
}

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportGroup {
    Function,
    Module,
    Thread,
    Process,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The greatest own weight first.
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

/// Show how the weights of functions differ between two profiles.
///
/// Shares are of each profile's own weight, so that runs of different length can be compared. Both
/// can also be recordings of perf.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool diff                                     the latest recording, and the one before
  unspool diff before.prof                         that one, and the latest recording
  unspool diff before.prof after.prof
  unspool diff --format flamegraph -o diff.svg before.prof after.prof

Exit status: 0 done; 1 no sample passes the filters, or a part of a recording is damaged;
2 could not run.")]
pub(crate) struct DiffArgs {
    /// The profile before. [default: unspool.prof.old]
    pub(crate) before: Option<PathBuf>,
    /// The profile after. [default: unspool.prof]
    pub(crate) after: Option<PathBuf>,
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
    /// The flame graph of the second profile, red where a function has more, blue where less.
    Flamegraph,
}

/// Show the unwind table of a file, as text that can be read back.
///
/// Each line is a row: from an address on, how to find the CFA, the return address and the
/// registers. docs/semantics.md defines the text.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool show /bin/ls
  unspool show --function malloc /lib/x86_64-linux-gnu/libc.so.6
  unspool show --pc 0x29d90 --instructions /lib/x86_64-linux-gnu/libc.so.6

Exit status: 0 shown; 1 no entry covers what was asked for; 2 could not run.")]
pub(crate) struct ShowArgs {
    /// The ELF file.
    pub(crate) file: PathBuf,
    /// Only the entries of this function, by its symbol, mangled or not.
    #[arg(long, value_name = "NAME")]
    pub(crate) function: Option<String>,
    /// Only the entry that covers this address: as linked, in hexadecimal.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) pc: Option<u64>,
    /// The section to read.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) from: RowSourceArg,
    /// Show the call frame instructions, each beside the row that it yields.
    #[arg(long)]
    pub(crate) instructions: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Compile unwind tables, and compare them with their source at every address.
///
/// A compiled table answers in nanoseconds and is smaller than its source in large programs.
/// Without --output and --into it goes into the cache, where `stack`, `record` and `script` find it
/// by the file's build ID and contents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    unspool compile /usr/lib/x86_64-linux-gnu/*.so.*    into the cache
  unspool compile -o libc.unspool /lib/x86_64-linux-gnu/libc.so.6
  unspool compile app --into app                      the table goes where the program goes
  unspool compile app --emit native -o app.so         machine code, for C programs")]
pub(crate) struct CompileArgs {
    /// The ELF files.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the table or code of one file to OUT.
    ///
    /// Without it, tables and machine code go into the cache, and C source to standard output.
    #[arg(short, long, value_name = "OUT", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// Write one file to ELF, with the table in a read-only segment of its own. ELF may be the file
    /// itself.
    #[arg(long, value_name = "ELF")]
    pub(crate) into: Option<PathBuf>,
    /// What to make.
    #[arg(
        long = "emit",
        alias = "as",
        value_enum,
        default_value = "table",
        value_name = "FORM"
    )]
    pub(crate) form: CompiledForm,
    /// The section to read.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) from: SectionArg,
    /// Do not compare the result with its source. C source is never compared, code in the cache
    /// always.
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// What a table is compiled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompiledForm {
    /// A compiled table (docs/formats.md)
    Table,
    /// Machine code in a shared object, for C programs and other unwinders (docs/native.md)
    Native,
    /// C source of the same, to read or to compile
    C,
}

/// What is made of a file and compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifiedForm {
    /// A compiled table (docs/formats.md)
    Table,
    /// Machine code, which is proven and run (docs/native.md)
    Native,
}

/// Compare compiled tables with their source at every address.
///
/// A second file is compared with the first file's rows, as unspool reads them. Without one, the
/// table in the file itself is compared (`compile --into`). A file without such a table is compiled
/// in memory and compared. Folders are searched for ELF files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool verify /bin/ls                              compile it in memory, compare every address
  unspool verify app app.unspool                      a table that `compile -o` wrote
  unspool verify libc.so.6 libc.native.so             machine code, of `compile --emit native`
  unspool verify /usr/lib /usr/bin                    every ELF file in these folders
  unspool verify --emit native /usr/lib               machine code of each, made in memory
  unspool verify --format json app app.unspool        a certificate: both by their SHA-256

Exit status: 0 equal; 1 differences, or entries of the source that cannot be read; 2 a file cannot
be read, or a named one has no unwind table.")]
pub(crate) struct VerifyArgs {
    /// An ELF file and a compiled table, or ELF files and folders.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// What to make in memory of a file that has no second one.
    #[arg(
        long = "emit",
        alias = "as",
        value_enum,
        default_value = "table",
        value_name = "FORM"
    )]
    pub(crate) form: VerifiedForm,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// Check unwind tables against the machine code: what is wrong, and how to fix it.
///
/// Each row says where the canonical frame address (CFA), the return address and the saved
/// registers are. The code's effect on the stack is followed along all paths. Each row is proven,
/// refuted, or left unproven at each instruction. Assembly source (`.s`, `.S`) is assembled first
/// by `$CC`, or cc, with the options in `$CPPFLAGS` and `$CFLAGS`, such as -I, -D and -m.
///
/// `--run -- CMD` runs a command instead, and single-steps its functions (x86-64). Each row reached
/// must find the caller that is known from the call. The report then goes to standard error, or to
/// -o; the command's output is its own.
///
/// `--call FUNCTION FILE` calls one function several times, with generated arguments; no program is
/// needed. Each argument is the address of writable memory, and also usable as a size; `--arg` says
/// otherwise. Registers that calls preserve must be unchanged after the return, too. Assembly
/// source and object files are linked first by `$CC`, or cc.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "\
unspool check [OPTIONS] FILES...
       unspool check --run [OPTIONS] -- CMD...
       unspool check --call FUNCTION [OPTIONS] FILE")]
#[command(after_help = "\
Examples:
  unspool check memcpy.S                           before you ship what you wrote
  CPPFLAGS='-Iinclude -DAVX2' unspool check sum.S  as your build assembles it
  unspool check libfoo.so                          a library, compiled and assembly code
  unspool check --diff memcpy.S                    what --fix would write
  unspool check --fix foo.o                        the rows of its inline assembly
  unspool check --strict libfoo.so                 all that is not proven, too
  unspool check --format json libfoo.so            for programs (docs/json.md)
  unspool check --run -- ./test                    its functions from assembly while it runs
  unspool check --run --module libfoo.so --function foo_avx2 -- ./test
  unspool check --run --from synth -- ./test       rows made from its code, not its table
  unspool check --call foo_avx2 libfoo.so          without a program that calls it
  unspool check --call my_memset --arg pointer --arg 0-255 --arg 0-100 memset.S

Under the name `as` (a link in a folder for `gcc -B FOLDER`), unspool runs the assembler, and then
--fix on its output (docs/annotate.md).

docs/diagnostics.md lists each kind of finding with its cause and remedy.

Exit status: 0 clean; 1 refuted rows, unproven rows of assembly source, or a call that does not
return; 2 could not run.")]
pub(crate) struct CheckArgs {
    /// Executables, shared objects, object files, archives, kernel modules (also .xz, .zst, .gz),
    /// assembly source; folders, for all of these below.
    #[arg(required_unless_present_any = ["explain", "run", "cmd"], conflicts_with = "run")]
    pub(crate) files: Vec<PathBuf>,
    /// Explain a kind of finding: its meaning, causes and remedies. `CFI001`, or `cfa-offset`.
    #[arg(long, value_name = "CODE", exclusive = true, value_parser = parse_code)]
    pub(crate) explain: Option<FindingCode>,
    /// Fix what is wrong, then check it: directives in assembly source, rows in other files.
    ///
    /// Each edit of source is first tried on a copy. It stays if the finding is gone and there is
    /// no new one. Lines in macros and included files are left alone. In object files, archives,
    /// programs and libraries, refuted rows are replaced in place, if that proves the function.
    /// Compilers do not know what inline assembly does to the stack. Findings that a comment in the
    /// source allows stay.
    #[arg(long)]
    pub(crate) fix: bool,
    /// Print what --fix would change, as `diff -u` does, and change nothing. Exit status 1 if it
    /// would.
    #[arg(long, conflicts_with = "fix")]
    pub(crate) diff: bool,
    /// Report only findings in source under FOLDER, and in `global_asm!` code.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) own: Option<PathBuf>,
    /// Suppress the findings listed in FILE: lines of `CODE FILE:FUNCTION REASON`, with * for any.
    #[arg(long, value_name = "FILE")]
    pub(crate) suppressions: Vec<PathBuf>,
    /// Suppress the findings recorded in FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Record all findings in the file of --baseline. Exit status 0.
    #[arg(long, requires = "baseline")]
    pub(crate) write_baseline: bool,
    /// The registers that functions preserve, if not those of the psABI: `rbp,rbx`, or `none`.
    ///
    /// Other registers are not judged, and each call changes them. Code of OCaml, Go and GHC, and
    /// `__regcall` functions, are recognised (docs/checking.md).
    #[arg(long, value_name = "REGISTERS", value_parser = parse_registers)]
    #[arg(conflicts_with_all = ["fix", "diff", "run", "call"])]
    pub(crate) preserves: Option<CallingConvention>,
    #[command(flatten)]
    pub(crate) step_args: StepArgs,
    #[command(flatten)]
    pub(crate) call_args: CallArgs,
    /// Report every row that is not proven, in compiled code, too.
    #[arg(long, conflicts_with = "lenient")]
    pub(crate) strict: bool,
    /// Report refuted rows only, in assembly source, too.
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Print a line for each file, and for each member of an archive with findings, and no findings.
    #[arg(long, conflicts_with_all = ["format", "run", "call", "diff"])]
    pub(crate) summary: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: CheckFormat,
}

impl CheckArgs {
    /// The same, with the words after `--` as files if there is no command to run.
    pub(crate) fn without_command(&self) -> CheckArgs {
        let mut args = self.clone();
        if !args.step_args.run {
            let behind = args.step_args.cmd.drain(..).map(PathBuf::from);
            args.files.extend(behind);
        }
        args
    }

    /// Whether code of a file is executed.
    pub(crate) fn runs_a_program(&self) -> bool {
        self.step_args.run || self.call_args.call.is_some()
    }
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people.
    Text,
    /// For programs (docs/json.md).
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// Annotations of GitHub's workflows.
    Github,
}

/// Make unwind tables for code that has none, from the code itself.
///
/// Functions are found in the machine code and followed along all paths. Where the CFA, the return
/// address and the preserved registers are proven, there is a row; elsewhere there is none. Code
/// that the file's own table covers is left alone.
///
/// `unspool stack`, `record` and `script` do this by themselves when they meet such code. This
/// command shows what can be had, and writes it for others. Without --output and --into, the rows
/// go into the cache.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool synth app                                which code gets rows, and why other code does not
  unspool synth app --into app.new                 a program that gdb, perf and exceptions unwind
  unspool synth sum.o --into sum.o                 entries for an object of NASM
  unspool show app --from synth                    the rows, made from all code, as text

Exit status: 0 done, even if some code gets no rows; 2 could not run.")]
#[command(group = clap::ArgGroup::new("goal").args(["output", "into"]))]
pub(crate) struct SynthArgs {
    /// The ELF file. Symbols of its installed debug file count, too.
    pub(crate) file: PathBuf,
    /// Write the table to OUT instead of the cache.
    ///
    /// Walks find it in a folder of UNSPOOL_TABLE_PATH, if it has the name that it would have in
    /// the cache: BUILD-ID-HASH.synth.unspool (docs/formats.md).
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Write the file to ELF, with the rows in its .eh_frame beside the entries that it has. ELF
    /// may be the file itself.
    #[arg(long, value_name = "ELF", conflicts_with = "output")]
    pub(crate) into: Option<PathBuf>,
    /// What to make. [default: eh_frame with --into, else table]
    #[arg(long, value_enum, requires_if("eh_frame", "goal"))]
    pub(crate) emit: Option<Emit>,
    /// List all code without rows, not only the first.
    #[arg(long)]
    pub(crate) all: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// The format that a table is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertTarget {
    /// .sframe.
    Sframe,
    /// .eh_frame, and .eh_frame_hdr with it in an ELF file.
    #[value(name = "eh_frame")]
    EhFrame,
}

/// A version of SFrame that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SframeVersionArg {
    /// Read by binutils 2.41 to 2.47, glibc since 2.42, and LLVM.
    #[value(name = "2")]
    V2,
    /// Read by binutils since 2.46. It can say more, and begin more than 2 GiB from the code.
    #[value(name = "3")]
    V3,
}

/// Convert an unwind table: SFrame from .eh_frame, or .eh_frame from SFrame.
///
/// SFrame has the CFA, the return address and the frame pointer of each address. That is enough for
/// backtraces, not for exceptions. Rows that SFrame cannot express are left out and listed with the
/// reason. The result is read back and compared.
///
/// A .sframe of versions 1 to 3 is read, too: to get another version, or to repair one that a
/// linker concatenated. It then has one header, sorted entries, and each address once.
///
/// Without --output and --into nothing is written, and the report says what the result would be.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool convert app --emit sframe                   what SFrame can express of it, and what not
  unspool convert app --emit sframe --into app.new    a program with .sframe, as a linker makes it
  unspool convert app --emit sframe --sframe-version 2 -o app.sframe
  unspool convert app --from sframe --emit sframe --into app  one header, sorted, of version 3
  unspool convert app --emit eh_frame --into app.new  a program that has .sframe only, for gdb

Exit status: 0 done, even if rows are left out; 1 the table has bad entries, which are left out;
2 could not run.")]
pub(crate) struct ConvertArgs {
    /// The ELF file, linked.
    pub(crate) file: PathBuf,
    /// What to make.
    #[arg(long = "emit", alias = "to", value_enum, value_name = "FORM")]
    pub(crate) to: ConvertTarget,
    /// The version of SFrame that is written.
    #[arg(
        long = "sframe-version",
        alias = "version",
        value_enum,
        value_name = "VERSION",
        default_value = "3"
    )]
    pub(crate) version: SframeVersionArg,
    /// The section to read. [default: auto for SFrame, sframe for .eh_frame]
    #[arg(long, value_enum, value_name = "SECTION")]
    pub(crate) from: Option<SectionArg>,
    /// Write the bytes of the section to OUT.
    #[arg(short, long, value_name = "OUT", conflicts_with = "into")]
    pub(crate) output: Option<PathBuf>,
    /// The address that the bytes are for, in hexadecimal. [default: that of the file's section, or
    /// 0]
    #[arg(long, value_name = "ADDR", value_parser = parse_address, requires = "output")]
    pub(crate) address: Option<u64>,
    /// Write the file to ELF, with the section in a read-only segment of its own. ELF may be the
    /// file itself.
    #[arg(long, value_name = "ELF")]
    pub(crate) into: Option<PathBuf>,
    /// List all rows that cannot be expressed, not only the first.
    #[arg(long)]
    pub(crate) all: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

impl CheckFormat {
    /// The format of a report of a run: text or JSON only.
    pub(crate) fn of_run(self) -> anyhow::Result<Format> {
        match self {
            CheckFormat::Text => Ok(Format::Text),
            CheckFormat::Json => Ok(Format::Json),
            CheckFormat::Sarif | CheckFormat::Github => {
                anyhow::bail!("--format: with --run and --call it is text or json")
            }
        }
    }
}

/// Write the .cfi directives of assembly source that has none.
///
/// The file is assembled by `$CC`, or cc, with the options in `$CPPFLAGS` and `$CFLAGS`. Each
/// function is followed along all paths: where the CFA, the return address and the preserved
/// registers are. The new text is assembled, too, and must have these rows before every
/// instruction. Text is only added. Functions with directives keep them, so that a second run
/// changes nothing.
///
/// A function that cannot be followed gets no directives, but an error with the line and the
/// reason. The others get theirs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool annotate memcpy.S                        to standard output
  unspool annotate --diff memcpy.S                 what it would add
  unspool annotate memcpy.S -o memcpy.cfi.S
  unspool annotate memcpy.S -o memcpy.S            in place
  unspool annotate memcpy.S -o memcpy.S && unspool check memcpy.S

Exit status: 0 done; 1 a function got no directives; 2 could not run.

docs/annotate.md says what counts as a function, and what to do about errors.")]
pub(crate) struct AnnotateArgs {
    /// Assembly source: .s, or .S for the preprocessor.
    pub(crate) file: PathBuf,
    /// Write the text to FILE. [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the added lines only, as `diff -u` does.
    #[arg(long, conflicts_with = "output")]
    pub(crate) diff: bool,
}

/// Translate readable rules to the bytes of `.cfi_escape`, and bytes to rules.
///
/// Assemblers have no directive for a CFA or a register that must be computed. `.cfi_escape` takes the
/// bytes of the call frame instruction. A rule says what it finds, and how:
///
///   cfa = *(rsp+8)+8        the CFA: the word at rsp+8, plus 8
///   rbx = *(cfa-16)         rbx of the caller is in memory, at the CFA minus 16
///   rbx = cfa-16            rbx of the caller is the CFA minus 16
///   rsp+8+(((rip & 15) >= 11) << 3)
///
/// Registers of this frame have their names, with or without %. `rip` is the address of the code. `cfa`
/// is the CFA, for rules of registers. `*E` and `[E]` are the word in memory at E, and `*u32 E` the 4
/// bytes there. Operators and their precedence are C's:
///
///   + - * / % << >> & ^ | ~ ! == != < <= > >=
///
/// Comparisons and / are signed, % and >> unsigned. shra(E, E) is the signed shift, abs(E) the absolute
/// value. DWARF's operations can stand in braces: cfa = {breg7 8; deref}, rbx = [{lit16; minus}].
///
/// The output is the rule as a formula, as operations and as a directive, and a shorter directive if
/// there is one. Bytes are a list, lines of `.cfi_escape`, or hexadecimal digits. They are call frame
/// instructions; the bytes of a bare expression stand in braces: {#770806}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  unspool expr 'cfa = *(rsp+8)+8'                  the line to write
  unspool expr 'rbx = *(*(rsp+24)+40)'
  unspool expr 0x0f,0x05,0x77,0x08,0x06,0x23,0x08  what somebody wrote
  unspool expr .cfi_escape 0x2e, 0x10
  unspool expr '{breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus}'")]
pub(crate) struct ExprArgs {
    /// A rule, an expression, or bytes. Several words are joined.
    #[arg(required = true, value_name = "TEXT|BYTES")]
    pub(crate) text: Vec<String>,
    /// The architecture of the registers.
    #[arg(long, default_value = "x86-64", value_parser = parse_arch)]
    pub(crate) arch: Arch,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: Format,
}

/// What of a command is executed one instruction after another.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct StepArgs {
    /// Run a command, single-step its functions, and compare their rows with what happens.
    #[arg(long, requires = "cmd", group = "stepping")]
    pub(crate) run: bool,
    /// Only this function, with its parts (NAME.cold); can be repeated.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["call", "fix", "diff"])]
    pub(crate) function: Vec<String>,
    /// Only functions of this module, by file name (libc, libc.so.6) or path; can be repeated.
    ///
    /// The default, without --function, is the program's functions from assembly, or else all.
    #[arg(long, value_name = "NAME", requires = "run")]
    pub(crate) module: Vec<String>,
    /// Which rows are compared with what happens.
    #[arg(long, value_enum, default_value = "auto", requires = "stepping")]
    pub(crate) from: RowSourceArg,
    /// How often each instruction is stepped.
    #[arg(long, value_name = "K", default_value = "3", requires = "stepping")]
    pub(crate) visits: NonZeroU32,
    /// Stop after so many seconds. [default: 600 for a command, 10 for a call]
    #[arg(long, value_name = "SECONDS", requires = "stepping")]
    pub(crate) time_limit: Option<NonZeroU32>,
    /// Write the report to FILE.
    #[arg(short, long, value_name = "FILE", requires = "stepping")]
    pub(crate) output: Option<PathBuf>,
    /// The command to run; without --run, files with names that begin with a dash.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) cmd: Vec<OsString>,
}

/// How a function is called.
#[derive(Debug, Clone, Args)]
#[group(skip)]
pub(crate) struct CallArgs {
    /// Call this function of the file, single-step it, and compare its rows with what happens.
    #[arg(long, value_name = "FUNCTION", group = "stepping")]
    pub(crate) call: Option<String>,
    /// The next argument: `pointer`, a number, or a range (0-255); can be repeated.
    ///
    /// In this order: rdi, rsi, rdx, rcx, r8, r9. The others are pointers.
    #[arg(long, value_name = "VALUE", requires = "call", value_parser = CallArgument::parse)]
    pub(crate) arg: Vec<CallArgument>,
    /// How often it is called, each time with new values in a new process.
    #[arg(long, value_name = "N", default_value = "8", requires = "call")]
    pub(crate) calls: NonZeroU32,
    /// The seed of the values: the same number makes the same values.
    #[arg(long, value_name = "N", default_value = "1", requires = "call")]
    pub(crate) seed: u64,
}

/// An argument of a called function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallArgument {
    Pointer,
    Range(u64, u64),
}

impl CallArgument {
    fn parse(text: &str) -> Result<CallArgument, String> {
        if text == "pointer" {
            return Ok(CallArgument::Pointer);
        }
        let wanted = || {
            format!("`{text}` is not a value: write `pointer`, a number, or a range such as 0-255")
        };
        let number = |text: &str| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number.map_err(|_| wanted())
        };
        let (least, most) = match text.split_once('-') {
            Some((least, most)) => (number(least)?, number(most)?),
            None => (number(text)?, number(text)?),
        };
        if least <= most {
            Ok(CallArgument::Range(least, most))
        } else {
            Err(format!("{least} is greater than {most}"))
        }
    }
}

/// Count what unwind tables hold, and what each form costs in bytes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool stats /bin/ls
  unspool stats --format table /bin/*    a line a file, and the total
  unspool stats --total /usr/lib         all files together
  unspool stats --format json app")]
pub(crate) struct StatsArgs {
    /// ELF files and folders. Of a folder, all ELF files with unwind tables are counted.
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) format: StatsFormat,
    /// Write only the total of all files.
    #[arg(long)]
    pub(crate) total: bool,
}

/// How `stats` writes its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatsFormat {
    /// All that is counted.
    Text,
    /// A line for each file, as Markdown.
    Table,
    Json,
}

/// List or remove the compiled tables and the names in the cache.
///
/// `record`, `stack`, `compile` and `synth` keep tables, named by build ID and a hash of the file,
/// up to 1 GiB; the least recently used ones make room. `report` and `diff` keep the names they
/// looked up, in the folder `names`. `record` and `script` keep the kernel's functions until the
/// next boot. Names take up to 256 MiB.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool cache list
  unspool cache list --format json
  unspool cache clean")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) action: CacheAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheAction {
    /// List the tables: bytes, hours since the last use (to the day), name.
    #[command(after_help = "\
Examples:
  unspool cache list
  unspool cache list --format json")]
    List {
        /// Output format.
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Remove all tables and names. They are made again when needed.
    #[command(after_help = "\
Examples:
  unspool cache clean")]
    Clean {
        /// Output format.
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
}

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(unspool completions bash)
  unspool completions zsh >~/.zfunc/_unspool
  unspool completions fish >~/.config/fish/completions/unspool.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

/// Write the manual pages to a folder.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder, which is made if needed.
    pub(crate) folder: PathBuf,
}

/// Show the help of a command, or list all commands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  unspool help record
  unspool help ctf dump
  unspool help --all                   all commands")]
pub(crate) struct HelpArgs {
    /// The command, and a subcommand of it.
    pub(crate) command: Vec<String>,
    /// List all commands.
    #[arg(long, conflicts_with = "command")]
    pub(crate) all: bool,
}

fn file(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" {
        Err("a recording needs a file name")
    } else {
        Ok(path)
    }
}

fn parse_field(text: &str) -> Result<(FieldSign, ScriptField), String> {
    let (sign, name) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(name), _) => (FieldSign::Added, name),
        (_, Some(name)) => (FieldSign::Removed, name),
        _ => (FieldSign::Only, text),
    };
    let field = ScriptField::from_str(name, false);
    let field = field.map_err(|_| {
        let fields = ScriptField::value_variants().iter();
        let names = fields.filter_map(ValueEnum::to_possible_value);
        let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
        format!("`{name}` is not a field: there are {}", names.join(", "))
    })?;
    Ok((sign, field))
}

fn parse_pid(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a process ID; `pidof {text}` finds it"))
}

fn parse_stack_pid(text: &str) -> Result<u32, String> {
    let error = |error| format!("{error}, `unspool stack -- {text}` runs a command");
    parse_pid(text).map_err(error)
}

/// A function with recorded arguments, and which of them. Colons within a name are doubled.
fn parse_wanted(text: &str) -> Result<(String, Option<String>), String> {
    let (function, argument) = match text.rsplit_once(':') {
        Some((function, argument)) if !function.ends_with(':') => (function, Some(argument)),
        _ => (text, None),
    };
    if function.is_empty() || argument == Some("") {
        Err("write FUNCTION or FUNCTION:ARG".to_owned())
    } else {
        Ok((function.to_owned(), argument.map(str::to_owned)))
    }
}

fn parse_arch(text: &str) -> Result<Arch, String> {
    let known = Arch::KNOWN.into_iter();
    let mut found = known.clone().filter(|arch| arch.spec().name == text);
    found.next().ok_or_else(|| {
        let names: Vec<&str> = known.map(|arch| arch.spec().name).collect();
        format!(
            "`{text}` is not an architecture: there are {}",
            names.join(", ")
        )
    })
}

fn parse_code(text: &str) -> Result<FindingCode, String> {
    FindingCode::from_name(text).ok_or_else(|| {
        let codes: Vec<String> = FindingCode::all().map(FindingCode::id).collect();
        format!(
            "`{text}` is not a kind of finding: there are {}",
            codes.join(", ")
        )
    })
}

/// A calling convention that preserves the registers of a list.
fn parse_registers(text: &str) -> Result<CallingConvention, String> {
    let names = text.split(',').filter(|_| text != "none");
    let bit = |name: &str| {
        let register = Arch::X86_64.register_named(name).map(|register| register.0);
        match register {
            Some(number @ 0..16) => Ok(1 << number),
            _ => Err(format!("`{name}` is not a general register: rbx, rbp, r12")),
        }
    };
    let registers = names
        .map(bit)
        .try_fold(0, |all, bit| Ok::<u64, String>(all | bit?))?;
    Ok(CallingConvention::preserving(registers))
}

fn parse_count(text: &str) -> Result<NonZero<usize>, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number from 1 on"))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| format!("`{text}` is not a number from 0 to 100"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds"))
}

/// Accepts addresses as addr2line and objdump do.
fn parse_address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| {
        format!("`{text}` is not an address: write it in hexadecimal, as 0x1234 or 1234")
    })
}
