//! The command line's syntax. This module checks and opens no files.

pub(crate) mod check;
pub(crate) mod ctf;
pub(crate) mod habits;
pub(crate) mod profiles;
pub(crate) mod programs;
pub(crate) mod tables;

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use check::{AnnotateArgs, CheckArgs, ExprArgs};
use profiles::{DiffArgs, ReportArgs, ViewArgs};
use programs::{DoctorArgs, GdbArgs, RecordArgs, ScriptArgs, StackArgs};
use tables::{CompileArgs, ConvertArgs, ShowArgs, StatsArgs, SynthArgs, VerifyArgs};

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
        &["record", "report", "view", "diff", "stack", "gdb", "doctor"],
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
    for command in command.get_subcommands().filter(|one| !one.is_hide_set()) {
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
    Gdb(GdbArgs),
    /// Answer a debugger's questions for callers, on standard input and output.
    #[command(hide = true)]
    Frames,
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
    /// .eh_frame, and .debug_frame for other code; else .sframe, else ORC.
    Auto,
    /// .eh_frame.
    #[value(name = "eh_frame")]
    EhFrame,
    /// .debug_frame.
    #[value(name = "debug_frame")]
    DebugFrame,
    /// .sframe, which has the CFA, the return address and the frame pointer only.
    Sframe,
    /// The Linux kernel's own table (.orc_unwind), which has these, too.
    Orc,
}

/// Where rows are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowSourceArg {
    /// .eh_frame, and .debug_frame for other code; else .sframe, else ORC.
    Auto,
    /// .eh_frame.
    #[value(name = "eh_frame")]
    EhFrame,
    /// .debug_frame.
    #[value(name = "debug_frame")]
    DebugFrame,
    /// .sframe, which has the CFA, the return address and the frame pointer only.
    Sframe,
    /// The Linux kernel's own table (.orc_unwind), which has these, too.
    Orc,
    /// No section: rows made from the code alone, as by `unspool synth`.
    Synth,
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

fn parse_count(text: &str) -> Result<NonZero<usize>, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number from 1 on"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds"))
}
