//! `unspool script` of unspool's own recordings.

use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_profile::{
    Argument, ArgumentCertainty, CodeLocation, CpuState, FrameId, ModuleId, NamedProfile,
    NoNameResolver, Profile, ProfileFrame, ProfileModule,
};
use unspool_rows::RuntimeAddr;
use unspool_symbols::{ModuleFinder, ModuleIdentity, NameDetail};

use super::frames::{FrameSet, KALLSYMS};
use super::header::RecordingHeader;
use super::say_problems;
use super::text::{Printer, SampleLine, ScriptEvent, ScriptFields};
use crate::args::programs::ScriptArgs;
use crate::commands::recording::status;
use crate::output::{self, EscapedText};

/// The event name of off-CPU time.
const OFF_CPU: &str = "off-cpu";

pub(super) fn run(
    args: &ScriptArgs,
    profile: &Profile,
    detail: NameDetail,
    fields: ScriptFields,
) -> anyhow::Result<ExitCode> {
    let frames = frames(profile);
    say_problems(&frames);
    let frames = frames.look_up(detail, fields);
    let most = args.max_frames.map_or(usize::MAX, NonZero::get);
    let mut out = output::Results::new();
    if args.header {
        RecordingHeader::from(profile).print(&mut out)?;
    }
    let mut printer = Printer::new(events(profile), fields, args.ns, out);
    let mut samples: Vec<_> = profile.samples().iter().collect();
    samples.sort_by_key(|sample| sample.time);
    let mut stack = Vec::new();
    for sample in samples {
        let thread = profile.thread(sample.thread);
        let process = thread.and_then(|thread| profile.process(thread.process));
        let name = thread.map_or("", |thread| &thread.name);
        stack.clear();
        let numbers = profile.stacks().frames(sample.stack);
        stack.extend(numbers.take(most).map(|FrameId(number)| number));
        let sample = SampleLine {
            event: usize::from(sample.state == CpuState::OffCpu),
            pid: process.map_or(0, |process| process.pid),
            tid: thread.map_or(0, |thread| thread.tid),
            cpu: sample.cpu,
            time: sample.time.0,
            period: sample.weight,
            has_stack: true,
        };
        printer.print(&sample, name.as_bytes(), &stack, &frames)?;
    }
    printer.finish()?;
    Ok(status(!profile.ending().is_cut()))
}

fn events(profile: &Profile) -> Vec<ScriptEvent<'_>> {
    let is_off = |sample: &unspool_profile::ProfileSample| sample.state == CpuState::OffCpu;
    let has_off = profile.samples().iter().any(is_off);
    let names = [profile.meta().event.name.as_str(), OFF_CPU];
    let names = names.into_iter().take(1 + usize::from(has_off));
    let event = |name| ScriptEvent {
        name,
        has_cpu: true,
        has_time: true,
        has_period: true,
    };
    names.map(event).collect()
}

/// The frames of a profile, with the same numbers.
fn frames(profile: &Profile) -> FrameSet {
    let mut frames = FrameSet::default();
    let finder = ModuleFinder::from_environment();
    let recorded = NamedProfile::new(profile, &NoNameResolver);
    let files: Vec<_> = profile
        .modules()
        .iter()
        .map(|module| open(&finder, module, &mut frames))
        .collect();
    for (number, frame) in (0..).map(FrameId).zip(profile.frames()) {
        add(&mut frames, &recorded, &files, number, frame);
        if let Some(id) = frame.arguments {
            let lines = profile.arguments(id).iter().map(line);
            frames.add_arguments(number.0, lines.collect());
        }
    }
    frames
}

/// An argument as `unspool stack` shows it.
fn line(argument: &Argument) -> String {
    let Argument {
        name,
        type_name,
        value,
        certainty: known,
    } = argument;
    let value = match known {
        ArgumentCertainty::Exact => format!(" = {value}"),
        ArgumentCertainty::Likely => format!(" = {value}  <likely>"),
        ArgumentCertainty::Lost | ArgumentCertainty::Omitted => format!("  <{}>", known.name()),
    };
    format!(
        "\t{:17}{}: {}{}\n",
        "",
        EscapedText(name),
        EscapedText(type_name),
        EscapedText(&value)
    )
}

fn open(
    finder: &ModuleFinder,
    module: &ProfileModule,
    frames: &mut FrameSet,
) -> Option<Arc<ElfFile>> {
    let identity = ModuleIdentity {
        path: module.path.clone(),
        content: module.content,
        root: None,
    };
    match finder.open(&identity, &|_| {}) {
        Ok(file) => Some(Arc::new(file)),
        Err(problems) => {
            let name = module.path.as_os_str().as_bytes().to_vec();
            let problem = problems.first().map(|problem| output::with_causes(problem));
            frames.problems.insert(name, problem.unwrap_or_default());
            None
        }
    }
}

fn add(
    frames: &mut FrameSet,
    recorded: &NamedProfile<'_>,
    files: &[Option<Arc<ElfFile>>],
    number: FrameId,
    frame: &ProfileFrame,
) {
    let profile = recorded.profile;
    if let (true, [.., line], Some(offset)) = (
        recorded.has_name(number),
        recorded.lines_of(number),
        recorded.offset(number),
    ) {
        let name = recorded.function_name(line.function).to_owned();
        let offset = offset.wrapping_sub(u64::from(frame.is_return));
        let module = match recorded.module_of(number) {
            "[kernel]" => KALLSYMS,
            module => module.as_bytes(),
        };
        frames.add_recorded(frame.lookup.address(), name, offset, module);
        return;
    }
    match frame.lookup {
        CodeLocation::Module(module @ ModuleId(number), address) => {
            let file = files.get(number as usize).and_then(Option::as_ref);
            let name = profile.module(module).map(|module| module.path.as_os_str());
            let name = name.map_or(&b""[..], |name| name.as_bytes());
            frames.add_in_file(address, file.map(|file| (number, file)), name);
        }
        CodeLocation::Kernel(RuntimeAddr(address)) => {
            frames.add_unnamed(RuntimeAddr(address), None);
        }
        CodeLocation::Process(process, address) => {
            let pid = profile.process(process).map_or(0, |process| process.pid);
            frames.add_unnamed(address, Some(pid));
        }
    }
}
