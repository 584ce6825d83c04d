//! `unspool record`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use unspool_elf::ElfFile;
use unspool_files::FileKind;
use unspool_files::output::create;
use unspool_host::KernelSettings;
use unspool_perf_events::{PerfEvent, SampleRate};
use unspool_profile::Meta;
use unspool_sampler::{
    ArgumentFilter, RecordError, RecordNotice, RecordOptions, RecordSummary, RecordTarget,
    RecordUpdate, Recording, UnwindEngine,
};
use unspool_table_store::{Store, TableForm};

use crate::args::programs::{Frequency, RecordArgs, UnwindEngineArg};
use crate::output::{self, ExitCodes};

mod display;
mod live;
mod report;

use display::{Display, DisplayMode};
use live::{Follower, TeeWriter};
use report::RecordReport;

/// The exit statuses of a command that exists and cannot be run, and of one that does not exist.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    if let (true, Ok(output)) = (args.view, unspool_files::metadata(&args.output))
        && let Some(kind) = FileKind::new(output.file_type())
    {
        let path = args.output.display();
        anyhow::bail!("{path}: a {kind}: --view shows a recording in a regular file");
    }
    let event = args
        .event
        .as_deref()
        .map(str::parse::<PerfEvent>)
        .transpose()?;
    let mut options = RecordOptions {
        event,
        rate: rate(args)?,
        inherits: !args.no_inherit,
        off_cpu: args.off_cpu,
        duration: args.duration,
        arguments: wanted(args).map(Arc::new),
        unwind: match args.unwind {
            UnwindEngineArg::Auto => UnwindEngine::Auto,
            UnwindEngineArg::Both => UnwindEngine::Both,
            UnwindEngineArg::Copy => UnwindEngine::Copy,
            UnwindEngineArg::Kernel => UnwindEngine::Kernel,
        },
    };
    let store = super::store(args.no_cache, args.tables)?;
    if options.arguments.is_some() || store.form() == TableForm::Native {
        anyhow::ensure!(
            matches!(options.unwind, UnwindEngine::Auto | UnwindEngine::Copy),
            "--unwind kernel: --args and native tables need copies of stacks: use --unwind copy"
        );
        options.unwind = UnwindEngine::Copy;
    }
    if let Some(wanted) = &options.arguments {
        prepare(wanted, args, &store);
    }
    let recording = match prepared(args, options) {
        Err(RecordError::Launch(error)) => return Ok(not_launched(args, error)),
        prepared => prepared?,
    };
    let mut report = RecordReport::new(args);
    if args.with_stacks || args.call_graph.is_some() {
        report.notice(&"-g, --call-graph: not needed: every sample has its stack");
    }
    report.without_kernel = recording.notices.contains(&RecordNotice::WithoutKernel);
    for notice in &recording.notices {
        report.notice(notice);
    }
    let created = create(&args.output);
    let (file, created) =
        created.with_context(|| format!("cannot write {}", args.output.display()))?;
    let event = recording.event().clone();
    let mut file = TeeWriter::new(file);
    let mut shown = show(args, &mut file, &mut report)?;
    let summary = recording.run(file, store, meta(args), |news| match news {
        RecordUpdate::Progress(progress) => {
            if let Some((_, display)) = &shown {
                display.progress(progress);
            }
        }
        RecordUpdate::CannotWrite {
            error,
            command_goes_on,
        } => {
            shown = None;
            report.cannot_write(error, command_goes_on);
        }
    });
    drop(shown);
    let (current, moved_to) = (created.current_path(), created.backup_path());
    let moved_to = moved_to.map(Path::to_owned);
    let path = args.output.display();
    let is_empty = |summary: &RecordSummary| summary.completeness.samples() == 0;
    let is_failed = matches!(summary, Err(RecordError::Launch(_) | RecordError::Write(_)));
    let is_alone = current == args.output;
    if is_alone && (is_failed || moved_to.is_some() && summary.as_ref().is_ok_and(is_empty)) {
        created
            .undo()
            .with_context(|| format!("cannot restore {path}"))?;
        if !is_failed {
            report.notice(&format_args!(
                "{path}: this recording is empty: the earlier one stays"
            ));
        }
    } else if !is_alone {
        report.notice(&format_args!(
            "{path} is of a later recording: this one is {}",
            current.display()
        ));
        report.path.clone_from(&current);
    } else if let Some(old) = moved_to {
        report.notice(&format_args!("{path} existed: it is now {}", old.display()));
    }
    let summary = match summary {
        Err(RecordError::Launch(error)) => return Ok(not_launched(args, error)),
        summary => summary.with_context(|| path.to_string())?,
    };
    report.end(&summary, &event)?;
    if args.view && summary.completeness.samples() > 0 {
        super::view::show_recording(&current)?;
    }
    Ok(status(&summary))
}

