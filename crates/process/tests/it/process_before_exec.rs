//! A command that gets a signal before it executes its program. It is found among the children of
//! this process, which must have no others.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use unspool_process::{CommandEvent, TracedCommand};
use unspool_testing::{Finish, alone, await_that, command};

/// Sends a signal to a command while it searches very many folders for its program; returns its
/// exit status. `None` if the search ended too soon.
fn end_of_one_signalled_before_exec(signal: &str) -> Option<ExitStatus> {
    let mut script = command("true");
    script.env("PATH", "/x:".repeat(40_000) + "/usr/bin:/bin");
    let before = children();
    let spawning = std::thread::spawn(move || end(&mut TracedCommand::spawn(script).unwrap()));
    let is_held = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.starts_with("Name:\tunspool") && !status.contains("TracerPid:\t0\n")
    };
    let mut child = None;
    await_that("the child", || {
        let new = children().difference(&before).copied().collect::<Vec<_>>();
        child = new.into_iter().find(is_held);
        child.is_some() || spawning.is_finished()
    });
    let mut kill = command("kill");
    let kill = kill.args([&format!("-{signal}"), &child?.to_string()]);
    kill.succeed();
    await_that("the end", || spawning.is_finished());
    Some(spawning.join().unwrap())
}

/// A command's exit status, whether a signal was reported before or not.
fn end(traced: &mut TracedCommand) -> ExitStatus {
    loop {
        if let CommandEvent::Exited(status) = traced.run_until_fatal_signal().unwrap() {
            return status;
        }
    }
}

/// The children of all threads of this process.
fn children() -> BTreeSet<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let list = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    };
    let lists: Vec<String> = tasks.filter_map(list).collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_signal_before_exec_is_delivered() {
    alone(|| {
        let end_of_one = |signal| {
            std::iter::repeat_with(|| end_of_one_signalled_before_exec(signal))
                .take(100)
                .find_map(|end| end)
                .unwrap()
        };
        assert_eq!(end_of_one("WINCH").code(), Some(0));
        assert_eq!(end_of_one("TERM").signal(), Some(libc::SIGTERM));
    });
}
