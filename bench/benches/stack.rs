//! `unspool stack` against gdb and eu-stack: the same process, the same work.
//!
//! `cargo bench -p unspool-bench --bench stack`. Needs gcc, gdb and elfutils. Files are in memory,
//! also for the first use: its extra time is for compiling tables.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use unspool_bench::{Durations, Scratch, millis, ratio, time, unspool, version};

const ROUNDS: usize = 15;

/// A program that recurses to a depth and then waits.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int down(int depth, volatile int *sum) {
    volatile int here[8] = { depth };
    if (depth == 0) { puts("ready"); fflush(stdout); pause(); return 0; }
    int below = down(depth - 1, sum);
    *sum += below + here[depth % 8];
    return *sum;
}
int main(int argc, char **argv) {
    volatile int sum = 0;
    return down(argc > 1 ? atoi(argv[1]) : 200, &sum) != 0;
}
"#;

/// A tool to measure.
struct Tool {
    name: &'static str,
    /// The command line; `PID` stands for the process.
    line: &'static [&'static str],
    cache: CacheMode,
    /// The names of the tools that it is compared with.
    peers: &'static [&'static str],
}

/// The state of unspool's table cache; other tools do not use it.
#[derive(Clone, Copy)]
enum CacheMode {
    /// With the tables from the previous run.
    Warm,
    /// New for each run, which compiles all tables.
    Empty,
}

/// Tools without lines, then tools with lines.
const TOOLS: [Tool; 7] = [
    Tool {
        name: "unspool --no-lines",
        line: &["unspool", "stack", "--no-lines", "PID"],
        cache: CacheMode::Warm,
        peers: &["eu-stack -n 0", "gdb bt"],
    },
    Tool {
        name: "unspool --no-lines, first use",
        line: &["unspool", "stack", "--no-lines", "PID"],
        cache: CacheMode::Empty,
        peers: &["eu-stack -n 0", "gdb bt"],
    },
    Tool {
        name: "eu-stack -n 0",
        line: &["eu-stack", "-n", "0", "-p", "PID"],
        cache: CacheMode::Warm,
        peers: &[],
    },
    Tool {
        name: "unspool",
        line: &["unspool", "stack", "PID"],
        cache: CacheMode::Warm,
        peers: &["eu-stack -n 0 -i -s", "gdb bt"],
    },
    Tool {
        name: "unspool, first use",
        line: &["unspool", "stack", "PID"],
        cache: CacheMode::Empty,
        peers: &["eu-stack -n 0 -i -s", "gdb bt"],
    },
    Tool {
        name: "eu-stack -n 0 -i -s",
        line: &["eu-stack", "-n", "0", "-i", "-s", "-p", "PID"],
        cache: CacheMode::Warm,
        peers: &[],
    },
    Tool {
        name: "gdb bt",
        line: &["gdb", "-nx", "-batch", "-p", "PID", "-ex", "bt"],
        cache: CacheMode::Warm,
        peers: &[],
    },
];

fn main() -> anyhow::Result<()> {
    let unspool = unspool()?;
    for program in [&*unspool, Path::new("eu-stack"), Path::new("gdb")] {
        println!("{}", version(program)?);
    }
    let folder = Scratch::new()?;
    let program = folder.compile("deep", "deep.c", PROGRAM, &[])?;
    for depth in [20, 200, 5000] {
        let target = SleepingTarget::start(&program, depth)?;
        let bench = StackBench {
            unspool: &unspool,
            folder: &folder,
            target: &target,
        };
        bench.compare()?;
    }
    Ok(())
}

struct SleepingTarget {
    child: Child,
    depth: usize,
}