fn rate(args: &RecordArgs) -> anyhow::Result<SampleRate> {
    Ok(match (args.period, args.freq) {
        (Some(period), _) => SampleRate::Period(period.get()),
        (None, Frequency::Hertz(hertz)) => SampleRate::Frequency(hertz.get()),
        (None, Frequency::Max) => {
            SampleRate::Frequency(KernelSettings::read().max_sample_rate.context(
                "-F max: cannot read kernel.perf_event_max_sample_rate: give a number instead",
            )?)
        }
    })
}

/// The functions whose arguments are recorded.
fn wanted(args: &RecordArgs) -> Option<ArgumentFilter> {
    let is_all = args.args.iter().any(|(function, _)| function == "*");
    let functions = if is_all { &[] } else { args.args.as_slice() };
    (!args.args.is_empty())
        .then(|| ArgumentFilter::new(functions, super::stack::table_of_arguments))
}

/// Builds the argument tables of the recorded programs before they run. Those of libraries are built
/// meanwhile.
fn prepare(filter: &ArgumentFilter, args: &RecordArgs, store: &Store) {
    let command = args.cmd.first().filter(|_| args.is_of_command());
    let of_command = command.and_then(|name| program(name));
    let of_processes = args.pid.iter().map(|pid| format!("/proc/{pid}/exe").into());
    for path in of_command.into_iter().chain(of_processes) {
        // A script is not an ELF file; running the command reports other problems.
        if let Ok(file) = ElfFile::open(&path) {
            filter.prepare(&file, store);
        }
    }
}

/// The path of a command's program.
fn program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        Some(name.into())
    } else {
        super::in_path(name).next()
    }
}

/// The command's own status, unless it succeeded and the recording did not.
fn status(summary: &RecordSummary) -> ExitCode {
    match summary.status {
        Some(status) if !status.success() => super::pass_on(status),
        _ if summary.failure.is_some() => ExitCode::from(ExitCodes::FINDINGS),
        _ => ExitCode::SUCCESS,
    }
}

fn prepared(args: &RecordArgs, options: RecordOptions) -> Result<Recording, RecordError> {
    let command = args.cmd.split_first().map(|(program, arguments)| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    });
    let target = if args.all {
        RecordTarget::Everything
    } else {
        RecordTarget::Processes(args.pid.clone())
    };
    match command {
        Some(command) if args.is_of_command() => {
            Recording::prepare(RecordTarget::Command(command), options)
        }
        Some(command) => Recording::prepare(target, options)?.during(command),
        None => Recording::prepare(target, options),
    }
}

/// Whether that is an argument of perf's `--call-graph`.
fn is_call_graph(word: &str) -> bool {
    let kind = word.split(',').next().unwrap_or_default();
    matches!(kind, "fp" | "dwarf" | "lbr")
}

/// Reports why a command was not run, as shells do.
fn not_launched(args: &RecordArgs, error: io::Error) -> ExitCode {
    let program = args.cmd.first().map(|name| name.to_string_lossy());
    let program = program.unwrap_or_default();
    let error = super::launch_error(&program, error);
    let remedy = match program.parse::<u32>() {
        Ok(pid) => Some(format!("`unspool record -p {pid}` records a process")),
        Err(_) if args.with_stacks && is_call_graph(&program) => Some(format!(
            "-g has no argument, so {program} is taken for the command: leave it out: every sample has its stack"
        )),
        Err(_) => super::launch_remedy(&program, &error),
    };
    let remedy = remedy.map_or_else(String::new, |remedy| format!(": {remedy}"));
    output::error(&format_args!("cannot run {program}: {error}{remedy}"));
    ExitCode::from(match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}

fn meta(args: &RecordArgs) -> Meta {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_default().trim().to_owned()
    };
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let command = args.cmd.iter().filter(|_| args.is_of_command());
    Meta {
        command: command
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        host: read("hostname"),
        kernel: read("osrelease"),
        arch: std::env::consts::ARCH.to_owned(),
        tool: format!("unspool {}", env!("CARGO_PKG_VERSION")),
        started: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        ..Meta::default()
    }
}

/// Starts to show the progress of the recording, if there is a terminal.
fn show(
    args: &RecordArgs,
    file: &mut TeeWriter,
    report: &mut RecordReport<'_>,
) -> anyhow::Result<Option<(Option<Follower>, Display)>> {
    let is_possible = Display::is_possible();
    if args.live && !is_possible {
        report
            .notice(&"--live shows nothing: standard error is not a terminal that can be drawn on");
    }
    // A command has the terminal for itself.
    if args.quiet || !is_possible || !(args.live || args.cmd.is_empty()) {
        return Ok(None);
    }
    let failed = "cannot begin a thread";
    if !args.live {
        let display = Display::begin(DisplayMode::Line).context(failed)?;
        return Ok(Some((None, display)));
    }
    let display = Display::begin(DisplayMode::Screen).context(failed)?;
    let follower = file.read_along(display.handle()).context(failed)?;
    // They end in this order.
    Ok(Some((Some(follower), display)))
}
