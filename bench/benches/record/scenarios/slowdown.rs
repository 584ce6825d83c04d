//! The slowdown of a recorded program: its CPU time, compared with the same event without stacks.

use unspool_bench::{Random, median, ratio};

use crate::options::RecordBenchOptions;
use crate::programs::{Programs, Workload};
use crate::tools::{TOOLS, Tool};

const RATE: u32 = 999;

/// The number of bootstrap samples, for the interval.
const DRAWS: usize = 2_000;

pub(crate) fn measure(programs: &Programs, options: &RecordBenchOptions) -> anyhow::Result<()> {
    let workload = Workload::deep("deep, 60", 60, 25_000);
    let rounds = options.rounds.unwrap_or(40);
    let tools: Vec<Tool> = TOOLS
        .into_iter()
        .filter(|tool| {
            options.wants_tool(&tool.name()) && (*tool != Tool::Samply || programs.has_samply)
        })
        .collect();
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); tools.len()];
    for round in 0..=rounds {
        for (tool, ratios) in tools.iter().zip(&mut ratios) {
            // They alternate as the first.
            let tool_first = round.is_multiple_of(2);
            let run = |tool: Tool| tool.record(programs, &workload, RATE);
            let (with, without) = if tool_first {
                let with = run(*tool)?;
                (with, run(Tool::PerfWithoutStacks)?)
            } else {
                let without = run(Tool::PerfWithoutStacks)?;
                (run(*tool)?, without)
            };
            if round > 0 {
                ratios.push(ratio(with.target, without.target));
            }
        }
    }
    println!(
        "\nprocessor time of {}, {RATE} Hz, as a multiple of that under perf without stacks: \
         medians of {rounds} pairs, and where 95 % of the medians of pairs drawn again lie",
        workload.name
    );
    for (tool, ratios) in tools.iter().zip(&ratios) {
        let [low, high] = interval(ratios);
        println!(
            "  {:<20}{:>8.4}   {low:.4} to {high:.4}",
            tool.name(),
            median(ratios.iter().copied())
        );
    }
    Ok(())
}

/// The range of the middle 95 % of medians of as many values, each drawn from all.
fn interval(values: &[f64]) -> [f64; 2] {
    let mut random = Random::new(7);
    let mut draw = || {
        let drawn = values
            .iter()
            .map(|_| values.get(random.below(values.len())));
        median(drawn.flatten().copied())
    };
    let mut medians: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    medians.sort_by(f64::total_cmp);
    let at = |rank: usize| medians.get(rank).copied().unwrap_or_default();
    [at(DRAWS / 40), at(DRAWS - 1 - DRAWS / 40)]
}