impl SleepingTarget {
    fn start(program: &Path, depth: usize) -> anyhow::Result<Self> {
        let child = Command::new(program)
            .arg(depth.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut target = SleepingTarget { child, depth };
        let mut line = String::new();
        let output = target.child.stdout.take().context("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "the program did not get ready");
        Ok(target)
    }
}

impl Drop for SleepingTarget {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct StackBench<'a> {
    unspool: &'a Path,
    folder: &'a Scratch,
    target: &'a SleepingTarget,
}

impl StackBench<'_> {
    fn compare(&self) -> anyhow::Result<()> {
        let mut took: [Durations; TOOLS.len()] = Default::default();
        let mut stopped = Durations::default();
        for round in 0..=ROUNDS {
            for (sample, tool) in took.iter_mut().zip(&TOOLS) {
                let run = self.run(tool).context(tool.name);
                let (duration, text) =
                    run.with_context(|| format!("depth {}", self.target.depth))?;
                // The first round warms up caches: unspool's, and the file system's.
                if round > 0 {
                    sample.extend([duration]);
                    stopped.extend(stop_time(&text));
                }
            }
        }
        print(self.target.depth, &took, &stopped);
        Ok(())
    }

    /// Runs a tool, and checks that it has printed every frame.
    fn run(&self, tool: &Tool) -> anyhow::Result<(Duration, String)> {
        let cache = self.cache(tool.cache)?;
        // Files, since the reader of a pipe would use CPU time in the measured time.
        let (output, errors) = (self.folder.join("output"), self.folder.join("errors"));
        let mut command = self.command(tool)?;
        command
            .env("XDG_CACHE_HOME", &cache)
            .env_remove("UNSPOOL_TABLE_PATH")
            .env_remove("DEBUGINFOD_URLS")
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(File::create(&errors)?);
        let (took, status) = time(|| command.status());
        let status = status.context("cannot be run (Debian packages: elfutils, gdb)")?;
        let said = || fs::read_to_string(&errors).unwrap_or_default();
        anyhow::ensure!(status.success(), "{status}: {}", said());

        let text = fs::read_to_string(&output)?;
        let (shown, there) = (count_frames(&text), self.target.depth + 1);
        anyhow::ensure!(shown == there, "{shown} frames of {there}: {}", said());
        if tool.line.first() == Some(&"unspool") {
            anyhow::ensure!(has_tables(&cache)?, "no table was kept");
        }
        Ok((took, text))
    }

    fn command(&self, tool: &Tool) -> anyhow::Result<Command> {
        let (program, arguments) = tool.line.split_first().context("no command")?;
        let program = match *program {
            "unspool" => self.unspool,
            other => Path::new(other),
        };
        let pid = self.target.child.id().to_string();
        let mut command = Command::new(program);
        command.args(arguments.iter().map(|word| match *word {
            "PID" => &pid,
            other => other,
        }));
        Ok(command)
    }

    fn cache(&self, cache: CacheMode) -> anyhow::Result<PathBuf> {
        let folder = match cache {
            CacheMode::Warm => self.folder.join("warm"),
            CacheMode::Empty => self.folder.join("empty"),
        };
        if matches!(cache, CacheMode::Empty) && folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

fn print(depth: usize, took: &[Durations], stopped: &Durations) {
    println!(
        "{:<32}{:>10}{:>13}",
        format!("{depth} frames, {ROUNDS} runs"),
        "median",
        "max"
    );
    for (tool, sample) in TOOLS.iter().zip(took) {
        let ratios = tool.peers.iter().filter_map(|peer| {
            let at = TOOLS.iter().position(|tool| tool.name == *peer)?;
            let share = ratio(sample.median(), took.get(at)?.median());
            Some(format!("{share:.3} of {peer}"))
        });
        let ratios: Vec<String> = ratios.collect();
        print_sample(tool.name, sample, &ratios.join(", "));
    }
    print_sample("unspool: process stood still", stopped, "");
}

fn print_sample(name: &str, sample: &Durations, note: &str) {
    let (median, max) = (millis(sample.median()), millis(sample.max()));
    let line = format!("  {name:<30}{median:>10.2} ms{max:>10.2} ms   {note}");
    println!("{}", line.trim_end());
}

/// The number of frames of the function `down` in a tool's output.
fn count_frames(text: &str) -> usize {
    let is_frame = |line: &&str| {
        line.trim_start()
            .starts_with(|c: char| c == '#' || c.is_ascii_digit())
    };
    let is_down = |word: &str| word.split('+').next() == Some("down");
    text.lines()
        .filter(is_frame)
        .filter(|line| line.split_whitespace().any(is_down))
        .count()
}

/// How long the process was stopped, as unspool reports it.
fn stop_time(text: &str) -> Option<Duration> {
    let after = text.split("stopped for ").nth(1)?;
    let millis: f64 = after.split(' ').next()?.parse().ok()?;
    Some(Duration::from_secs_f64(millis / 1e3))
}

/// Whether unspool has stored a table in a cache.
fn has_tables(cache: &Path) -> anyhow::Result<bool> {
    let mut entries = fs::read_dir(cache.join("unspool"))?;
    Ok(entries
        .any(|entry| entry.is_ok_and(|entry| entry.path().extension() == Some("unspool".as_ref()))))
}
