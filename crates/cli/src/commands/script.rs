//! `unspool script`.

use std::process::ExitCode;

use anyhow::Context as _;
use unspool_perf::DataFile;
use unspool_sampling::Replay;
use unspool_symbols::{Detail, Finder};

use crate::args::{ScriptArgs, ScriptField};
use crate::commands::recording::{Recording, is_whole, say, status};
use crate::commands::{MOST_SAID, store};
use crate::output;

mod digits;
mod frames;
mod inject;
mod profile;
mod samples;
mod text;

use frames::Frames;
use samples::Samples;
use text::{Event, Fields, Printer};

pub(crate) fn run(args: &ScriptArgs) -> anyhow::Result<ExitCode> {
    let detail = match args.no_inline {
        true => Detail::Functions,
        false => Detail::Lines,
    };
    let fields = fields(args);
    match (Recording::open(&args.file)?, &args.output) {
        (Recording::Perf(file), None) => print(args, &file, detail, fields),
        (Recording::Perf(file), Some(output)) => {
            inject::run(args, &file, output, store(args.no_cache))
        }
        (Recording::Ours(profile), None) => profile::run(args, &profile, detail, fields),
        (Recording::Ours(_), Some(_)) => anyhow::bail!(
            "{}: --inject is for recordings of perf: this is a profile, whose stacks are unwound",
            args.file.display()
        ),
    }
}

fn print(
    args: &ScriptArgs,
    file: &DataFile,
    detail: Detail,
    fields: Fields,
) -> anyhow::Result<ExitCode> {
    let replay = Replay::new(file, Finder::from_environment(), store(args.no_cache));
    let replay = replay.with_context(|| args.file.display().to_string())?;
    let mut samples = Samples::new(replay, args.max_frames);
    let reading = file.read(|item| samples.take(file, &item))?;
    say(&args.file, file, &reading);
    say_problems(&samples.frames);
    let frames = samples.frames.look_up(detail, fields);
    let events = file.events().iter().map(Event::from).collect();
    let mut printer = Printer::new(events, fields, args.ns, output::Results::new());
    for (sample, name, stack) in samples.iter() {
        printer.print(sample, name, stack, &frames)?;
    }
    printer.finish()?;
    Ok(status(is_whole(file, &reading)))
}

/// Says what is wrong with files that samples are in.
fn say_problems(frames: &Frames) {
    for problem in frames.problems.values().take(MOST_SAID) {
        output::notice(problem);
    }
}

fn fields(args: &ScriptArgs) -> Fields {
    use ScriptField as Field;
    let asked = args.fields.as_slice();
    let default = asked.is_empty();
    let has = |field| asked.contains(&field);
    Fields {
        comm: default || has(Field::Comm),
        pid: has(Field::Pid),
        tid: default || has(Field::Tid),
        cpu: default || has(Field::Cpu),
        time: default || has(Field::Time),
        period: default || has(Field::Period),
        event: default || has(Field::Event),
        ip: default || has(Field::Ip),
        symbol: default || has(Field::Sym),
        offset: default || has(Field::Symoff),
        dso: default || has(Field::Dso),
    }
}
