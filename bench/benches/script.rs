//! Prints a recording by perf as text: `unspool script` against `perf script`.
//!
//! `cargo bench -p unspool-bench --bench script -- [PERF.DATA…]`. Without files, it records a C++
//! program with debug information and stacks of some 250 frames, and Python. Both commands
//! alternate, and discard their output; files are in memory.
#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use unspool_bench::{Durations, Scratch, millis, ratio, time, unspool};

const ROUNDS: usize = 5;

/// The program that `cargo xtask script-compare` uses.
const PROGRAM: &str = include_str!("../../xtask/src/script_compare/deep.cc");

const PYTHON: &str = "
import json
def walk(depth):
    return walk(depth - 1) if depth else len(json.loads(json.dumps([{'a': i} for i in range(2000)])))
for _ in range(400): walk(30)
";

fn main() -> anyhow::Result<()> {
    let given = std::env::args_os().skip(1).filter(|arg| arg != "--bench");
    let mut files: Vec<PathBuf> = given.map(PathBuf::from).collect();
    let scratch = Scratch::new()?;
    if files.is_empty() {
        files = record_all(&scratch)?;
    }
    let unspool = unspool()?;
    println!("ms, medians of {ROUNDS}");
    println!("recording | MiB | samples | inlined | perf script | unspool script | ratio");
    for file in &files {
        measure(&unspool, file)?;
    }
    Ok(())
}

fn record_all(scratch: &Scratch) -> anyhow::Result<Vec<PathBuf>> {
    let program = scratch.compile("deep", "deep.cpp", PROGRAM, &[])?;
    let deep = [program.as_os_str(), "60".as_ref()];
    let python = ["/usr/bin/python3", "-c", PYTHON].map(OsStr::new);
    Ok(vec![
        record(scratch, "C++-8K", "dwarf,8192", &deep)?,
        record(scratch, "C++-32K", "dwarf,32768", &deep)?,
        record(scratch, "Python-8K", "dwarf,8192", &python)?,
    ])
}

fn record(
    scratch: &Scratch,
    name: &str,
    stacks: &str,
    words: &[&OsStr],
) -> anyhow::Result<PathBuf> {
    let file = scratch.join(name);
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-F", "4999", "--call-graph", stacks, "-o"]);
    let done = perf
        .arg(&file)
        .arg("--")
        .args(words)
        .stdout(Stdio::null())
        .status();
    anyhow::ensure!(
        done.context("install linux-perf")?.success(),
        "perf record failed"
    );
    Ok(file)
}

fn measure(unspool: &Path, file: &Path) -> anyhow::Result<()> {
    let count = script(
        OsStr::new("perf"),
        &["-F", "tid", "-G"],
        file,
        Stdio::piped(),
    )?;
    let samples = count.iter().filter(|byte| **byte == b'\n').count();
    let size = file.metadata()?.len() >> 20;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    for (inlined, options) in [("no", &["--no-inline"][..]), ("yes", &[])] {
        let [mut theirs, mut ours] = [Durations::default(), Durations::default()];
        for _ in 0..ROUNDS {
            for (program, taken) in [
                (OsStr::new("perf"), &mut theirs),
                (unspool.as_ref(), &mut ours),
            ] {
                let (took, done) = time(|| script(program, options, file, Stdio::null()));
                done?;
                taken.extend([took]);
            }
        }
        println!(
            "{name} | {size} | {samples} | {inlined} | {:.0} | {:.0} | {:.1}",
            millis(theirs.median()),
            millis(ours.median()),
            ratio(theirs.median(), ours.median()),
        );
    }
    Ok(())
}

fn script(program: &OsStr, options: &[&str], file: &Path, out: Stdio) -> anyhow::Result<Vec<u8>> {
    let input: Vec<OsString> = if program == "perf" {
        vec!["-i".into(), file.into()]
    } else {
        vec![file.into()]
    };
    let mut command = Command::new(program);
    command.arg("script").args(options).args(input);
    let done = command.stdout(out).stderr(Stdio::null()).output();
    let done = done.with_context(|| format!("cannot run {}", program.display()))?;
    anyhow::ensure!(done.status.success(), "{command:?}: {}", done.status);
    Ok(done.stdout)
}
