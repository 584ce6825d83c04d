//! Signals that are sent to `unspool stack -- CMD`.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use unspool_testing::{Finish as _, Folder, RunningProgram, command, send_signal, tool};

use crate::harness::{self, UNSPOOL};
use crate::stack::unspool::{printed, unspool};

/// `unspool stack -- sh -c SCRIPT`.
fn shell(directory: &Folder, script: &str) -> Command {
    let mut command = unspool(directory);
    command.args(["stack", "--", "sh", "-c", script]);
    command
}

/// Asks the command to exit, as `kill`, `timeout` and service managers do.
#[test]
fn a_signal_from_a_program_is_passed_on() {
    let directory = Folder::new();
    for name in ["HUP", "INT", "QUIT", "TERM"] {
        let script = format!("trap 'echo caught; exit 7' {name}; echo ready; read line; exit 1");
        let mut running = RunningProgram::start(&mut shell(&directory, &script));
        assert_eq!(running.line(), "ready");
        send_signal(running.pid(), name);
        assert_eq!(running.line(), "caught", "{name}");
        assert_eq!(running.end().code(), Some(7), "{name}");
    }
}

/// The blocked and the ignored signals of `command`, as bits, if its parent shell ignores some. The
/// bits leave out 32 and 33, which the C library reserves.
fn masks(words: &[&str]) -> Vec<u64> {
    let script = "trap '' HUP INT QUIT; exec \"$0\" \"$@\"";
    let text = command("sh").args(["-c", script]).args(words).succeed();
    let mask = |line: &str| {
        let digits = line.split_whitespace().nth(1).unwrap();
        u64::from_str_radix(digits, 16).unwrap() & 0x7fff_ffff
    };
    text.lines().map(mask).collect()
}

/// This makes a shell end its loop.
#[test]
fn a_command_interrupted_is_unspool_interrupted() {
    let directory = Folder::new();
    let output = shell(&directory, "kill -INT $$").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGINT));
    let report = String::from_utf8(output.stderr).unwrap();
    assert!(report.contains("signal SIGINT, sent by"), "{report}");
}

#[test]
fn ignored_and_blocked_signals_are_the_commands_as_they_were() {
    let look = ["sh", "-c", "grep -E 'Sig(Ign|Blk)' /proc/self/status"];
    let expected = masks(&look);
    assert_eq!(expected[1] & 7, 7, "HUP, INT and QUIT are ignored");
    let by_us = [&[UNSPOOL, "stack", "--no-cache", "--"], &look[..]].concat();
    assert_eq!(masks(&by_us), expected);
}

/// A parent that ignores `SIGCHLD` passes that on to its children.
#[test]
fn a_status_is_known_where_ended_children_are_forgotten() {
    let directory = Folder::new();
    let ignoring = |words: &[&str]| {
        let ignoring = ["env", "--ignore-signal=CHLD"];
        let mut command = harness::unspool_by(&ignoring, &directory);
        printed(command.args(["stack", "--no-cache", "--"]).args(words))
    };
    let crash = ignoring(&["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(crash.status, 139, "{}", crash.err);
    assert!(crash.err.contains("signal SIGSEGV"), "{}", crash.err);
    let ignored = ignoring(&["grep", "SigIgn", "/proc/self/status"]).out;
    let digits = ignored.split_whitespace().nth(1).unwrap();
    let ignored = u64::from_str_radix(digits, 16).unwrap();
    assert_ne!(ignored & (1 << (libc::SIGCHLD - 1)), 0, "{ignored:#x}");
}

/// The terminal sends the signal to both; unspool outlives it.
#[test]
fn control_c_is_for_the_command() {
    let directory = Folder::new();
    let script = "trap 'echo caught' INT; echo ready; read line; read line; exit 7";
    let path = directory.path().join("script.sh");
    std::fs::write(&path, script).unwrap();
    // Not every shell executes its last command in place, and a waiting shell dies of the signal.
    let line = format!("exec {UNSPOOL} stack --no-cache -- sh {}", path.display());
    let mut terminal = tool("script");
    terminal
        .args(["-qec", &line, "/dev/null"])
        .env("SHELL", "/bin/sh");
    let mut running = RunningProgram::start(&mut terminal);
    assert_eq!(running.line(), "ready");
    running.send("\x03");
    assert_eq!(running.line(), "^Ccaught");
    // The first may have been interrupted, or not have started.
    running.send("\n\n");
    assert!(!running.rest().contains("caught"));
    assert_eq!(running.end().code(), Some(7));
}
