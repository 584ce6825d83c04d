//! `unspool script`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use unspool_perf::{DataFile, Reading};
use unspool_sampling::Replay;
use unspool_symbols::{Detail, Finder};
use unspool_unwind::tables::Store;

use crate::args::{ScriptArgs, ScriptField};
use crate::output;

mod digits;
mod frames;
mod inject;
mod samples;
mod text;

use samples::Samples;
use text::{Fields, Printer};

/// The most problems that are said of each kind.
const MOST_SAID: usize = 20;

pub(crate) fn run(args: &ScriptArgs) -> anyhow::Result<ExitCode> {
    let named = || args.file.display().to_string();
    let file = DataFile::open(&args.file).with_context(named)?;
    let store = Store::from_environment();
    let store = match args.no_cache {
        true => store.without_cache(),
        false => store,
    };
    if let Some(output) = &args.output {
        return inject::run(args, &file, output, store);
    }
    let replay = Replay::new(&file, Finder::from_environment(), store).with_context(named)?;
    let mut samples = Samples::new(replay, args.max_frames);
    let reading = file.read(|item| samples.take(&file, &item))?;
    say(args, &file, &reading);
    for problem in samples.problems().take(MOST_SAID) {
        output::notice(&problem);
    }
    let detail = match args.no_inline {
        true => Detail::Functions,
        false => Detail::Lines,
    };
    let fields = fields(args);
    let frames = samples.frames.look_up(detail, fields);
    let mut printer = Printer::new(&file, fields, args.ns, output::Results::new());
    for (sample, stack) in samples.iter() {
        printer.print(sample, samples.name(sample), stack, &frames)?;
    }
    printer.finish()?.flush()?;
    Ok(status(&reading))
}

fn status(reading: &Reading) -> ExitCode {
    match reading.cut {
        Some(_) => ExitCode::from(output::Failure::FINDINGS),
        None => ExitCode::SUCCESS,
    }
}

/// Says what could not be read.
fn say(args: &ScriptArgs, file: &DataFile, reading: &Reading) {
    let path = args.file.display();
    for damage in file.damaged().iter().take(MOST_SAID) {
        output::notice(&format_args!("{path}: {damage}"));
    }
    if let Some(first) = &reading.first_bad {
        let bad = reading.bad;
        output::notice(&format_args!(
            "{path}: {bad} damaged records are left out, the first {first}"
        ));
    }
    if let Some(cut) = &reading.cut {
        output::notice(&format_args!("{path}: read up to there only: {cut}"));
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
