//! Stacks that are larger than the first copy, and stacks in more than one memory range.

use unspool_testing::{Folder, RunningProgram};

use crate::harness;
use crate::stack::build::BuiltProgram;
use crate::stack::compare::has_functions;
use crate::stack::run::ready;
use crate::stack::unspool::{PrintedStack, printed, report};

/// With this many frames, `recursion.c`, which recurses by threes, takes 4 MiB.
const DEPTH: usize = 3 * 7_000;

fn waiting(options: &[&str]) -> (BuiltProgram, RunningProgram) {
    let program = BuiltProgram::build("recursion.c", options);
    let running = ready(&program, &[&DEPTH.to_string()]);
    (program, running)
}

fn only_stack(directory: &Folder, running: &RunningProgram) -> PrintedStack {
    let mut threads = report(directory, &[&running.pid().to_string()]).threads;
    threads.remove(&running.pid()).unwrap()
}

/// The number of frames of the recursion.
fn descents(stack: &PrintedStack, functions: &[&str]) -> usize {
    let is_one = |name: &String| functions.contains(&name.as_str());
    let frames = stack.frames.iter();
    frames
        .filter(|frame| frame.names.iter().any(is_one))
        .count()
}

#[test]
fn a_long_stack() {
    let (program, running) = waiting(&["-O2"]);
    let found = only_stack(&program.directory, &running);
    assert!(found.is_root, "{}", found.end);
    assert!(found.guesses().is_empty());
    assert_eq!(descents(&found, &["small", "variable", "large"]), DEPTH + 1);
}

/// Guesses reach as far into the part that was not copied as tables do.
#[test]
fn a_long_stack_without_tables() {
    let options = [
        "-O2",
        // Without .debug_frame.
        "-g0",
        "-fno-omit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
        "-fno-optimize-sibling-calls",
    ];
    let (program, running) = waiting(&options);
    let found = only_stack(&program.directory, &running);
    assert_eq!(descents(&found, &["small", "variable", "large"]), DEPTH + 1);
    assert!(found.is_root, "{}", found.end);
    assert!(found.guesses().len() > DEPTH);
}

/// A handler's stack is copied first, since the stack pointer is there; the interrupted code is on
/// another. The handler returns to the end of a function whose rows do not apply to the trampoline.
#[test]
fn a_handler_on_a_stack_of_its_own() {
    let program = BuiltProgram::build("handled.c", &["-O2"]);
    let running = ready(&program, &[&DEPTH.to_string()]);
    let found = only_stack(&program.directory, &running);
    assert!(found.is_root, "{}", found.end);
    assert_eq!(found.guesses(), ["signal-trampoline"]);
    let functions = ["on_signal", "restorer", "descend", "main", "_start"];
    assert!(has_functions(&found, &functions));
    assert_eq!(descents(&found, &["descend"]), DEPTH + 1);
    let core = running.dump_core(&program.directory);
    let arguments = ["--core", core.to_str().unwrap()];
    let recorded = report(&program.directory, &arguments);
    let recorded = recorded.threads.values().next().unwrap();
    assert_eq!(found.frames, recorded.frames);
}

/// A report of many frames is written incrementally.
#[test]
fn a_long_report_needs_little_memory() {
    let (program, running) = waiting(&["-O2"]);
    let limit = ["sh", "-c", "ulimit -d 100000; exec \"$0\" \"$@\""];
    let mut command = harness::unspool_by(&limit, &program.directory);
    let pid = running.pid().to_string();
    let arguments = ["stack", "--registers", "--format", "json", &pid];
    let printed = printed(command.args(arguments));
    assert_eq!((printed.status, printed.err.as_str()), (0, ""));
    let found = crate::stack::unspool::parse(&printed.out);
    assert!(found.threads[&running.pid()].frames.len() > DEPTH);
}
