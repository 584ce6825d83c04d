//! The recorders, and the results of their recordings.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use unspool_bench::{Usage, wait};

use crate::programs::{Programs, Workload};
use crate::samply;
use crate::script::{self, StackTotals};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Unspool,
    /// With walks in the kernel.
    UnspoolKernel,
    /// With stack copies of this many bytes.
    PerfDwarf(u32),
    PerfFramePointers,
    /// The event without stacks.
    PerfWithoutStacks,
    Samply,
}

/// The recorders with stacks.
pub(crate) const TOOLS: [Tool; 6] = [
    Tool::Unspool,
    Tool::UnspoolKernel,
    Tool::PerfDwarf(8192),
    Tool::PerfDwarf(32768),
    Tool::PerfFramePointers,
    Tool::Samply,
];

/// The recorder's error output.
const ERRORS: &str = "errors";

/// A recording.
pub(crate) struct RecordRun {
    /// CPU time of the recorder, without its target.
    pub(crate) recorder: Duration,
    /// CPU time of the target.
    pub(crate) target: Duration,
    /// The peak resident memory, in bytes.
    pub(crate) peak: u64,
    pub(crate) file_bytes: u64,
}

/// The contents of a recording.
pub(crate) struct RecordingContents {
    pub(crate) stacks: StackTotals,
    /// CPU time to unwind and print it afterwards.
    pub(crate) script: Duration,
}

impl Tool {
    pub(crate) fn name(self) -> String {
        match self {
            Tool::Unspool => "unspool record".to_owned(),
            Tool::UnspoolKernel => "unspool, in kernel".to_owned(),
            Tool::PerfDwarf(bytes) => format!("perf dwarf, {} KiB", bytes / 1024),
            Tool::PerfFramePointers => "perf fp".to_owned(),
            Tool::PerfWithoutStacks => "perf without stacks".to_owned(),
            Tool::Samply => "samply".to_owned(),
        }
    }

