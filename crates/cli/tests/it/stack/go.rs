//! Go programs, compared with the stacks that Go itself prints.

use unspool_testing::{Folder, RunningProgram, STRIPPED, build_go, command, send_signal};

use crate::harness;
use crate::stack::unspool::stack;

/// The functions in lines of unspool's.
fn functions(text: &str) -> Vec<&str> {
    let frames = text.lines().filter_map(|line| line.split_once("  0x"));
    let rest = frames.filter_map(|(_, rest)| rest.split_whitespace().nth(1));
    let names = rest.filter_map(|name| Some(name.rsplit_once('+')?.0));
    names.map(|name| name.trim_end_matches(".abi0")).collect()
}

/// All threads reach their roots, and the one in C code all functions of its goroutine.
#[test]
fn threads_of_a_go_program() {
    for options in [&["-gcflags=-l"][..], &["-gcflags=-l", STRIPPED]] {
        let folder = Folder::new();
        let header = std::fs::read_to_string(harness::source("ready.h")).unwrap();
        folder.write("ready.h", header);
        let source = std::fs::read_to_string(harness::source("goroutines.go")).unwrap();
        let path = build_go(&folder, &source, "goroutines", options);
        let shell = format!("exec {} 2>&1", path.display());
        let mut running = RunningProgram::start(command("sh").args(["-c", &shell]));
        running.await_ready();
        let pid = running.pid();
        let printed = stack(&folder, &["--reliable", &pid.to_string()]);
        assert_eq!(
            (printed.status, printed.other_notices()),
            (0, String::new()),
            "{}",
            printed.out
        );
        let thread = printed
            .out
            .split("\nthread ")
            .find(|thread| thread.contains("  main.descends+"));
        let ours = functions(thread.unwrap_or_else(|| panic!("{printed:?}")));
        // Stripped C functions have no names.
        if !options.contains(&STRIPPED) {
            // glibc's `pause` calls functions of its own since 2.41.
            let start = ours.iter().take_while(|name| name.starts_with("__"));
            assert_eq!(
                ours[start.count()..][..3],
                ["pause", "waits", "calls_waits"]
            );
        }

        send_signal(pid, "QUIT");
        let said = running.rest();
        // NAME(ARGUMENTS), then a line with its place. Go 1.24 writes addresses before the state in brackets.
        let first = said
            .split("goroutine 1 ")
            .nth(1)
            .unwrap_or_else(|| panic!("{said}"))
            .split("\n\n")
            .next()
            .unwrap();
        let names = first.lines().filter(|line| !line.starts_with('\t'));
        let theirs: Vec<&str> = names
            .filter_map(|line| Some(line.split_once('(')?.0))
            .collect();
        let callers = ["main.descends"; 4];
        assert!(theirs.windows(4).any(|names| names == callers), "{said}");
        let at = ours.iter().position(|name| *name == theirs[0]).unwrap();
        assert_eq!(ours[at..], theirs, "{said}");
    }
}

/// The kernel calls the signal handler: what it interrupted is shown.
#[test]
fn what_a_signal_interrupted() {
    let source = "package main\nimport (\"os\"; \"syscall\"; \"time\")\nvar count int\n\
                  //go:noinline\nfunc spins() { for { count++ } }\n\
                  func main() { go func() { time.Sleep(50 * time.Millisecond); \
                  syscall.Kill(os.Getpid(), syscall.SIGQUIT) }(); spins() }\n";
    for options in [&[][..], &[STRIPPED]] {
        let folder = Folder::new();
        let path = build_go(&folder, source, "spins", options);
        let path = path.to_str().unwrap();
        // The runtime ends all threads, one after the other; the first may be another.
        let report = || stack(&folder, &["--", "env", "GOTRACEBACK=crash", path]).err;
        let reports: Vec<String> = (0..10).map(|_| report()).collect();
        let mut threads = reports.iter().flat_map(|report| report.split("\nthread "));
        let spins = threads.find(|thread| thread.contains("  main.spins+"));
        let found = functions(spins.unwrap_or_else(|| panic!("{reports:?}")));
        let handler = found.iter().position(|name| *name == "runtime.sigtramp");
        let below = ["main.spins", "main.main", "runtime.main", "runtime.goexit"];
        assert!(handler.is_some() && found.ends_with(&below), "{found:?}");
        assert!(spins.unwrap().contains(": outermost frame"), "{spins:?}");
    }
}
