//! The options of `unspool stack`, and how it writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;
use unspool_testing::{Folder, RunningProgram, await_state, command, send_signal};

use crate::json;
use crate::stack::build::BuiltProgram;
use crate::stack::compare::{REGISTERS, has_functions};
use crate::stack::run::{ready, start};
use crate::stack::unspool::{PrintedStack, parse, report, stack, unspool};

fn waiting(depth: &str) -> (BuiltProgram, RunningProgram, String) {
    let program = BuiltProgram::build("recursion.c", &["-O2"]);
    let running = ready(&program, &[depth]);
    let pid = running.pid().to_string();
    (program, running, pid)
}

/// The text has the frames of a deep recursion once, and both ends of the stack.
#[test]
fn recursion_is_folded() {
    let (program, _running, pid) = waiting("3000");
    let whole = report(&program.directory, &[&pid]);
    let frames = whole.threads.values().next().unwrap().frames.len();
    let text = stack(&program.directory, &[&pid]).out;
    let folded = text
        .lines()
        .find(|line| line.contains("times more"))
        .unwrap();
    let numbers = folded
        .split(|c: char| !c.is_ascii_digit())
        .filter(|word| !word.is_empty());
    let numbers: Vec<usize> = numbers.map(|word| word.parse().unwrap()).collect();
    let [first, last, length, times] = numbers[..] else {
        panic!("{folded}")
    };
    assert_eq!((last + 1 - first, length), (length * times, 3), "{folded}");
    let shown = text.lines().filter(|line| line.contains("  0x")).count();
    assert_eq!(shown + length * times, frames, "{text}");
    assert!(shown < 20 && text.contains("  main+0x"), "{text}");
    // Frames with registers differ. The middle is left out.
    let printed = |text: &str| {
        let is_frame = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next().is_some_and(|word| word.parse::<u32>().is_ok())
                && words.next().is_some_and(|word| word.starts_with("0x"))
        };
        text.lines().filter(is_frame).count()
    };
    let text = stack(&program.directory, &["--registers", &pid]).out;
    let left_out = format!("  frames 500 to {}: left out", frames - 501);
    assert!(text.contains(&left_out) && text.contains("  main+0x"));
    for options in [&["--whole"][..], &["--whole", "--registers"]] {
        let text = stack(&program.directory, &[options, &[&*pid]].concat()).out;
        assert_eq!(printed(&text), frames);
    }
}

/// A stripped file is worth a notice only if a frame that is shown lacks a name by that.
#[test]
fn stripped_files_whose_frames_have_names() {
    let folder = Folder::new();
    let source = "#include <unistd.h>
        static __attribute__((noinline)) int hidden(int, int);
        int inner(int n, int m) { return n ? inner(n - 1, m) + 1 : pause(); }
        int outer(int n, int m) { return n ? outer(n - 1, m) + 1 : hidden(m, 600) + 1; }
        static int hidden(int n, int m) { return n ? hidden(n - 1, m) + 1 : inner(m, 0) + 1; }
        int main(void) { return outer(600, 300); }";
    folder.write("a.c", source);
    let words = "-O1 -fno-optimize-sibling-calls -rdynamic -s -o program a.c";
    folder.tool("gcc", words);
    let running = RunningProgram::start(&mut command(folder.join("program")));
    running.await_state('S');
    let pid = running.pid().to_string();
    // The frames in the middle are not shown.
    let brief = stack(&folder, &["--registers", &pid]);
    assert!(
        brief.out.contains("left out") && brief.out.contains("  outer+0x"),
        "{}",
        brief.out
    );
    assert!(!brief.err.contains("stripped"), "{}", brief.err);
    let whole = stack(&folder, &["--registers", "--whole", &pid]);
    assert!(
        whole.err.contains("program: it is stripped"),
        "{}",
        whole.err
    );
}

