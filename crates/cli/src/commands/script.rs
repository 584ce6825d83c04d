//! `unspool script`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use unspool_perf::DataFile;
use unspool_sampling::Replay;
use unspool_symbols::{Detail, Finder};

use crate::args::{FieldSign, ScriptArgs, ScriptField};
use crate::commands::recording::{Recording, is_whole, named_or_default, say, status};
use crate::commands::{MOST_SAID, store};
use crate::output;

mod frames;
mod header;
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
    let fields = fields(args)?;
    let named = args.file.as_deref().or(args.input.as_deref());
    let path = named_or_default(named)?;
    match (Recording::open(path)?, &args.output) {
        (Recording::Perf(file), None) => print(args, path, &file, detail, fields),
        (Recording::Perf(file), Some(output)) => {
            inject::run(path, &file, output, store(args.no_cache, args.tables)?)
        }
        (Recording::Ours(profile), None) => profile::run(args, &profile, detail, fields),
        (Recording::Ours(_), Some(_)) => anyhow::bail!(
            "{}: not a recording of perf: --inject needs one",
            path.display()
        ),
    }
}

fn print(
    args: &ScriptArgs,
    path: &Path,
    file: &DataFile,
    detail: Detail,
    fields: Fields,
) -> anyhow::Result<ExitCode> {
    let store = store(args.no_cache, args.tables)?;
    let replay = Replay::new(file, Finder::from_environment(), store);
    let replay = replay.with_context(|| path.display().to_string())?;
    let mut samples = Samples::new(replay, args.max_frames);
    let reading = file.read(|item| samples.take(file, &item))?;
    say(path, file, &reading);
    say_problems(&samples.frames);
    let frames = samples.frames.look_up(detail, fields);
    let events = file.events().iter().map(Event::from).collect();
    let mut out = output::Results::new();
    if args.header {
        header::Header::from(file).print(&mut out)?;
    }
    let mut printer = Printer::new(events, fields, args.ns, out);
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

/// The fields that are printed.
fn fields(args: &ScriptArgs) -> anyhow::Result<Fields> {
    let is_only = |(sign, _): &(FieldSign, ScriptField)| *sign == FieldSign::Only;
    let only = args.fields.iter().filter(|field| is_only(field)).count();
    anyhow::ensure!(
        only == 0 || only == args.fields.len(),
        "-F: fields with a sign change the usual ones, and those without replace them: not both at once"
    );
    let mut fields = match only {
        0 => Fields::USUAL,
        _ => Fields::default(),
    };
    for (sign, field) in &args.fields {
        *fields.of(*field) = *sign != FieldSign::Removed;
    }
    anyhow::ensure!(
        fields.symbol || !fields.offset,
        "-F: symoff is the offset from sym, which is not printed"
    );
    Ok(fields)
}

impl Fields {
    fn of(&mut self, field: ScriptField) -> &mut bool {
        match field {
            ScriptField::Comm => &mut self.comm,
            ScriptField::Pid => &mut self.pid,
            ScriptField::Tid => &mut self.tid,
            ScriptField::Cpu => &mut self.cpu,
            ScriptField::Time => &mut self.time,
            ScriptField::Period => &mut self.period,
            ScriptField::Event => &mut self.event,
            ScriptField::Ip => &mut self.ip,
            ScriptField::Sym => &mut self.symbol,
            ScriptField::Symoff => &mut self.offset,
            ScriptField::Dso => &mut self.dso,
            ScriptField::Args => &mut self.args,
        }
    }
}
