//! Where `unspool stack` writes its reports.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use unspool_testing::{Folder, RunningProgram, await_state, await_that, run_tool, send_signal};

use crate::stack::build::BuiltProgram;
use crate::stack::run::ready;
use crate::stack::unspool::{parse, stack, unspool};

/// Runs `unspool stack --output FILE ARGUMENTS`, which prints nothing itself.
fn check_silent(directory: &Folder, file: &Path, arguments: &[&str], status: i32) {
    let mut all = vec!["--output", file.to_str().unwrap()];
    all.extend(arguments);
    let printed = stack(directory, &all);
    let notices = printed.other_notices();
    let found = (printed.status, printed.out.as_str(), notices.as_str());
    assert_eq!(found, (status, "", ""), "{arguments:?}");
}

#[test]
fn reports_of_processes_cores_and_commands_go_to_a_file() {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let directory = &program.directory;
    let file = directory.path().join("stacks");
    let first = ready(&program, &["2"]);
    let second = ready(&program, &["3"]);
    let pids = [first.pid().to_string(), second.pid().to_string()];
    check_silent(directory, &file, &[&pids[0], &pids[1]], 0);
    let text = fs::read_to_string(&file).unwrap();
    for pid in &pids {
        assert!(text.contains(&format!("process {pid}: 1 thread")), "{text}");
    }
    let core = first.dump_core(directory);
    let core = ["--format", "json", "--core", core.to_str().unwrap()];
    check_silent(directory, &file, &core, 0);
    let report = parse(&fs::read_to_string(&file).unwrap());
    assert_eq!(report.json["subject"]["kind"], "core");
    check_silent(directory, &file, &["--", "sh", "-c", "kill -SEGV $$"], 139);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("signal SIGSEGV, sent by"), "{text}");
}

#[test]
fn standard_output_on_request() {
    let directory = Folder::new();
    let crash = ["-o", "-", "--", "sh", "-c", "kill -SEGV $$"];
    let printed = stack(&directory, &crash);
    assert_eq!(
        (printed.status, printed.other_notices()),
        (139, String::new())
    );
    assert!(printed.out.contains("signal SIGSEGV"), "{}", printed.out);
}

#[test]
fn without_a_report_a_file_is_left_as_it_is() {
    let directory = Folder::new();
    let file = directory.path().join("stacks");
    check_silent(&directory, &file, &["--", "true"], 0);
    assert!(!file.exists());
    fs::write(&file, "old").unwrap();
    let name = file.to_str().unwrap();
    let printed = stack(&directory, &["-o", name, "2147483647"]);
    assert_eq!(printed.status, 2);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    let printed = stack(
        &directory,
        &["-o", "/nowhere/x", "--", "sh", "-c", "echo ran; kill $$"],
    );
    let error = "unspool: error: cannot write /nowhere/x: No such file";
    assert!(printed.err.starts_with(error), "{}", printed.err);
    assert_eq!((printed.status, printed.out.as_str()), (2, ""), "not run");
}

/// A file that could be created at first, and no longer can.
#[test]
fn a_report_that_cannot_be_written_is_shown() {
    let directory = Folder::new();
    let folder = directory.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("stacks");
    let script = format!("rmdir '{}'; kill -SEGV $$", folder.display());
    let arguments = ["-o", file.to_str().unwrap(), "--", "sh", "-c", &script];
    let printed = stack(&directory, &arguments);
    assert_eq!(printed.status, 139, "{}", printed.err);
    assert!(printed.err.contains("signal SIGSEGV"), "{}", printed.err);
    assert!(printed.err.contains("cannot write"), "{}", printed.err);
}

#[test]
fn a_symbolic_link_stays_one() {
    let directory = Folder::new();
    let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
    std::os::unix::fs::symlink("file", &link).unwrap();
    let crash = ["--", "sh", "-c", "kill -SEGV $$"];
    for before in ["no file", "a file"] {
        check_silent(&directory, &link, &crash, 139);
        assert!(link.is_symlink(), "{before}");
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("signal SIGSEGV, sent").count(), 1, "{text}");
    }
}

/// Starts a command that is about to be killed by a signal, with a report that is not read: it
/// stays stopped until unspool exits.
fn stuck(directory: &Folder) -> RunningProgram {
    let pipe = directory.path().join("pipe");
    let pipe = pipe.to_str().unwrap();
    assert!(run_tool("mkfifo", &[pipe]).status.success());
    let script = "echo $$; kill -SEGV $$; echo survived";
    let mut command = unspool(directory);
    command.args(["stack", "-o", pipe, "--", "sh", "-c", script]);
    let mut running = RunningProgram::start(&mut command);
    await_state(running.line().parse().unwrap(), 't');
    running
}

#[test]
fn a_fatal_signal_survives_unspool() {
    let directory = Folder::new();
    let mut running = stuck(&directory);
    running.kill();
    assert_eq!(running.rest(), "");
}

/// Signals are passed on only while the command can receive them.
#[test]
fn unspool_can_be_ended_while_it_reports() {
    for (name, number) in [("TERM", libc::SIGTERM), ("INT", libc::SIGINT)] {
        let directory = Folder::new();
        let mut running = stuck(&directory);
        let mut status = None;
        await_that("the end", || {
            // The command may be stopped a little before unspool knows.
            send_signal(running.pid(), name);
            status = running.try_end();
            status.is_some()
        });
        assert_eq!(status.unwrap().signal(), Some(number));
        assert_eq!(running.rest(), "");
    }
}
