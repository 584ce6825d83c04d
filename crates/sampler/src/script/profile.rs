//! Samples and frames of unspool's own recordings.

use std::io;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use unspool_elf::ElfFile;
use unspool_files::{EscapedText, with_causes};
use unspool_profile::{
    Argument, ArgumentCertainty, CodeLocation, CpuState, FrameId, ModuleId, NamedProfile,
    NoNameResolver, Profile, ProfileFrame, ProfileModule,
};
use unspool_rows::RuntimeAddr;
use unspool_symbols::{ModuleFinder, ModuleIdentity};

use super::frames::{FrameSet, KALLSYMS};
use super::text::{PrintSample, SampleLine, ScriptEvent};

/// The event name of off-CPU time.
const OFF_CPU: &str = "off-cpu";

/// The samples of a profile, by time.
#[derive(Debug)]
pub(super) struct ProfileSamples<'p> {
    profile: &'p Profile,
    max_frames: usize,
}

impl<'p> ProfileSamples<'p> {
    pub(super) fn new(profile: &'p Profile, max_frames: Option<NonZero<usize>>) -> Self {
        ProfileSamples {
            profile,
            max_frames: max_frames.map_or(usize::MAX, NonZero::get),
        }
    }

    /// Prints the samples, each with the name of its thread and the numbers of its frames.
    pub(super) fn each(&self, print: &mut PrintSample<'_>) -> io::Result<()> {
        let profile = self.profile;
        let mut samples: Vec<_> = profile.samples().iter().collect();
        samples.sort_by_key(|sample| sample.time);
        let mut stack = Vec::new();
        for sample in samples {
            let thread = profile.thread(sample.thread);
            let process = thread.and_then(|thread| profile.process(thread.process));
            let name = thread.map_or("", |thread| &thread.name);
            stack.clear();
            let numbers = profile.stacks().frames(sample.stack);
            stack.extend(numbers.take(self.max_frames).map(|FrameId(number)| number));
            let sample = SampleLine {
                event: usize::from(sample.state == CpuState::OffCpu),
                pid: process.map_or(0, |process| process.pid),
                tid: thread.map_or(0, |thread| thread.tid),
                cpu: sample.cpu,
                time: sample.time.0,
                period: sample.weight,
                has_stack: true,
            };
            print(&sample, name.as_bytes(), &stack)?;
        }
        Ok(())
    }
}

/// The event of a profile, and off-CPU time if there is some.
pub(super) fn events(profile: &Profile) -> Vec<ScriptEvent<'_>> {
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
pub(super) fn frames(profile: &Profile, finder: &ModuleFinder) -> FrameSet {
    let mut frames = FrameSet::default();
    let recorded = NamedProfile::new(profile, &NoNameResolver);
    let files: Vec<_> = profile
        .modules()
        .iter()
        .map(|module| open(finder, module, &mut frames))
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
            let problem = problems.first().map(|problem| with_causes(problem));
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
    let file_of = |ModuleId(number)| files.get(number as usize).and_then(Option::as_ref);
    // A name that was kept while recording is for code whose file is gone.
    let is_in_file =
        matches!(frame.lookup, CodeLocation::Module(module, _) if file_of(module).is_some());
    if let (true, [.., line], Some(offset)) = (
        recorded.has_name(number) && !is_in_file,
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
            let file = file_of(module);
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
