//! Recordings by perf, to measure unwinders with.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::Scratch;

/// The workloads: stacks of a few functions in random order, and of typical programs.
///
/// # Errors
///
/// The compiler is missing or fails.
pub fn workloads(folder: &Scratch) -> anyhow::Result<Vec<(String, Command)>> {
    let deep = folder.compile(
        "deep",
        "deep.cpp",
        include_str!("../benches/record/deep.cpp"),
        &[],
    )?;
    let depths = ["20", "60", "200"].iter().map(|depth| {
        let mut command = Command::new(&deep);
        command.args([depth, "20000"]);
        (format!("deep, {depth}"), command)
    });
    let mut python = Command::new("python3");
    let program = "import json,re\nfor n in range(300): re.sub('(a|b)+c', lambda m: json.dumps([m.group()] * 9), 'abababc' * 300)";
    python.args(["-S", "-c", program]);
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-c", "-o"]);
    compiler.args([folder.join("deep.o"), folder.join("deep.cpp")]);
    let others = [("python3", python), ("c++ -O2", compiler)];
    let others = others.map(|(name, command)| (name.to_owned(), command));
    Ok(depths.chain(others).collect())
}

/// Records a command by perf, with the largest stack copies.
///
/// # Errors
///
/// perf is missing, or may not record.
pub fn record(command: &Command, path: &Path) -> anyhow::Result<()> {
    let recorded = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock:u", "-F", "2999"])
        .args(["--call-graph", "dwarf,65528", "-o"])
        .arg(path)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let recorded = recorded.context("cannot run perf (Debian package linux-perf)")?;
    anyhow::ensure!(recorded.success(), "perf record failed");
    Ok(())
}
