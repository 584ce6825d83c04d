//! The command line.

use anyhow::{Context as _, bail};

use crate::scenarios;

pub(crate) const HELP: &str = "\
cargo bench -p unspool-bench --bench record -- [OPTION...]

  --scenario NAME[,NAME...]  only these (cost, slowdown, graph, memory, kernel)
  --workload TEXT[,TEXT...]  only workloads whose names contain one of these
  --tool TEXT[,TEXT...]      only tools whose names contain one of these
  --rate HZ[,HZ...]          samples a second (default: 999,9973)
  --rounds N                 rounds, of which medians are taken (default: 3; slowdown: 40)

cost: processor time of the recorder a sample, whole stacks, lost samples, bytes and memory.
slowdown: processor time of the target at 999 Hz, against the same event without stacks.
graph: from Ctrl-C to a flame graph of 20,000 samples.
memory: of the recorder, with a target of 100 modules.
kernel: walks in the kernel: time a frame, the longest walk, those that were handed over, and the
  processor time of a sample beside that of a copy.

Peers are Debian's perf, and samply where it is in the PATH.";

pub(crate) struct RecordBenchOptions {
    scenarios: Vec<String>,
    workloads: Vec<String>,
    tools: Vec<String>,
    pub(crate) rates: Vec<u32>,
    pub(crate) rounds: Option<usize>,
}

impl RecordBenchOptions {
    /// `None` if help is requested.
    pub(crate) fn parse() -> anyhow::Result<Option<RecordBenchOptions>> {
        let mut options = RecordBenchOptions {
            scenarios: Vec::new(),
            workloads: Vec::new(),
            tools: Vec::new(),
            rates: vec![999, 9973],
            rounds: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} has no value"));
            let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
            match word.as_str() {
                "--bench" => {} // Added by cargo.
                "--help" => return Ok(None),
                "--scenario" => options.scenarios = list(value()?),
                "--workload" => options.workloads = list(value()?),
                "--tool" => options.tools = list(value()?),
                "--rate" => {
                    let rates = list(value()?);
                    let rates = rates.iter().map(|rate| rate.parse());
                    options.rates = rates.collect::<Result<_, _>>()?;
                }
                "--rounds" => options.rounds = Some(value()?.parse()?),
                _ => bail!("{word}: no such option; --help lists them"),
            }
        }
        for name in &options.scenarios {
            let is_known = scenarios::ALL.iter().any(|(known, _)| known == name);
            anyhow::ensure!(is_known, "{name}: no such scenario; --help lists them");
        }
        Ok(Some(options))
    }

    pub(crate) fn has(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|name| name == scenario)
    }

    pub(crate) fn wants_workload(&self, name: &str) -> bool {
        is_in(name, &self.workloads)
    }

    pub(crate) fn wants_tool(&self, name: &str) -> bool {
        is_in(name, &self.tools)
    }
}

fn is_in(name: &str, parts: &[String]) -> bool {
    parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()))
}
