//! `unspool script`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use unspool_perf_events::DataFile;
use unspool_profile::Profile;
use unspool_sampler::{RecordingHeader, Script, ScriptFields};
use unspool_symbols::{ModuleFinder, NameDetail};

use crate::args::programs::{FieldSign, ScriptArgs, ScriptField};
use crate::commands::recording::{
    Recording, is_complete, named_or_default, report_problems, status,
};
use crate::commands::{MAX_PROBLEMS_PRINTED, store};
use crate::output;

mod inject;

pub(crate) fn run(args: &ScriptArgs) -> anyhow::Result<ExitCode> {
    let fields = fields(args)?;
    let named = args.file.as_deref().or(args.input.as_deref());
    let path = named_or_default(named)?;
    match (Recording::open(path)?, &args.output) {
        (Recording::Perf(file), None) => print_recording(args, path, &file, fields),
        (Recording::Perf(file), Some(output)) => {
            inject::run(path, &file, output, store(args.no_cache, args.tables)?)
        }
        (Recording::Unspool(profile), None) => print_profile(args, &profile, fields),
        (Recording::Unspool(_), Some(_)) => anyhow::bail!(
            "{}: not a recording of perf: --inject needs one",
            path.display()
        ),
    }
}

fn print_recording(
    args: &ScriptArgs,
    path: &Path,
    file: &DataFile,
    fields: ScriptFields,
) -> anyhow::Result<ExitCode> {
    let (finder, store) = (
        ModuleFinder::from_environment(),
        store(args.no_cache, args.tables)?,
    );
    let script = Script::of_recording(file, finder, store, args.max_frames);
    let (script, reading) = script.with_context(|| path.display().to_string())?;
    report_problems(path, file, &reading);
    print(args, &script, &RecordingHeader::from(file), fields)?;
    Ok(status(is_complete(file, &reading)))
}

fn print_profile(
    args: &ScriptArgs,
    profile: &Profile,
    fields: ScriptFields,
) -> anyhow::Result<ExitCode> {
    let finder = ModuleFinder::from_environment();
    let script = Script::of_profile(profile, &finder, args.max_frames);
    print(args, &script, &RecordingHeader::from(profile), fields)?;
    Ok(status(!profile.ending().is_cut()))
}

fn print(
    args: &ScriptArgs,
    script: &Script<'_>,
    header: &RecordingHeader<'_>,
    fields: ScriptFields,
) -> anyhow::Result<()> {
    for problem in script.problems().take(MAX_PROBLEMS_PRINTED) {
        output::notice(&problem);
    }
    let detail = if args.no_inline {
        NameDetail::Functions
    } else {
        NameDetail::Lines
    };
    let named = script.names(detail, fields, &mut |problem| output::notice(problem));
    let mut out = output::Results::new();
    if args.header {
        header.write(&mut out)?;
    }
    Ok(named.write(args.ns, &mut out)?)
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
        *field_mut(&mut fields, *field) = *sign != FieldSign::Removed;
    }
    anyhow::ensure!(
        fields.symbol || !fields.offset,
        "-F: symoff is the offset from sym, which is not printed"
    );
    Ok(fields)
}

fn field_mut(fields: &mut ScriptFields, field: ScriptField) -> &mut bool {
    match field {
        ScriptField::Comm => &mut fields.comm,
        ScriptField::Pid => &mut fields.pid,
        ScriptField::Tid => &mut fields.tid,
        ScriptField::Cpu => &mut fields.cpu,
        ScriptField::Time => &mut fields.time,
        ScriptField::Period => &mut fields.period,
        ScriptField::Event => &mut fields.event,
        ScriptField::Ip => &mut fields.ip,
        ScriptField::Sym => &mut fields.symbol,
        ScriptField::Symoff => &mut fields.offset,
        ScriptField::Dso => &mut fields.dso,
        ScriptField::Srcline => &mut fields.source_line,
        ScriptField::Args => &mut fields.args,
    }
}
