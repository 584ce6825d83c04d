//! Commands on programs: `record`, `stack`, `script`, `doctor`.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use unspool_elf::{ElfFile, ElfKind};

use super::profiles::{FileForm as _, ReportFormat};
use super::{Format, TableFormArg, parse_count, parse_seconds};

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
       unspool record [OPTIONS] --pid PID,... [CMD...]
       unspool record [OPTIONS] --all [CMD...]")]
#[command(after_help = "\
Examples:
  unspool record ./app --flag          run a command
  unspool record -p 1234 -d 10         a running process, for ten seconds
  unspool record -a -d 5               all processes (as root)
  unspool record -a sleep 5            all processes, until a command ends
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
    ///
    /// With --pid or --all, these are recorded while the command runs.
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
    /// As for perf, `cycles:u` counts in user mode only, `cycles:k` in the kernel only, and each `p`
    /// asks for a more precise address.
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
    #[arg(short, long, value_name = "FILE", default_value = "unspool.prof", value_parser = PathBufValueParser::new().try_map(profile))]
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
    /// graphs show a function once for each list of arguments, up to 1,000 lists a function. For C
    /// functions with debugging information or CTF (docs/arguments.md).
    #[arg(long, value_name = "FUNCTION[:ARG],...", value_delimiter = ',', value_parser = parse_wanted)]
    pub(crate) args: Vec<(String, Option<String>)>,
    /// Where stacks are walked.
    ///
    /// `copy` walks copies of stacks, which the kernel makes up to 64 KiB. `kernel` walks stacks of
    /// up to 1,024 frames where they are, by a BPF program: it needs root, or CAP_BPF, CAP_PERFMON
    /// and CAP_SYS_PTRACE, and Linux 6.9. It walks copies of those that the program cannot finish.
    /// Use it for stacks deeper than 64 KiB. `auto` is `kernel` where that is possible, else `copy`.
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

impl RecordArgs {
    /// Whether the command is what is recorded.
    pub(crate) fn is_of_command(&self) -> bool {
        self.pid.is_empty() && !self.all
    }
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
    /// Print these fields: comm, pid, tid, cpu, time, period, event, ip, sym, symoff, dso, srcline,
    /// args.
    ///
    /// With signs, they change the usual fields: `+pid,-period`. The usual ones are all except pid,
    /// srcline and args.
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
    /// The source line of a frame, below it.
    Srcline,
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
    /// Show the text that `char *` values point to: of arguments, unless `--locals` is given. A
    /// process stands still meanwhile, for two seconds at most.
    #[arg(long)]
    pub(crate) strings: bool,
    /// Show equal stacks once, with all their threads. JSON has each thread all the same.
    #[arg(long, conflicts_with_all = ["values", "strings", "registers"])]
    pub(crate) group: bool,
    /// Show all frames of deep stacks.
    ///
    /// By default, text has the 500 frames at each end of a stack, and repeated frames once. JSON
    /// has all.
    #[arg(long)]
    pub(crate) whole: bool,
    /// Exit with status 1 if any stack is incomplete or has guessed frames.
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

fn file(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" {
        Err("a recording needs a file name")
    } else {
        Ok(path)
    }
}

/// The name of a profile, and not of a form that `report` makes of one.
fn profile(path: PathBuf) -> Result<PathBuf, String> {
    let path = file(path)?;
    let name = path.to_string_lossy();
    let mut forms = ReportFormat::ENDINGS.iter();
    match forms.find_map(|(ending, _)| name.strip_suffix(ending)) {
        Some(stem) => Err(format!(
            "`record` writes a profile, and `report` other forms of it: `unspool record -o {stem}.prof CMD`, then `unspool report -o {name} {stem}.prof`"
        )),
        None => Ok(path),
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
    parse_pid(text).map_err(|error| {
        if is_core(text) {
            format!("`{text}` is a core file: `unspool stack --core {text}` shows its stacks")
        } else if text.contains('/') && Path::new(text).is_file() {
            format!("`{text}` is a program: `unspool stack -- {text}` runs it, `unspool stack --core CORE --exe {text}` shows its core file")
        } else {
            format!("{error}, `unspool stack -- {text}` runs a command")
        }
    })
}

/// Whether that is the path of a core file.
fn is_core(path: &str) -> bool {
    let kind = ElfFile::open(path).map(|file| file.kind());
    kind.is_ok_and(|kind| kind == ElfKind::Core)
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

/// Debug a program with gdb, and with unspool's rows where gdb has none or wrong ones.
///
/// gdb asks about each frame first. It gets rows made from the code where no table has one, also in
/// code made at run time, and repaired rows where the code refutes the table's. Other frames are
/// gdb's own. Stacks say which frames were found how: `[synthesized]`, `[exit path]`, `[repaired]`,
/// and `[gdb's guess]` where nobody has a row. In gdb, `unspool off` and `unspool on` switch, and
/// `unspool status` counts. For programs and core files of x86-64, on this machine.
#[derive(Debug, Args)]
#[command(override_usage = "unspool gdb [GDB-ARGUMENTS]...")]
#[command(after_help = "\
Examples:
  unspool gdb ./app                    a program
  unspool gdb -p 1234                  a running process
  unspool gdb -batch -ex bt ./app core
  unspool gdb --print-unwinder >~/unspool_gdb.py
                                       for other front ends: `source ~/unspool_gdb.py` in ~/.gdbinit")]
pub(crate) struct GdbArgs {
    /// Print the file that gdb loads, and do not start gdb.
    #[arg(long, exclusive = true)]
    pub(crate) print_unwinder: bool,
    /// Options and arguments of gdb.
    #[arg(
        value_name = "GDB-ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) arguments: Vec<OsString>,
}
