//! `unspool record`.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, ExitCode};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use unspool_perf::{Event, Rate};
use unspool_profile::{Completeness, FileError, Grouped, Meta, Profile, create};
use unspool_sampling::{Options, Progress, RecordError, Recording, Summary, Target};
use unspool_unwind::tables::Store;

use crate::args::RecordArgs;
use crate::output;

/// The status of a command that is there and cannot be run, and of one that is not there.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How many files are named that could not be used.
const MOST_SAID: usize = 10;

pub(crate) fn run(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let event = args.event.as_deref().map(str::parse::<Event>).transpose()?;
    let options = Options {
        event,
        rate: match args.period {
            Some(period) => Rate::Period(period.get()),
            None => Rate::Frequency(args.freq.get()),
        },
        inherits: !args.no_inherit,
        off_cpu: args.off_cpu,
        duration: args.duration,
    };
    let recording = match Recording::prepare(target(args), options) {
        Err(RecordError::Launch(error)) => return Ok(not_launched(args, &error)),
        prepared => prepared?,
    };
    if !args.quiet {
        for notice in &recording.notices {
            output::notice(notice);
        }
    }
    let created = create(&args.output);
    let created = created.with_context(|| format!("cannot write {}", args.output.display()))?;
    if let Some(old) = created.moved_to.filter(|_| !args.quiet) {
        let path = args.output.display();
        output::notice(&format_args!(
            "{path} was there: it is {} now",
            old.display()
        ));
    }
    let store = Store::from_environment();
    let store = match args.no_cache {
        true => store.without_cache(),
        false => store,
    };
    let shows_progress = !args.quiet && io::stderr().is_terminal();
    let summary = recording.run(created.file, store, meta(args), |progress| {
        if shows_progress {
            show(progress);
        }
    });
    let summary = match summary {
        Err(RecordError::Launch(error)) => return Ok(not_launched(args, &error)),
        summary => summary?,
    };
    if !args.quiet {
        tell(&summary, args);
    }
    let Some(status) = summary.status else {
        return Ok(ExitCode::SUCCESS);
    };
    Ok(super::pass_on(status))
}

fn target(args: &RecordArgs) -> Target {
    match args.cmd.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            Target::Command(command)
        }
        None if args.all => Target::Everything,
        None => Target::Processes(args.pid.clone()),
    }
}

/// Says why a command was not run, in the way that shells do.
fn not_launched(args: &RecordArgs, error: &io::Error) -> ExitCode {
    let program = args.cmd.first().map(|name| name.to_string_lossy());
    let program = program.unwrap_or_default();
    output::error(&format_args!("cannot run {program}: {error}"));
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
    let command = args.cmd.iter();
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

fn show(progress: Progress) {
    let Progress { totals, elapsed } = progress;
    let seconds = elapsed.as_secs();
    let mut err = io::stderr();
    // A terminal that is gone shows nothing.
    let _ = write!(
        err,
        "\r{seconds} s: {} samples, {} lost, {} complete\x1b[K",
        totals.samples,
        totals.lost,
        share(&totals)
    );
}

fn share(totals: &unspool_sampling::Totals) -> String {
    let all = totals.samples - totals.without_stack;
    match all {
        0 => "none".to_owned(),
        _ => {
            let incomplete = all - totals.complete;
            #[expect(clippy::cast_precision_loss, reason = "a percentage")]
            let share = 100.0 - incomplete as f64 * 100.0 / all as f64;
            format!("{share:.2} %")
        }
    }
}

/// Says what the recording came to, and what the profile that was written lacks.
fn tell(summary: &Summary, args: &RecordArgs) {
    let totals = &summary.totals;
    let path = args.output.display();
    let lost = match totals.lost {
        0 => String::new(),
        lost => format!(", {} lost", Grouped(lost)),
    };
    output::notice(&format_args!(
        "{path}: {} samples in {:.1} s{lost}",
        Grouped(totals.samples),
        summary.elapsed.as_secs_f64(),
    ));
    let profile = File::open(&args.output)
        .map_err(FileError::from)
        .and_then(Profile::read);
    match profile {
        Ok(profile) => {
            let samples: Vec<_> = profile.samples().iter().collect();
            let completeness = Completeness::new(&profile, &samples);
            output::notice(&completeness.summary(&profile));
        }
        // A pipe cannot be read again.
        Err(_) => output::notice(&format_args!("{} of stacks reach a root", share(totals))),
    }
    for problem in summary.unusable.iter().take(MOST_SAID) {
        output::notice(&output::with_causes(&**problem));
    }
    if totals.lost > 0 {
        output::notice(
            &"samples were lost because the machine was too busy to take them in time: ask for fewer (-F)",
        );
    }
}
