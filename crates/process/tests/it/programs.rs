//! Builds and runs the test programs, and asks gdb for a second opinion.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use unspool_process::Thread;
use unspool_rows::Arch;
use unspool_testing::{Finish as _, RunningProgram, command, scratch_folder, tool};

/// A new directory for one test alone.
pub(crate) fn directory() -> PathBuf {
    scratch_folder(Path::new(env!("CARGO_TARGET_TMPDIR")), "process")
}

/// Compiles `source` from this directory.
pub(crate) fn compile(source: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let to = directory().join(source.split('.').next().unwrap());
    let mut gcc = tool("gcc");
    gcc.args(["-O1", "-g", "-pthread", "-o"]).arg(&to);
    gcc.args(options).arg(folder.join(source)).succeed();
    to
}

/// Starts a program.
pub(crate) fn start(program: &Path, arguments: &[&str]) -> RunningProgram {
    RunningProgram::start(command(program).args(arguments))
}

/// Compiles, starts, and waits for the first line of output.
pub(crate) fn ready(source: &str, arguments: &[&str]) -> RunningProgram {
    let mut running = start(&compile(source, &[]), arguments);
    assert_eq!(running.line(), "ready");
    running
}

/// The registers of each thread as gdb prints them: `rsp -> 0x7ffe…` by thread id.
pub(crate) fn gdb_registers(arguments: &[&str]) -> BTreeMap<u32, BTreeMap<String, u64>> {
    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
    let output = gdb
        .args(arguments)
        .args(["-ex", "thread apply all info registers"])
        .finish();
    let threads = parse_gdb(&output.out);
    assert!(!threads.is_empty(), "gdb printed no registers: {output}");
    threads
}

/// Thread headings contain `(LWP 123)` or `(Thread … (LWP 123))`; a register line is a name, a
/// hexadecimal number, and more.
fn parse_gdb(text: &str) -> BTreeMap<u32, BTreeMap<String, u64>> {
    let mut threads = BTreeMap::new();
    let mut current = 0;
    for line in text.lines() {
        if line.starts_with("Thread ") {
            let after = line.split("LWP ").nth(1).unwrap_or("0");
            let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
            current = digits.parse().unwrap();
            threads.insert(current, BTreeMap::new());
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else {
            continue;
        };
        let value = value
            .strip_prefix("0x")
            .map(|hex| u64::from_str_radix(hex, 16));
        if let (Some(Ok(value)), Some(thread)) = (value, threads.get_mut(&current)) {
            thread.insert(name.to_owned(), value);
        }
    }
    threads
}

/// Compares the registers of a thread with gdb's, which may lack some of ours.
pub(crate) fn compare_registers(arch: Arch, thread: &Thread, gdb: &BTreeMap<String, u64>) {
    let mut compared = 0;
    for (register, ours) in thread.registers.as_ref().unwrap().iter() {
        let name = match arch.register_name(register).unwrap() {
            "ra" => "rip".to_owned(),
            "rflags" => "eflags".to_owned(),
            other => other.replace('.', "_"),
        };
        if let Some(theirs) = gdb.get(&name) {
            assert_eq!(ours, *theirs, "{name} of thread {}", thread.tid);
            compared += 1;
        }
    }
    assert!(compared >= 18, "gdb shows {compared} registers: {gdb:?}");
}
