//! The scenarios.

mod cost;
mod graph;
mod kernel;
mod memory;
mod slowdown;

use crate::options::RecordBenchOptions;
use crate::programs::Programs;

type Scenario = fn(&Programs, &RecordBenchOptions) -> anyhow::Result<()>;

/// All of them, by name.
pub(crate) const ALL: [(&str, Scenario); 5] = [
    ("cost", cost::measure),
    ("slowdown", slowdown::measure),
    ("graph", graph::measure),
    ("memory", memory::measure),
    ("kernel", kernel::measure),
];
