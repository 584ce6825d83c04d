//! Commands that run under control until a signal is about to kill them.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use unspool_process::{
    CommandEvent, Process, ProcessError, Signal, Snapshot as _, ThreadState, TracedCommand,
};
use unspool_rows::{Memory as _, RuntimeAddr};
use unspool_testing::{await_that, command, send_signal, states};

use crate::programs::{compile, directory};

fn started(program: &Path, arguments: &[&str]) -> Command {
    let mut command = command(program);
    // Cores of the crashes go into the folder of the compiled program, if anywhere.
    command
        .args(arguments)
        .stdout(Stdio::null())
        .current_dir(program.parent().unwrap());
    command
}

fn exit(traced: &mut TracedCommand) -> ExitStatus {
    match traced.run_until_fatal_signal().unwrap() {
        CommandEvent::Exited(status) => status,
        event => panic!("no end: {event:?}"),
    }
}

fn fatal(traced: &mut TracedCommand) -> Box<Process> {
    match traced.run_until_fatal_signal().unwrap() {
        CommandEvent::Fatal(process) => process,
        event => panic!("not seen: {event:?}"),
    }
}

/// Runs `crash HOW THREADS`, and lets it die; returns the signal and its exit status.
fn crash(how: &str, threads: usize) -> (Signal, ExitStatus) {
    let program = compile("crash.c", &[]);
    let mut traced = TracedCommand::spawn(started(&program, &[how, &threads.to_string()])).unwrap();
    let process = fatal(&mut traced);
    let signal = *process.signal().unwrap();
    assert_eq!(process.threads().len(), threads);
    assert_eq!(process.threads()[0].tid, signal.tid);
    assert_eq!(
        process.threads()[0].state,
        ThreadState::Signalled(signal.number)
    );
    for thread in process.threads() {
        let stack_pointer = process.abi().arch.spec().stack_pointer;
        let at = thread
            .registers
            .as_ref()
            .unwrap()
            .get(stack_pointer)
            .unwrap();
        process
            .memory()
            .read(RuntimeAddr(at), &mut [0; 64])
            .unwrap();
    }
    assert!(states(traced.pid()).iter().all(|(_, state)| *state == 't'));
    let again = traced.run_until_fatal_signal();
    assert!(matches!(again, Err(ProcessError::StillHeld { .. })));
    drop(process);
    let status = exit(&mut traced);
    assert_eq!(exit(&mut traced), status);
    (signal, status)
}

#[test]
fn a_status_is_passed_on() {
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("(exit 9)", 9),
        ("exec sh -c 'exit 3'", 3),
    ] {
        let mut shell = command("sh");
        shell.args(["-c", script]);
        let mut traced = TracedCommand::spawn(shell).unwrap();
        assert_eq!(exit(&mut traced).code(), Some(code), "{script}");
    }
}

#[test]
fn a_fault_is_seen_with_its_address() {
    for threads in [1, 6] {
        let (signal, status) = crash("segv", threads);
        assert_eq!(signal.name(), Some("SIGSEGV"));
        assert_eq!(
            (signal.code, signal.address),
            (1, Some(RuntimeAddr(0x12_3450)))
        );
        assert_eq!(status.signal(), Some(libc::SIGSEGV));
    }
}

#[test]
fn other_fatal_signals() {
    for (how, name, number) in [
        ("abort", Some("SIGABRT"), libc::SIGABRT),
        ("trap", Some("SIGILL"), libc::SIGILL),
        ("term", Some("SIGTERM"), libc::SIGTERM),
        ("realtime", None, libc::SIGRTMIN() + 3),
    ] {
        let (signal, status) = crash(how, 2);
        assert_eq!((signal.name(), signal.number), (name, number), "{how}");
        assert_eq!(status.signal(), Some(number), "{how}");
    }
    let (sent, _) = crash("term", 1);
    assert!(sent.sender.is_some_and(|sender| sender.pid == sent.tid));
}

#[test]
fn harmless_signals_and_other_processes_are_not_reported() {
    let program = compile("crash.c", &[]);
    for (how, code) in [
        ("handled", 42),
        ("ignored", 5),
        ("child", 6),
        ("vfork-child", 8),
    ] {
        let mut traced = TracedCommand::spawn(started(&program, &[how])).unwrap();
        assert_eq!(exit(&mut traced).code(), Some(code), "{how}");
    }
}

