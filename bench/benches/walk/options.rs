//! The command line.

use anyhow::Context as _;

use crate::{python, scenario};

pub(crate) const USAGE: &str = "\
cargo bench -p unspool-bench --bench walk -- [OPTION...]

  --scenario NAME[,NAME...]  only these (hot-8, hot, shallow, deep, churn, 2k, 32k, realign, python,
                             cold, threads)
  --peer TEXT[,TEXT...]      only peers whose names contain one of these; frame pointers always
  --rounds N                 rounds that are counted, after one that is not (default: 5)
  --cold N                   fresh processes of each peer (default: 9)
  --json FILE                write all figures to a file, too
  --quick                    hot and 2k, one round

UNSPOOL_RULES in the environment gives our walkers another memory for rules than 1 MiB (64K to 64M).
python is a real program, interrupted by a timer; docs/bench.md says what the stacks of all scenarios are like.
";

/// The options.
#[derive(Debug)]
pub(crate) struct WalkBenchOptions {
    scenarios: Vec<String>,
    peers: Vec<String>,
    pub(crate) rounds: u64,
    pub(crate) cold: usize,
    pub(crate) json: Option<String>,
}

impl WalkBenchOptions {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut options = WalkBenchOptions {
            scenarios: Vec::new(),
            peers: Vec::new(),
            rounds: 5,
            cold: 9,
            json: None,
        };
        let list = |value: String| value.split(',').map(str::to_owned).collect();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {} // Added by cargo.
                "--scenario" => options.scenarios = list(value()?),
                "--peer" => options.peers = list(value()?),
                "--rounds" => options.rounds = value()?.parse()?,
                "--cold" => options.cold = value()?.parse()?,
                "--json" => options.json = Some(value()?),
                "--quick" => {
                    options.rounds = 1;
                    options.scenarios = vec!["hot".into(), "2k".into()];
                }
                _ => anyhow::bail!("unknown: {arg}\n{USAGE}"),
            }
        }
        let known = |name: &&String| {
            let mut names = scenario::ALL.iter().map(|scenario| scenario.name);
            names.any(|known| known == *name)
                || [python::NAME, "cold", "threads"].contains(&name.as_str())
        };
        let unknown = options.scenarios.iter().find(|name| !known(name));
        anyhow::ensure!(unknown.is_none(), "no such scenario\n{USAGE}");
        Ok(options)
    }

    pub(crate) fn wants_scenario(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|wanted| wanted == name)
    }

    pub(crate) fn wants_peer(&self, name: &str) -> bool {
        self.peers.is_empty()
            || self
                .peers
                .iter()
                .any(|wanted| name.contains(wanted.as_str()))
    }
}