/// The program itself says which thread is which.
#[test]
fn who_holds_a_mutex() {
    let program = BuiltProgram::build("deadlock.c", &["-O2"]);
    let mut running = start(&program, &[]);
    let said = [running.line(), running.line()].map(|line| {
        let (own, tid) = line.split_once(' ').unwrap();
        (own.to_owned(), tid.parse::<u64>().unwrap())
    });
    let tids = BTreeMap::from(said);
    running.await_ready();
    let pid = running.pid().to_string();
    let text = stack(&program.directory, &[&pid]).out;
    let report = report(&program.directory, &[&pid]);
    let threads = report.json["threads"].as_array().unwrap();
    for (own, other) in [("0", "1"), ("1", "0")] {
        let (own, other) = (tids[own], tids[other]);
        let line = format!(
            "thread {own} \"deadlock\", in system call futex, waits for a mutex of thread {other}\n"
        );
        assert!(text.contains(&line), "{text}");
        let thread = threads.iter().find(|thread| thread["tid"] == own).unwrap();
        assert_eq!(thread["mutex_owner"], other);
        // One line for each mutex.
        let mutex = thread["mutex"].as_str().unwrap();
        let line = format!(
            "mutex {mutex}: held by thread {other} \"deadlock\", awaited by thread {own}\n"
        );
        assert!(text.contains(&line), "{text}");
    }
    assert_eq!(text.matches(", waits for a mutex").count(), 2, "{text}");
    assert_eq!(text.matches("mutex 0x").count(), 2, "{text}");
    let (first, last) = (tids["0"].min(tids["1"]), tids["0"].max(tids["1"]));
    let line = format!("\ndeadlock: thread {first} waits for {last}, {last} waits for {first}\n");
    assert!(text.contains(&line), "{text}");
}

/// Threads with one stack share it; others keep their own.
#[test]
fn equal_stacks_are_grouped() {
    let program = BuiltProgram::build("blocked.c", &["-O2"]);
    let running = ready(&program, &[]);
    let pid = running.pid().to_string();
    let threads = report(&program.directory, &[&pid]).threads;
    let pcs = |stack: &PrintedStack| stack.frames.iter().map(|frame| frame.pc).collect();
    let stacks: BTreeSet<Vec<u64>> = threads.values().map(pcs).collect();
    assert!(stacks.len() < threads.len());
    let text = stack(&program.directory, &["--group", &pid]).out;
    let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        (lines("thread "), lines("  complete: ")),
        (threads.len(), stacks.len()),
        "{text}"
    );
}