#[test]
fn a_crash_is_seen_after_exec_from_another_program() {
    let program = compile("crash.c", &[]);
    let script = format!("exec {} segv 3", program.display());
    let mut traced = TracedCommand::spawn(started(Path::new("/bin/sh"), &["-c", &script])).unwrap();
    let process = fatal(&mut traced);
    assert_eq!(process.executable(), Some(program.as_path()));
    assert_eq!(process.threads().len(), 3);
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let error = TracedCommand::spawn(Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.to_string(), "cannot run `/no/such/program`");
    let file = directory().join("file");
    std::fs::write(&file, "text").unwrap();
    assert!(matches!(
        TracedCommand::spawn(Command::new(&file)),
        Err(ProcessError::Spawn { .. })
    ));
}

/// The thread that called exec has the first thread's ID from then on. No other thread of the old
/// program is left.
#[test]
fn a_program_that_another_thread_executes_is_seen() {
    let program = compile("crash.c", &[]);
    let mut traced = TracedCommand::spawn(started(&program, &["exec", "6"])).unwrap();
    let pid = traced.pid();
    let waiting = std::thread::spawn(move || {
        let process = fatal(&mut traced);
        let tids: Vec<u32> = process.threads().iter().map(|thread| thread.tid).collect();
        let signal = process.signal().unwrap().name();
        drop(process);
        (signal, tids, exit(&mut traced))
    });
    await_that("the crash of the new program", || waiting.is_finished());
    let (signal, tids, status) = waiting.join().unwrap();
    assert_eq!(signal, Some("SIGSEGV"));
    assert_eq!(tids.len(), 3, "{tids:?}");
    assert!(tids.contains(&pid), "{tids:?}");
    assert_eq!(status.signal(), Some(libc::SIGSEGV));
}

/// If inspection is impossible, the signal is still known, and kills.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_fatal_signal_that_cannot_be_looked_at_is_delivered() {
    let program = compile("pause32.S", &["-m32", "-nostdlib", "-static", "-no-pie"]);
    let mut traced = TracedCommand::spawn(started(&program, &["crash"])).unwrap();
    let event = traced.run_until_fatal_signal().unwrap();
    let CommandEvent::Unobserved { signal, error } = event else {
        panic!("{event:?}");
    };
    assert_eq!((signal.tid, signal.name()), (traced.pid(), Some("SIGILL")));
    assert!(
        matches!(error, ProcessError::ThirtyTwoBit { .. }),
        "{error}"
    );
    assert_eq!(exit(&mut traced).signal(), Some(libc::SIGILL));
}

#[test]
fn job_control_works() {
    let mut shell = command("sh");
    shell.args(["-c", "kill -STOP $$; exit 3"]);
    let mut traced = TracedCommand::spawn(shell).unwrap();
    let pid = traced.pid();
    let waiting = std::thread::spawn(move || exit(&mut traced));
    // Under a tracer, a stop by job control appears as a tracing stop.
    await_that("the stop", || {
        states(pid).iter().all(|(_, state)| *state == 't')
    });
    let mut looks = 0;
    await_that("some looks at it standing still", || {
        looks += 1;
        assert!(!waiting.is_finished());
        looks > 1000
    });
    await_that("its end", || {
        let _ = command("kill")
            .args(["-CONT", &pid.to_string()])
            .stderr(Stdio::null())
            .status();
        waiting.is_finished()
    });
    assert_eq!(waiting.join().unwrap().code(), Some(3));
}

#[test]
fn a_dropped_command_runs_on() {
    let directory = directory();
    let mut shell = command("sh");
    shell
        .args(["-c", "sleep 0.2; echo done > done"])
        .current_dir(&directory);
    let traced = TracedCommand::spawn(shell).unwrap();
    let pid = traced.pid();
    drop(traced);
    await_that("the command's end", || {
        assert!(states(pid).iter().all(|(_, state)| *state != 't'));
        directory.join("done").exists()
    });
}

#[test]
fn threads_that_come_and_go_are_no_obstacle() {
    let program = compile("churn.c", &[]);
    let mut traced = TracedCommand::spawn(started(&program, &[])).unwrap();
    let pid = traced.pid();
    let waiting = std::thread::spawn(move || {
        let signal = *fatal(&mut traced).signal().unwrap();
        (signal, exit(&mut traced))
    });
    await_that("threads", || states(pid).len() >= 4);
    send_signal(pid, "ABRT");
    let (signal, status) = waiting.join().unwrap();
    assert_eq!(signal.name(), Some("SIGABRT"));
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}

#[test]
fn other_children_of_this_process_are_left_alone() {
    let mut other = command("sh").args(["-c", "exit 4"]).spawn().unwrap();
    let mut shell = command("sh");
    shell.args(["-c", "exit 5"]);
    let mut traced = TracedCommand::spawn(shell).unwrap();
    await_that("the other child", || {
        states(other.id()).iter().any(|(_, state)| *state == 'Z')
    });
    assert_eq!(exit(&mut traced).code(), Some(5));
    assert_eq!(other.wait().unwrap().code(), Some(4));
}
