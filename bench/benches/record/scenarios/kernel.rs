//! Walks in the kernel: their time, and how many were left to the recorder.

use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;
use unspool_bench::median;

use crate::options::RecordBenchOptions;
use crate::programs::{Programs, Workload};

const RATE: &str = "9973";

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
    for workload in workloads {
        if !options.wants_workload(workload.name) {
            continue;
        }
        let mut runs = Vec::new();
        // The first round compiles tables.
        for round in 0..=rounds {
            let walks = walks(programs, &workload)?;
            if round > 0 {
                runs.push(walks);
            }
        }
        print(&workload, &runs);
    }
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
        RATE,
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
