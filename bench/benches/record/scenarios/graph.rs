//! From Ctrl-C to a flame graph.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use unspool_bench::{Durations, interrupt, millis, wait};

use crate::options::RecordBenchOptions;
use crate::programs::{Programs, Workload};
use crate::tools::Tool;

const RATE: u32 = 9973;

/// The duration of the recording: 20,000 samples of one thread.
const RECORDED: Duration = Duration::from_millis(2_100);

pub(crate) fn measure(programs: &Programs, options: &RecordBenchOptions) -> anyhow::Result<()> {
    let workload = Workload::deep("deep, 60", 60, 1_000_000);
    let rounds = options.rounds.unwrap_or(3);
    let tools = [Tool::Unspool, Tool::PerfDwarf(8192)];
    let mut took = [Durations::default(), Durations::default()];
    for round in 0..=rounds {
        for (tool, took) in tools.iter().zip(&mut took) {
            let output = programs.path("graph");
            let mut command = tool.recorder(programs, RATE, &output, None);
            let target = programs.workload(&workload);
            command.arg(target.get_program()).args(target.get_args());
            let recorder = command.process_group(0).stderr(Stdio::null()).spawn()?;
            thread::sleep(RECORDED);
            let begun = Instant::now();
            interrupt(&recorder)?;
            wait(recorder)?;
            let mut command = match tool {
                Tool::Unspool => {
                    let mut command = Command::new(&programs.unspool);
                    command.args(["report", "--as", "flamegraph"]).arg(&output);
                    command.env("XDG_CACHE_HOME", programs.path("cache"));
                    command
                }
                _ => {
                    let mut command = Command::new("perf");
                    command.args(["script", "--no-inline", "-i"]).arg(&output);
                    command
                }
            };
            let written = File::create(programs.path("graph.out"))?;
            let status = command
                .stdout(written)
                .stderr(Stdio::null())
                .env_remove("DEBUGINFOD_URLS")
                .status()?;
            anyhow::ensure!(status.success(), "{}: {status}", tool.name());
            if round > 0 {
                took.extend([begun.elapsed()]);
            }
        }
    }
    println!(
        "\nfrom Ctrl-C, {} s at {RATE} Hz of {}: medians of {rounds}, ms",
        RECORDED.as_secs_f64(),
        workload.name
    );
    let [ours, theirs] = took;
    println!(
        "  unspool record, until unspool report has a flame graph{:>10.0}",
        millis(ours.median())
    );
    println!(
        "  perf dwarf, 8 KiB, until perf script has stacks       {:>10.0}",
        millis(theirs.median())
    );
    Ok(())
}
