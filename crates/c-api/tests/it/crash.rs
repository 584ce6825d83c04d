//! The crash handler, compared with gdb's view of the same crash and with the program's actions.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::programs::{self, shared_objects, stdout};
use unspool_testing::{Finish as _, command, tool};

const SIGNALS: [(&str, i32); 6] = [
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGSEGV", 11),
];

/// `crash.c`, with frame pointers for `smashed`.
pub(crate) fn program() -> PathBuf {
    let options = ["-O1", "-g", "-fno-omit-frame-pointer", "-Wl,-z,now"];
    programs::compile("crash.c", &options)
}

pub(crate) fn library() -> PathBuf {
    shared_objects().join("libunspool-crash.so")
}

fn crash(program: &Path, way: &str) -> Output {
    let mut command = command(program);
    command.arg(way).env("LD_PRELOAD", library());
    command.output().unwrap()
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A frame of a report.
#[derive(Debug, Clone, PartialEq)]
struct PrintedFrame {
    number: usize,
    address: u64,
    rest: String,
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap()
}

/// The frames of a report, and the line with the reason why they end.
fn frames(report: &str) -> (Vec<PrintedFrame>, String) {
    let lines = report.lines().skip_while(|line| *line != "stack").skip(1);
    let lines: Vec<_> = lines.take_while(|line| *line != "modules").collect();
    let frame = |line: &&str| {
        let (number, rest) = line.trim_start().split_once("  ")?;
        let (address, rest) = rest.split_once("  ")?;
        Some(PrintedFrame {
            number: number.parse().ok()?,
            address: hex(address),
            rest: rest.to_owned(),
        })
    };
    let end = lines.last().unwrap().trim_start().to_owned();
    (lines.iter().filter_map(frame).collect(), end)
}

/// The program's functions in a report, in order: the text before `+`.
fn functions(frames: &[PrintedFrame]) -> Vec<&str> {
    let in_program = frames.iter().filter(|frame| frame.rest.contains("[crash-"));
    in_program
        .map(|frame| frame.rest.split('+').next().unwrap())
        .collect()
}

/// Checks that the process ends by the signal, and that the report says so and is complete.
pub(crate) fn assert_ended_by(output: &Output, signal: &str) -> String {
    let report = errors(output);
    let number = SIGNALS.iter().find(|(name, _)| *name == signal).unwrap().1;
    assert_eq!(output.status.signal(), Some(number), "{report}");
    assert!(
        report.starts_with(&format!("unspool: signal {signal}, ")),
        "{report}"
    );
    assert!(report.ends_with("unspool: end of the report\n"), "{report}");
    report
}

/// gdb's view of a crash in the reporting process: the addresses at the first stop, up to a
/// maximum; the cause of that stop; and the state after the handler has sent the signal again.
struct GdbProcess {
    addresses: Vec<u64>,
    first: String,
    again: String,
    report: String,
}

fn debug(program: &Path, way: &str, most: usize) -> GdbProcess {
    const ABOUT: &str = r#"printf "about %p %p %d %p\n", $pc, $sp, $_siginfo.si_code, $_siginfo._sifields._sigfault.si_addr"#;
    // Without inferred frames: inlined functions, and functions that ended in a jump.
    const FRAMES: &str = r#"python exec("""
frame = gdb.newest_frame()
while frame and most:
    if frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):
        print("pc %#x" % frame.pc())
    frame = frame.older()
    most -= 1
""")"#;
    let log = programs::scratch("log");
    let mut gdb = tool("gdb");
    gdb.args(["-nx", "-batch"]);
    for command in [
        "set debuginfod enabled off",
        "set startup-with-shell off",
        "set confirm off",
        "set backtrace past-main on",
        "set backtrace past-entry off",
        &format!("set environment LD_PRELOAD {}", library().display()),
        &format!("set environment UNSPOOL_CRASH_LOG {}", log.display()),
        "run",
        &format!("python most = {most}"),
        FRAMES,
        ABOUT,
        "continue",
        ABOUT,
        "kill",
    ] {
        gdb.args(["-ex", command]);
    }
    let text = stdout(gdb.arg("--args").arg(program).arg(way));
    let pcs = text.lines().filter_map(|line| line.strip_prefix("pc "));
    let mut abouts = text.lines().filter(|line| line.starts_with("about "));
    let report = fs::read_to_string(log).unwrap_or_else(|error| panic!("{error}: {text}"));
    GdbProcess {
        addresses: pcs.map(hex).collect(),
        first: abouts.next().unwrap().to_owned(),
        again: abouts.next().unwrap_or(&text).to_owned(),
        report,
    }
}

/// Crashes with a stack that tables unwind to its end, and the program's functions on it.
const CASES: [(&str, &str, &[&str]); 8] = [
    ("write", "SIGSEGV", &["bad_write", "main", "_start"]),
    ("division", "SIGFPE", &["division", "main", "_start"]),
    ("illegal", "SIGILL", &["illegal", "main", "_start"]),
    ("breakpoint", "SIGTRAP", &["breakpoint", "main", "_start"]),
    ("abort", "SIGABRT", &["aborts", "main", "_start"]),
    ("bus", "SIGBUS", &["behind_the_end", "main", "_start"]),
    ("malloc", "SIGSEGV", &["in_malloc", "main", "_start"]),
    ("thread", "SIGSEGV", &["bad_write", "begin_thread"]),
];

#[test]
fn every_signal_is_reported_and_ends_the_process() {
    let program = program();
    for (way, signal, expected) in CASES {
        let report = assert_ended_by(&crash(&program, way), signal);
        let (frames, end) = frames(&report);
        assert_eq!(functions(&frames), expected, "{report}");
        assert_eq!(end, "complete: outermost frame", "{report}");
    }
}

/// gdb sees the same frames at the same addresses. After the report it sees the process in its
/// state at the crash, with the kernel's information of the signal, as in a core file.
#[test]
fn gdb_sees_the_same_frames() {
    let program = program();
    // gdb uses `SIGTRAP` itself.
    let seen = CASES.iter().filter(|(_, signal, _)| *signal != "SIGTRAP");
    for (way, _, _) in seen {
        let debugged = debug(&program, way, 100);
        let (frames, _) = frames(&debugged.report);
        let ours: Vec<u64> = frames.iter().map(|frame| frame.address).collect();
        assert_eq!(ours, debugged.addresses, "{way}: {}", debugged.report);
        assert_eq!(debugged.again, debugged.first, "{way}");
    }
}

#[test]
fn a_full_stack() {
    let program = program();
    for (way, begin) in [("overflow", "main"), ("thread-overflow", "begin_thread")] {
        let report = assert_ended_by(&crash(&program, way), "SIGSEGV");
        assert!(report.contains("so the stack may be full"), "{report}");
        let (frames, end) = frames(&report);
        assert_eq!(end, "complete: outermost frame");
        assert_eq!(frames.len(), 96 + 32);
        let left_out = report.lines().find_map(|line| {
            let count = line
                .trim_start()
                .strip_suffix(" frames are left out here")?;
            count.parse::<usize>().ok()
        });
        let numbers = frames.iter().map(|frame| frame.number);
        let behind = 96 + left_out.unwrap();
        assert!(numbers.eq((0..96).chain(behind..behind + 32)));
        let mut functions = functions(&frames);
        functions.dedup();
        assert_eq!(functions[..3], ["recurse", "overflow", begin], "{report}");
        let debugged = debug(&program, way, 96);
        let (frames, _) = self::frames(&debugged.report);
        let ours: Vec<u64> = frames[..96].iter().map(|frame| frame.address).collect();
        assert_eq!(ours, debugged.addresses, "{way}");
        assert_eq!(debugged.again, debugged.first, "{way}");
    }
}

#[test]
fn a_call_of_a_bad_pointer_is_a_guess() {
    let report = assert_ended_by(&crash(&program(), "call"), "SIGSEGV");
    let (frames, end) = frames(&report);
    assert_eq!((frames[0].address, &*frames[0].rest), (0, "??"));
    assert!(frames[1].rest.starts_with("bad_call+"), "{report}");
    assert!(
        frames[1]
            .rest
            .ends_with("(guessed: a call through a bad pointer)")
    );
    assert_eq!(functions(&frames), ["bad_call", "main", "_start"]);
    assert!(end.starts_with("not reliable, since frames were guessed: "));
}

#[test]
fn a_damaged_stack() {
    let report = assert_ended_by(&crash(&program(), "smashed"), "SIGSEGV");
    let (frames, end) = frames(&report);
    assert!(frames[0].rest.starts_with("smashed+"), "{report}");
    assert_eq!(frames[1].address, 0x4242_4242_4242_4242);
    assert_eq!(frames.len(), 2);
    assert_eq!(end, "incomplete: the address lies in no module");
}

/// Of several threads that crash at once, one reports; the others' lines are not mixed in.
#[test]
fn several_threads_at_once() {
    let program = program();
    for _ in 0..5 {
        let report = assert_ended_by(&crash(&program, "threads"), "SIGSEGV");
        assert_eq!(report.matches("unspool: signal").count(), 1, "{report}");
        let (frames, _) = frames(&report);
        assert_eq!(functions(&frames), ["bad_write", "at_once", "begin_thread"]);
    }
}

/// The program has a small stack for handlers, and the report uses another, even if it faults.
#[test]
fn a_small_stack_for_handlers() {
    for way in ["small-stack", "forgotten-stack"] {
        let report = assert_ended_by(&crash(&program(), way), "SIGABRT");
        let (frames, _) = frames(&report);
        assert!(
            frames
                .iter()
                .any(|frame| frame.rest.starts_with("__libc_start_main+")),
            "{report}"
        );
    }
}

/// The kernel may have started the loader.
#[test]
fn frames_are_named_in_a_program_run_through_the_loader() {
    let program = program();
    let mut command = command("/lib64/ld-linux-x86-64.so.2");
    command
        .arg(&program)
        .arg("write")
        .env("LD_PRELOAD", library());
    let report = assert_ended_by(&command.output().unwrap(), "SIGSEGV");
    let (frames, _) = frames(&report);
    assert!(
        frames.iter().any(|frame| frame.rest.starts_with("main+")),
        "{report}"
    );
    let (_, modules) = report.split_once("\nmodules\n").unwrap();
    let name = program.file_name().unwrap().to_str().unwrap();
    assert!(modules.contains(&format!("/{name}\n")), "{report}");
}

/// An unreadable part of a mapped module costs only its own frames' names and tables. These frames
/// are guessed by their frame pointers.
#[test]
fn a_module_that_cannot_be_read() {
    let report = assert_ended_by(&crash(&program(), "unreadable"), "SIGABRT");
    let (frames, end) = frames(&report);
    assert!(report.contains("  abort+"), "{report}");
    let unnamed = frames
        .iter()
        .filter(|frame| frame.rest.contains("which cannot be read]"));
    // `unreadable`, `main` and `_start`.
    assert_eq!(unnamed.count(), 3, "{report}");
    assert!(
        frames
            .iter()
            .any(|frame| frame.rest.starts_with("__libc_start_main+"))
    );
    assert_eq!(end, "incomplete: no unwind table covers the address");
}

/// A library; copies with other options have the same addresses and sizes.
fn shared_library(options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut cc = programs::cc();
    cc.args(["-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC"]);
    cc.args(options);
    programs::build(cc, &folder.join("library.c"), &[])
}

fn crash_in_library(way: &str, library: &Path, other: Option<&Path>) -> Output {
    let mut command = command(program());
    command.arg(way).env("LIBRARY", library);
    command.env("LD_PRELOAD", self::library());
    if let Some(other) = other {
        command.env("OTHER", other);
    }
    command.output().unwrap()
}

/// Names that only the file has are those of the mapped file, not of another one that now has its
/// path and the same addresses.
#[test]
fn a_library_that_was_replaced() {
    for build_id in ["-Wl,--build-id=sha1", "-Wl,--build-id=none"] {
        let inner = |report: &str| {
            let (frames, _) = frames(report);
            let called = frames
                .iter()
                .position(|frame| frame.rest.starts_with("called+"));
            let inner = &frames[called.unwrap() - 1].rest;
            inner.split(['+', ' ']).next().unwrap().to_owned()
        };
        let build = |name, step| shared_library(&[build_id, name, step]);
        // The build ID does not depend on the names alone.
        let one = build("-DNAME=one", "-DSTEP=1");
        let two = build("-DNAME=two", "-DSTEP=2");
        let report = assert_ended_by(&crash_in_library("replaced", &one, None), "SIGSEGV");
        assert_eq!(inner(&report), "one", "{report}");
        let output = crash_in_library("replaced", &one, Some(&two));
        let report = assert_ended_by(&output, "SIGSEGV");
        assert_eq!(inner(&report), "??", "{report}");
    }
}

/// A library that was overwritten instead of replaced, as by `cp`: its mapping becomes unreadable.
#[test]
fn a_library_whose_file_was_cut_short() {
    for (way, signal, functions_before) in [
        ("cut-innermost", "SIGBUS", &[][..]),
        (
            "cut-outer",
            "SIGSEGV",
            &["bad_write", "cut_library_and_crash"][..],
        ),
    ] {
        let library = shared_library(&[]);
        let output = crash_in_library(way, &library, None);
        let report = assert_ended_by(&output, signal);
        let (frames, end) = frames(&report);
        let cut = functions_before.len();
        let name = library.file_name().unwrap().to_str().unwrap();
        let unreadable = format!("??  [{name}, which cannot be read]");
        for frame in &frames[cut..cut + 2] {
            assert_eq!(frame.rest.split("  (").next(), Some(&*unreadable));
        }
        let expected = ["through_library", case_function(way), "main", "_start"];
        let all = functions_before.iter().chain(&expected).copied();
        assert_eq!(functions(&frames), all.collect::<Vec<_>>(), "{report}");
        let guessed = "not reliable, since frames were guessed: outermost frame";
        assert_eq!(end, guessed, "{report}");
    }
}

fn case_function(way: &str) -> &'static str {
    match way {
        "cut-innermost" => "cut_innermost",
        _ => "cut_outer",
    }
}

#[test]
fn a_handler_of_the_program_counts() {
    let output = crash(&program(), "own-handler");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(errors(&output), "mine\n");
}

/// It has enough room although it would run on the thread's stack.
#[test]
fn a_handler_of_the_program_that_takes_any_stack() {
    let output = crash(&program(), "own-handler-on-stack");
    assert_eq!(output.status.code(), Some(7), "{}", errors(&output));
}

#[test]
fn a_stack_of_the_program_for_handlers_stays() {
    let mut command = command(program());
    command.arg("loaded-later").env("LIBRARY", library());
    assert_ended_by(&command.output().unwrap(), "SIGSEGV");
}

/// Names with terminal control characters, and the name of the crashed thread.
#[test]
fn the_report_names_the_crashed_thread() {
    let report = assert_ended_by(&crash(&program(), "thread"), "SIGSEGV");
    let line = report.lines().nth(1).unwrap();
    assert!(line.ends_with(" \"second?\""), "{line}");
    let number = |word: &str| {
        let (_, rest) = line.split_once(word).unwrap();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse::<u32>().unwrap()
    };
    assert_ne!(number("process "), number("thread "));
}

/// A sent signal, and modules with the build IDs found by readelf.
#[test]
fn a_signal_from_outside() {
    let mut shell = command("sh");
    shell
        .args(["-c", "kill -SEGV $$"])
        .env("LD_PRELOAD", library());
    let report = assert_ended_by(&shell.output().unwrap(), "SIGSEGV");
    assert!(report.lines().next().unwrap().contains("sent by process "));
    let modules: Vec<_> = report
        .lines()
        .skip_while(|line| *line != "modules")
        .collect();
    let libc = modules.iter().find(|line| line.ends_with("/libc.so.6"));
    let mut parts = libc.unwrap().split_whitespace().skip(1);
    let (id, path) = (parts.next().unwrap(), parts.next().unwrap());
    let notes = tool("readelf").arg("-n").arg(path).succeed();
    assert!(notes.contains(&format!("Build ID: {id}")), "{notes}");
}

/// A timer's signal has no sender.
#[test]
fn the_report_names_the_sender_of_a_signal() {
    for (way, expected) in [
        ("timer", "sent by a timer of the process"),
        ("queued", "queued by process "),
        ("abort", "sent by process "),
    ] {
        let report = assert_ended_by(&crash(&program(), way), "SIGABRT");
        let (_, origin) = report.lines().next().unwrap().split_once(", ").unwrap();
        assert!(origin.starts_with(expected), "{origin}");
    }
}

/// Each thread has a stack for handlers, and releases it; `pthread_exit` and `pthread_cancel`
/// unwind through its entry point.
#[test]
fn threads_come_and_go() {
    let program = program();
    let run = |way: &str| {
        let output = crash(&program, way);
        assert_eq!(output.status.code(), Some(0), "{way}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    run("pthread-exit");
    let mappings = run("many-threads");
    let count: usize = mappings.split(' ').next().unwrap().parse().unwrap();
    // One for each of 200 threads would exceed this.
    assert!(count < 100, "{mappings}");
}

/// The log is opened for appending, with permissions for the user alone. If that fails, standard
/// error is used.
#[test]
fn the_report_goes_to_the_log() {
    use std::os::unix::fs::PermissionsExt as _;
    let program = program();
    let log = programs::scratch("log");
    let run = |log: &Path| {
        let mut command = command(&program);
        command.arg("write").env("LD_PRELOAD", library());
        command.env("UNSPOOL_CRASH_LOG", log).output().unwrap()
    };
    for times in 1..=2 {
        let output = run(&log);
        assert_eq!((output.status.signal(), &*errors(&output)), (Some(11), ""));
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.matches("unspool: end of the report").count(), times);
    }
    assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_ended_by(&run(Path::new("/nonexistent/log")), "SIGSEGV");
}
