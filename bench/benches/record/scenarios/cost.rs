//! The cost and the quality of samples.

use std::time::Duration;

use unspool_bench::{median, micros};

use crate::options::RecordBenchOptions;
use crate::programs::{Programs, Workload};
use crate::script::StackTotals;
use crate::tools::{RecordRun, RecordingContents, TOOLS, Tool};

pub(crate) fn measure(programs: &Programs, options: &RecordBenchOptions) -> anyhow::Result<()> {
    for workload in Workload::all()
        .iter()
        .filter(|workload| options.wants_workload(workload.name))
    {
        for rate in &options.rates {
            compare(programs, options, workload, *rate)?;
        }
    }
    Ok(())
}

/// The rounds of one tool.
struct ToolRow {
    tool: Tool,
    runs: Vec<(RecordRun, RecordingContents)>,
}

fn compare(
    programs: &Programs,
    options: &RecordBenchOptions,
    workload: &Workload,
    rate: u32,
) -> anyhow::Result<()> {
    let tools = TOOLS.into_iter().filter(|tool| {
        options.wants_tool(&tool.name()) && (*tool != Tool::Samply || programs.has_samply)
    });
    let mut rows: Vec<ToolRow> = tools
        .map(|tool| ToolRow {
            tool,
            runs: Vec::new(),
        })
        .collect();
    let rounds = options.rounds.unwrap_or(3);
    // The first round warms up caches.
    for round in 0..=rounds {
        for row in &mut rows {
            let run = row.tool.record(programs, workload, rate)?;
            let contents = row.tool.contents(programs, workload)?;
            if round > 0 {
                row.runs.push((run, contents));
            }
        }
    }
    println!("\n{}, {rate} Hz: medians of {rounds}", workload.name);
    println!(
        "{:<20}{:>9}{:>10}{:>8}{:>8}{:>10}{:>10}{:>10}{:>10}{:>8}",
        "", "samples", "kept", "lost", "frames", "complete", "µs CPU", "+ script", "bytes", "MiB"
    );
    for row in &rows {
        row.print(rate);
    }
    Ok(())
}

impl ToolRow {
    fn print(&self, rate: u32) {
        let of = |what: fn(&RecordRun, &RecordingContents) -> f64| {
            median(self.runs.iter().map(|(run, contents)| what(run, contents)))
        };
        let samples = of(|_, contents| number(contents.stacks.all));
        let wanted = of(|run, _| run.target.as_secs_f64()) * f64::from(rate);
        let lost = if self
            .runs
            .iter()
            .all(|(_, contents)| contents.stacks.lost.is_some())
        {
            format!(
                "{:.0}",
                of(|_, contents| number(contents.stacks.lost.unwrap_or(0)))
            )
        } else {
            "?".to_owned()
        };
        println!(
            "{:<20}{samples:>9.0}{:>8.1} %{lost:>8}{:>8.1}{:>8.2} %{:>10.2}{:>10.2}{:>10.1}{:>8.1}",
            self.tool.name(),
            samples / wanted * 100.0,
            of(|_, contents| number(contents.stacks.frames) / at_least_one(&contents.stacks)),
            of(|_, contents| number(contents.stacks.whole) / at_least_one(&contents.stacks))
                * 100.0,
            of(|run, contents| a_sample(run.recorder, &contents.stacks)),
            of(|run, contents| a_sample(run.recorder + contents.script, &contents.stacks)),
            of(|run, contents| number(run.file_bytes) / at_least_one(&contents.stacks)),
            of(|run, _| number(run.peak)) / f64::from(1 << 20),
        );
    }
}

fn a_sample(duration: Duration, stacks: &StackTotals) -> f64 {
    micros(duration) / at_least_one(stacks)
}

fn at_least_one(stacks: &StackTotals) -> f64 {
    number(stacks.all.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "a figure that is printed")]
fn number(count: u64) -> f64 {
    count as f64
}
