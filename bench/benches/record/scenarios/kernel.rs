//! Walks in the kernel: their time, how many were left to the recorder, and what a sample costs.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;
use unspool_bench::{median, micros};

use crate::options::RecordBenchOptions;
use crate::programs::{Programs, Workload};
use crate::tools::Tool;

const RATE: u32 = 9973;

pub(crate) fn measure(programs: &Programs, options: &RecordBenchOptions) -> anyhow::Result<()> {
    let rounds = options.rounds.unwrap_or(5);
    println!(
        "\nwalks in the kernel, {RATE} Hz: medians of {rounds}; the longest walk of all rounds"
    );
    println!(
        "{:<20}{:>9}{:>9}{:>12}{:>12}{:>14}{:>9}",
        "", "walks", "frames", "ns a frame", "longest µs", "handed over", "missed"
    );
    let deep = [("deep, 200", 200, 15_000), ("deep, 800", 800, 4_000)];
    let deep = deep.map(|(name, depth, count)| Workload::deep(name, depth, count));
    let mut workloads = Workload::all();
    workloads.retain(|workload| workload.name != "deep, 200");
    workloads.extend(deep);
    workloads.retain(|workload| options.wants_workload(workload.name));
    for workload in &workloads {
        let mut runs = Vec::new();
        // The first round compiles tables.
        for round in 0..=rounds {
            let walks = walks(programs, workload)?;
            if round > 0 {
                runs.push(walks);
            }
        }
        print(workload, &runs);
    }
    println!(
        "\nprocessor time of target and recorder, without that of the target alone, in µs a sample: \
         medians of {rounds}"
    );
    println!(
        "{:<20}{:>14}{:>9}{:>9}{:>18}",
        "", "without stacks", "copy", "kernel", "kernel / copy"
    );
    workloads
        .iter()
        .try_for_each(|workload| compare(programs, workload, rounds))
}

/// The recorders whose costs are compared.
const COMPARED: [Tool; 3] = [Tool::PerfWithoutStacks, Tool::Unspool, Tool::UnspoolKernel];

/// Prints what a sample costs by each recorder. They alternate.
fn compare(programs: &Programs, workload: &Workload, rounds: usize) -> anyhow::Result<()> {
    let mut costs: [Vec<f64>; COMPARED.len()] = Default::default();
    for round in 0..=rounds {
        let alone = Tool::target_alone(programs, workload)?;
        for (tool, costs) in COMPARED.into_iter().zip(&mut costs) {
            let run = tool.record(programs, workload, RATE)?;
            // So many samples are due.
            let samples = run.target.as_secs_f64() * f64::from(RATE);
            let cost = (run.recorder + run.target).saturating_sub(alone);
            if round > 0 {
                costs.push(micros(cost) / samples.max(1.0));
            }
        }
    }
    let [without, copy, kernel] = costs.map(median);
    println!(
        "{:<20}{without:>14.2}{copy:>9.2}{kernel:>9.2}{:>18.2}",
        workload.name,
        kernel / copy.max(f64::MIN_POSITIVE)
    );
    Ok(())
}

/// Records a workload. The report's `walks`.
fn walks(programs: &Programs, workload: &Workload) -> anyhow::Result<Value> {
    let target = programs.workload(workload);
    let mut command = Command::new(&programs.unspool);
    command.args([
        "record",
        "-e",
        "cpu-clock",
        "-F",
        &RATE.to_string(),
        "--unwind",
        "kernel",
    ]);
    command.args(["--format", "json", "-o"]);
    command.arg(programs.path("kernel.prof")).arg("--");
    command.arg(target.get_program()).args(target.get_args());
    command.env("XDG_CACHE_HOME", programs.path("cache"));
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "unspool record: {errors}");
    let report = errors.lines().last().context("no report")?;
    let report: Value = serde_json::from_str(report)?;
    report.get("walks").cloned().context("no walks")
}

fn print(workload: &Workload, runs: &[Value]) {
    let number = |run: &Value, name: &str| {
        let value = run.get(name).and_then(Value::as_f64);
        value.unwrap_or_default()
    };
    let handed_over = |run: &Value| {
        let reasons = run.get("handed_over").and_then(Value::as_object);
        let counts = reasons.into_iter().flat_map(|reasons| reasons.values());
        counts.filter_map(Value::as_f64).sum::<f64>()
    };
    let all = |run: &Value| number(run, "complete") + handed_over(run);
    let of = |what: &dyn Fn(&Value) -> f64| median(runs.iter().map(what));
    let longest = runs.iter().map(|run| number(run, "longest_nanoseconds"));
    println!(
        "{:<20}{:>9.0}{:>9.1}{:>12.1}{:>12.1}{:>12.2} %{:>9.0}",
        workload.name,
        of(&all),
        of(&|run| number(run, "frames") / all(run).max(1.0)),
        of(&|run| number(run, "nanoseconds") / number(run, "frames").max(1.0)),
        longest.fold(0.0, f64::max) / 1000.0,
        of(&|run| handed_over(run) / all(run).max(1.0) * 100.0),
        of(&|run| number(run, "missed")),
    );
}