/// The interface for scripts.
#[test]
fn json() {
    let (program, running, pid) = waiting("3");
    let printed = stack(&program.directory, &["--format", "json", &pid]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    let document = json::document(&printed.out);
    assert_eq!(document["schema"], "unspool.stack");
    assert_eq!(document["reliable"], true);
    assert_eq!(document["signal"], Value::Null);
    assert_eq!(document["subject"]["kind"], "process");
    assert_eq!(document["subject"]["pid"], running.pid());
    assert!(document["stopped_ms"].as_f64().unwrap() > 0.0);
    for options in [&["--locals"][..], &["--args", "--strings"]] {
        let words = [options, &["--format", "json", &pid]].concat();
        let printed = stack(&program.directory, &words);
        let document = json::document(&printed.out);
        assert!(document["stopped_ms"].as_f64().unwrap() > 0.0, "{words:?}");
    }
    let thread = &document["threads"][0];
    assert_eq!(thread["tid"], running.pid());
    assert_eq!(thread["name"], "recursion");
    assert_eq!(thread["state"], "stopped");
    assert_eq!(thread["error"], Value::Null);
    assert_eq!(thread["end"]["code"], "outermost");
    assert_eq!(thread["end"]["root"], true);
    let frames = thread["frames"].as_array().unwrap();
    for (index, frame) in frames.iter().enumerate() {
        assert_eq!(frame["index"], index);
        assert_eq!(frame["return_address"], index > 0);
        assert_eq!(frame["evidence"] == "cfi", index > 0);
        assert_eq!(frame["interrupted"], false);
        assert!(frame["cfa"].is_string(), "{frame}");
        assert!(frame.get("cfa_guessed").is_none());
        assert!(frame.get("registers").is_none());
        // Not all of the C library's functions have a symbol.
        let is_own = frame["module"].as_str().unwrap().ends_with("/recursion");
        assert!(frame["symbol"].is_string() || !is_own, "{frame}");
        for key in ["pc", "sp", "module", "module_address", "build_id"] {
            assert!(frame[key].is_string(), "{key}: {frame}");
        }
    }
    let main = frames
        .iter()
        .find(|frame| frame["symbol"] == "main")
        .unwrap();
    let function = &main["functions"][0];
    assert_eq!(function["function"], "main");
    assert!(
        function["file"]
            .as_str()
            .unwrap()
            .ends_with("programs/recursion.c")
    );
    assert!(function["line"].as_u64().unwrap() > 40);
}

/// One document for each process, each a line; an exited process does not affect the others.
#[test]
fn several_processes() {
    let (program, _first, a) = waiting("1");
    let second = ready(&program, &["2"]);
    let b = second.pid().to_string();
    let arguments = ["--format", "json", "--registers", &a, "2147483647", &b];
    let printed = stack(&program.directory, &arguments);
    assert_eq!(printed.status, 2);
    let error = "unspool: error: process 2147483647: no such process\n";
    assert_eq!(printed.err.replace("no such process: ", ""), error);
    let pids: Vec<String> = printed
        .out
        .lines()
        .map(|document| parse(document).json["subject"]["pid"].to_string())
        .collect();
    assert_eq!(pids, [a, b]);
}

/// A process stopped by job control is read without resuming it, and stays stopped.
#[test]
fn a_stopped_process() {
    let (program, running, pid) = waiting("3");
    send_signal(running.pid(), "STOP");
    await_state(running.pid(), 'T');
    let found = report(&program.directory, &[&pid]);
    assert_eq!(found.json["threads"][0]["state"], "job-stopped");
    assert!(has_functions(
        &found.threads[&running.pid()],
        &["small", "main", "_start"]
    ));
    await_state(running.pid(), 'T');
}

#[test]
fn a_limit_of_frames() {
    let (program, _running, pid) = waiting("20");
    let printed = stack(&program.directory, &["--max-frames", "3", &pid]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    let lines: Vec<&str> = printed.out.lines().skip(3).collect();
    assert_eq!(lines.len(), 4, "{}", printed.out);
    assert_eq!(lines[3], "  incomplete: the limit of frames is reached");
    let printed = stack(
        &program.directory,
        &["--reliable", "--max-frames", "3", &pid],
    );
    assert_eq!((printed.status, printed.err.as_str()), (1, ""));
}

#[test]
fn lines_and_registers() {
    let (program, _running, pid) = waiting("0");
    let printed = stack(&program.directory, &[&pid]);
    assert!(
        printed.out.contains("programs/recursion.c:"),
        "{}",
        printed.out
    );
    assert!(!printed.out.contains(" cfa "), "{}", printed.out);
    let printed = stack(&program.directory, &["--no-lines", "--registers", &pid]);
    assert!(!printed.out.contains("recursion.c"), "{}", printed.out);
    for name in ["cfa"].iter().chain(&REGISTERS) {
        let line = format!(" {name:<6} 0x");
        assert!(printed.out.contains(&line), "{name}: {}", printed.out);
    }
}

/// As in `unspool stack PID | head -1`.
#[test]
fn a_closed_pipe() {
    let (program, _running, pid) = waiting("5000");
    for format in ["text", "json"] {
        let mut child = unspool(&program.directory)
            .args(["stack", "--format", format, &pid])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut reader = BufReader::with_capacity(1, child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        drop(reader);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), errors.as_str()),
            (Some(0), ""),
            "{format}"
        );
    }
}

#[test]
fn a_full_disk() {
    let (program, _running, pid) = waiting("1");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = unspool(&program.directory);
    let output = command.args(["stack", &pid]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("No space left on device"), "{errors}");
}

/// A program's name must not control the user's terminal.
#[test]
fn names_are_shown_as_plain_text() {
    let BuiltProgram { directory, path } = BuiltProgram::build("recursion.c", &["-O2"]);
    let steering = directory.path().join("\u{1b}[31mred\n\u{7}x");
    std::fs::rename(path, &steering).unwrap();
    let program = BuiltProgram {
        directory,
        path: steering,
    };
    let running = ready(&program, &["2"]);
    let printed = stack(&program.directory, &[&running.pid().to_string()]);
    assert_eq!(printed.status, 0, "{}", printed.err);
    let thread = "\"\\u{1b}[31mred\\n\\u{7}x\"";
    assert!(printed.out.contains(thread), "{}", printed.out);
    let module = "[\\u{1b}[31mred\\n\\u{7}x+0x";
    assert!(printed.out.contains(module), "{}", printed.out);
    let is_steering = |c: char| c.is_control() && c != '\n';
    assert!(!printed.out.contains(is_steering), "{}", printed.out);
}
