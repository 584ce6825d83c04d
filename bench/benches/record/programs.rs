//! The programs to run: recorders, and workloads.

use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_bench::{Scratch, unspool, version};

/// All programs, built in a separate folder.
pub(crate) struct Programs {
    pub(crate) unspool: PathBuf,
    /// Whether samply is installed.
    pub(crate) has_samply: bool,
    pub(crate) folder: Scratch,
}

impl Programs {
    pub(crate) fn build() -> anyhow::Result<Programs> {
        let folder = Scratch::new()?;
        folder.compile("deep", "deep.cpp", include_str!("deep.cpp"), &[])?;
        folder.compile("timed", "timed.c", include_str!("timed.c"), &[])?;
        for (object, name, source) in [
            ("cpu_clock.so", "cpu_clock.c", include_str!("cpu_clock.c")),
            ("target.so", "target.c", include_str!("target.c")),
        ] {
            folder.compile(object, name, source, &["-shared", "-fPIC"])?;
        }
        let programs = Programs {
            unspool: unspool()?,
            has_samply: version("samply").is_ok(),
            folder,
        };
        println!("{}, {}", version(&programs.unspool)?, version("perf")?);
        match version("samply") {
            Ok(version) => println!("{version}, with its event, cycles, replaced by cpu-clock"),
            Err(_) => println!("samply is not in the PATH: cargo install samply"),
        }
        Ok(programs)
    }

    /// A path with a unique name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The command line of a workload.
    pub(crate) fn workload(&self, workload: &Workload) -> Command {
        let mut words = workload.line.iter();
        let program = words.next().map_or("", String::as_str);
        let mut command = Command::new(match program {
            "deep" => self.path("deep"),
            other => Path::new(other).to_owned(),
        });
        command.args(words);
        command
    }
}

/// A workload.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The kernel's name for its threads.
    pub(crate) comm: &'static str,
    line: Vec<String>,
}

impl Workload {
    pub(crate) fn new(name: &'static str, comm: &'static str, line: &[impl AsRef<str>]) -> Self {
        let words = line.iter().map(|word| word.as_ref().to_owned());
        Workload {
            name,
            comm,
            line: words.collect(),
        }
    }

    /// Stacks of this many frames, some of them in libraries.
    pub(crate) fn deep(name: &'static str, depth: u32, rounds: u32) -> Self {
        let line = ["deep", &depth.to_string(), &rounds.to_string()];
        Workload::new(name, "deep", &line)
    }

    /// The workloads for measuring the cost.
    pub(crate) fn all() -> Vec<Workload> {
        let sched = [
            "perf",
            "bench",
            "sched",
            "messaging",
            "-g",
            "2",
            "-l",
            "4000",
        ];
        vec![
            Workload::deep("deep, 20", 20, 150_000),
            Workload::deep("deep, 60", 60, 50_000),
            Workload::deep("deep, 200", 200, 15_000),
            Workload::new("sched messaging", "sched-messaging", &sched),
        ]
    }
}
