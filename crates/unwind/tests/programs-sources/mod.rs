//! Builds and runs the test programs beside this file, and asks gdb for a second opinion.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "used by several test files, none of which uses all of it"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use unspool_ir::Arch;
use unspool_unwind::process::Thread;

/// Runs a tool to its end; a missing one fails the test and names the Debian package.
pub(crate) fn tool(name: &str, package: &str, arguments: &[&str]) -> Output {
    match Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
    {
        Ok(output) => output,
        Err(error) => panic!("cannot run {name}: {error}; install the Debian package {package}"),
    }
}

/// A new directory of its own for one test.
pub(crate) fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("unwind-{}-{number}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Compiles `source` of this directory.
pub(crate) fn compile(source: &str, options: &[&str]) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs-sources")
        .join(source);
    let to = directory().join(source.split('.').next().unwrap());
    let mut arguments = vec!["-O1", "-g", "-pthread", "-o", to.to_str().unwrap()];
    arguments.extend(options);
    arguments.push(from.to_str().unwrap());
    let output = tool("gcc", "gcc", &arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "gcc {source}: {errors}");
    to
}

/// A running program, killed at the end of the test.
pub(crate) struct Running {
    pub(crate) child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Running {
        Running::command(Command::new(program).args(arguments))
    }

    pub(crate) fn command(command: &mut Command) -> Running {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    /// Compiles, starts, and waits for the first line of output.
    pub(crate) fn ready(source: &str, arguments: &[&str]) -> Running {
        let mut running = Running::start(&compile(source, &[]), arguments);
        assert_eq!(running.line(), "ready");
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    pub(crate) fn rest(&mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits until all threads have the state `letter`.
    pub(crate) fn await_state(&self, letter: char) {
        await_that(&format!("state {letter}"), || {
            let states = states(self.pid());
            !states.is_empty() && states.iter().all(|(_, state)| *state == letter)
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks again and again until `condition` holds.
pub(crate) fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited 30 s for {what}");
        std::thread::yield_now();
    }
}

/// The state of each thread by `/proc/PID/task/TID/stat`.
pub(crate) fn states(pid: u32) -> Vec<(u32, char)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let state = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let letter = stat.get(stat.rfind(')')? + 2..)?.chars().next()?;
        Some((entry.file_name().to_str()?.parse().ok()?, letter))
    };
    tasks.filter_map(|entry| state(entry.ok()?)).collect()
}

/// The registers of each thread as gdb prints them: `rsp -> 0x7ffe…` by thread id.
pub(crate) fn gdb_registers(arguments: &[&str]) -> BTreeMap<u32, BTreeMap<String, u64>> {
    let mut all = vec!["-nx", "-batch", "-iex", "set debuginfod enabled off"];
    all.extend(arguments);
    all.extend(["-ex", "thread apply all info registers"]);
    let output = tool("gdb", "gdb", &all);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let threads = parse_gdb(&text);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !threads.is_empty(),
        "gdb printed no registers: {text}{errors}"
    );
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

/// Compares the registers of a thread with gdb's, which may lack some that we have.
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
