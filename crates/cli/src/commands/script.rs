//! `unspool script`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use unspool_perf_events::DataFile;
use unspool_sampler::Replay;
use unspool_symbols::{ModuleFinder, NameDetail};

use crate::args::programs::{FieldSign, ScriptArgs, ScriptField};
use crate::commands::recording::{
    Recording, is_complete, named_or_default, report_problems, status,
};
use crate::commands::{MAX_PROBLEMS_PRINTED, store};
use crate::output;

mod frames;
mod header;
mod inject;
mod profile;
mod samples;
mod text;

use frames::FrameSet;
use samples::UnwoundSamples;
use text::{Printer, ScriptEvent, ScriptFields};

pub(crate) fn run(args: &ScriptArgs) -> anyhow::Result<ExitCode> {
    let detail = if args.no_inline {
        NameDetail::Functions
    } else {
        NameDetail::Lines
    };
    let fields = fields(args)?;
    let named = args.file.as_deref().or(args.input.as_deref());
    let path = named_or_default(named)?;
    match (Recording::open(path)?, &args.output) {
        (Recording::Perf(file), None) => print(args, path, &file, detail, fields),
        (Recording::Perf(file), Some(output)) => {
            inject::run(path, &file, output, store(args.no_cache, args.tables)?)
        }
        (Recording::Unspool(profile), None) => profile::run(args, &profile, detail, fields),
        (Recording::Unspool(_), Some(_)) => anyhow::bail!(
            "{}: not a recording of perf: --inject needs one",
            path.display()
        ),
    }
}

fn print(
    args: &ScriptArgs,
    path: &Path,
    file: &DataFile,
    detail: NameDetail,
    fields: ScriptFields,
) -> anyhow::Result<ExitCode> {
    let store = store(args.no_cache, args.tables)?;
    let replay = Replay::new(file, ModuleFinder::from_environment(), store);
    let replay = replay.with_context(|| path.display().to_string())?;
    let mut samples = UnwoundSamples::new(replay, args.max_frames);
    let reading = file.read(|item| samples.take(file, &item))?;
    report_problems(path, file, &reading);
    say_problems(&samples.frames);
    let frames = samples.frames.look_up(detail, fields);
    let events = file.events().iter().map(ScriptEvent::from).collect();
    let mut out = output::Results::new();
    if args.header {
        header::RecordingHeader::from(file).print(&mut out)?;
    }
    let mut printer = Printer::new(events, fields, args.ns, out);
    for (sample, name, stack) in samples.iter() {
        printer.print(sample, name, stack, &frames)?;
    }
    printer.finish()?;
    Ok(status(is_complete(file, &reading)))
}

/// Reports problems with files that have samples.
fn say_problems(frames: &FrameSet) {
    for problem in frames.problems.values().take(MAX_PROBLEMS_PRINTED) {
        output::notice(problem);
    }
}

/// The fields that are printed.
fn fields(args: &ScriptArgs) -> anyhow::Result<ScriptFields> {
    let is_only = |(sign, _): &(FieldSign, ScriptField)| *sign == FieldSign::Only;
    let only = args.fields.iter().filter(|field| is_only(field)).count();
    anyhow::ensure!(
        only == 0 || only == args.fields.len(),
        "-F: fields with a sign change the usual ones, and those without replace them: not both at once"
    );
    let mut fields = match only {
        0 => ScriptFields::DEFAULT,
        _ => ScriptFields::default(),
    };
    for (sign, field) in &args.fields {
        *fields.field_mut(*field) = *sign != FieldSign::Removed;
    }
    anyhow::ensure!(
        fields.symbol || !fields.offset,
        "-F: symoff is the offset from sym, which is not printed"
    );
    Ok(fields)
}

impl ScriptFields {
    fn field_mut(&mut self, field: ScriptField) -> &mut bool {
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
