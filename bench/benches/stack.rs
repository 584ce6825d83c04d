//! `unspool stack` against gdb and eu-stack: the same process, the same work.
//!
//! `cargo bench -p unspool-bench --bench stack`, after `cargo build --release`. Needs gdb and elfutils.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use unspool_bench::{median, time};

const ROUNDS: usize = 15;

/// A program that calls itself so many times and then waits.
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

fn main() -> anyhow::Result<()> {
    let folder = std::env::temp_dir().join(format!("unspool-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = measure(&folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(folder: &Path) -> anyhow::Result<()> {
    let program = build(folder)?;
    let unspool = unspool()?;
    for depth in [20, 200, 5000] {
        let target = Target::start(&program, depth)?;
        compare(&unspool, &target, depth)?;
    }
    Ok(())
}

fn build(folder: &Path) -> anyhow::Result<PathBuf> {
    let source = folder.join("deep.c");
    std::fs::write(&source, PROGRAM)?;
    let program = folder.join("deep");
    let built = Command::new("cc")
        .args(["-O2", "-g", "-o"])
        .arg(&program)
        .arg(&source)
        .status()?;
    anyhow::ensure!(built.success(), "cc failed");
    Ok(program)
}

/// The release build of the command, beside this benchmark's own.
fn unspool() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(2).context("no target folder")?;
    let unspool = target.join("unspool");
    anyhow::ensure!(
        unspool.exists(),
        "{} is missing: cargo build --release",
        unspool.display()
    );
    Ok(unspool)
}

struct Target(Child);

impl Target {
    fn start(program: &Path, depth: u32) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .arg(depth.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().context("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "the program did not get ready");
        Ok(Target(child))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command line; `PID` stands for the process.
type Line = &'static [&'static str];

fn compare(unspool: &Path, target: &Target, depth: u32) -> anyhow::Result<()> {
    let peers: [(&str, Line); 5] = [
        (
            "unspool --no-lines",
            &["unspool", "stack", "--no-lines", "PID"],
        ),
        ("eu-stack -n 0", &["eu-stack", "-n", "0", "-p", "PID"]),
        ("unspool", &["unspool", "stack", "PID"]),
        (
            "eu-stack -n 0 -i -s",
            &["eu-stack", "-n", "0", "-i", "-s", "-p", "PID"],
        ),
        (
            "gdb -batch -ex bt",
            &["gdb", "-nx", "-batch", "-p", "PID", "-ex", "bt"],
        ),
    ];
    let mut took: Vec<Vec<Duration>> = vec![Vec::new(); peers.len()];
    for round in 0..=ROUNDS {
        for (all, (_, line)) in took.iter_mut().zip(&peers) {
            let (duration, status) = time(|| run(unspool, line, target));
            status?;
            // The first round fills caches: ours, and the file system's.
            if round > 0 {
                all.push(duration);
            }
        }
    }
    println!("{depth} frames, wall time, median of {ROUNDS}");
    for ((name, _), all) in peers.iter().zip(took) {
        println!("  {name:<22}{:>9.2} ms", median(all).as_secs_f64() * 1e3);
    }
    println!(
        "  stopped for           {:>9.2} ms",
        stopped(unspool, target)?
    );
    Ok(())
}

fn run(unspool: &Path, line: Line, target: &Target) -> anyhow::Result<()> {
    let [program, arguments @ ..] = line else {
        anyhow::bail!("no command")
    };
    let program = if *program == "unspool" {
        unspool
    } else {
        Path::new(program)
    };
    let arguments = arguments.iter().map(|word| match *word {
        "PID" => target.pid(),
        other => other.to_owned(),
    });
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(())
}

/// The median time for which the process stands still, in milliseconds, as unspool reports it.
fn stopped(unspool: &Path, target: &Target) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let output = Command::new(unspool)
            .args(["stack", "--no-lines", &target.pid()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let after = text.split("stopped for ").nth(1).context("no stop time")?;
        let number = after.split(' ').next().unwrap_or_default().parse::<f64>()?;
        times.push(Duration::from_secs_f64(number / 1e3));
    }
    Ok(median(times).as_secs_f64() * 1e3)
}
