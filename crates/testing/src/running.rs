//! Programs that run during a test.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Finish as _, command};

/// A running program, killed at the end of the test.
#[derive(Debug)]
pub struct RunningProgram {
    /// The program.
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl RunningProgram {
    /// Starts a command with input and output connected to the test.
    #[must_use]
    pub fn start(command: &mut Command) -> RunningProgram {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().unwrap());
        RunningProgram { child, output }
    }

    /// Waits until it has printed `ready` and all its threads sleep.
    #[track_caller]
    pub fn await_ready(&mut self) {
        assert_eq!(self.line(), "ready");
        self.await_state('S');
    }

    /// Waits until all threads have the state `letter`.
    #[track_caller]
    pub fn await_state(&self, letter: char) {
        await_state(self.pid(), letter);
    }

    /// The process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output, empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Its remaining output until it exits.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Types into its terminal, or writes to its standard input.
    pub fn send(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
    }

    /// Ends its standard input.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits until it exits by itself.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let mut status = None;
        await_that("the end", || {
            status = self.try_end();
            status.is_some()
        });
        status.unwrap()
    }

    /// Its exit status, if it has exited.
    pub fn try_end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Makes the kernel write a core file of the program, which ends it: in the folder where it was
    /// started.
    #[track_caller]
    pub fn dump_core(mut self, folder: &Path) -> PathBuf {
        core_pattern();
        self.await_state('S');
        send_signal(self.pid(), "ABRT");
        let status = self.child.wait().unwrap();
        assert!(status.core_dumped(), "no core was dumped: {status}");
        kernel_core(folder, self.pid())
    }
}

/// A command whose core file may have any size.
#[must_use]
pub fn limitless(program: impl AsRef<OsStr>) -> Command {
    let mut shell = command("sh");
    let limits = "ulimit -c unlimited; exec \"$0\" \"$@\"";
    shell.args(["-c", limits]).arg(program);
    shell
}

/// The core file of a process with this ID that was started in this folder.
#[must_use]
#[track_caller]
pub fn kernel_core(folder: &Path, pid: u32) -> PathBuf {
    let pattern = core_pattern();
    let mut names = [pattern.clone(), format!("{pattern}.{pid}")].into_iter();
    let core = names.find_map(|name| {
        let path = folder.join(name);
        path.exists().then_some(path)
    });
    core.unwrap()
}

/// The name of core files in working directories.
#[track_caller]
fn core_pattern() -> String {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let pattern = pattern.trim();
    assert!(
        !pattern.is_empty() && !pattern.contains(['|', '/', '%']),
        "kernel.core_pattern is `{pattern}`: core files do not come into the working directory, where tests look for them: \
         run `sudo sysctl kernel.core_pattern=core`"
    );
    pattern.to_owned()
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have exited.
        let _ = self.child.wait();
    }
}

/// Sends a signal, as `INT`, to a process.
#[track_caller]
pub fn send_signal(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    command("sh").args(["-c", &kill]).succeed();
}

/// Polls until `condition` holds.
#[track_caller]
pub fn await_that(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited 30 s for {what}");
        thread::yield_now();
    }
}

/// Waits until all threads of a process have a state, as in `/proc/PID/stat`.
#[track_caller]
pub fn await_state(pid: u32, letter: char) {
    await_that(&format!("state {letter}"), || {
        let states = states(pid);
        !states.is_empty() && states.iter().all(|(_, state)| *state == letter)
    });
}

/// The state of each thread from `/proc/PID/task/TID/stat`.
#[must_use]
pub fn states(pid: u32) -> Vec<(u32, char)> {
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
