//! Runs the test programs and lets them dump core.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::build::{Directory, Program};

/// A running program, killed at the end of the test.
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program in its own directory, allowed to dump core.
    pub(crate) fn start(program: &Program, arguments: &[&str]) -> Running {
        let unlimited = "ulimit -c unlimited; exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", unlimited, program.path()])
            .args(arguments)
            .current_dir(program.directory.path());
        Running::command(&mut command)
    }

    pub(crate) fn command(command: &mut Command) -> Running {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    /// Starts a program and waits until it says that it stands where it should, and does.
    pub(crate) fn ready(program: &Program, arguments: &[&str]) -> Running {
        let mut running = Running::start(program, arguments);
        running.await_ready();
        running
    }

    pub(crate) fn await_ready(&mut self) {
        assert_eq!(self.line(), "ready");
        await_blocked(self.pid());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// What it writes from now on until it ends.
    pub(crate) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Types into its terminal, or writes to its standard input.
    pub(crate) fn send(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for its end, which nothing but itself must bring about.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let mut status = None;
        await_that("the end", || {
            status = self.try_end();
            status.is_some()
        });
        status.unwrap()
    }

    /// How it ended, if it has.
    pub(crate) fn try_end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Lets the kernel write a core file of the program, which ends with that.
    pub(crate) fn dump_core(mut self, directory: &Directory) -> PathBuf {
        assert_plain_core_pattern();
        await_blocked(self.pid());
        send_signal(self.pid(), "ABRT");
        let status = self.child.wait().unwrap();
        assert!(status.core_dumped(), "no core was dumped: {status}");
        kernel_core(directory, self.pid())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send_signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
}

/// Where the kernel left the core of a process whose working directory was `directory`.
pub(crate) fn kernel_core(directory: &Directory, pid: u32) -> PathBuf {
    let pattern = assert_plain_core_pattern();
    let mut names = [pattern.clone(), format!("{pattern}.{pid}")].into_iter();
    let core = names.find_map(|name| {
        let path = directory.path().join(name);
        path.exists().then_some(path)
    });
    core.unwrap()
}

fn assert_plain_core_pattern() -> String {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let pattern = pattern.trim();
    assert!(
        !pattern.is_empty() && !pattern.contains(['|', '/', '%']),
        "kernel.core_pattern is `{pattern}`, so the kernel's core files do not come into the \
         working directory, where this test looks for them: run `sudo sysctl \
         kernel.core_pattern=core`"
    );
    pattern.to_owned()
}

/// Waits until all threads of a process sleep.
pub(crate) fn await_blocked(pid: u32) {
    await_state(pid, 'S');
}

/// Waits until all threads of a process have a state, as `/proc/PID/stat` has it.
pub(crate) fn await_state(pid: u32, letter: char) {
    await_that(&format!("state {letter}"), || {
        let states = states(pid);
        !states.is_empty() && states.iter().all(|state| *state == letter)
    });
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
fn states(pid: u32) -> Vec<char> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let state = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        stat.get(stat.rfind(')')? + 2..)?.chars().next()
    };
    tasks.filter_map(|entry| state(entry.ok()?)).collect()
}
