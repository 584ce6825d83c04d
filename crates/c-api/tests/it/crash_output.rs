//! The targets of crash reports. A blocked target never keeps a process from ending.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::crash::{assert_ended_by, errors, library, program};
use crate::programs;
use unspool_testing::{Finish, command, tool};

/// A program with the library. It is killed if it does not end by itself.
fn limited(program: &Path, way: &str) -> Command {
    let mut command = tool("timeout");
    command.args(["--signal=KILL", "60", "env"]);
    command.arg(format!("LD_PRELOAD={}", library().display()));
    command.arg(program).arg(way);
    command
}

/// A program with a pipe as standard error that was full when it crashed.
struct BlockedReader {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl BlockedReader {
    fn new(way: &str) -> BlockedReader {
        let mut command = command(program());
        command.arg(way).env("LD_PRELOAD", library());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "full\n");
        BlockedReader { child, stdout }
    }

    /// Waits until it blocks, or has ended.
    fn await_rest(&self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        loop {
            let text = fs::read_to_string(&stat).unwrap();
            let (_, state) = text.rsplit_once(") ").unwrap();
            if matches!(state.chars().next(), Some('S' | 'Z')) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Its exit status. It is killed if it does not end.
    fn status(mut self) -> ExitStatus {
        drop(self.stdout);
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::yield_now();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }
}

/// The part that did not fit at first is written later, both to a blocking and to a non-blocking
/// pipe.
#[test]
fn a_reader_that_comes_late() {
    for way in ["full-stderr", "full-nonblocking-stderr"] {
        let mut stuck = BlockedReader::new(way);
        stuck.await_rest();
        let mut text = String::new();
        let mut stderr = stuck.child.stderr.take().unwrap();
        stderr.read_to_string(&mut text).unwrap();
        assert_eq!(stuck.status().signal(), Some(11), "{way}");
        let report = text.trim_start_matches('-');
        assert!(report.starts_with("unspool: signal SIGSEGV, "), "{report}");
        assert!(report.ends_with("unspool: end of the report\n"), "{report}");
    }
}

#[test]
fn a_reader_that_never_comes() {
    let mut command = limited(&program(), "full-stderr");
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = child.wait().unwrap();
    // `timeout` would have ended it by another signal.
    assert_eq!(status.signal(), Some(11));
}

/// Kills a process with a signal of this name.
fn kill(process: u32, signal: &str) {
    let mut kill = command("sh");
    kill.args(["-c", "kill -$0 $1", signal]);
    kill.arg(process.to_string()).succeed();
}

/// A watchdog may send another signal, or the one being reported.
#[test]
fn signals_during_the_report_do_not_end_it() {
    let mut stuck = BlockedReader::new("full-stderr");
    stuck.await_rest();
    for signal in ["SEGV", "ABRT"] {
        kill(stuck.child.id(), signal);
    }
    let mut text = String::new();
    let mut stderr = stuck.child.stderr.take().unwrap();
    stderr.read_to_string(&mut text).unwrap();
    assert_eq!(stuck.status().signal(), Some(11));
    assert!(text.ends_with("unspool: end of the report\n"), "{text}");
    assert_eq!(text.matches("unspool: ").count(), 2, "{text}");
}

/// A pipe without a reader does not delay the report.
#[test]
fn a_pipe_without_a_reader_does_not_stop_the_report() {
    let stuck = BlockedReader::new("full-stderr");
    stuck.await_rest();
    for signal in ["SEGV", "ABRT"] {
        kill(stuck.child.id(), signal);
    }
    assert_eq!(stuck.status().signal(), Some(11));
}

/// A user can end the process without waiting for the report.
#[test]
fn a_process_that_reports_can_be_terminated() {
    let stuck = BlockedReader::new("full-stderr");
    stuck.await_rest();
    kill(stuck.child.id(), "TERM");
    assert_eq!(stuck.status().signal(), Some(15));
}

/// If the log cannot be written, standard error is used.
#[test]
fn a_log_that_nobody_reads() {
    let log = programs::scratch("fifo");
    let mut command = limited(&program(), "pipe-as-log");
    let output = command.env("UNSPOOL_CRASH_LOG", &log).output().unwrap();
    assert_ended_by(&output, "SIGSEGV");
}

#[test]
fn the_folder_of_the_log_is_that_of_the_start() {
    let folder = programs::scratch("folder");
    fs::create_dir(&folder).unwrap();
    let mut command = command(program());
    command.arg("other-folder").current_dir(&folder);
    command.env("LD_PRELOAD", library());
    let output = command.env("UNSPOOL_CRASH_LOG", "crash.log").output();
    assert_eq!(errors(&output.unwrap()), "");
    let report = fs::read_to_string(folder.join("crash.log")).unwrap();
    assert!(report.ends_with("unspool: end of the report\n"), "{report}");
}

/// Nothing is written to a file that got the number of standard error by chance. The log gets the
/// report, if there is one.
#[test]
fn a_file_of_the_program_is_not_written_to() {
    let (own, log) = (programs::scratch("own"), programs::scratch("log"));
    fs::write(&own, "precious").unwrap();
    for log in [None, Some(&log)] {
        let mut command = command(program());
        command.arg("other-stderr").env("OWN_FILE", &own);
        command.env("LD_PRELOAD", library());
        if let Some(log) = log {
            command.env("UNSPOOL_CRASH_LOG", log);
        }
        let output = command.output().unwrap();
        assert_eq!((output.status.signal(), &*errors(&output)), (Some(11), ""));
        assert_eq!(fs::read_to_string(&own).unwrap(), "precious");
    }
    let report = fs::read_to_string(log).unwrap();
    assert!(report.ends_with("unspool: end of the report\n"), "{report}");
}

/// A daemon with a log of its own as standard error gets the report there.
#[test]
fn a_log_of_the_program_is_written_to() {
    let own = programs::scratch("own-log");
    fs::write(&own, "started\n").unwrap();
    let mut command = command(program());
    command.arg("logged-stderr").env("OWN_FILE", &own);
    let output = command.env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!((output.status.signal(), &*errors(&output)), (Some(11), ""));
    let log = fs::read_to_string(own).unwrap();
    assert!(log.starts_with("started\nunspool: "), "{log}");
    assert!(log.ends_with("unspool: end of the report\n"), "{log}");
}

/// Sent signals do not end the first process of a container. It would continue after its
/// breakpoint.
#[test]
fn the_first_process_ends_too() {
    let mut command = tool("unshare");
    command.args(["--map-root-user", "--pid", "--fork", "env"]);
    command.arg(format!("LD_PRELOAD={}", library().display()));
    let output = command.arg(program()).arg("breakpoint").output().unwrap();
    let report = errors(&output);
    assert_eq!(output.status.code(), Some(128 + 5), "{report}");
    assert!(report.contains("\nprocess 1, thread 1 "), "{report}");
    assert!(report.ends_with("unspool: end of the report\n"), "{report}");
}