    /// The recorder, up to its target's command; the file `usage`, if given, receives its resource
    /// usage.
    pub(crate) fn recorder(
        self,
        programs: &Programs,
        rate: u32,
        output: &Path,
        usage: Option<&Path>,
    ) -> Command {
        let rate = rate.to_string();
        let program = match self {
            Tool::Unspool | Tool::UnspoolKernel => &programs.unspool,
            Tool::Samply => Path::new("samply"),
            _ => Path::new("perf"),
        };
        let mut command = match usage {
            Some(usage) => {
                let mut timed = Command::new(programs.path("timed"));
                timed.arg(usage).arg(program);
                timed
            }
            None => Command::new(program),
        };
        command.arg("record");
        match self {
            Tool::Samply => {
                command.args(["--save-only", "--no-open", "--rate", &rate]);
            }
            _ => {
                command.args(["-e", "cpu-clock", "-F", &rate]);
            }
        }
        match self {
            // Smaller rings lose samples.
            Tool::PerfDwarf(bytes) => {
                command.args(["-m", "8M", "--call-graph", &format!("dwarf,{bytes}")]);
            }
            Tool::PerfFramePointers => {
                command.args(["--call-graph", "fp"]);
            }
            Tool::UnspoolKernel => {
                command.args(["--unwind", "kernel"]);
            }
            _ => {}
        }
        command.arg("-o").arg(output).arg("--");
        command
            .env("XDG_CACHE_HOME", programs.path("cache"))
            .env_remove("DEBUGINFOD_URLS")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// The preloaded library of the recorder and its target.
    fn preloaded(self, programs: &Programs) -> String {
        let target = programs.path("target.so").display().to_string();
        match self {
            Tool::Samply => format!("{}:{target}", programs.path("cpu_clock.so").display()),
            _ => target,
        }
    }

    /// The CPU time of a workload that nobody records.
    pub(crate) fn target_alone(
        programs: &Programs,
        workload: &Workload,
    ) -> anyhow::Result<Duration> {
        let mut command = programs.workload(workload);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let Usage { status, cpu, .. } = wait(command.stderr(Stdio::null()).spawn()?)?;
        anyhow::ensure!(status.success(), "{}: {status}", workload.name);
        Ok(cpu)
    }

    /// Records a workload.
    pub(crate) fn record(
        self,
        programs: &Programs,
        workload: &Workload,
        rate: u32,
    ) -> anyhow::Result<RecordRun> {
        let output = programs.path(self.file());
        let [of_all, of_target, errors] =
            ["time", "time of target", ERRORS].map(|name| programs.path(name));
        let mut command = self.recorder(programs, rate, &output, Some(&of_all));
        let target = programs.workload(workload);
        command.arg(target.get_program()).args(target.get_args());
        let words = [target.get_program()].into_iter().chain(target.get_args());
        let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
        command
            .env("LD_PRELOAD", self.preloaded(programs))
            .env("UNSPOOL_TARGET", words.join(" "))
            .env("UNSPOOL_TIME", &of_target);
        let status = command.stderr(File::create(&errors)?).status();
        let status = status.with_context(|| self.name())?;
        let said = || fs::read_to_string(&errors).unwrap_or_default();
        anyhow::ensure!(status.success(), "{}: {status}: {}", self.name(), said());
        let (all, peak) = read_usage(&of_all)?;
        let target: u64 = fs::read_to_string(&of_target)?.trim().parse()?;
        let target = Duration::from_micros(target);
        Ok(RecordRun {
            recorder: all.saturating_sub(target),
            target,
            peak,
            file_bytes: fs::metadata(&output)?.len(),
        })
    }

    /// Reads a recording of a workload by [`Tool::record`].
    pub(crate) fn contents(
        self,
        programs: &Programs,
        workload: &Workload,
    ) -> anyhow::Result<RecordingContents> {
        let path = programs.path(self.file());
        let mut command = match self {
            Tool::Samply => {
                return Ok(RecordingContents {
                    stacks: samply::stacks(&path, workload.comm)?,
                    script: Duration::ZERO,
                });
            }
            Tool::Unspool | Tool::UnspoolKernel => {
                let mut command = Command::new(&programs.unspool);
                command.args(["report", "--as", "perf-script"]).arg(&path);
                command.env("XDG_CACHE_HOME", programs.path("cache"));
                command
            }
            _ => {
                let mut command = Command::new("perf");
                command.args(["script", "--no-inline", "--show-lost-events"]);
                command.args(["--max-stack", "1000", "-i"]).arg(&path);
                command
            }
        };
        let text = programs.path("script");
        command.env_remove("DEBUGINFOD_URLS");
        command
            .stdout(File::create(&text)?)
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        let Usage { status, cpu, .. } = wait(command.spawn()?)?;
        anyhow::ensure!(status.success(), "{}: {status}", self.name());
        let mut stacks = script::stacks(&text, workload.comm)?;
        if matches!(self, Tool::Unspool | Tool::UnspoolKernel) {
            stacks.lost = Some(parse_lost(&fs::read_to_string(programs.path(ERRORS))?)?);
        }
        Ok(RecordingContents {
            stacks,
            script: match self {
                Tool::Unspool | Tool::UnspoolKernel => Duration::ZERO,
                _ => cpu,
            },
        })
    }

    fn file(self) -> &'static str {
        match self {
            Tool::Unspool | Tool::UnspoolKernel => "unspool.prof",
            Tool::Samply => "samply.json.gz",
            _ => "perf.data",
        }
    }
}

/// The output of `timed`: CPU time, and the peak memory in bytes.
fn read_usage(path: &Path) -> anyhow::Result<(Duration, u64)> {
    let text = fs::read_to_string(path)?;
    let (micros, kib) = text.trim().split_once(' ').context("no usage")?;
    let kib: u64 = kib.parse()?;
    Ok((Duration::from_micros(micros.parse()?), kib * 1024))
}

/// The lost samples in the output of `unspool record`: "24,554 samples in 2.4 s, 44 lost".
fn parse_lost(said: &str) -> anyhow::Result<u64> {
    let line = said.lines().find(|line| line.contains(" samples in "));
    let line = line.context("the recorder does not say how many samples there are")?;
    let lost = line
        .strip_suffix(" lost")
        .and_then(|line| line.rsplit(' ').next());
    let digits = lost.unwrap_or("0").replace(',', "");
    Ok(digits.parse()?)
}
